"""The memory of a training's state, and the steps that change it: all of it or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from stopgrad_trainer.compiled import Kernel
from stopgrad_trainer.contents import HELD, Contents, Function, Port, Update, dtype_of
from stopgrad_trainer.exported import Array
from stopgrad_trainer.needed import error
from stopgrad_trainer.runtime import CPU, Runtime, call_in_c
from stopgrad_trainer.sharing import Call, Calls

Fill = Callable[[Mapping[str, Array]], None]
"""Writes the first state into arrays by name."""

BLOCK = 1 << 15
"""How many elements of each tensor are updated at a time: what a function computes stays in the cache."""
COMPILED_BLOCK = 1 << 18
"""The same for compiled functions, which keep nothing: so many that several threads have enough to share."""
WORTH_COMPILING = 1 << 24
"""From so many elements on, compiling, which takes 2.5 s, is won back within seventy steps."""
FEW = 8
"""With fewer blocks for each thread, another thread costs more than it spares."""
_ALIGNED = 64
"""Bytes, to a multiple of which tensors begin."""


def memory_of(
    contents: Contents, runtime: Runtime, fill: Fill, compiled: bool | None = None
) -> Doubled | InPlace:
    """The memory of a state: held once where the folder has the step divided for that, else twice.

    Args:
        contents, runtime: of the folder.
        fill: writes the first state.
        compiled: whether a step in place is compiled; None leaves it to the size of the state.

    Raises:
        EngineError: it is to be compiled, and is not made in place.
    """
    if contents.update is not None and runtime.providers == [CPU]:
        return InPlace(contents, contents.update, runtime, fill, compiled)
    if compiled:
        raise error(
            "EngineError",
            "compiled=True: the steps of this folder are not made element by element, or not on the CPU; "
            "leave it out",
        )
    return Doubled(contents, runtime, fill)


def _loss_of(contents: Contents, graph: str) -> Array:
    loss = next(port for port in contents.outputs[graph] if port.role == "loss")
    return np.zeros((), dtype_of(loss.dtype))


class Doubled:
    """A state that is held twice: a step reads one and writes the other, and then the two are swapped.

    Attributes:
        torn: whether a step has ended in the middle of its changes; here never.
    """

    torn = False

    def __init__(self, contents: Contents, runtime: Runtime, fill: Fill) -> None:
        self._contents, self._runtime = contents, runtime
        pairs = [{name: _like(port) for name, port in contents.state.items()} for _ in range(2)]
        fill(pairs[0])
        self._pairs, self._now = pairs, 0
        self._merged: list[dict[str, Array]] = [{}, {}]
        self._bindings: list[Any] = [None, None]
        self._loss = _loss_of(contents, "train_step")

    @property
    def arrays(self) -> dict[str, Array]:
        """The state, by name."""
        return self._pairs[self._now]

    @property
    def merged(self) -> dict[str, Array]:
        """For weights that were computed from this state; a step empties it."""
        return self._merged[self._now]

    def step(self, fed: Mapping[str, Array]) -> float:
        """Make a step with a batch and a learning rate; returns the loss before it."""
        session = self._runtime.session("train_step")
        binding = self._binding(session)
        for name, array in fed.items():
            binding.bind_cpu_input(name, array)
        self._runtime.run("train_step", lambda: session.run_with_iobinding(binding))
        loss = float(self._loss)
        self._merged[1 - self._now].clear()
        self._now = 1 - self._now  # Last: until here an interrupt leaves the old state.
        return loss

    def _binding(self, session: Any) -> Any:
        """The binding of a step's inputs and outputs to the two copies of the state."""
        if self._bindings[self._now] is None:
            old, new = self._pairs[self._now], self._pairs[1 - self._now]
            binding = session.io_binding()
            for name, array in old.items():
                binding.bind_ortvalue_input(name, self._runtime.value(array))
            for port in self._contents.outputs["train_step"]:
                array = new[port.updates] if port.updates else self._loss
                binding.bind_ortvalue_output(port.name, self._runtime.value(array))
            self._bindings[self._now] = binding
        return self._bindings[self._now]


class InPlace:
    """A state that is held once, and renewed in place, block by block.

    A step computes the gradients first, and all scalars; nothing has changed until then. Renewing is then one
    call of C, within which no handler of a signal runs; threads share the blocks. The tensors of a function
    lie in one array. The runtime computes a function, or numba has compiled it.

    Attributes:
        arrays: the state, by name; a step writes into them.
        merged: for weights that were computed from this state; a step empties it.
    """

    def __init__(
        self, contents: Contents, update: Update, runtime: Runtime, fill: Fill, compiled: bool | None = None
    ) -> None:
        self._compiled = compiled
        for function in update.functions if compiled else ():
            runtime.kernel(function.graph)  # Whoever asks for it hears at once what is missing.
        self._contents, self._update, self._runtime = contents, update, runtime
        self.arrays: dict[str, Array] = {}
        self.merged: dict[str, Array] = {}
        self._gradients: dict[str, Array] = {}
        self._flat = [self._lay_out(function) for function in update.functions]
        laid_out = self.arrays
        self.arrays = {n: laid_out[n] if n in laid_out else _like(port) for n, port in contents.state.items()}
        fill(self.arrays)
        self._loss = _loss_of(contents, update.backward)
        self._steps: list[Any] | None = None
        self._alive: list[Any] = []
        self._under_way = Calls()
        self._threads = runtime.threads

    def _lay_out(self, function: Function) -> dict[str, Array]:
        """The arrays in which a function's tensors lie, by the names of its inputs."""
        ports = [port for port in self._contents.inputs[function.graph] if port.role != "scalar"]
        shapes = [self._contents.state[members[ports[0].name]].shape for members in function.members]
        sizes = [math.prod(int(side) for side in shape) for shape in shapes]
        ends = np.cumsum([0, *[-(-size // _ALIGNED) * _ALIGNED for size in sizes]])
        arrays = {port.name: _zeros(int(ends[-1]), dtype_of(port.dtype)) for port in ports}
        for members, shape, size, start in zip(function.members, shapes, sizes, ends, strict=False):
            for port in ports:
                place = self._gradients if port.role == "gradient" else self.arrays
                place[members[port.name]] = arrays[port.name][start : start + size].reshape(shape)
        return arrays

    @property
    def torn(self) -> bool:
        """Whether a step has ended in the middle of its changes, by an error of the runtime."""
        return self._under_way.torn

    def step(self, fed: Mapping[str, Array]) -> float:
        """Make a step with a batch and a learning rate; returns the loss before it."""
        if self._steps is None:
            self._steps = self._bound()
        backward, scalars, renewing, last = self._steps
        for graph, (session, binding) in ((self._update.backward, backward), (self._update.scalars, scalars)):
            for port in self._contents.inputs[graph]:
                if port.role not in (*HELD, "gradient"):
                    binding.bind_cpu_input(port.name, fed[port.name])
            self._runtime.run(graph, lambda: session.run_with_iobinding(binding))
        loss = float(self._loss)
        threads = min(self._threads, max(1, len(renewing) // FEW))
        self._under_way = calls = Calls(renewing, [*last, (self.merged.clear,)], threads)
        graph = self._update.functions[0].graph if self._update.functions else self._update.scalars
        self._runtime.run(graph, calls.make)
        return loss

    def _bound(self) -> list[Any]:
        """The two sessions with bindings that a step begins with, and the calls that renew the state.

        Those of blocks are made in any order, the last ones after them.
        """
        update = self._update
        scalars: dict[str, Array] = {}
        copies: list[Call] = []
        first = [self._graph(name, scalars, copies) for name in (update.backward, update.scalars)]
        calls: list[Call] = []
        for function, flat in zip(update.functions, self._flat, strict=True):
            kernel = self._kernel(function)
            if kernel is None:
                calls += self._blocks(function, flat, scalars)
            else:
                calls += self._compiled_blocks(kernel, function, flat, scalars)
        return [*first, calls, copies]

    def _kernel(self, function: Function) -> Kernel | None:
        """The compiled form of a function; None if the runtime computes it."""
        if self._compiled:
            return self._runtime.kernel(function.graph)
        if self._compiled is None and sum(map(_length, self._flat)) >= WORTH_COMPILING:
            with suppress(Exception):  # Without numba, or where it fails, the runtime does the same.
                return self._runtime.kernel(function.graph)
        return None

    def _compiled_blocks(
        self, kernel: Kernel, function: Function, flat: Mapping[str, Array], scalars: Mapping[str, Array]
    ) -> list[Call]:
        """The calls of a compiled function that renew its tensors."""
        arrays = [
            scalars[port.name] if port.role == "scalar" else flat[port.name]
            for port in self._contents.inputs[function.graph]
        ]
        starts = range(0, _length(flat), COMPILED_BLOCK)
        return [(kernel, *(x[i : i + COMPILED_BLOCK] if x.ndim else x for x in arrays)) for i in starts]

    def _graph(self, graph: str, scalars: dict[str, Array], copies: list[Call]) -> tuple[Any, Any]:
        """A session and a binding of what it reads and writes, which is not yet the state."""
        session = self._runtime.session(graph)
        binding = session.io_binding()
        for port in self._contents.inputs[graph]:
            if port.role in HELD:
                binding.bind_ortvalue_input(port.name, self._runtime.value(self.arrays[port.name]))
            elif port.role == "gradient":
                binding.bind_ortvalue_input(port.name, self._runtime.value(self._gradients[port.of]))
        for port in self._contents.outputs[graph]:
            if port.role == "loss":
                array = self._loss
            elif port.role == "gradient":
                array = self._gradients.setdefault(port.of, _like(port))
            elif port.updates:
                array = np.zeros_like(self.arrays[port.updates])
                copies.append((np.ndarray.__setitem__, self.arrays[port.updates], ..., array))
            else:
                array = scalars[port.name] = _like(port)
            binding.bind_ortvalue_output(port.name, self._runtime.value(array))
        return session, binding

    def _blocks(
        self, function: Function, flat: Mapping[str, Array], scalars: Mapping[str, Array]
    ) -> list[Call]:
        """The calls that renew the tensors of a function."""
        session, value = self._runtime.session(function.graph), self._runtime.value
        inputs, outputs = self._contents.inputs[function.graph], self._contents.outputs[function.graph]
        shared = {port.name: value(scalars[port.name]) for port in inputs if port.role == "scalar"}
        beside = {port.name: np.empty(BLOCK, dtype_of(port.dtype)) for port in outputs if not port.over}
        if beside:
            self._threads = 1  # Blocks use the same memory one after another.
        calls: list[Call] = []
        for start in range(0, _length(flat), BLOCK):
            parts = {name: whole[start : start + BLOCK] for name, whole in flat.items()}
            values = {name: value(part) for name, part in parts.items()}
            binding = session.io_binding()
            for port in inputs:
                binding.bind_ortvalue_input(
                    port.name, (shared if port.role == "scalar" else values)[port.name]
                )
            after: list[Call] = []
            for port in outputs:
                part = parts[port.updates]
                output = values[port.updates]
                if not port.over:
                    scratch = beside[port.name][: len(part)]
                    output = value(scratch)
                    after.append((np.ndarray.__setitem__, part, ..., scratch))
                binding.bind_ortvalue_output(port.name, output)
            calls += [call_in_c(session, binding), *after]
        self._alive += [shared, beside]
        return calls


def _length(flat: Mapping[str, Array]) -> int:
    return len(next(iter(flat.values())))


def _like(port: Port) -> Array:
    return np.zeros([int(side) for side in port.shape], dtype_of(port.dtype))


def _zeros(count: int, dtype: np.dtype[Any]) -> Array:
    """An array that begins at a multiple of so many bytes."""
    whole = np.zeros(count * dtype.itemsize + _ALIGNED, np.uint8)
    first = -whole.ctypes.data % _ALIGNED
    return whole[first : first + count * dtype.itemsize].view(dtype)
