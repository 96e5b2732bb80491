"""Meshes: grids of devices with named axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, EngineError
from stopgrad.base.namespaces import require
from stopgrad.graph.builder import Block, current
from stopgrad.graph.operands import shorten
from stopgrad.graph.sharding import show_axes, show_spec
from stopgrad.scale.processes import process_count, process_index

if TYPE_CHECKING:
    import jax

_JAX = ("jax", "a mesh of devices", "xla")


class Mesh(Block):
    """Devices in a grid, over whose named axes tensors are divided.

    Inside ``with mesh:`` it is the current mesh: shardings are checked against it at once, and sessions and
    functions that are made there run on it.

    Args:
        mesh: a mesh of JAX's, whose devices are taken. Unless given, the devices of all processes are taken,
            in JAX's own order.
        axes: the number of devices along each axis, by name; for one of them -1: all that remain.

    Attributes:
        axes: the number of devices along each axis, by name, in order.
        size: the number of devices.

    Raises:
        ArgumentError: a number below 1, or no axis.

    Examples:
        >>> mesh = sg.Mesh(data=4, model=2)
        >>> mesh, mesh.size, mesh.axes["data"]
        (Mesh(data=4, model=2), 8, 4)
        >>> with mesh, sg.Graph().as_default():
        ...     sg.placeholder(sg.float32, [6], sharding=("data",))
        Traceback (most recent call last):
        ...
        stopgrad.errors.ShapeError: ...
    """

    size: int

    def __init__(self, mesh: object = None, /, **axes: int) -> None:
        super().__init__()
        self._devices: Any = None
        if mesh is not None:
            if axes or not (hasattr(mesh, "axis_names") and hasattr(mesh, "devices")):
                raise ArgumentError(
                    f"Mesh: takes sizes by name, as data=4, or a mesh of JAX's; not {shorten(mesh)}"
                )
            self._devices = mesh.devices
            axes = dict(zip(mesh.axis_names, mesh.devices.shape, strict=True))
        if not axes:
            raise ArgumentError("Mesh: has no axis; name at least one, as in Mesh(data=4)")
        for name, size in axes.items():
            if not is_whole(size) or (whole(size) < 1 and whole(size) != -1):
                raise ArgumentError(f"Mesh: {name} is a number of devices, at least 1, not {shorten(size)}")
        self.axes: Mapping[str, int] = MappingProxyType(_filled({n: whole(s) for n, s in axes.items()}))
        self.size = 1
        for size in self.axes.values():
            self.size *= size

    @classmethod
    def of(cls, mesh: object) -> Mesh | None:
        """Our mesh from one of ours or of JAX's; for None the current mesh, if there is one."""
        if mesh is None:
            ambient: Mesh | None = current().mesh
            return ambient
        return mesh if isinstance(mesh, cls) else cls(mesh)

    def changes(self) -> dict[str, Any]:
        return {"mesh": self}

    def native(self) -> jax.sharding.Mesh:
        """JAX's mesh of these devices.

        Raises:
            EngineError: there are too few devices; or some of several processes would have none.
        """
        jax = require(*_JAX)
        automatic = (jax.sharding.AxisType.Auto,) * len(self.axes)
        names = tuple(self.axes)
        if self._devices is not None:
            return jax.sharding.Mesh(self._devices, names, axis_types=automatic)
        devices = jax.devices()
        if self.size > len(devices):
            kind = devices[0].platform
            cure = (
                "; on a CPU, 'stopgrad launch -n 1 --devices N', or the variable JAX_NUM_CPU_DEVICES set "
                "before JAX starts, makes N virtual ones"
                if kind == "cpu"
                else ""
            )
            raise EngineError(
                f"the mesh {show_axes(self.axes)} takes {self.size} devices, and there "
                f"{'is' if len(devices) == 1 else 'are'} {len(devices)} ({kind}); take a smaller one{cure}"
            )
        if process_count() > 1 and self.size < len(devices):
            raise EngineError(
                f"the mesh {show_axes(self.axes)} takes {self.size} of the {len(devices)} devices of "
                f"{process_count()} processes; a mesh of several processes takes all, as with -1 for one axis"
            )
        sizes = tuple(self.axes.values())
        return jax.make_mesh(sizes, names, axis_types=automatic, devices=devices[: self.size])

    def part(self, *names: str) -> tuple[int, int]:
        """The part of a batch that this process feeds, and the number of parts, with these axes dividing it.

        Args:
            names: axes of the mesh, as a sharding names them for the batch's first axis.

        Returns:
            A part's number and the number of parts: ``process_index`` and ``process_count`` of
            ``sg.data.batches``. Processes that hold the same part along these axes have the same number.

        Raises:
            ArgumentError: an axis that the mesh does not have, or none named.
            EngineError: the parts on the devices of this process are not contiguous.

        Examples:
            >>> sg.Mesh(data=4, model=2).part("data")
            (0, 1)
        """
        if not names or not self.axes.keys() >= {*names}:
            raise ArgumentError(
                f"Mesh.part: takes the axes that divide a batch, of {show_axes(self.axes)}, not {names!r:.60}"
            )
        if process_count() == 1:
            return 0, 1
        devices = self.native().devices if self._devices is None else self._devices
        sizes = [self.axes[name] for name in names]
        along = [list(self.axes).index(name) for name in names]
        held: dict[int, set[int]] = {}
        for position in np.ndindex(devices.shape):
            index = int(np.ravel_multi_index([position[axis] for axis in along], sizes))
            held.setdefault(devices[position].process_index, set()).add(index)
        mine = held.get(process_index(), set())
        first, count, total = min(mine, default=0), len(mine), math.prod(sizes)
        if (
            any(len(parts) != count for parts in held.values())
            or mine != {*range(first, first + count)}
            or first % count
        ):
            raise EngineError(
                f"Mesh.part: along {show_spec(names)} the devices of this process are at {sorted(mine)} of "
                f"{total}, not an equal part in one piece; give Mesh a jax.sharding.Mesh with the devices in "
                "the order of their processes"
            )
        return first // count, total // count

    def __repr__(self) -> str:
        return f"Mesh({', '.join([f'{name}={size}' for name, size in self.axes.items()])})"


def _filled(axes: dict[str, int]) -> dict[str, int]:
    """The sizes, with -1 replaced by the number of devices that remain."""
    open_ones = [name for name, size in axes.items() if size == -1]
    if not open_ones:
        return axes
    if len(open_ones) > 1:
        raise ArgumentError(f"Mesh: {' and '.join(open_ones)} are -1; one axis may take what is left")
    rest = 1
    for name, size in axes.items():
        rest *= 1 if name == open_ones[0] else size
    count = require(*_JAX).device_count()
    if count % rest:
        raise ArgumentError(f"Mesh: {count} devices are no multiple of {rest}; take other sizes")
    return {**axes, open_ones[0]: count // rest}
