"""How tensors are divided over a mesh: what operations declare, and an operation that only declares it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

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
    """The type itself, after a check that the sharding is empty or has an entry for each axis."""
    if sharding and len(sharding) != type.ndim:
        raise ShapeError(
            f"(C1) the sharding {show_spec(sharding)} has {len(sharding)} entries; "
            f"{type!r} has {type.ndim} axes"
        )
    return type


def current_spec(sharding: object, shape: Shape) -> Spec:
    """The sharding that a user wrote, checked against the current mesh."""
    spec = spec_of(sharding, len(shape))
    mesh = d.current().mesh
    if mesh is not None and len(spec) <= len(shape):
        check_spec(spec, shape, mesh.axes)
    return spec


def declared_sharding(x: Output) -> Spec:
    """The sharding that an output's operation declares; ``()`` if it declares none."""
    spec: Spec = x.op.sharding if "sharding" in x.op.definition.slots else ()
    return spec


def check_shardings(operations: Iterable[Operation], mesh: Mesh) -> None:
    """Check the shardings that operations, and those in their bodies, declare against a mesh."""
    for op in walk(operations):
        if "sharding" in op.definition.slots:
            y = op.outputs[0]
            try:
                check_spec(declared_sharding(y), y.shape, mesh.axes)
            except StopgradError as error:
                raise type(error)(f"{d.describe(op)}: {error.message}") from None


class Shard(Op):
    """The operand itself, divided over a mesh of devices; the gradient is divided the same way.

    Without a mesh, it is the identity. With one, the engine's partitioner keeps this division and divides
    everything else to fit.

    Args:
        x (``input``): any tensor.
        sharding: for each axis the name of an axis of the mesh, a tuple of several, None if it is not
            divided, or ``"*"`` to leave it to the engine; or JAX's PartitionSpec.

    Returns:
        The operand.

    Constraints:
        (C1) The sharding has an entry for each axis, or fewer: axes after the last entry are not divided.

    Raises:
        ArgumentError: there is no sharding, or the current mesh does not have one of its axes.
        ShapeError: a size is no multiple of the number of devices that divide it.

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

    gradient: d.Gradient = {"x": lambda g, op: shard(g, op.sharding)}
    batch = d.along(sharding=lambda size: FREE)
    lower: d.Lowering = lambda xp, x, sharding: x
    samples: d.Samples = [
        d.sample(d.floats("n", 2), sharding=("data", None)),
        d.sample(d.bools(3), sharding=("*",)),
    ]


@d.builds(Shard)
def shard(input: ArrayLike, sharding: object, name: str | None = None) -> Tensor:
    shape = input.shape if hasattr(input, "shape") else d.as_array(input).shape
    return d.apply(Shard, (input,), (current_spec(sharding, shape),), name)
