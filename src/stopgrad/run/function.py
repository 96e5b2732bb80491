"""Functions: Python functions of arrays, traced and compiled once per signature."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, overload

import numpy as np
from optree import PyTreeSpec

from stopgrad.base.arrays import Array
from stopgrad.base.coercion import flag, is_whole, whole
from stopgrad.base.errors import ArgumentError, StopgradError
from stopgrad.base.later import Later
from stopgrad.base.source import to_user
from stopgrad.base.structure import flatten
from stopgrad.engines import Engine, engine as engine_named
from stopgrad.engines.registry import mesh_of
from stopgrad.graph.arguments import (
    Constant,
    Shapes,
    Shardings,
    Statics,
    argument_paths,
    several,
    without_first,
)
from stopgrad.graph.build import graph_for
from stopgrad.graph.builder import default_graph
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.operands import is_tensor, shorten
from stopgrad.graph.public import guarded, reads_arguments
from stopgrad.graph.sharding import Spec
from stopgrad.run.calls import Arguments, array_argument, array_like, company, difference, results_of
from stopgrad.run.compiling import CACHE_SIZE, Compiler, Options, cached, has_hash
from stopgrad.run.fast_path import OTHER, repeated_call
from stopgrad.run.instances import Instances, Method
from stopgrad.run.lowered import CompiledFunction, Lowered
from stopgrad.run.programs import Program
from stopgrad.run.traced import Signature, Static, Traced, probes_since, started, trace
from stopgrad.run.tuning import Report, Sample

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:  # Python's own have defaults from 3.13 on; only type checkers read them.
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R")

Q = ParamSpec("Q")
Instance = TypeVar("Instance")


class Function(Generic[P, R]):
    """A Python function, traced and compiled once per signature of its arguments.

    Made by :func:`function`. In a class it becomes a method, like a plain function.
    """

    def __init__(self, f: Callable[..., Any], options: Options) -> None:
        self._wrapped = f
        mesh = mesh_of(options.mesh)
        self._options = options = options._replace(mesh=mesh)
        self._f = f = f.__func__ if isinstance(f, (staticmethod, classmethod)) else f
        self._engine: Engine | None = None
        name = getattr(f, "__name__", "function")
        self.__name__ = name
        self.__qualname__ = getattr(f, "__qualname__", name)
        self.__module__ = getattr(f, "__module__", __name__)
        self.__doc__ = f.__doc__
        self.__wrapped__ = f
        self._compiler = Compiler(options, name)
        statics = Statics(f, name, options.static_argnums, options.static_argnames)
        self._statics = statics if statics else None
        both = statics.positions.intersection(options.donate_argnums)
        if both:
            raise ArgumentError(
                f"function: the argument {min(both)} of {name} is both static and donated; "
                "a static one is no array"
            )
        self._paths = cached(partial(argument_paths, f), options.cache_size, "function")
        self._shapes = None if options.shapes is None else Shapes(f, name, options.shapes)
        self._shardings = None if options.shardings is None else Shardings(f, name, options.shardings)
        if self._shardings is not None and mesh is None:
            raise ArgumentError(f"function: shardings of {name} need a mesh; pass mesh=sg.Mesh(...)")
        # Refers to f alone, so that a dropped function is freed at once, with all that was compiled for it.
        traced = partial(_traced, f, self._compiler)
        self._traced = cached(traced, options.cache_size, "function", owner=name)
        self._warned = False
        self._last_new: Arguments | None = None
        self._last_program: Program | None = None
        self._repeated: Callable[[Sequence[Any], Mapping[str, Any]], Any] | None = None
        self._owner: type | None = None
        self._instances = Instances(options.cache_size)

    @property
    def traces(self) -> int:
        """The number of signatures that are kept compiled; for a method, of all instances together."""
        return sum([function.traces for function in self._instances], self._traced.cache_info().currsize)

    _repr_html_: Any = Later("stopgrad.flow.shown")

    def report(self) -> tuple[Report, ...]:
        """How the last compiled signature is run: the engine, its variant, and what was measured.

        Examples:
            >>> f = sg.function(sg.exp, engine="numpy")
            >>> f(1.0).dtype, f.report()[0].engine
            (dtype('float32'), 'numpy')
        """
        return tuple(self._compiler.reports)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        repeated = self._repeated
        if repeated is not None:
            result = repeated(args, kwargs)
            if result is not OTHER:
                return result
            self._repeated = self._last_program = None
        if self._owner is not None and args and isinstance(args[0], self._owner):
            method: Any = self.__get__(args[0], type(args[0]))
            if method._function is not self:
                return method(*args[1:], **kwargs)
        leaves, spec, static = self._flat(args, kwargs)
        if default_graph() is not None or not _SYMBOLIC.isdisjoint(map(type, leaves)):
            return self._build(leaves, args, kwargs)
        engine = self._usable()
        arguments = self._read_arguments(leaves, spec, static, engine)
        sample = Sample(arguments.arrays) if self._compiler.measures else None
        traced = self._find(engine, arguments, sample)
        if not traced.called:
            traced.called = True
            self._warn_of_many(arguments)
            self._last_new = arguments._replace(leaves=[], arrays=[])
        program = traced.program(engine, arguments.arrays, sample, arguments.native)
        results = results_of(traced, program, engine, arguments)
        # Only after two equal calls: a call that the engine refuses takes longer than the usual way.
        alike, self._last_program = program is self._last_program, program
        plain = alike and not static and not any(type(s) is Constant for s in arguments.signature)
        self._repeated = repeated_call(traced, program, args, kwargs, leaves) if plain else None
        return traced.rebuild(results)

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Trace the function for such arguments without compiling it: to read it, or to compile it later.

        Args:
            args, kwargs: as for a call. Anything with a shape and a dtype can stand for an array.

        Returns:
            a :class:`Lowered`.

        Examples:
            >>> f = sg.function(lambda w, x: sg.matmul(x, w), engine="numpy")
            >>> lowered = f.lower(np.ones((3, 2)), np.ones((4, 3)))
            >>> lowered.cost_analysis().flops
            48
            >>> lowered.compile()(np.ones((3, 2)), np.ones((4, 3))).shape
            (4, 2)
        """
        leaves, spec, static = self._flat(args, kwargs)
        engine = self._usable()
        arguments = self._read_arguments(leaves, spec, static, engine, ahead=True)
        traced = trace(self._f, self._compiler, engine, spec, arguments.signature, static)
        shapes = [x.shape for x in arguments.arrays]
        return Lowered(traced, engine, shapes, partial(self._ahead, traced, arguments))

    def _ahead(self, traced: Traced, expected: Arguments) -> CompiledFunction:
        """A function that calls what was lowered, and takes arguments of that signature only."""
        engine = self._usable()
        traced.compile(engine)
        program = traced.program(engine, expected.arrays, own=True)
        expected = expected._replace(leaves=[], arrays=[])

        def call(*args: object, **kwargs: object) -> Any:
            leaves, spec, static = self._flat(args, kwargs)
            arguments = self._read_arguments(leaves, spec, static, engine)
            if (spec, arguments.signature, static) != (expected.spec, expected.signature, expected.static):
                raise ArgumentError(
                    f"{self.__name__} was compiled ahead for other arguments: "
                    f"{difference(self._f, expected, arguments)}; "
                    "lower it for these, or call the function itself"
                )
            compiled = traced.program(engine, arguments.arrays, own=True)
            return traced.rebuild(results_of(traced, compiled, engine, arguments))

        return CompiledFunction(call, program)

    # ----------------------------------------------------------------------------------- as a method

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner if not isinstance(self._wrapped, (staticmethod, classmethod)) else None

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Function[P, R]: ...
    @overload
    def __get__(
        self: Function[Concatenate[Instance, Q], R], instance: Instance, owner: type | None = None
    ) -> Method[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if isinstance(self._wrapped, staticmethod):
            return self
        if isinstance(self._wrapped, classmethod):
            instance = type(instance) if owner is None else owner
        elif instance is None:
            return self
        leaves, _ = flatten(instance)
        if len(leaves) != 1 or leaves[0] is not instance:
            return Method(self, instance, (instance,))  # A structure of arrays, such as a dataclass.
        bound = self._instances.of(instance, partial(_bound, self._f, self._options, self._statics))
        return Method(bound, instance, ())

    # --------------------------------------------------------------------------------------- inside

    def _usable(self) -> Engine:
        engine = self._engine
        if engine is None or engine.unusable is not None:
            engine = self._engine = engine_named(self._options.engine, mesh=self._options.mesh)
        return engine

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any, Static]:
        static: Static = ()
        if self._statics is not None:
            args, kwargs, static = self._statics.split(args, kwargs)
        leaves, spec = flatten((args, kwargs))
        return leaves, spec, static

    def _build(self, leaves: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The function's results as outputs, in the graph where it is called."""
        if not self._options.with_probes:
            return self._f(*args, **kwargs)
        symbolic = next((x.as_output() for x in leaves if type(x) in _SYMBOLIC), None)
        graph = default_graph() if symbolic is None else graph_for(symbolic)
        start = started(graph)
        value = self._f(*args, **kwargs)
        return value, probes_since(graph, start, self.__name__)

    def _read_arguments(
        self, leaves: list[Any], spec: PyTreeSpec, static: Static, engine: Engine, ahead: bool = False
    ) -> Arguments:
        """The arguments of a call; with *ahead*, of a later one, which may have types for arrays."""
        values = [array_like(x) for x in leaves] if ahead else leaves
        arrays, signature, native, borrowed = self._arguments(values, spec, engine)
        mesh = engine.mesh
        specs = {} if mesh is None else self._specs(leaves, signature, spec, engine)
        if mesh is not None and not ahead:
            traced = [i for i, s in enumerate(signature) if not isinstance(s, Constant)]
            for n, i in enumerate(traced):
                arrays[n] = self._placed(arrays[n], specs[i], engine, partial(self._path, spec, i))
                signature[i] = arrays[n].shape, arrays[n].dtype
        if self._shapes is not None:
            self._shapes.apply(signature, self._paths(spec))
        for i, sharding in specs.items():
            signature[i] = *signature[i], sharding
        return Arguments(leaves, spec, static, arrays, signature, native, borrowed)

    def _specs(
        self, leaves: Sequence[Any], signature: Sequence[Any], spec: PyTreeSpec, engine: Engine
    ) -> dict[int, Spec]:
        """How each array among the arguments is divided: as *shardings* says, or else as it is already."""
        traced = [i for i, s in enumerate(signature) if not isinstance(s, Constant)]
        declared = {} if self._shardings is None else self._shardings.of(signature, self._paths(spec))
        return {i: declared[i] if i in declared else engine.spec_of(leaves[i]) for i in traced}

    def _placed(self, array: Array, sharding: Spec, engine: Engine, path: Callable[[], str]) -> Any:
        try:
            return engine.place(array, sharding)
        except StopgradError as error:
            raise type(error)(f"{self.__name__}: {path()}: {error.message}") from None

    def _find(self, engine: Engine, arguments: Arguments, sample: Sample | None) -> Traced:
        try:
            traced: Traced = self._traced(
                engine, arguments.spec, tuple(arguments.signature), arguments.static, sample
            )
            return traced
        except TypeError:
            odd = [
                i
                for i, s in enumerate(arguments.signature)
                if isinstance(s, Constant) and not has_hash(s.value)
            ]
            if not odd:
                raise
            raise ArgumentError(
                f"function: {self.__name__} was given {shorten(arguments.signature[odd[0]].value)} for "
                f"{argument_paths(self._f, arguments.spec)[odd[0]]}, "
                "which has no hash to know it by; pass an array or a constant"
            ) from None

    def _warn_of_many(self, arguments: Arguments) -> None:
        cache = self._traced.cache_info()
        if cache.currsize >= min(_MANY, cache.maxsize) and not self._warned:
            self._warned = True
            last = self._last_new
            why = "" if last is None else f"; the last time because {difference(self._f, last, arguments)}"
            text = f"{self.__name__} has been compiled for {cache.currsize} signatures{why}; {_CURE}"
            warnings.warn(text, stacklevel=to_user())

    def _arguments(
        self, leaves: Sequence[Any], spec: PyTreeSpec, engine: Engine
    ) -> tuple[list[Any], list[Any], bool, bool]:
        """The arrays, the signature, and whether any array is the engine's own, and any the caller's."""
        is_native = engine.is_native
        kinds = {*map(type, leaves)}
        if len(kinds) == 1:  # Only arrays, as in most calls.
            ours = kinds != {np.ndarray}
            if is_native(leaves[0]) if ours else all([x.dtype.isnative for x in leaves]):  # noqa: C419 - a generator costs more
                return list(leaves), [(x.shape, x.dtype) for x in leaves], ours, not ours
        arrays: list[Any] = []
        signature: list[Any] = []
        native = borrowed = False
        for i, leaf in enumerate(leaves):
            if type(leaf) is np.ndarray and leaf.dtype.isnative:
                borrowed = True
            elif is_native(leaf):
                native = True
            elif isinstance(leaf, float):
                leaf = np.asarray(leaf, company(leaves))
            elif is_tensor(leaf):
                path = partial(self._path, spec, i)
                leaf, borrowed = array_argument(self.__name__, path, leaf), True
            else:
                signature.append(Constant.of(leaf))
                continue
            arrays.append(leaf)
            signature.append((leaf.shape, leaf.dtype))
        return arrays, signature, native, borrowed

    def _path(self, spec: PyTreeSpec, i: int) -> str:
        return argument_paths(self._f, spec)[i]


def _traced(
    f: Callable[..., Any],
    compiler: Compiler,
    engine: Engine,
    spec: PyTreeSpec,
    signature: Signature,
    static: Static,
    sample: Sample | None,
) -> Traced:
    """Trace f for a signature, and compile it if that has all sizes."""
    traced = trace(f, compiler, engine, spec, signature, static)
    traced.compile(engine, sample)
    return traced


_MANY = 16
_SYMBOLIC = {Output, Operation}
_CURE = (
    "integers, booleans, strings and shapes are part of the signature: pass a number that changes as "
    "float(step), which is traced, or as np.asarray(step) where it must stay a whole number, and leave sizes "
    "that change open with shapes={'x': ['batch', ...]}"
)


def _bound(
    f: Callable[..., Any], options: Options, statics: Statics | None, refer: Callable[[], Any]
) -> Function:
    """The function of one instance. It does not hold the instance; its caller does."""
    method, first = without_first(f, refer)
    shifted = options._replace(
        static_argnums=[n - 1 for n in statics.positions if n] if statics else None,
        static_argnames=[name for name in statics.names if name != first] if statics else None,
        donate_argnums=tuple([n - 1 if n > 0 else n for n in options.donate_argnums if n]),
    )
    return Function(method, shifted)


# ------------------------------------------------------------------------------------ the decorator


@overload
def function(
    f: Callable[P, R],
    *,
    engine: str = "auto",
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    with_probes: Literal[False] = False,
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
    mesh: object = None,
    shardings: Mapping[str, Any] | None = None,
) -> Function[P, R]: ...
@overload
def function(
    f: Callable[P, R],
    *,
    engine: str = "auto",
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    with_probes: Literal[True],
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
    mesh: object = None,
    shardings: Mapping[str, Any] | None = None,
) -> Function[P, tuple[R, dict[str, Any]]]: ...
@overload
def function(
    *,
    engine: str = "auto",
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    with_probes: Literal[False] = False,
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
    mesh: object = None,
    shardings: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
@overload
def function(
    *,
    engine: str = "auto",
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    with_probes: Literal[True],
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
    mesh: object = None,
    shardings: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Function[P, tuple[R, dict[str, Any]]]]: ...
@guarded("function")
def function(
    f: Callable[..., Any] | None = None,
    *,
    engine: str = "auto",
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    with_probes: bool = False,
    cache_size: int = CACHE_SIZE,
    strict: bool = False,
    tune: str = "off",
    mesh: object = None,
    shardings: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a function of nested structures of arrays: traced once per signature, kept, and called.

    Args:
        f: built of operations; its Python runs only when a new signature is traced. Arrays and Python floats
            are traced; everything else (integers, booleans, strings, None) is part of the signature.
        engine: as in :class:`Session`.
        static_argnums: positions of arguments that are part of the signature as they are, floats and
            structures too. They must have a hash.
        static_argnames: the same, by name; either way an argument is static by position and by name.
        donate_argnums: positional arguments whose arrays the call may overwrite. They are lost then, also
            if the call fails or is interrupted.
        shapes: sizes that may differ from call to call without f being traced again: a dict from the paths of
            arguments (``"x"``, ``"params.w"`` or ``"params['w']"``) to shapes as :func:`placeholder` takes
            them, with a name or None for such a size. In f that size is a :class:`Dim`. Engines that need
            numbers, such as ``"xla"``, compile for each.
        with_probes: whether to return (value, gradients), with the gradients at each :func:`probe` in f, by
            the probe's name: those that :func:`grad` and similar functions generate inside f.
        cache_size: the number of signatures for which the function is kept compiled. Beyond it, the least
            recently used is dropped.
        strict: as in :class:`Session`.
        tune: as in :class:`Session`.
        mesh: as in :class:`Session`: the devices on which the function is computed.
        shardings: how arguments are divided over the mesh: a dict from the paths of arguments to shardings as
            :func:`placeholder` takes them; that of a structure applies to all arrays in it. An argument that
            is not named stays as it is if it is on the mesh already; else each device holds the whole of it.
            Of an array that is divided among several processes, each process gives its own part. Results are
            divided as the engine leaves them, or as :func:`shard` says.

    Returns:
        a :class:`Function`, with f's arguments. It returns NumPy arrays; or the engine's own, left on their
        devices, if it was given any of these. Called on outputs, or inside a graph, it builds there instead.

    May also be used as a decorator, with or without arguments; also of methods, below or above
    ``staticmethod`` and ``classmethod``. An instance that is a structure (a dataclass) is traced like any
    argument. Any other instance is a constant: the values of its attributes at tracing become part of what is
    compiled, for as long as the instance lives. So pass arrays that change as arguments.

    A compilation of more than 3 s is logged once: by the logger ``"stopgrad"`` at level INFO or, if that has
    no handler, on standard error if it is a terminal. So is, before it begins, a loop of Python that XLA will
    compile step by step: its line, and how often that repeats.

    Raises:
        ArgumentError: an argument has no hash; or a static one, or one that *shapes* names, does not exist.
        ShapeError: an argument has another shape than *shapes* says, or one that *shardings* cannot divide.
        EngineError: the mesh has more devices than there are.

    Examples:
        >>> @sg.function
        ... def step(w, rate):
        ...     return w - rate * sg.grad(lambda w: sg.reduce_sum(w * w))(w)
        >>> step(np.array([1.0, 2.0]), 0.25)
        array([0.5, 1. ])
        >>> @sg.function(shapes={"x": ["batch", 3]}, static_argnames="power")
        ... def mean_power(x, power=2.0):
        ...     return sg.reduce_sum(x**power) / x.shape[0]
        >>> [float(mean_power(np.ones((n, 3)))) for n in (1, 5)], mean_power.traces
        ([3.0, 3.0], 1)
    """
    compiling = (with_probes, cache_size, strict, tune, mesh, shardings)
    options = Options(engine, donate_argnums, static_argnums, static_argnames, shapes, *compiling)
    if f is None:
        return partial(_function, options)
    return _function(options, f)


@reads_arguments
def _function(options: Options, f: Callable[..., Any]) -> Function:
    if not callable(f) and not isinstance(f, classmethod):
        cure = "; put @sg.function below @property" if isinstance(f, property) else ""
        raise ArgumentError(f"function: takes a function, not {f!r}{cure}")
    name = getattr(f, "__name__", "function")
    kind = next((kind for test, kind in _NO_FUNCTIONS if test(f)), "")
    if kind:
        raise ArgumentError(
            f"function: {name} is {kind}, whose results are computed bit by bit; "
            "call a compiled function from it instead"
        )
    donated = several(options.donate_argnums, is_whole, "donate_argnums", name)
    return Function(
        f,
        options._replace(
            donate_argnums=tuple(map(whole, donated)),
            with_probes=flag(options.with_probes, "function: with_probes"),
        ),
    )


_NO_FUNCTIONS = (
    (inspect.isgeneratorfunction, "a generator"),
    (inspect.iscoroutinefunction, "a coroutine"),
    (inspect.isasyncgenfunction, "an asynchronous generator"),
)
