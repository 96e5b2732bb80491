"""Where arrays lie on a mesh of devices."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.errors import ShapeError
from stopgrad.base.namespaces import require
from stopgrad.engines.xla.settings import Settings
from stopgrad.graph.operands import NumpyArray, show_shape
from stopgrad.graph.sharding import FREE, Spec, check_spec, names_in
from stopgrad.scale.meshes import Mesh

if TYPE_CHECKING:
    import jax


class Placement:
    """Puts arrays on a mesh, and reads them back.

    JAX narrows 64-bit numbers by default, so everything here runs under the engine's settings.
    """

    def __init__(self, jax: ModuleType, mesh: Mesh, settings: Settings) -> None:
        self._jax, self._mesh, self._settings = jax, mesh, settings
        self._native = mesh.native()
        self._spec, self._sharding = jax.sharding.PartitionSpec, jax.sharding.NamedSharding

    @property
    def devices(self) -> list[Any]:
        """The devices of the mesh, of all processes."""
        return list(self._native.devices.flat)

    def sharding(self, spec: Spec) -> jax.sharding.NamedSharding:
        """JAX's sharding for a spec. Axes that are left to the engine are not divided."""
        return self._sharding(self._native, self._spec(*[None if entry == FREE else entry for entry in spec]))

    def constrained(self, x: Array, spec: Spec) -> Array:
        """An array, with a hint for JAX's partitioner how it is divided."""
        free = self._spec.UNCONSTRAINED
        native_spec = self._spec(*[free if entry == FREE else entry for entry in spec])
        return self._jax.lax.with_sharding_constraint(x, self._sharding(self._native, native_spec))

    def spec_of(self, x: Any) -> Spec | None:
        """How an array of JAX's is divided over this mesh; None if it is not on it."""
        sharding = getattr(x, "sharding", None)
        if not isinstance(sharding, self._sharding) or sharding.mesh != self._native:
            return None
        return tuple(sharding.spec) + (None,) * (x.ndim - len(sharding.spec))

    def hold(self, array: npt.ArrayLike, spec: Spec) -> Array:
        """Copy a whole array, which all processes have, to the mesh."""
        array = np.asarray(array)
        check_spec(spec, array.shape, self._mesh.axes)

        def part(index: tuple[slice, ...]) -> NumpyArray:
            return np.array(array[index])

        make = self._jax.make_array_from_callback
        return self._settings.fixed(True, make, array.shape, self.sharding(spec), part)

    def place(self, value: Array, spec: Spec) -> Array:
        """Put a value on the mesh. Along axes that divide the processes, each process gives its own part.

        Raises:
            ArgumentError: the mesh has no axis of this name.
            ShapeError: the size of the part cannot be divided over the devices of this process.
        """
        check_spec(spec, (None,) * len(value.shape), self._mesh.axes)
        sharding = self.sharding(spec)
        if isinstance(value, self._jax.Array):
            if value.sharding.is_equivalent_to(sharding, value.ndim):
                return value
            if self.spec_of(value) is not None:
                return self._settings.fixed(True, self._jax.device_put, value, sharding)
            value = np.asarray(value)
        shape = []
        for axis, (size, entry) in enumerate(zip(value.shape, spec or (None,) * value.ndim, strict=True)):
            here, all = self._parts(names_in(entry))
            if size % here:
                raise ShapeError(
                    f"a value of shape {show_shape(value.shape)} cannot be divided evenly along axis {axis} "
                    f"over {here} devices of this process; take a multiple"
                )
            shape.append(size // here * all)
        make = self._jax.make_array_from_process_local_data
        try:
            return self._settings.fixed(True, make, sharding, value, tuple(shape))
        except ValueError as error:
            raise ShapeError(
                f"a value of shape {show_shape(value.shape)} cannot be divided: {error}"
            ) from None

    def _parts(self, names: tuple[str, ...]) -> tuple[int, int]:
        """The number of parts into which axes of the mesh divide an array: this process's, and all."""
        grid, me = self._native.devices, self._jax.process_index()
        axes = [self._native.axis_names.index(name) for name in names]
        local = {
            tuple([position[axis] for axis in axes])
            for position in np.ndindex(grid.shape)
            if grid[position].process_index == me
        }
        return max(len(local), 1), int(np.prod([grid.shape[axis] for axis in axes], dtype=int))

    def ready(self, x: npt.ArrayLike, sharding: jax.sharding.NamedSharding) -> Array:
        """An array divided as a program expects it."""
        if isinstance(x, self._jax.Array):
            if x.sharding is sharding or x.sharding.is_equivalent_to(sharding, x.ndim):
                return x
            return self._settings.fixed(True, self._jax.device_put, x, sharding)
        return self.hold(x, tuple(sharding.spec))

    def fetched(self, value: npt.ArrayLike) -> np.ndarray[Any, Any]:
        """The whole of an array. If several processes hold its parts, all of them must call this."""
        if not isinstance(value, self._jax.Array) or value.is_fully_addressable or value.is_fully_replicated:
            return np.asarray(value)
        gather = require("jax.experimental.multihost_utils", "the xla engine", "xla").process_allgather
        whole: np.ndarray[Any, Any] = self._settings.fixed(True, lambda: gather(value, tiled=True))
        return whole
