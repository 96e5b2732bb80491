"""Functions: Python functions of arrays, traced and compiled once per signature."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn, overload

import numpy as np

from stopgrad.autodiff.tracing import is_tensor
from stopgrad.build import as_output, emit
from stopgrad.builder import default_graph
from stopgrad.compiling import CACHE_SIZE, How, Ready, cached, compile_for, has_hash
from stopgrad.engines import Engine, engine as engine_named, fail
from stopgrad.errors import ArgumentError, GraphError
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.operands import as_array
from stopgrad.ops.data import Assign, Parameter, Placeholder
from stopgrad.plain import is_whole, whole
from stopgrad.quick import OTHER, Quick, handed_out, quick_call
from stopgrad.rewrite import prepare
from stopgrad.structure import flatten, unflatten
from stopgrad.tuning import REPORTS, Report, Sample
from stopgrad.types import dtype_of, float32


class _Constant(NamedTuple):
    """An argument that is part of the signature. There True, 1 and 1.0 differ, and so do 0j and -0j."""

    value: Any
    kind: type
    text: str


_Signature = Sequence[tuple[tuple[int, ...], Any] | _Constant]
"""What tells calls apart: of arrays the shape and dtype, of all else the value."""


@dataclass
class _Traced:
    """A function compiled for one signature.

    Attributes:
        ready: computes the results.
        outputs: what they are in the traced graph.
        spec: the structure of what the function returned; None where that is one result alone.
        leaves: what stood in it, with a mark in the place of each result.
        fresh: whether it has not been called yet.
    """

    ready: Ready
    outputs: list[Output]
    spec: Any
    leaves: list[Any]
    fresh: bool = True

    def rebuild(self, results: Sequence[Any]) -> Any:
        """What the function returned, with these results."""
        if self.spec is None:
            return results[0]
        given = iter(results)
        return unflatten(self.spec, [leaf if leaf is not _RESULT else next(given) for leaf in self.leaves])

    def failed(self, error: Exception) -> NoReturn:
        """Raise what happened in the engine as an error of ours."""
        fail(self.ready.engine, self.outputs, error)


class Function:
    """A Python function, traced and compiled once per signature of its arguments.

    Made by :func:`function`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        engine: str,
        donate_argnums: tuple[int, ...],
        cache_size: int = CACHE_SIZE,
        strict: bool = False,
        tune: str = "off",
    ) -> None:
        self._f = f
        self._engine_name = engine
        self._engine: Engine | None = None
        self.__name__ = getattr(f, "__name__", "function")
        self.__doc__ = f.__doc__
        self.__wrapped__ = f
        self._how = How.of(engine, strict, tune, REPORTS)
        # Refers to f alone: a function that is dropped is freed at once, with all that was compiled for it.
        trace = partial(_trace, f, self.__name__, self._how, donate_argnums)
        self._traced = cached(trace, cache_size, "function")
        self._warned = False
        self._before: _Traced | None = None
        self._quick: Quick | None = None

    @property
    def traces(self) -> int:
        """How many signatures are traced, compiled and kept."""
        return self._traced.cache_info().currsize

    def report(self) -> tuple[Report, ...]:
        """How what was compiled last is run: the engine, its way, and what was tried and measured.

        Examples:
            >>> f = sg.function(sg.exp, engine="numpy")
            >>> f(1.0).dtype, f.report()[0].engine
            (dtype('float32'), 'numpy')
        """
        return tuple(self._how.reports)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        quick = self._quick
        if quick is not None:
            result = quick(args, kwargs)
            if result is not OTHER:
                return result
        leaves, spec = flatten((args, kwargs))
        if default_graph() is not None or not _SYMBOLIC.isdisjoint(map(type, leaves)):
            return self._f(*args, **kwargs)
        engine = self._engine
        if engine is None or engine.unusable is not None:
            engine = self._engine = engine_named(self._engine_name)
        arrays, signature, native, borrowed = self._arguments(leaves, engine)
        try:
            if self._how.tune == "off":
                traced = self._traced(engine, spec, tuple(signature))
            else:
                traced = self._traced(engine, spec, tuple(signature), Sample(arrays))
        except TypeError:
            odd = [s.value for s in signature if isinstance(s, _Constant) and not has_hash(s.value)]
            if not odd:
                raise
            raise ArgumentError(
                f"function: {self.__name__} was given {odd[0]!r:.60}, which has no hash to know it by; "
                "pass an array or a constant"
            ) from None
        if traced.fresh:
            traced.fresh = False
            self._warn_of_many()
        if traced.ready.engine is not engine:
            arrays = [np.asarray(a) for a in arrays]  # They may be the other engine's own.
        try:
            found = traced.ready.run(arrays)
        except Exception as error:
            traced.failed(error)
        results = handed_out(found, native, borrowed, traced.ready.engine.finish, traced.failed)
        # Only after two calls alike: refusing others costs more than the usual way.
        alike, self._before = traced is self._before, traced
        self._quick = (
            quick_call(
                traced.ready.engine,
                traced.ready.run,
                args,
                kwargs,
                leaves,
                None if traced.spec is None else traced.rebuild,
                traced.failed,
            )
            if alike and len(leaves) == len(signature) and not any(type(s) is _Constant for s in signature)
            else None
        )
        return traced.rebuild(results)

    def _warn_of_many(self) -> None:
        kept = self._traced.cache_info()
        if kept.currsize >= min(_MANY, kept.maxsize) and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.__name__} has been compiled for {kept.currsize} signatures; "
                "integers, booleans and strings are part of the signature, "
                "so pass a number that changes as an array (np.asarray(step))",
                stacklevel=3,
            )

    def _arguments(self, leaves: Sequence[Any], engine: Engine) -> tuple[list[Any], list[Any], bool, bool]:
        """The arrays among the arguments, the signature; if any are the engine's own, or the caller's."""
        is_native = engine.is_native
        kinds = {*map(type, leaves)}
        if len(kinds) == 1:  # Arrays alone, as in most calls.
            ours = kinds != {np.ndarray}
            if is_native(leaves[0]) if ours else all([x.dtype.isnative for x in leaves]):  # noqa: C419 - a generator costs more
                return list(leaves), [(x.shape, x.dtype) for x in leaves], ours, not ours
        arrays: list[Any] = []
        signature: list[Any] = []
        native = borrowed = False
        for leaf in leaves:
            if type(leaf) is np.ndarray and leaf.dtype.isnative:
                borrowed = True
            elif is_native(leaf):
                native = True
            elif isinstance(leaf, float):
                leaf = np.asarray(leaf, self._company(leaves))
            elif is_tensor(leaf):
                leaf, borrowed = as_array(leaf), True
            else:
                signature.append(_Constant(leaf, type(leaf), str(leaf) if type(leaf) is complex else ""))
                continue
            arrays.append(leaf)
            signature.append((leaf.shape, leaf.dtype))
        return arrays, signature, native, borrowed

    @staticmethod
    def _company(leaves: Sequence[Any]) -> Any:
        """The dtype that Python floats take: that of the first floating-point array among the arguments."""
        kinds = (dtype_of(x.dtype) for x in leaves if hasattr(x, "dtype"))
        return next((d for d in kinds if d.is_floating), float32).numpy


def _trace(
    f: Callable[..., Any],
    name: str,
    how: How,
    donate_argnums: tuple[int, ...],
    engine: Engine,
    spec: Any,
    signature: _Signature,
    sample: Sample | None = None,
) -> _Traced:
    """Trace f for a signature, and compile it."""
    graph = Graph()
    with graph.as_default():
        leaves = [
            s.value
            if isinstance(s, _Constant)
            else emit(Placeholder, (), (dtype_of(s[1]), tuple(s[0])), "", graph).outputs[0]
            for s in signature
        ]
        inputs = [leaf for s, leaf in zip(signature, leaves, strict=True) if not isinstance(s, _Constant)]
        args, kwargs = unflatten(spec, leaves)
        result_leaves, result_spec = flatten(f(*args, **kwargs))
        outputs = [as_output(x, graph) for x in result_leaves if _is_result(x)]
    for y in outputs:
        if y.op.graph is not graph:
            raise GraphError(f"{name} returned {describe(y)}, which belongs to another graph")
    stray = next((op for op in graph.subgraph_to(outputs) if op.definition in (Parameter, Assign)), None)
    if stray is not None:
        raise GraphError(
            f"{describe(stray)} inside sg.function: parameters live in a session; "
            "pass values in and return the new ones"
        )
    donated = _donated(name, donate_argnums, spec, signature)
    prepared = prepare(outputs, inputs, {})
    ready = compile_for(engine, prepared, how, donated, sample=sample)
    alone = result_spec == _ALONE and len(outputs) == 1
    leaves = [_RESULT if _is_result(x) else x for x in result_leaves]
    return _Traced(ready, outputs, None if alone else result_spec, leaves)


def _donated(name: str, argnums: Sequence[int], spec: Any, signature: _Signature) -> list[int]:
    """The positions, among the arrays, of those that belong to donated arguments."""
    if not argnums:
        return []
    args, _ = unflatten(spec, list(range(len(signature))))
    missing = next((n for n in argnums if not -len(args) <= n < len(args)), None)
    if missing is not None:
        raise ArgumentError(
            f"function: donate_argnums holds {missing}, but {name} was given {len(args)} positional arguments"
        )
    given = {i for n in argnums for i in flatten(args[n])[0]}
    arrays = [i for i, s in enumerate(signature) if not isinstance(s, _Constant)]
    return [n for n, i in enumerate(arrays) if i in given]


_MANY = 16
_, _ALONE = flatten(0)
_SYMBOLIC = {Output, Operation}
_RESULT = object()


def _is_result(x: Any) -> bool:
    return is_tensor(x) or (isinstance(x, (int, float, complex)) and not isinstance(x, bool))


@overload
def function(
    f: Callable[..., Any],
    *,
    engine: str = "auto",
    donate_argnums: int | Sequence[int] = (),
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
) -> Function: ...
@overload
def function(
    *,
    engine: str = "auto",
    donate_argnums: int | Sequence[int] = (),
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
) -> Callable[[Callable[..., Any]], Function]: ...
def function(
    f: Callable[..., Any] | None = None,
    *,
    engine: str = "auto",
    donate_argnums: int | Sequence[int] = (),
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
) -> Any:
    """Compile a function of nested structures of arrays: traced once per signature, kept, and called.

    Args:
        f: built of operations; its Python runs only when a new signature is traced. Arrays and Python floats
            are traced; everything else (integers, booleans, strings, None) is part of the signature.
        engine: as in :class:`Session`.
        donate_argnums: positional arguments whose arrays the call may overwrite. They are lost then, also
            if the call fails or is interrupted.
        cache_size: for how many signatures the function is kept compiled; beyond it the least recently used
            goes.
        strict: as in :class:`Session`.
        tune: as in :class:`Session`.

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
        return lambda f: Function(f, engine, _tuple(donate_argnums), cache_size, strict, tune)
    if not callable(f):
        raise ArgumentError(f"function: takes a function, not {f!r}")
    return Function(f, engine, _tuple(donate_argnums), cache_size, strict, tune)


def _tuple(argnums: Any) -> tuple[int, ...]:
    alone = is_whole(argnums) or not isinstance(argnums, Iterable)
    return tuple(map(whole, (argnums,) if alone else argnums))
