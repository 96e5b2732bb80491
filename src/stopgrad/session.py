"""Running: sessions over graphs, and compiled Python functions."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np

from stopgrad.autodiff.tracing import is_tensor
from stopgrad.body import Body
from stopgrad.build import as_output, emit
from stopgrad.builder import default_graph
from stopgrad.engines import Compiled, Engine, engine
from stopgrad.errors import ArgumentError, FeedError, GraphError, StopgradError
from stopgrad.files import as_dtype, read_arrays, storage, write_arrays
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.operands import as_array, show_shape
from stopgrad.ops.data import Assign, Parameter, Placeholder
from stopgrad.plain import is_whole, whole
from stopgrad.rewrite import Rewritten, check_sizes, needed, prepare
from stopgrad.structure import flatten, unflatten
from stopgrad.types import TensorType, bind_sizes, dtype_of, float32, size_value

Feeds = Mapping[Any, Any]


@dataclass
class _Plan:
    """What one choice of fetches and feeds needs, and what was compiled for it, by the shapes fed."""

    fetches: list[Output]
    feeds: list[Output]
    parameters: list[Output]
    assigned: list[Output]
    assigns: list[Output]
    compiled: dict[Any, Compiled] = field(default_factory=dict)


class Session:
    """Runs operations of a graph, and holds the values of its parameters.

    Args:
        graph: None for the default graph.
        engine: the name of an engine, as ``"xla"`` or ``"numpy"``; or ``"auto"``, the best that is installed.
            When that cannot compute what is fetched, the session moves to the best that can.

    Examples:
        >>> graph = sg.Graph()
        >>> with graph.as_default():
        ...     x = sg.placeholder(sg.float32, [None], name="x")
        ...     y = sg.reduce_sum(x * x)
        >>> with sg.Session(graph) as session:
        ...     session.run(y, {x: [1.0, 2.0]})
        array(5., dtype=float32)
    """

    def __init__(self, graph: Graph | None = None, engine: str = "auto") -> None:
        found = default_graph() if graph is None else graph
        if found is not None and not isinstance(found, Graph):
            raise GraphError(
                "Session takes a graph, not "
                f"{describe(found) if isinstance(found, (Output, Operation)) else repr(found)}"
            )
        if found is None:
            raise GraphError("Session needs a graph: pass one, or open it inside 'with graph.as_default():'")
        self.graph = found
        self._auto = engine == "auto"
        self._engine = _engine(engine)
        self._values: dict[Output, Any] = {}
        self._plans: dict[Any, _Plan] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def engine(self) -> str:
        """The name of the engine that computes now."""
        return self._engine.name

    def run(self, fetches: Any, feed_dict: Feeds | None = None) -> Any:
        """Compute what is fetched.

        Args:
            fetches: an output, an operation, a name, or a nested structure of these.
            feed_dict: from outputs (placeholders or any others), operations or names to their values.

        Returns:
            NumPy arrays in the structure of fetches. Assignments among the computed operations take effect
            together, when all has been computed; every operation sees the values from before.

        Raises:
            FeedError, ShapeError, DTypeError, GraphError, EngineError; the parameters are then as they were.
        """
        self._check_open()
        leaves, spec = flatten(fetches)
        feeds = {} if feed_dict is None else feed_dict
        if not isinstance(feeds, Mapping):
            raise FeedError(
                f"Session.run: feed_dict is a dict from tensors to values, not {type(feeds).__name__}"
            )
        key = (tuple(leaves), tuple(feeds))
        try:
            plan = self._plans.get(key)
        except TypeError:
            raise GraphError(
                f"Session.run: cannot fetch {fetches!r}; fetch outputs, operations or names"
            ) from None
        if plan is None:
            plan = self._plan(leaves, list(feeds))
            self._plans[key] = plan
        asked = self._engine
        arrays = [feed_value(x, value, asked) for x, value in zip(plan.feeds, feeds.values(), strict=True)]
        signature = tuple([a.shape for a in arrays])
        with self._lock:
            compiled = plan.compiled.get(signature)
            if compiled is None:
                compiled = plan.compiled[signature] = self._compile(plan, signature)
            if self._engine is not asked:
                arrays = [np.asarray(a) for a in arrays]  # They may be the other engine's own.
            results = compiled([*[self._value(p) for p in plan.parameters], *arrays])
            count = len(plan.fetches)
            values = [_to_numpy(r) for r in results[:count]]
            self._values.update(zip(plan.assigned, results[count:], strict=True))
        return unflatten(spec, values)

    def value(self, parameter: Output) -> np.ndarray[Any, Any]:
        """A copy of the value that a parameter has now."""
        self._check_open()
        member = self._member(parameter)
        if member.op.definition is not Parameter:
            raise GraphError(f"{describe(member)} is no parameter; fetch it with Session.run")
        return np.array(self._value(member))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values of all parameters, by name, as NumPy's npz.

        The old file stays until the new is whole.
        """
        self._check_open()
        write_arrays(path, {p.op.name: np.asarray(self._value(p)) for p in self._all_parameters()})

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take the values of all parameters from a file that :meth:`save` wrote.

        All of them or, after an error, none.
        """
        self._check_open()
        stored = read_arrays(path)
        values = {}
        for p in self._all_parameters():
            array = stored.get(p.op.name)
            if array is None:
                raise GraphError(
                    f"{os.fspath(path)} holds no value of {describe(p)}; it has {', '.join(stored) or 'none'}"
                )
            if array.shape != p.shape or array.dtype != storage(p.dtype.numpy):
                raise GraphError(
                    f"{os.fspath(path)} holds {array.dtype}{show_shape(array.shape)} for {describe(p)}"
                )
            values[p] = self._engine.hold(as_dtype(array, p.dtype))
        self._values.update(values)

    def close(self) -> None:
        """Let go of parameters and compiled code. A closed session runs nothing."""
        self._closed = True
        self._values.clear()
        self._plans.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------- inside

    def _check_open(self) -> None:
        if self._closed:
            raise GraphError("the session is closed; open a new one")

    def _all_parameters(self) -> list[Output]:
        return [op.outputs[0] for op in self.graph.operations if op.definition is Parameter]

    def _member(self, x: Any) -> Output:
        if isinstance(x, str):
            return self.graph.output(x)
        if not isinstance(x, (Output, Operation)):
            raise GraphError(f"Session.run: {x!r} is no output, operation or name")
        output = x.as_output()
        if output.op.graph is not self.graph:
            raise GraphError(f"Session.run: {describe(output)} belongs to another graph than the session")
        return output

    def _value(self, parameter: Output) -> Any:
        value = self._values.get(parameter)
        if value is None:
            value = self._values[parameter] = self._engine.hold(parameter.op.values[0].array)
        return value

    def _plan(self, leaves: Sequence[Any], fed: Sequence[Any]) -> _Plan:
        fetches = [self._member(leaf) for leaf in leaves]
        feeds = [self._member(x) for x in fed]
        twice = next((x for i, x in enumerate(feeds) if x in feeds[:i]), None)
        if twice is not None:
            raise FeedError(f"{describe(twice)} is fed twice; give it one value")
        running = needed(fetches, set(feeds))
        for op in running:
            if op.definition is Placeholder:
                user = _consumer(op, running)
                raise FeedError(
                    f"{describe(op)} must be fed, because "
                    f"{f'{describe(user)} needs it' if user else 'it is fetched'}; add it to feed_dict"
                )
        assigns = [op for op in running if op.definition is Assign]
        assigned = [op.inputs[0] for op in assigns]
        for i, parameter in enumerate(assigned):
            if parameter in assigned[:i]:
                raise GraphError(
                    f"one run would assign {describe(parameter)} twice, "
                    f"by {describe(assigns[assigned.index(parameter)])} and by {describe(assigns[i])}; "
                    "fetch one of them, or combine them into one"
                )
            if parameter in feeds:
                raise FeedError(f"{describe(parameter)} is both fed and assigned in one run; do one of them")
        parameters = [op.outputs[0] for op in running if op.definition is Parameter]
        return _Plan(fetches, feeds, parameters, assigned, [op.outputs[0] for op in assigns])

    def _compile(self, plan: _Plan, shapes: Sequence[tuple[int, ...]]) -> Compiled:
        outputs, inputs = [*plan.fetches, *plan.assigns], [*plan.parameters, *plan.feeds]
        binding: dict[str, int] | None = sizes_of(plan.feeds, shapes)
        if self._engine.keeps_sizes:
            check_sizes(needed(outputs, set(inputs)), binding)
            if None in plan.compiled:
                return plan.compiled[None]
            binding = None
        ready = prepare(outputs, inputs, binding)
        donate = [i for i, p in enumerate(plan.parameters) if p in plan.assigned]
        chosen = self._engine
        if self._auto and chosen.unsupported(_computed(ready)) is not None:
            chosen = _engine("auto", _computed(ready))
        compiled = chosen.compile(ready.inputs, ready.outputs, donate)
        if chosen is not self._engine:
            self._move(chosen)
        if chosen.keeps_sizes:
            plan.compiled[None] = compiled
        return compiled

    def _move(self, engine: Engine) -> None:
        """Go on with another engine, which then holds the parameters."""
        self._values = {p: engine.hold(np.asarray(value)) for p, value in self._values.items()}
        self._engine = engine
        for plan in list(self._plans.values()):
            plan.compiled.clear()


_engine = engine


def _computed(ready: Rewritten) -> list[Operation]:
    """The operations that an engine is to run."""
    return Body(ready.graph, ready.inputs, ready.outputs).operations()


def _consumer(op: Operation, running: Sequence[Operation]) -> Operation | None:
    return next((user for user in running if any(x.op is op for x in user.inputs)), None)


def _to_numpy(x: Any) -> np.ndarray[Any, Any]:
    return x if isinstance(x, np.ndarray) else np.asarray(x)


def feed_value(x: Output, value: Any, engine: Engine) -> Any:
    """A fed value as an array of x's dtype.

    Numbers of the same kind are converted, as TensorFlow converts them.
    """
    wanted = x.type
    if not engine.is_native(value):
        if isinstance(value, np.ma.MaskedArray):
            raise FeedError(
                f"{describe(x)} was fed a masked array; "
                "fill it first, with value.filled(0.0), and feed its mask by itself"
            )
        try:
            value = np.asarray(value)
        except (TypeError, ValueError) as error:
            why = (
                error.message
                if isinstance(error, StopgradError)
                else "its parts differ in length"
                if "inhomogeneous" in str(error)
                else error
            )
            raise FeedError(f"{describe(x)} was fed a value that is no array: {why}") from None
    if value.dtype != wanted.dtype.numpy:
        if value.dtype.kind in "OUSMm":
            raise FeedError(f"{describe(x)} was fed {value!r:.60}, which is no array of numbers")
        if not _may_become(value, wanted):
            raise FeedError(
                f"{describe(x)} was fed {_kind(value)}, which is not converted to {wanted.dtype} silently; "
                "convert it first"
            )
        with np.errstate(all="ignore"):
            value = value.astype(wanted.dtype.numpy)
    shape = value.shape
    if shape != wanted.shape and (
        len(shape) != wanted.ndim
        or any(isinstance(s, int) and s != n for s, n in zip(wanted.shape, shape, strict=True))
    ):
        raise FeedError(
            f"{describe(x)} was fed a value of shape {show_shape(shape)}; it takes {show_shape(wanted.shape)}"
        )
    return value


def _may_become(value: Any, wanted: TensorType) -> bool:
    if value.size == 0 and value.dtype == np.float64:
        return True  # An empty list has no dtype of its own.
    if wanted.dtype.is_integer and value.dtype.kind in "iu" and value.size:
        limits = np.iinfo(wanted.dtype.numpy)
        return bool(limits.min <= value.min() and value.max() <= limits.max)
    if value.dtype.kind == "b":
        return wanted.dtype.is_bool
    if wanted.dtype.name == "bfloat16":
        return value.dtype.kind in "iuf"
    return np.can_cast(value.dtype, wanted.dtype.numpy, "same_kind")


def _kind(value: Any) -> str:
    span = f" from {value.min()} to {value.max()}" if value.dtype.kind in "iu" else ""
    return f"{value.dtype}{show_shape(value.shape)}{span}"


def sizes_of(feeds: Sequence[Output], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The named sizes, from the shapes that were fed."""
    binding: dict[str, int] = {}
    for x, shape in zip(feeds, shapes, strict=True):
        before = dict(binding)
        if not bind_sizes(x.shape, shape, binding):
            known = ", ".join(f"{name} = {size}" for name, size in before.items())
            raise FeedError(
                f"{describe(x)} was fed a value of shape {show_shape(shape)}; "
                f"{f'other feeds say {known}' if known else 'a name stands for one size'}"
            )
    for x, shape in zip(feeds, shapes, strict=True):
        if any(
            not isinstance(s, int) and size_value(s, binding) != n
            for s, n in zip(x.shape, shape, strict=True)
        ):
            raise FeedError(
                f"{describe(x)} was fed a value of shape {show_shape(shape)}, where {binding} is known"
            )
    return binding


# ------------------------------------------------------------------------------------------- functions


class Function:
    """A Python function, traced and compiled once per signature of its arguments.

    Made by :func:`function`.
    """

    def __init__(self, f: Callable[..., Any], engine: str, donate_argnums: tuple[int, ...]) -> None:
        self._f = f
        self._engine_name = engine
        self._donate = donate_argnums
        self._engine: Engine | None = None
        self._made: dict[Any, tuple[Compiled, Any, list[Any]]] = {}
        self.__name__ = getattr(f, "__name__", "function")
        self.__doc__ = f.__doc__
        self.__wrapped__ = f

    @property
    def traces(self) -> int:
        """How many signatures have been traced and compiled."""
        return len(self._made)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten((args, kwargs))
        if default_graph() is not None or not _SYMBOLIC.isdisjoint(map(type, leaves)):
            return self._f(*args, **kwargs)
        if self._engine is None:
            self._engine = engine(self._engine_name)
        arrays, signature, native = self._arguments(leaves)
        key = (spec, tuple(signature))
        try:
            made = self._made.get(key)
        except TypeError:
            odd = next(leaf for leaf in leaves if type(leaf).__hash__ is None and not is_tensor(leaf))
            raise ArgumentError(
                f"function: {self.__name__} was given {odd!r:.60}, which has no hash to know it by; "
                "pass an array or a constant"
            ) from None
        if made is None:
            made = self._made[key] = self._trace(leaves, spec, arrays)
            if len(self._made) == _MANY:
                warnings.warn(
                    f"{self.__name__} has been compiled for {_MANY} signatures; "
                    "integers, booleans and strings are part of the signature, "
                    "so pass a number that changes as an array (np.asarray(step))",
                    stacklevel=2,
                )
        compiled, result_spec, result_leaves = made
        results = iter(compiled(arrays))
        values = [
            leaf if leaf is not _RESULT else next(results) if native else _to_numpy(next(results))
            for leaf in result_leaves
        ]
        return unflatten(result_spec, values)

    def _arguments(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any], bool]:
        """The arrays among the arguments; what tells calls apart; whether arrays are the engine's own."""
        assert self._engine is not None
        is_native = self._engine.is_native
        kinds = {*map(type, leaves)}
        if len(kinds) == 1:  # Arrays alone, as in most calls.
            ours = kinds != {np.ndarray}
            if is_native(leaves[0]) if ours else all([x.dtype.isnative for x in leaves]):  # noqa: C419 - a generator costs more
                return list(leaves), [(x.shape, x.dtype) for x in leaves], ours
        arrays: list[Any] = []
        signature: list[Any] = []
        native = False
        for leaf in leaves:
            if type(leaf) is np.ndarray and leaf.dtype.isnative:
                pass
            elif is_native(leaf):
                native = True
            elif isinstance(leaf, float):
                leaf = np.asarray(leaf, self._company(leaves))
            elif is_tensor(leaf):
                leaf = as_array(leaf)
            else:
                signature.append((type(leaf), leaf))
                continue
            arrays.append(leaf)
            signature.append((leaf.shape, leaf.dtype))
        return arrays, signature, native

    @staticmethod
    def _company(leaves: Sequence[Any]) -> Any:
        """The dtype that Python floats take: that of the first floating-point array among the arguments."""
        kinds = (dtype_of(x.dtype) for x in leaves if hasattr(x, "dtype"))
        return next((d for d in kinds if d.is_floating), float32).numpy

    def _trace(
        self, leaves: Sequence[Any], spec: Any, arrays: Sequence[Any]
    ) -> tuple[Compiled, Any, list[Any]]:
        graph = Graph()
        with graph.as_default():
            inputs = [
                emit(Placeholder, (), (dtype_of(a.dtype), tuple(a.shape)), "", graph).outputs[0]
                for a in arrays
            ]
            stand_ins = iter(inputs)
            args, kwargs = unflatten(
                spec, [next(stand_ins) if isinstance(x, float) or is_tensor(x) else x for x in leaves]
            )
            result_leaves, result_spec = flatten(self._f(*args, **kwargs))
            tensors = [as_output(x, graph) for x in result_leaves if _is_result(x)]
        for y in tensors:
            if y.op.graph is not graph:
                raise GraphError(f"{self.__name__} returned {describe(y)}, which belongs to another graph")
        stray = next((op for op in graph.subgraph_to(tensors) if op.definition in (Parameter, Assign)), None)
        if stray is not None:
            raise GraphError(
                f"{describe(stray)} inside sg.function: parameters live in a session; "
                "pass values in and return the new ones"
            )
        ready = prepare(tensors, inputs, {})
        chosen = engine(self._engine_name, _computed(ready))
        compiled = chosen.compile(ready.inputs, ready.outputs, self._donated(spec, leaves))
        if chosen is not self._engine:
            run = compiled
            # They may be the other engine's own.
            compiled = lambda arrays: run([np.asarray(a) for a in arrays])
        return compiled, result_spec, [_RESULT if _is_result(x) else x for x in result_leaves]

    def _donated(self, spec: Any, leaves: Sequence[Any]) -> list[int]:
        """The positions, among the arrays, of those that belong to donated arguments."""
        if not self._donate:
            return []
        args, _ = unflatten(spec, list(range(len(leaves))))
        missing = next((n for n in self._donate if not -len(args) <= n < len(args)), None)
        if missing is not None:
            raise ArgumentError(
                f"function: donate_argnums holds {missing}, "
                f"but {self.__name__} was given {len(args)} positional arguments"
            )
        given = {i for n in self._donate for i in flatten(args[n])[0]}
        arrays = [i for i, x in enumerate(leaves) if isinstance(x, float) or is_tensor(x)]
        return [n for n, i in enumerate(arrays) if i in given]


_MANY = 16
_SYMBOLIC = {Output, Operation}
_RESULT = object()


def _is_result(x: Any) -> bool:
    return is_tensor(x) or (isinstance(x, (int, float, complex)) and not isinstance(x, bool))


@overload
def function(
    f: Callable[..., Any], *, engine: str = "auto", donate_argnums: int | Sequence[int] = ()
) -> Function: ...
@overload
def function(
    *, engine: str = "auto", donate_argnums: int | Sequence[int] = ()
) -> Callable[[Callable[..., Any]], Function]: ...
def function(
    f: Callable[..., Any] | None = None, *, engine: str = "auto", donate_argnums: int | Sequence[int] = ()
) -> Any:
    """Compile a function of nested structures of arrays: traced once per signature, kept, and called.

    Args:
        f: built of operations; its Python runs only when a new signature is traced. Arrays and Python floats
            are traced; everything else (integers, booleans, strings, None) is part of the signature.
        engine: as in :class:`Session`.
        donate_argnums: positional arguments whose arrays the call may overwrite.

    Returns:
        a function with f's arguments. It returns NumPy arrays; or the engine's own, left where they are, when
        it was given any of these. Called on outputs, or inside a graph, it builds there instead.

    May also be used as a decorator, with or without arguments.

    Examples:
        >>> @sg.function
        ... def step(w, rate):
        ...     return w - rate * sg.grad(lambda w: sg.reduce_sum(w * w))(w)
        >>> step(np.array([1.0, 2.0]), 0.25)
        array([0.5, 1. ])
    """
    if f is None:
        return lambda f: Function(f, engine, _tuple(donate_argnums))
    if not callable(f):
        raise ArgumentError(f"function: takes a function, not {f!r}")
    return Function(f, engine, _tuple(donate_argnums))


def _tuple(argnums: Any) -> tuple[int, ...]:
    alone = is_whole(argnums) or not isinstance(argnums, Iterable)
    return tuple(map(whole, (argnums,) if alone else argnums))
