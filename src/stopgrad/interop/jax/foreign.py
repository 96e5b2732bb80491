"""JAX primitives that we lack, as foreign operations that JAX runs.

JAX exports the primitive and its derivatives, and tells which results depend on which operands, and whether
differentiably.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.export
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import partial_eval

from stopgrad.base.errors import ShapeError
from stopgrad.base.types import complex128, dtype_of, float64, int64, uint64
from stopgrad.graph.graph import Output, describe
from stopgrad.graph.op import Status
from stopgrad.ops.structural.foreign import foreign
from stopgrad.ops.structural.foreign_programs import Step, trust, written

ORDER = 2
"""The highest order of the derivatives that are exported."""

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_WIDE = (float64, int64, uint64, complex128)

Flat = Callable[..., Sequence[Any]]
"""A function of arrays that returns several arrays."""


def foreign_of(
    primitive: jex.Primitive, params: Mapping[str, Any], inputs: Sequence[Output], order: int = ORDER
) -> tuple[Output, ...]:
    """The results of a JAX primitive, in the graph that is being built.

    Args:
        primitive: a ``jax.extend.core.Primitive``.
        params: those of its equation.
        inputs: its operands, of known sizes.
        order: how many derivatives it may have.

    Returns:
        The results of a :class:`stopgrad.ops.structural.foreign.Foreign`. What JAX cannot export, such as
        callbacks to Python, is included with the reason, which is told if it or its gradient is computed.
    """
    for x in inputs:
        if x.type.symbolic:
            raise ShapeError(
                f"{primitive.name}: JAX's primitive needs known sizes, not those of {describe(x)}"
            )

    kinds = tuple([(x.shape, x.dtype.name) for x in inputs])
    key = repr((kinds, sorted(params.items()), order)) if all(map(_is_plain, params.values())) else ""
    cache = _EXPORTED.setdefault(primitive, {}) if key else {}
    programs = cache.get(key)
    if programs is None:
        if len(cache) >= _MANY:
            cache.clear()
        programs = cache[key] = _programs(primitive, params, inputs, order)
    results: dict[int, Output] = {}
    for group, steps in programs:
        first = steps[0]
        outputs = foreign(inputs, first.call, first.results, first.walls, first.reach, written(steps))
        results.update(zip(group, outputs, strict=True))
    return tuple([results[j] for j in range(len(results))])


_Program = tuple[Sequence[int], Sequence[Step]]
"""The numbers of some results of a primitive, and the steps that compute them."""

_MANY = 16
_EXPORTED: WeakKeyDictionary[Any, dict[str, list[_Program]]] = WeakKeyDictionary()
"""The exported programs of primitives, since one primitive may occur many times."""


def _is_plain(value: object) -> bool:
    """Whether a parameter is identified by its ``repr``."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, np.dtype, Enum))


def _programs(
    primitive: jex.Primitive, params: Mapping[str, Any], inputs: Sequence[Output], order: int
) -> list[_Program]:
    """The results of a primitive in groups, each with how it is computed and differentiated."""

    def bound(*arrays: jax.Array) -> Sequence[Any]:
        result = primitive.bind(*arrays, **params)
        results: Sequence[Any] = result if primitive.multiple_results else (result,)
        return results

    with jax.enable_x64(bool(jax.config.jax_enable_x64) or any(x.dtype in _WIDE for x in inputs)):
        kinds = [jax.ShapeDtypeStruct(x.shape, x.dtype.numpy) for x in inputs]
        closed, call = jax.make_jaxpr(bound)(*kinds), _call_name(primitive.name)
        groups = _apart(closed, kinds)
        if len(groups) == 1:
            return [(groups[0], _steps(bound, kinds, call, order))]
        return [(group, _steps(_only(closed, group), kinds, call, order)) for group in groups]


def _apart(closed: jex.ClosedJaxpr, kinds: Sequence[Any]) -> list[list[int]]:
    """The results of a primitive in groups: those with a gradient, and those whose gradient is zero.

    Each group is an operation of its own, so that reports distinguish them.
    """
    dependence = _dependence(jaxpr_as_fun(closed), kinds)
    count = len(dependence.types)
    flat = [j for j in range(count) if _is_smooth(dependence.types[j]) and not dependence.moved[j]]
    others = [j for j in range(count) if j not in set(flat)]
    return [others, flat] if dependence.towards and flat else [[*range(count)]]


def _call_name(name: str) -> str:
    is_of_lax = hasattr(jax.lax, name) or hasattr(jax.lax, f"{name}_p")
    return f"lax.{name}" if is_of_lax else name


def _steps(function: Flat, kinds: Sequence[Any], call: str, order: int) -> list[Step]:
    """The steps of a function and of its derivatives, up to the given order or as long as any is wanted."""
    code, reason = _exported(function, kinds)
    steps = [Step("", code=code, reason=reason)]
    for n in range(order + 1):
        dependence = _dependence(function, kinds)
        step = steps[-1]._replace(call=_TIMES.get(n, f"gradient {n} of ") + call, results=dependence.results)
        steps[-1] = step._replace(walls=dependence.walls, reach=dependence.reach, refused=dependence.refused)
        if not dependence.towards or not code:
            return steps
        function = _pullback(jax.make_jaxpr(function)(*kinds), dependence.towards, dependence.wants)
        kinds = [*kinds, *[dependence.types[i] for i in dependence.wants]]
        following = Step("", towards=dependence.towards, wants=dependence.wants)
        if n == order:
            many = {0: "no derivative", 1: "one derivative"}.get(order, f"{order} derivatives")
            return [
                *steps,
                following._replace(reason=f"JAX exported {many} of {call}{', and no more' if order else ''}"),
            ]
        code, reason = _exported(function, kinds)
        if not code:  # For example one that has a JVP but no transpose.
            walls = [(i, Status.UNDEFINED.value, reason) for i in dependence.towards]
            steps[-1] = steps[-1]._replace(walls=tuple(sorted([*dependence.walls, *walls])))
            return steps
        steps.append(following._replace(code=code))
    return steps


_TIMES = {0: "", 1: "gradient of ", 2: "second gradient of "}


class _Dependence(NamedTuple):
    """What JAX says about how the results of a function depend on its operands.

    Attributes:
        types: of its results.
        results, walls, reach, refused: as foreign operations and the steps of their programs have them.
        moved: for each result, the operands on which it depends differentiably.
        towards: the operands on which any result depends differentiably.
        wants: the results that depend on these, and for which JAX has a derivative.
    """

    types: Sequence[Any]
    results: tuple[tuple[Any, ...], ...]
    walls: tuple[tuple[int, str, str], ...]
    reach: tuple[tuple[int, ...], ...]
    refused: tuple[tuple[int, str], ...]
    moved: Sequence[set[int]]
    towards: tuple[int, ...]
    wants: tuple[int, ...]


def _dependence(function: Flat, kinds: Sequence[Any]) -> _Dependence:
    closed = jax.make_jaxpr(function)(*kinds)
    types = closed.out_avals
    values = uses_of(closed)
    smooth = [j for j, y in enumerate(types) if _is_smooth(y)]
    moved: list[set[int]] = [set() for _ in types]
    walls, refused = [], {}
    for i, x in enumerate(kinds):
        users = [j for j in smooth if i in values[j]]
        if not smooth or not _is_smooth(x):
            continue
        if not users:
            walls.append((i, Status.DISCONNECTED.value, "takes no value from it"))
            continue
        moves, errors = _moves(closed, kinds, i, users)
        for j in moves:
            moved[j].add(i)
        if len(errors) == len(users):
            walls.append((i, Status.UNDEFINED.value, errors[users[0]]))
        elif errors:
            refused.update(errors)
        elif not moves:
            walls.append((i, Status.NOT_DIFFERENTIABLE.value, "its gradient is zero everywhere"))
    wants = [j for j in smooth if moved[j] and j not in refused]
    towards = set().union(*[moved[j] for j in wants])
    moving = set().union(*moved)
    reach = [sorted(i for i in values[j] if i in moved[j] or i not in moving) for j in range(len(types))]
    return _Dependence(
        types,
        tuple([(dtype_of(y.dtype).name, *y.shape) for y in types]),
        tuple(walls),
        () if all(len(operands) == len(kinds) for operands in reach) else tuple(map(tuple, reach)),
        tuple(sorted(refused.items())),
        moved,
        tuple(sorted(towards)),
        tuple(wants),
    )


def _is_smooth(x: jax.ShapeDtypeStruct | jax.core.ShapedArray) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def uses_of(closed: jex.ClosedJaxpr) -> list[set[int]]:
    """For each result of a jaxpr, the arguments from which it is computed."""
    count = len(closed.jaxpr.outvars)
    uses = []
    for j in range(count):
        _, used = partial_eval.dce_jaxpr(closed.jaxpr, [k == j for k in range(count)])
        uses.append({i for i, is_used in enumerate(used) if is_used})
    return uses


def _only(closed: jex.ClosedJaxpr, results: Sequence[int]) -> Flat:
    """The function of a jaxpr that returns only some of its results."""
    lean, used = partial_eval.dce_jaxpr(
        closed.jaxpr, [j in set(results) for j in range(len(closed.out_avals))]
    )
    function = jaxpr_as_fun(ClosedJaxpr(lean, closed.consts))
    return lambda *arrays: function(*[x for x, is_used in zip(arrays, used, strict=True) if is_used])


def _moves(
    closed: jex.ClosedJaxpr, kinds: Sequence[Any], i: int, users: Sequence[int]
) -> tuple[list[int], dict[int, str]]:
    """The results whose tangents depend on that of one operand; and the reason where JAX has no tangent."""
    moves: list[int] = []
    errors: dict[int, str] = {}
    for j in users:
        try:
            if 0 in uses_of(jax.make_jaxpr(_pushforward(closed, i, j))(kinds[i], *kinds))[0]:
                moves.append(j)
        except Exception as error:
            errors[j] = f"JAX: {' '.join(str(error).split())}"
    return moves, errors


def _pushforward(closed: jex.ClosedJaxpr, i: int, j: int) -> Callable[..., Any]:
    """The function from one operand's tangent, and all operands, to one result's tangent."""
    function = _only(closed, [j])

    def pushed(t: jax.Array, *arrays: jax.Array) -> Any:
        def result_of(x: jax.Array) -> Any:
            return function(*arrays[:i], x, *arrays[i + 1 :])[0]

        return jax.jvp(result_of, (arrays[i],), (t,))[1]

    return pushed


def _pullback(closed: jex.ClosedJaxpr, towards: Sequence[int], wants: Sequence[int]) -> Flat:
    """The function from operands and the cotangents of some results to those of some operands."""
    function, count = _only(closed, wants), len(closed.in_avals)

    def pulled(*arrays: jax.Array) -> Sequence[Any]:
        def results_of(*some: jax.Array) -> Sequence[Any]:
            filled = list(arrays[:count])
            for i, x in zip(towards, some, strict=True):
                filled[i] = x
            return function(*filled)

        _, pull = jax.vjp(results_of, *[arrays[i] for i in towards])
        cotangents: Sequence[Any] = pull(list(arrays[count:]))
        return cotangents

    return pulled


def _exported(function: Flat, kinds: Sequence[Any]) -> tuple[bytes, str]:
    """The function as JAX exports it; or nothing, and the reason."""
    reason = ""
    for platforms in (_PLATFORMS, None):  # Not every primitive exists on all platforms.
        try:
            exported = jax.export.export(jax.jit(function), platforms=platforms)(*kinds)
            return trust(bytes(exported.serialize())), ""
        except ImportError as error:
            return b"", f"JAX cannot write it ({error}); pip install 'stopgrad[jax]'"
        except Exception as error:
            reason = f"JAX cannot export it: {' '.join(str(error).split())}"
            if "callback" in reason:
                reason += (
                    "; what calls Python must be taken out of what is loaded (equinox's checks, and those of "
                    "libraries on it, by the environment variable EQX_ON_ERROR=nan)"
                )
    return b"", reason
