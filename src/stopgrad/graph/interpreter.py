"""The interpreter, which runs operations in order over any array library.

NumPy, XLA and immediate evaluation each provide a :class:`Backend`. An :class:`Observer` can see or change
what operations compute, also in bodies. Lowerings with a parameter ``run`` get a function that runs bodies;
those with a parameter ``types`` get the inferred types.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from stopgrad.base.arrays import Array, Namespace
from stopgrad.base.errors import EngineError, InternalError, StopgradError
from stopgrad.base.garbage import without_gc
from stopgrad.base.namespaces import NUMPY
from stopgrad.base.types import TensorType, map_sizes, sized
from stopgrad.graph.body import Body, walk
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.op import Lower, Lowered, Lowering, Op, Unsupported

T = TypeVar("T")
Run = Callable[[Sequence[Any]], list[Any]]
"""Computes the values of outputs from those of inputs."""
RunBody = Callable[[Body, Sequence[Any]], list[Any]]
"""Computes the results of a body from the values of its inputs."""


class Backend(Protocol):
    """What the interpreter needs of an engine."""

    name: str

    @property
    def namespace(self) -> Namespace:
        """The functions that lowerings use."""
        ...

    def array(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """A lowering's result as an array of the inferred dtype."""
        ...


class NumPyBackend:
    """NumPy, the reference."""

    name = "numpy"
    namespace = NUMPY

    def array(self, value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.asarray(value, dtype)


NUMPY_BACKEND = NumPyBackend()


class Region(NamedTuple):
    """Operations that one function of arrays computes together. No path leaves the region and comes back.

    Attributes:
        operations: operations of one graph, in order.
        inputs: the operands of the function.
        outputs: its results: all outputs that are used outside.
        function: maps arrays to a sequence of arrays.
    """

    operations: Sequence[Operation]
    inputs: Sequence[Output]
    outputs: Sequence[Output]
    function: Callable[..., Sequence[Any]]


Regions = Callable[[Sequence[Operation], Sequence[Output]], Sequence[Region]]
"""Finds the regions of a graph, from its operations and its results."""


Step = Callable[..., Sequence[Any]]
"""An operation as a function from arrays of its inputs to arrays of all its outputs."""


class Observer:
    """Wraps operations as they run, also in the bodies of loops and branches.

    This class changes nothing; subclasses override its methods. Both methods are called when a program is
    prepared, and what they return runs each time. An observer may replace arrays by objects of its own:
    operations that run bodies pass them on. Operations of a :class:`Region` are not observed.

    Attributes:
        sizes: the sizes by name, for a graph with symbolic ones.
    """

    sizes: Mapping[str, int] | None = None

    def around(self, op: Operation, plain: Callable[[], Step]) -> Step | None:
        """What runs in an operation's place; None for the operation itself, which *plain* prepares."""
        return None

    def inside(self, op: Operation, body: Body, run: Run) -> Run:
        """What runs in the place of a body of an operation."""
        return run


Prepared = Callable[..., Any]
"""An operation as a function of arrays only: it returns that of one output, or all of several."""


class Types(NamedTuple):
    """The inferred types of an operation, as a lowering sees them."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]


def lowering(definition: type[Op], engine: str) -> Lowering:
    """A definition's own form for an engine, or else its lowering over array namespaces."""
    lower: Lowering = getattr(definition, engine, definition.lower)
    return lower


@functools.lru_cache(4096)
def _asks_for(function: Lower) -> tuple[bool, bool, bool]:
    """Whether a lowering has the parameters ``run``, ``types`` and ``accumulate``."""
    parameters = inspect.signature(function).parameters
    return "run" in parameters, "types" in parameters, "accumulate" in parameters


def _is_narrow(x: TensorType) -> bool:
    return x.dtype.is_floating and x.dtype.itemsize == 2


def _widened(function: Lower, narrow: Sequence[bool]) -> Lower:
    """A lowering that gets some of its operands in float32. The backend rounds its result."""

    def in_float32(xp: Namespace, *arrays: Array, **attributes: object) -> Lowered:
        # Engines may keep arrays wider than their dtype: these stay as they are.
        pairs = zip(arrays, narrow, strict=True)
        wide = [x.astype(np.float32) if is_narrow and x.dtype.itemsize == 2 else x for x, is_narrow in pairs]
        return function(xp, *wide, **attributes)

    return in_float32


def prepared(
    definition: type[Op],
    values: Sequence[Any],
    types: Types,
    backend: Backend,
    what: Callable[[], str],
    run: RunBody | None = None,
) -> Prepared:
    """An operation as a function of arrays only. Raises if there is none, and says why.

    *run* runs its bodies; unless given, the same backend does, operation by operation.
    """
    function = lowering(definition, backend.name)
    if isinstance(function, Unsupported):
        raise EngineError(f"the {backend.name} engine cannot compute {what()}: {function.reason}")
    attributes = dict(zip(definition.attributes, values, strict=True))
    runs, typed, adds = _asks_for(function)
    narrow = [_is_narrow(x) for x in types.inputs] if definition.rounds_once else []
    if runs:
        attributes["run"] = run or _Bodies(_Way(backend))
    if typed:
        attributes["types"] = types
    if adds:
        attributes["accumulate"] = np.float32 if any(narrow) else None
    elif any(narrow):
        function = _widened(function, narrow)
    return functools.partial(function, backend.namespace, **attributes)


class _Way(NamedTuple):
    """How the operations of a graph and of its bodies are computed."""

    backend: Backend
    regions: Regions | None = None
    observer: Observer | None = None


class _Bodies:
    """Runs bodies for the lowering of an operation, and prepares each of them once."""

    def __init__(self, way: _Way, op: Operation | None = None) -> None:
        self._way, self._op = way, op
        self._ready: dict[Body, Run] = {}

    def __call__(self, body: Body, arrays: Sequence[Any]) -> list[Any]:
        run = self._ready.get(body)
        if run is None:
            run = _without_ends(program(body.inputs, body.ends, *self._way), body)
            if self._op is not None and self._way.observer is not None:
                run = self._way.observer.inside(self._op, body, run)
            self._ready[body] = run
        return run(arrays)


def _without_ends(run: Run, body: Body) -> Run:
    """A run of a body that returns its results alone."""
    count = len(body.results)
    return (lambda arrays: run(arrays)[:count]) if body.graph.acting else run


class _Step(NamedTuple):
    """An operation to run, with the slots that it reads and writes, and those that it reads last."""

    op: Operation
    function: Prepared
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    dtypes: tuple[Any, ...]
    dead: tuple[int, ...]


def program(
    inputs: Sequence[Output],
    outputs: Sequence[Output],
    backend: Backend,
    regions: Regions | None = None,
    observer: Observer | None = None,
) -> Run:
    """A function that computes *outputs* from *inputs*, operation by operation, over a backend's arrays.

    The operations of each of the *regions* are one step; an *observer* wraps the others. The same goes for
    bodies.
    """
    return _Program(inputs, outputs, _Way(backend, regions, observer)).run


class _Program:
    """The steps that compute outputs from inputs, and how they are run.

    Attributes:
        steps: the steps, in order.
        given: the number of inputs, which have the first slots.
        count: the number of slots.
        results: the slots of the outputs.
    """

    def __init__(self, inputs: Sequence[Output], outputs: Sequence[Output], way: _Way) -> None:
        slots = {x: i for i, x in enumerate(inputs)}
        self.given = len(inputs)
        self.steps = without_gc(_steps, slots, inputs, outputs, way)
        self.count, self.results = len(slots), [slots[y] for y in outputs]
        self._backend = way.backend

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The values of the outputs: one step after the other."""
        values: list[Any] = [None] * self.count
        values[: len(arrays)] = arrays
        convert = self._backend.array
        for op, function, reads, writes, dtypes, dead in self.steps:
            try:
                computed = function(*[values[i] for i in reads])
                if len(writes) == 1:
                    values[writes[0]] = convert(computed, dtypes[0])
                else:
                    for i, value, dtype in zip(writes, computed, dtypes, strict=True):
                        values[i] = convert(value, dtype)
                    value = None  # Else it would be kept until the next step.
            except Exception as error:
                named = failed(describe(op), self._backend.name, error)
                if named is error:  # An error must not be its own cause.
                    raise
                raise named from error
            for i in dead:
                values[i] = None
        return [values[i] for i in self.results]

    def written(self) -> Callable[..., list[Any]]:
        """A function of NumPy's arrays that does the same, written out: a line for each step."""
        names: dict[str, Any] = {"array": np.asarray}
        lines = [f"def run({', '.join([f'v{i}' for i in range(self.given)])}):"]
        for n, (_, function, reads, writes, dtypes, dead) in enumerate(self.steps):
            names[f"f{n}"] = function
            called = f"f{n}({', '.join([f'v{i}' for i in reads])})"
            names |= {f"d{n}_{k}": dtype for k, dtype in enumerate(dtypes)}
            if len(writes) == 1:
                parts = [f"v{writes[0]} = array({called}, d{n}_0)"]
            else:
                parts = [f"[{', '.join([f'v{i}' for i in writes])}] = {called}"]
                parts += [f"v{i} = array(v{i}, d{n}_{k})" for k, i in enumerate(writes)]
            lines.append("; ".join([*parts, *[f"v{i} = None" for i in dead]]))
        lines.append(f"return [{', '.join([f'v{i}' for i in self.results])}]")
        # In a file of the package's, as places in the user's code are told from ours by their files.
        exec(compile("\n    ".join(lines), f"{__file__}:written", "exec"), names)  # noqa: S102
        run: Callable[..., list[Any]] = names["run"]
        code = run.__code__

        def named(*arrays: object) -> list[Any]:
            try:
                return run(*arrays)
            except Exception as error:
                trace = error.__traceback__
                while trace is not None and trace.tb_frame.f_code is not code:
                    trace = trace.tb_next
                step = -1 if trace is None else trace.tb_lineno - _FIRST_LINE
                if not 0 <= step < len(self.steps):
                    raise
                explained = failed(describe(self.steps[step].op), self._backend.name, error)
                if explained is error:
                    raise
                raise explained from error

        return named


_FIRST_LINE = 2
"""The line of the first step in a function that is written out."""


def computation(
    inputs: Sequence[Output],
    outputs: Sequence[Output],
    regions: Regions | None = None,
    observer: Observer | None = None,
) -> Run:
    """A function that computes *outputs* from *inputs* with NumPy, without its warnings."""
    return functools.partial(quietly, program(inputs, outputs, NUMPY_BACKEND, regions, observer))


WRITTEN = 1000
"""The most steps of a program that is written out."""


def compiled(
    inputs: Sequence[Output], outputs: Sequence[Output], regions: Regions | None = None
) -> Callable[..., list[Any]]:
    """Like :func:`computation`, for what is called often: a function of the arrays, one by one.

    Where no operation has bodies or acts, and there are not too many, it is written out, which takes 9 µs a
    step, and then half the time on small arrays. Then it runs in a context of its own, not in its caller's.
    """
    program = _Program(inputs, outputs, _Way(NUMPY_BACKEND, regions))
    if len(program.steps) > WRITTEN or any(step.op.definition.may_act for step in program.steps):
        return lambda *arrays: quietly(program.run, arrays)
    run = program.written()
    return lambda *arrays: QUIET.copy().run(run, *arrays)


def _steps(
    slots: dict[Output, int], inputs: Sequence[Output], outputs: Sequence[Output], way: _Way
) -> list[_Step]:
    fed = {x.op for x in inputs}
    operations = [op for op in outputs[0].op.graph.subgraph_to(outputs) if op not in fed] if outputs else []
    units = _units(operations, [] if way.regions is None else way.regions(operations, outputs), way)
    for unit in units:
        for y in unit.outputs:
            slots[y] = len(slots)
    last_use = {slots[x]: n for n, unit in enumerate(units) for x in (*unit.outputs, *unit.inputs)}
    result_slots = {slots[y] for y in outputs}
    dead: dict[int, tuple[int, ...]] = {}
    for slot, n in last_use.items():
        if slot not in result_slots:
            dead[n] = (*dead.get(n, ()), slot)
    dtypes: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # Equal tuples are shared.
    return [
        _Step(
            unit.operations[0],
            unit.function,
            tuple([slots[x] for x in unit.inputs]),
            tuple([slots[y] for y in unit.outputs]),
            dtypes.setdefault(key := tuple([y.dtype.numpy for y in unit.outputs]), key),
            dead.get(n, ()),
        )
        for n, unit in enumerate(units)
    ]


def _units(operations: Sequence[Operation], together: Sequence[Region], way: _Way) -> Sequence[Region]:
    """The regions, with each other operation as a region of its own, in topological order.

    Their functions return a single array without a tuple, as lowerings do.
    """
    home: dict[Operation, Region] = {}
    observer = way.observer
    for region in together:
        bare = region._replace(function=_bare(region.function, len(region.outputs)))
        home.update(dict.fromkeys(region.operations, bare))
    functions: dict[Any, Prepared] = {}  # Shared by operations that differ only in their operands.
    for op in operations:
        if op not in home:
            if observer is None:
                function = _shared(op, way, functions)
            else:
                function = observed(op, way.backend, observer, way.regions)
            home[op] = Region((op,), op.inputs, op.outputs, function)
    if all(len(region.operations) == 1 for region in together):
        return [home[op] for op in operations]
    units = {id(region): region for region in home.values()}
    needs = {key: {id(home[x.op]) for x in region.inputs if x.op in home} for key, region in units.items()}
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError:
        raise InternalError("a region of operations depends on itself through operations outside") from None
    # In the order of the graph as far as possible, because other orders keep more values.
    place = {key: region.operations[-1].id for key, region in units.items()}
    ready: list[tuple[int, int]] = []
    ordered = []
    while sorter.is_active():
        for key in sorter.get_ready():
            heappush(ready, (place[key], key))
        key = heappop(ready)[1]
        ordered.append(units[key])
        sorter.done(key)
    return ordered


def _bare(function: Step, count: int) -> Prepared:
    return function if count != 1 else lambda *arrays: function(*arrays)[0]


def _shared(op: Operation, way: _Way, functions: dict[Any, Prepared]) -> Prepared:
    types = _types_of(op)
    same = op.definition, op.definition.identity(op.values), types
    function = functions.get(same)
    if function is None:
        function = functions[same] = _lowered(op, op.values, types, way)
    return function


def observed(op: Operation, backend: Backend, observer: Observer, regions: Regions | None = None) -> Prepared:
    """One operation as a program runs it with an observer: a function of arrays."""
    way = _Way(backend, regions, observer)
    sizes, count = observer.sizes, len(op.outputs)

    def lowered() -> Prepared:
        if sizes is None:
            return _lowered(op, op.values, _types_of(op), way)
        types = Types(*[tuple([sized(type, sizes) for type in some]) for some in _types_of(op)])
        return _lowered(op, op.definition.sized(op.values, sizes), types, way)

    def plain() -> Step:
        function = lowered()
        return function if count != 1 else lambda *arrays: (function(*arrays),)

    step = observer.around(op, plain)
    return lowered() if step is None else _bare(step, count)


def _types_of(op: Operation) -> Types:
    return Types(tuple([x.type for x in op.inputs]), tuple([y.type for y in op.outputs]))


def _lowered(op: Operation, values: Sequence[Any], types: Types, way: _Way) -> Prepared:
    run = _Bodies(way, op) if op.definition.has_bodies else None
    return prepared(op.definition, values, types, way.backend, lambda: describe(op), run)


def failed(what: str, engine: str, error: Exception) -> StopgradError:
    """The error for an operation whose form for an engine fails."""
    if isinstance(error, (EngineError, InternalError)) and " engine could not compute " in error.message:
        return error  # It comes from a body, and names the operation there.
    why = error.message if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
    kind = InternalError if isinstance(error, _DEFECTS) else EngineError
    return kind(f"the {engine} engine could not compute {what}: {why}")


_DEFECTS = (AttributeError, NameError, TypeError, LookupError, AssertionError)
"""Errors that no engine raises because of its operands or of something that it lacks."""


def interpret(
    outputs: Sequence[Output], feeds: dict[Output, np.ndarray[Any, Any]], regions: Regions | None = None
) -> list[Any]:
    """Compute outputs with NumPy at once, from the values of the placeholders that they need."""
    return computation(list(feeds), outputs, regions)(list(feeds.values()))


def constant_value(y: Output) -> np.ndarray[Any, Any] | None:
    """The value of an output; None if it depends on feeds, on a session or on unknown sizes."""
    unknown: list[Any] = []
    for op in walk(y.op.graph.subgraph_to([y])):
        if op.definition.fed or op.definition.stateful:
            return None
        map_sizes(op.values, unknown.append)
    return None if unknown else np.asarray(interpret([y], {})[0])


def quietly(compute: Callable[..., T], *args: object) -> T:
    """Call a function without NumPy's warnings.

    It runs in a copy of the context, to which that setting belongs: so no interrupt can leave the caller's
    warnings off.
    """
    return copy_context().run(_quietly, compute, args)


QUIET = Context()
"""A context without NumPy's warnings. To copy it takes a tenth of the time that changing one takes."""
QUIET.run(np.seterr, all="ignore")


def _quietly(compute: Callable[..., T], args: tuple[object, ...]) -> T:
    with np.errstate(all="ignore"):
        return compute(*args)
