"""Traces a JAX function to a jaxpr: the names of its arguments, and which of them are traced."""

from __future__ import annotations

import contextlib
import itertools
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

from stopgrad.base.errors import ArgumentError, GradientError, StopgradError
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.operands import shorten
from stopgrad.graph.public import call
from stopgrad.interop.jax.avals import array_of
from stopgrad.interop.jax.deciding import decided
from stopgrad.interop.jax.internals import folding
from stopgrad.interop.jax.places import is_between
from stopgrad.interop.shared import keras

_UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""The errors that JAX raises if Python needs the value of a traced argument."""


@dataclass(frozen=True)
class Program:
    """A function as JAX traces it.

    Attributes:
        name: of the function.
        names: of its positional arguments.
        closed: its jaxpr.
        paths: the path of each traced leaf of the arguments, such as ``"params.w"``.
        positions: for each, the position of its argument; None for those given by keyword.
        structure: of the arguments.
        traced: which leaves of the arguments are traced; the others are part of the program.
        untraced: the other leaves, by their position among all leaves.
        out_paths: the path of each result that is an array.
        rebuild: turns the values of these results into what the function returns.
        variables: those of Keras that are traced, too: after the leaves of the arguments.
        function: the user's function, of the values of what is traced alone; it returns those results that
            are arrays.
        updated: the paths of the leaves that the function writes anew into its arguments.
    """

    name: str
    names: list[str]
    closed: Any
    paths: list[str]
    positions: list[int | None]
    structure: Any
    traced: list[int]
    untraced: dict[int, Any]
    out_paths: list[str]
    rebuild: Callable[[Sequence[Any]], Any]
    variables: Sequence[Any] = ()
    function: Callable[..., list[Any]] = lambda *_: []
    updated: Collection[str] = ()

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The values of the traced leaves in the arguments of a call."""
        located, structure = jax.tree_util.tree_flatten_with_path((args, kwargs))
        leaves = [leaf for _, leaf in located]
        if structure != self.structure:
            named = self._by_path(located)
            if named is not None:  # They may be a dict of the values in a module.
                return named
            raise ArgumentError(
                f"{self.name} was loaded for arguments of another structure: {_shown(self.structure)}, "
                f"not {_shown(structure)}"
            )
        for i, constant in self.untraced.items():
            if leaves[i] is not constant and not _same(leaves[i], constant):
                raise ArgumentError(
                    f"{self.name} was loaded with {shorten(constant)}, which is part of it, and is called "
                    f"with {shorten(leaves[i])}; load it again"
                )
        return [_value(x) for x in (*[leaves[i] for i in self.traced], *self.variables)]

    def _by_path(self, located: Sequence[Any]) -> list[Any] | None:
        """The traced leaves, found by path in another structure; None if its paths differ."""
        paths = _unique(
            [_path(self.names, path) for path, leaf in located if is_traced(leaf) or _is_built(leaf)]
        )
        values = [leaf for _, leaf in located if is_traced(leaf) or _is_built(leaf)]
        if sorted(paths) != sorted(self.paths):
            return None
        by_path = dict(zip(paths, values, strict=True))
        return [by_path[path] for path in self.paths]


def _is_built(x: object) -> bool:
    return isinstance(x, (Operation, Output))


def _path(names: Sequence[str], entries: Sequence[Any]) -> str:
    """The path of a leaf of ``(args, kwargs)``."""
    by_keyword, which, *rest = entries
    return path_of(str(which.key) if by_keyword.idx else names[which.idx], rest)


def _same(a: object, b: object) -> bool:
    try:
        return bool(a == b)
    except Exception:  # Values that cannot be compared count as different.
        return False


def _shown(structure: jax.tree_util.PyTreeDef) -> str:
    text = str(structure).removeprefix("PyTreeDef")
    return text if len(text) < 200 else f"{text[:200]}..."


def is_traced(x: object) -> bool:
    """Whether a leaf of the arguments is traced: an array, a number, or what stands for an array."""
    if keras.is_layer(x):  # Which may have a shape, and has a dtype.
        return False
    if isinstance(x, (bool, int, float, complex, np.ndarray, np.generic)):
        return not isinstance(x, np.ndarray) or x.dtype.kind not in "OSUMmV" or x.dtype.itemsize <= 2
    return isinstance(x, (jax.Array, jax.ShapeDtypeStruct)) or (hasattr(x, "shape") and hasattr(x, "dtype"))


INPUTS, NUMBERS, BOUNDS, OTHERS = range(4)
"""What stays a number while a function is traced: nothing; whole numbers and truth values, which JAX traces
only inside of ``jit``; arrays of one of these, too, as loops count to; or all but what is differentiated, as
when JAX differentiates outside of ``jit``."""


def stays(x: object, level: int, is_asked: bool) -> bool:
    """Whether a leaf of the arguments that could be traced stays what it is."""
    if level == INPUTS or isinstance(x, jax.ShapeDtypeStruct) or keras.is_variable(x):
        return False
    if isinstance(x, (bool, int)) or (isinstance(x, np.generic) and x.dtype.kind in "biu"):
        return True
    if level == NUMBERS or not isinstance(x, (float, complex, jax.Array, np.ndarray, np.generic)):
        return False
    if level == BOUNDS:
        return np.ndim(x) == 0 and not jnp.issubdtype(jax.dtypes.result_type(x), np.inexact)
    return not is_asked or not jnp.issubdtype(jax.dtypes.result_type(x), np.inexact)


def part(entry: object) -> str:
    """One part of a path, as it is written between dots."""
    for name in ("key", "name", "idx"):
        if hasattr(entry, name):
            return str(getattr(entry, name))
    return str(entry).strip(".[]'\"")


def path_of(first: str, entries: Sequence[Any]) -> str:
    """The path of a leaf: the argument's name and its path in it, joined by dots."""
    parts = [text for text in [first, *map(part, entries)] if text]
    if len(parts) > 1 and parts[-1] in ("value", "raw_value", "_raw_value"):  # As in Flax's variables.
        parts = parts[:-1]
    return ".".join(parts)


def program_of(
    what: str,
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    asked: Collection[int] | None = None,
    within: bool = False,
    weights: bool = False,
) -> Program:
    """Trace a function with JAX on arguments like these.

    What JAX keeps as numbers when it differentiates is kept: whole numbers always, and all that is not
    differentiated where Python needs it, or a loop. Without *asked*, only whole numbers that Python needs.
    Where Python needs the value of what is differentiated, as for ``if x > 0``, it is what it is here.

    Args:
        what: names the caller in errors.
        f, args, kwargs: the function and its arguments.
        asked: the positions of the arguments that are differentiated; None if all leaves are to be inputs.
        within: whether it may use values of a trace around this call: they become constants of zero.
        weights: whether the variables of Keras that it uses, and those of the models that it has, are inputs.

    Raises:
        ArgumentError: JAX cannot trace it.
    """
    if not callable(f):
        raise ArgumentError(f"{what}: takes a function and its arguments, not {shorten(f)}")
    _refuse_absent(what, f, args, kwargs)
    first, then = (INPUTS, NUMBERS) if asked is None else (NUMBERS, OTHERS)

    def program_at(level: int, decides: bool = False) -> Program:
        return _program(what, f, args, kwargs, level, asked or (), within, weights, decides)

    def keeps_more(then: int) -> bool:
        located, _ = jax.tree_util.tree_flatten_with_path((tuple(args), kwargs))
        leaves = [(_is_asked(path, asked or ()), leaf) for path, leaf in located if is_traced(leaf)]
        return not within and any(
            stays(leaf, then, is_asked) > stays(leaf, first, is_asked) for is_asked, leaf in leaves
        )

    try:
        program = program_at(first)
    except ArgumentError:
        if keeps_more(then):
            with contextlib.suppress(Exception):  # Then the first error stands.
                return program_at(then)
        if asked is not None and not within:
            with contextlib.suppress(Exception):
                return program_at(then, decides=True)
        raise
    counted = min(then, BOUNDS)
    if any(eqn.primitive.name == "while" for eqn in program.closed.jaxpr.eqns) and keeps_more(counted):
        with contextlib.suppress(Exception):
            return program_at(counted)
    return program


def _refuse_absent(what: str, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise for arrays among the arguments whose values are gone, or are on other machines."""
    names = argument_names(f, len(args))
    for path, leaf in jax.tree_util.tree_flatten_with_path((tuple(args), kwargs))[0]:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
            continue
        if leaf.is_deleted():
            raise ArgumentError(
                f"{what}: {_path(names, path)} is deleted: it was donated to a compiled function "
                "(donate_argnums), or its delete() was called; give what that function returned, or a copy "
                "made before, or jax.ShapeDtypeStruct(x.shape, x.dtype) where its values are not needed"
            )
        if not leaf.is_fully_addressable and not leaf.is_fully_replicated:
            raise ArgumentError(
                f"{what}: parts of {_path(names, path)} are on devices of other processes; give "
                "jax.ShapeDtypeStruct(x.shape, x.dtype), or what "
                "jax.experimental.multihost_utils.process_allgather returns"
            )


def _is_asked(path: Sequence[Any], asked: Collection[int]) -> bool:
    """Whether a leaf of ``(args, kwargs)`` is in one of the arguments at these positions."""
    by_keyword, which, *_ = path
    return not by_keyword.idx and which.idx in asked


def _program(
    what: str,
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    level: int,
    asked: Collection[int],
    within: bool,
    weights: bool,
    decides: bool,
) -> Program:
    names = argument_names(f, len(args))
    located, structure = jax.tree_util.tree_flatten_with_path((tuple(args), kwargs))
    leaves = [leaf for _, leaf in located]
    staying, traced = _staying_and_traced(located, level, asked)
    untraced = {i: leaves[i] for i in range(len(leaves)) if i not in set(traced)}
    paths, positions = _places(names, [located[i] for i in traced])
    returned: dict[str, Any] = {}

    def flat(*values: jax.Array) -> list[Any]:
        everything = list(leaves)
        for i, value in zip(traced, values, strict=True):
            if i not in staying:
                everything[i] = value
        positional, by_name = jax.tree_util.tree_unflatten(structure, everything)
        result = call(f, *positional, **by_name)
        after = jax.tree_util.tree_leaves((positional, by_name))
        if len(after) == len(everything):  # Modules of Flax's nnx may be written into.
            returned["updated"] = [k for k, i in enumerate(traced) if after[i] is not everything[i]]
        results, spec = jax.tree_util.tree_flatten_with_path(result)
        returned["spec"] = spec
        returned["paths"] = [path for path, _ in results]
        returned["fixed"] = {i: y for i, (_, y) in enumerate(results) if not is_traced(y)}
        return [y for _, y in results if is_traced(y)]

    inputs = [_value(leaves[i]) for i in traced]
    around = (args, kwargs) if weights else None
    with (folding() if level >= BOUNDS else None) or contextlib.nullcontext():
        closed, function, variables = _with_variables(what, f, flat, inputs, within, around, decides)
    positions += _owners(variables, args)
    arrays, rebuild = _rebuilding(returned["spec"], returned["fixed"], len(returned["paths"]))
    paths = _unique([*paths, *[v.path for v in variables]])
    return Program(
        name=getattr(f, "__name__", type(f).__name__),
        names=names,
        closed=closed,
        paths=paths,
        positions=positions,
        structure=structure,
        traced=traced,
        untraced=untraced,
        out_paths=_unique([path_of("", returned["paths"][i]) or "result" for i in arrays]),
        rebuild=rebuild,
        variables=variables,
        function=jex.jaxpr_as_fun(closed) if decides else function,
        updated={paths[k] for k in returned.get("updated", ())},
    )


def _staying_and_traced(
    located: Sequence[Any], level: int, asked: Collection[int]
) -> tuple[set[int], list[int]]:
    """Which leaves stay what they are, and which are inputs of the program.

    Arrays that were asked about are inputs even if they stay: nothing is made of these.
    """
    staying, traced = set(), []
    for i, (path, leaf) in enumerate(located):
        is_asked = _is_asked(path, asked)
        if not is_traced(leaf) or stays(leaf, level, is_asked):
            staying.add(i)
        if i not in staying or (is_asked and is_traced(leaf) and hasattr(leaf, "dtype")):
            traced.append(i)
    return staying, traced


def _rebuilding(
    spec: Any, fixed: dict[int, Any], total: int
) -> tuple[list[int], Callable[[Sequence[Any]], Any]]:
    """Which of the results are arrays, and what turns their values into what the function returns."""
    arrays = [i for i in range(total) if i not in fixed]

    def rebuild(values: Sequence[Any]) -> Any:
        everything = dict(fixed) | dict(zip(arrays, values, strict=True))
        return jax.tree_util.tree_unflatten(spec, [everything[i] for i in range(total)])

    return arrays, rebuild


def _places(names: Sequence[str], located: Sequence[Any]) -> tuple[list[str], list[int | None]]:
    """The paths of leaves, and the positions of their arguments; None for those given by keyword."""
    paths, positions = [], []
    for path, leaf in located:
        paths.append(leaf.path if keras.is_variable(leaf) else _path(names, path))
        positions.append(_position(path))
    return paths, positions


def _position(path: Sequence[Any]) -> int | None:
    """The position of the argument that a leaf of ``(args, kwargs)`` is in; None for one by keyword."""
    by_keyword, which, *_ = path
    return None if by_keyword.idx else int(which.idx)


def _value(x: object) -> Any:
    """A leaf of the arguments as JAX takes it: of a variable of Keras, its value."""
    return x.value if keras.is_variable(x) else x  # type: ignore[attr-defined]


def _with_variables(
    what: str,
    f: Callable[..., Any],
    flat: Callable[..., Any],
    inputs: list[Any],
    within: bool,
    around: object,
    decides: bool,
) -> tuple[Any, Callable[..., list[Any]], list[Any]]:
    """The jaxpr of a function, with the variables of Keras as further inputs; the function; and these.

    They are those that it reads when it is traced, however it comes by them, and all of the models that are
    found in its arguments (*around*), its closure and the global variables it names; without *around*, none.
    """
    if around is None or keras.loaded("jax") is None:
        return _traced(what, f, flat, inputs, within, decides), flat, []
    read = keras.Read()
    with (
        _afresh(),
        keras.scope(read=read),
    ):  # Left outside of the trace: then Keras makes weights.
        closed = _traced(what, f, flat, inputs, within, decides)
    models = keras.layers_in(f, around)
    by_id = {id(v): v for v in (*[v for model in models for v in model.variables], *read.variables.values())}
    variables = list(by_id.values())
    if not variables:
        return closed, flat, []
    count = len(inputs)

    def with_values(*values: jax.Array) -> list[Any]:
        with keras.scope(zip(variables, values[count:], strict=True)):
            return list(flat(*values[:count]))

    with _afresh():
        closed = _traced(what, f, with_values, [*inputs, *map(_value, variables)], within, decides)
    return closed, with_values, variables


def _afresh() -> Any:
    """A context in which JAX traces functions again that it has traced before, as those that are jitted.

    What they read besides their arguments would be what it was then. The mark belongs to what JAX keeps its
    traces by, and says nothing to XLA, since nothing that is traced here is compiled by JAX.
    """
    return set_xla_metadata(stopgrad=next(_TRACES))


_TRACES = itertools.count()


def _owners(variables: Sequence[Any], args: Sequence[Any]) -> list[int | None]:
    """For each variable, the position of the argument that has it; None for those in none.

    Keras never trains what is not trainable, so that this belongs to no argument that is asked about.
    """
    owners = {
        id(v): i for i, arg in enumerate(args) for model in keras.layers_in(arg) for v in model.variables
    }
    return [owners.get(id(v)) if v.trainable else None for v in variables]


def _unique(paths: Sequence[str]) -> list[str]:
    """The paths, with a number appended to those that occur before."""
    seen: dict[str, int] = {}
    unique = []
    for path in paths:
        seen[path] = seen.get(path, 0) + 1
        unique.append(path if seen[path] == 1 else f"{path}_{seen[path]}")
    return unique


def _traced(
    what: str,
    f: Callable[..., Any],
    flat: Callable[..., Any],
    leaves: Sequence[Any],
    within: bool,
    decides: bool = False,
) -> Any:
    function = decided(flat, leaves) if decides else None
    try:
        closed = jax.make_jaxpr(function or flat)(*[_stand_in(x) for x in leaves])
    except _UNTRACEABLE as error:
        raise _untraceable(what, f, error) from error
    except TypeError as error:
        if "concrete value" not in str(error):  # The error is the user's own.
            raise
        raise _untraceable(what, f, error) from error
    except jax.errors.UnexpectedTracerError as error:
        raise ArgumentError(
            f"{what}: JAX cannot trace {_name(f)}: a value that was traced earlier has left its function "
            f"through a global variable or an attribute{_at(error)}; return it instead"
        ) from error
    if within:
        return jex.ClosedJaxpr(closed.jaxpr, [_constant(x) for x in closed.consts])
    if any(isinstance(const, jax.core.Tracer) for const in closed.consts):
        raise ArgumentError(
            f"{what}: {_name(f)} uses a value of another trace of JAX's: one that has left its function "
            "through a global variable or an attribute (return it instead), or one of a jit or grad around "
            "this call (pass it as an argument, and call outside)"
        )
    return closed


def _constant(x: Any) -> Any:
    """A constant in place of a value of a trace around: zeros, for keys those of the seed zero."""
    if not isinstance(x, jax.core.Tracer):
        return x
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.broadcast_to(np.zeros((), x.dtype), x.shape)
    with jax.ensure_compile_time_eval():
        return jnp.broadcast_to(jax.random.key(0, impl=str(jax.random.key_impl(x))), x.shape)


def _stand_in(x: object) -> Any:
    if isinstance(x, jax.ShapeDtypeStruct) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    if isinstance(x, (jax.Array, np.ndarray, np.generic)):
        return x
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _name(f: Callable[..., Any]) -> str:
    return getattr(f, "__name__", type(f).__name__)


def _line(error: BaseException) -> tuple[str, str] | None:
    """The innermost line outside of JAX that an error passed through, with its source text."""
    innermost = None
    for frame in traceback.extract_tb(error.__traceback__):
        if not is_between(frame.filename):
            innermost = f"{frame.filename}:{frame.lineno}", (frame.line or "").strip()
    return innermost


def _at(error: BaseException) -> str:
    line = _line(error)
    return "" if line is None else f", at {line[0]}: {line[1]}"


def _untraceable(what: str, f: Callable[..., Any], error: Exception) -> StopgradError:
    if isinstance(error, jax.errors.TracerBoolConversionError):
        why = (
            "Python decides by a traced value; use jnp.where or jax.lax.cond (in a loop jax.lax.while_loop), "
            "or pass what it depends on as a constant, with functools.partial"
        )
    elif isinstance(error, jax.errors.TracerArrayConversionError):
        why = "NumPy is called on a traced array; use jax.numpy there"
    elif isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        why = "an index of booleans makes a shape that depends on data; use jnp.where, with a size"
    elif isinstance(error, jax.errors.TracerIntegerConversionError):
        why = (
            "Python needs a traced value as a whole number; pass it as a constant, with functools.partial, "
            "or index with jnp.take"
        )
    else:
        why = (
            "Python asks for the value of a traced argument (as float(x), x.item() or a shape does); keep it "
            "in JAX, or pass the argument as a constant, with functools.partial"
        )
    if not what.endswith("load"):
        why += ". What is not in argnums keeps its value, as when JAX differentiates"
    return ArgumentError(f"{what}: JAX cannot trace {_name(f)}{_at(error)}: {why}")


def positions_of(
    what: str, f: Callable[..., Any], count: int, argnums: int | Sequence[int] | None
) -> set[int]:
    """The positions of the arguments that *argnums* chooses; of all if it is None."""
    positions = range(count) if argnums is None else argnums
    numbers = [positions] if isinstance(positions, int) else list(positions)
    for n in numbers:
        if not isinstance(n, (int, np.integer)) or not -count <= n < count:
            raise GradientError(f"{what}: argnums holds {n!r}, and {_name(f)} was given {count} arguments")
    return {int(n) % count for n in numbers} if count else set()


def chosen(program: Program, asked: Collection[int], argnums: int | Sequence[int] | None) -> list[int]:
    """Which traced leaves belong to the arguments that are asked about, or are variables to train."""
    indices = [i for i, position in enumerate(program.positions) if position in asked]
    if argnums is not None:
        return indices
    first = len(program.paths) - len(program.variables)
    return sorted({*indices, *[i for i, v in enumerate(program.variables, first) if v.trainable]})


def narrower(dtype: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether *target* is the dtype to which JAX narrows *dtype* if 64 bits are not enabled."""
    return dtype != target and dtype.kind == target.kind and dtype.itemsize == 2 * target.itemsize


def canonical(value: object, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A value as the array that JAX makes of it, perhaps with fewer bits; for keys, their words."""
    if not hasattr(value, "dtype"):
        return np.asarray(value, dtype)
    array = array_of(value)
    return array.astype(dtype) if narrower(array.dtype, dtype) else array
