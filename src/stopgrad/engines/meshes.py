"""Lets engines take meshes of other libraries, such as JAX's. Imported when the first mesh is given."""

from stopgrad.engines.protocol import Engine
from stopgrad.scale.meshes import Mesh

Engine.mesh_of = staticmethod(Mesh.of)  # type: ignore[method-assign, assignment]
