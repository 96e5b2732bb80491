"""How tensors are divided over a mesh: what operations say of it, and an operation that says no more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stopgrad.graph import defining as d
from stopgrad.graph.body import walk
from stopgrad.graph.defining import (
    ArrayLike,
    Op,
    Operation,
    Output,
    Shape,
    ShapeError,
    StopgradError,
    Tensor,
    TensorType,
)
from stopgrad.graph.sharding import FREE, Spec, check_spec, show_spec, spec_of

if TYPE_CHECKING:
    from stopgrad.scale.meshes import Mesh

__all__ = ["shard"]


def divided(type: TensorType, sharding: Spec) -> TensorType:
    """A type, where the sharding has an entry for each of its axes or says nothing."""
    if sharding and len(sharding) != type.ndim:
        raise ShapeError(
            f"(C1) the sharding {show_spec(sharding)} has {len(sharding)} entries; "
            f"{type!r} has {type.ndim} axes"
        )
    return type


def current_spec(sharding: Any, shape: Shape) -> Spec:
    """What a user wrote, held against the mesh for which is built."""
    spec = spec_of(sharding, len(shape))
    mesh = d.current().mesh
    if mesh is not None and len(spec) <= len(shape):
        check_spec(spec, shape, mesh.axes)
    return spec


def declared_sharding(x: Output) -> Spec:
    """How an output is divided, where its operation says so; ``()`` where it says nothing."""
    slot = x.op.definition.slots.get("sharding")
    spec: Spec = () if slot is None else x.op.values[slot[1]]
    return spec


def check_shardings(operations: Iterable[Operation], mesh: Mesh) -> None:
    """Hold what operations, and those in their bodies, say of their sharding against a mesh."""
    for op in walk(operations):
        if "sharding" in op.definition.slots:
            y = op.outputs[0]
            try:
                check_spec(declared_sharding(y), y.shape, mesh.axes)
            except StopgradError as error:
                raise type(error)(f"{d.describe(op)}: {error.message}") from None


class Shard(Op):
    """The operand itself, divided over a mesh of devices; the gradient is divided alike.

    Without a mesh, it is the identity. With one, the engine's partitioner takes it as given and divides all
    else to fit.

    Args:
        x (``input``): any tensor.
        sharding: for each axis the name of an axis of the mesh, several in a tuple, None where it
            is not divided, or ``"*"`` where that is left to the engine; JAX's PartitionSpec will do.

    Returns:
        The operand.

    Constraints:
        (C1) The sharding has an entry for each axis, or fewer: axes behind the last are not divided.

    Raises:
        ArgumentError: no sharding, or an axis that the mesh for which is built does not have.
        ShapeError: a size that is no multiple of the number of devices which divide it.

    References:
        Xu et al. 2021, GSPMD, arXiv:2105.04663.

    Examples:
        >>> with sg.Mesh(data=4, model=2), sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32, [8, 6])
        ...     sg.shard(x, ("data", "model"))
        <Shard:0 float32[8, 6]>
    """

    @staticmethod
    def infer(x: TensorType, *, sharding: Spec) -> TensorType:
        return divided(x, sharding)

    gradient = {"x": lambda g, op: shard(g, op.sharding)}
    batch = d.along(sharding=lambda size: FREE)
    lower = lambda xp, x, sharding: x
    samples = [d.sample(d.floats("n", 2), sharding=("data", None)), d.sample(d.bools(3), sharding=("*",))]


@d.builds(Shard)
def shard(input: ArrayLike, sharding: Any, name: str | None = None) -> Tensor:
    shape = input.shape if hasattr(input, "shape") else d.as_array(input).shape
    return d.apply(Shard, (input,), (current_spec(sharding, shape),), name)
