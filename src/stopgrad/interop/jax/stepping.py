"""Evaluates a jaxpr equation by equation with JAX, and follows NaNs and infinities through it.

It goes into functions that are jitted or remembered, loops, branches and custom derivatives; each primitive
is bound as JAX's own ``eval_jaxpr`` binds it, so that values and gradients are JAX's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from stopgrad.base.source import RawLocation
from stopgrad.interop.jax.gradients import is_float
from stopgrad.interop.jax.places import place_of
from stopgrad.interop.jax.steps import CALLS, RECOMPUTED
from stopgrad.interop.shared.nans import (
    MOST,
    Array,
    Events,
    Forward,
    Made,
    apart,
    first_index,
    first_of,
    is_bad,
    least,
)

_RULED = ("custom_jvp_call", "custom_vjp_call", "custom_lin")
_ENTERED = CALLS | RECOMPUTED | dict.fromkeys(_RULED, "call_jaxpr")
ELEMENTWISE = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "add",
        "add_any",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "bessel_i0e",
        "bessel_i1e",
        "cbrt",
        "ceil",
        "clamp",
        "complex",
        "conj",
        "convert_element_type",
        "copy",
        "copy_p",
        "cos",
        "cosh",
        "digamma",
        "div",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "igamma",
        "igamma_grad_a",
        "igammac",
        "imag",
        "integer_pow",
        "is_finite",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "max",
        "min",
        "mul",
        "name",
        "neg",
        "nextafter",
        "optimization_barrier",
        "polygamma",
        "pow",
        "random_gamma_grad",
        "real",
        "reduce_precision",
        "regularized_incomplete_beta",
        "rem",
        "round",
        "rsqrt",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "stop_gradient",
        "sub",
        "tan",
        "tanh",
        "zeta",
        "pvary",
    ]
)
"""Primitives of which each element of a result is computed from the elements at its place."""
MOVING = {
    "broadcast_in_dim": 1,
    "concatenate": None,
    "dynamic_slice": 1,
    "dynamic_update_slice": 2,
    "gather": 1,
    "pad": 2,
    "reshape": 1,
    "rev": 1,
    "select_n": None,
    "slice": 1,
    "split": 1,
    "squeeze": 1,
    "transpose": 1,
}
"""Primitives that move elements, and how many of their first operands hold these; None for all."""
REDUCING = frozenset(["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])
FAR = 8
"""The number of operations within which the parts of a pattern are searched."""
WHOLE = 8
"""Loops of fewer steps are not run as a whole first, to see whether anything is to be looked for in them."""


class Node:
    """What computed a value: an equation and its operands', or nothing for an argument or constant.

    Attributes:
        eqn: the equation.
        inputs: what computed its operands.
        place: the user's line.
        name: of an argument.
    """

    __slots__ = ("eqn", "inputs", "name", "place")

    eqn: Any
    inputs: tuple[Node, ...]
    place: RawLocation | None
    name: str

    def __init__(
        self,
        eqn: Any = None,
        inputs: tuple[Node, ...] = (),
        place: RawLocation | None = None,
        name: str = "",
    ) -> None:
        self.eqn, self.inputs, self.place, self.name = eqn, inputs, place, name

    @property
    def kind(self) -> str:
        """The name of its primitive; empty for none."""
        return "" if self.eqn is None else str(self.eqn.primitive.name)

    def behind(self, far: int = FAR) -> list[Node]:
        """What it was computed from, itself first, nearest first."""
        nodes = {self: None}
        layer = [self]
        for _ in range(far):
            layer = [x for node in layer for x in node.inputs if x not in nodes]
            nodes.update(dict.fromkeys(layer))
        return list(nodes)


@dataclass(frozen=True, eq=False)
class Value:
    """A value, with the marks of its NaNs and infinities, and what computed it."""

    array: Any
    marks: Array | None
    node: Node


def numbers(x: Any) -> Array:
    """A value as an array of NumPy's, to be looked at; an empty one if it has no numbers."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or dtype == jax.dtypes.float0 or not jnp.issubdtype(dtype, jnp.number):
        is_bool = dtype is not None and dtype == np.bool_
        return np.asarray(x) if dtype is None or is_bool else np.zeros(0, np.int32)
    array = np.asarray(x)
    return array.astype(np.int32) if array.dtype.kind == "V" and jnp.issubdtype(dtype, jnp.integer) else array


@dataclass
class Stepping:
    """A run of a jaxpr, equation by equation.

    Args:
        forwards: the user's equations by the traceback at which they were written.

    Attributes:
        events: what was made.
        ran: the number of equations that ran; those in bodies count once.
    """

    forwards: Mapping[int, Sequence[Any]]
    events: Events = field(default_factory=Events)
    ran: set[int] = field(default_factory=set)
    _around: tuple[tuple[str, RawLocation | None, int | None], ...] = ()
    _operands: dict[Any, tuple[Sequence[Value], RawLocation | None]] = field(default_factory=dict)
    _literals: dict[Any, Value] = field(default_factory=dict)

    def initial(self, array: Any, source: str, name: str, place: RawLocation | None = None) -> Value:
        """A value that is given, or written at a place, which may hold NaNs and infinities itself."""
        node = Node(name=name if source == "argument" else "")
        if not is_float(array):
            return Value(array, None, node)
        values = numbers(array)

        def new(kind: str, mask: Array, parent: int) -> Made:
            index, count = first_index(mask), int(mask.sum())
            return Made((source, name), name, kind, index, count, place, source=source, result=values)

        nothing = np.zeros((), np.int32)
        return Value(array, self.events.settled(values, nothing, nothing, new), node)

    def run(
        self,
        jaxpr: jex.Jaxpr,
        consts: Sequence[Any],
        inputs: Sequence[Value],
        around: RawLocation | None,
        live: Sequence[bool],
    ) -> list[Value]:
        """Evaluate a jaxpr.

        Args:
            jaxpr: the jaxpr.
            consts: its constants.
            inputs: its operands.
            around: the user's line that led to it.
            live: which of its results the user's own results are computed from.
        """
        env: dict[Any, Value] = dict(zip(jaxpr.invars, inputs, strict=True))
        for v, const in zip(jaxpr.constvars, consts, strict=True):
            env[v] = self._constant(const, around)
        live_vars = {v for v, is_live in zip(jaxpr.outvars, live, strict=True) if is_live and _is_var(v)}
        own_eqns = set()
        for eqn in reversed(jaxpr.eqns):
            if not live_vars.isdisjoint(eqn.outvars):
                own_eqns.add(id(eqn))
                live_vars.update(v for v in eqn.invars if _is_var(v))
        last = _last_uses(jaxpr)
        for eqn in jaxpr.eqns:
            self.ran.add(id(eqn))
            place = place_of(eqn, around)
            operands = [self._read(env, v, place) for v in eqn.invars]
            results = self._equation(eqn, operands, place, id(eqn) in own_eqns, live_vars)
            env.update(zip(eqn.outvars, results, strict=True))
            for v in last.get(id(eqn), ()):
                env.pop(v, None)
        return [self._read(env, v, around) for v in jaxpr.outvars]

    def _read(self, env: Mapping[Any, Value], v: Any, place: RawLocation | None) -> Value:
        return env[v] if _is_var(v) else self._constant(v.val, place)

    def _constant(self, x: Any, place: RawLocation | None) -> Value:
        """A constant, which is one event however often it is read, at the line that first did."""
        key = id(x), place
        value = self._literals.get(key)
        if value is None:
            value = self._literals[key] = self.initial(x, "constant", _short(x), place)
        return value

    def _equation(
        self,
        eqn: jex.JaxprEqn,
        operands: list[Value],
        place: RawLocation | None,
        own: bool,
        live_vars: set[Any],
    ) -> list[Value]:
        name = eqn.primitive.name
        live = [v in live_vars and own for v in eqn.outvars]
        if name in _ENTERED and _ENTERED[name] in eqn.params:
            closed = eqn.params[_ENTERED[name]]
            jaxpr, consts = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
            if len(jaxpr.invars) == len(operands):
                return self.run(jaxpr, consts, operands, place, live)
        if name == "cond":
            return self._branch(eqn, operands, place, live)
        if name in ("scan", "while") and not self._is_clean(eqn, operands):
            steps = self._scan if name == "scan" else self._while
            return steps(eqn, operands, place, live)
        return self._bound(eqn, operands, place, own)

    # ---------------------------------------------------------------------------------- bodies

    def _branch(
        self, eqn: jex.JaxprEqn, operands: list[Value], place: RawLocation | None, live: list[bool]
    ) -> list[Value]:
        branches = eqn.params["branches"]
        which = min(max(int(operands[0].array), 0), len(branches) - 1)
        closed = branches[which]
        return self._within(eqn, None, place, closed, operands[1:], live)

    def _within(
        self,
        eqn: jex.JaxprEqn,
        step: int | None,
        place: RawLocation | None,
        closed: jex.ClosedJaxpr,
        operands: Sequence[Value],
        live: Sequence[bool],
    ) -> list[Value]:
        """Run a body."""
        outer = self._around
        self._around = (*outer, (call_name(eqn.primitive.name), place, step))
        try:
            return self.run(closed.jaxpr, closed.consts, operands, place, live)
        finally:
            self._around = outer

    def _is_clean(self, eqn: jex.JaxprEqn, operands: list[Value]) -> bool:
        """Whether a loop of many steps, run as a whole, gives finite results of finite operands."""
        if (
            eqn.effects
            or eqn.params.get("length", WHOLE) < WHOLE
            or any(x.marks is not None for x in operands)
        ):
            return False
        return not any(is_float(y) and is_bad(numbers(y)).any() for y in _bind(eqn, operands))

    def _scan(
        self, eqn: jex.JaxprEqn, operands: list[Value], place: RawLocation | None, live: list[bool]
    ) -> list[Value]:
        params = eqn.params
        closed, length = params["jaxpr"], params["length"]
        fixed, carries = params["num_consts"], params["num_carry"]
        consts, carried, rows = (
            operands[:fixed],
            operands[fixed : fixed + carries],
            operands[fixed + carries :],
        )
        inner = _fixed(closed.jaxpr, live, fixed, carries)
        sequences: list[list[Value]] = [[] for _ in closed.jaxpr.outvars[carries:]]
        for i in reversed(range(length)) if params["reverse"] else range(length):
            inputs = [*consts, *carried, *[_row(x, i) for x in rows]]
            results = self._within(eqn, i, place, closed, inputs, inner)
            carried = results[:carries]
            for sequence, row in zip(sequences, results[carries:], strict=True):
                sequence.append(row)
        if params["reverse"]:
            sequences = [sequence[::-1] for sequence in sequences]
        if not length:
            return self._bound(eqn, operands, place, any(live))
        return [*carried, *[_stacked(sequence) for sequence in sequences]]

    def _while(
        self, eqn: jex.JaxprEqn, operands: list[Value], place: RawLocation | None, live: list[bool]
    ) -> list[Value]:
        params = eqn.params
        cond_count, body_count = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, consts, carried = (
            operands[:cond_count],
            operands[cond_count : cond_count + body_count],
            operands[cond_count + body_count :],
        )
        inner = _fixed(params["body_jaxpr"].jaxpr, live, body_count, len(carried))
        step = 0
        while bool(self.run_silently(params["cond_jaxpr"], [*cond_consts, *carried])):
            carried = self._within(eqn, step, place, params["body_jaxpr"], [*consts, *carried], inner)
            step += 1
        return carried

    @staticmethod
    def run_silently(closed: jex.ClosedJaxpr, operands: Sequence[Value]) -> Any:
        """The first result of a jaxpr."""
        return jex.jaxpr_as_fun(closed)(*[x.array for x in operands])[0]

    # ------------------------------------------------------------------------------ primitives

    def _bound(
        self, eqn: jex.JaxprEqn, operands: list[Value], place: RawLocation | None, own: bool
    ) -> list[Value]:
        """Bind a primitive, and mark its results."""
        results = _bind(eqn, operands)
        written = id(eqn.source_info.traceback)
        if own and written in self.forwards:
            steps = tuple([step for _, _, step in self._around])
            self._operands[written, eqn.primitive.name, steps] = operands, place
        node = Node(eqn, tuple([x.node for x in operands]), place)
        if not any(map(is_float, results)):
            return [Value(y, None, node) for y in results]
        values = [numbers(y) if is_float(y) else None for y in results]
        bad = [x is not None and bool(is_bad(x).any()) for x in values]
        if not any(bad):
            return [Value(y, None, node) for y in results]
        marked = self._marks_into(eqn, operands, values)
        forward = None if own else self._forward(written)

        def new(result: Array, kind: str, mask: Array, parent: int) -> Made:
            is_kept = len(self.events.made) < MOST
            return Made(
                (written, eqn.primitive.name) if own else id(eqn),
                call_name(eqn.primitive.name),
                kind,
                first_index(mask),
                int(mask.sum()),
                place,
                parent,
                [x.node.name for x in operands],
                [numbers(x.array) for x in operands] if is_kept else (),
                result if is_kept else None,
                gradient=not own,
                forward=forward,
                around=self._around,
                more=node,
            )

        outputs = []
        for y, x, is_, (nans, infs) in zip(results, values, bad, marked, strict=True):
            marks = None
            if is_ and x is not None:
                marks = self.events.settled(x, nans, infs, lambda *event, x=x: new(x, *event))
            outputs.append(Value(y, marks, node))
        return outputs

    def _forward(self, written: int) -> Forward | None:
        """The user's operation that was written at a traceback."""
        steps = tuple([step for _, _, step in self._around])
        for eqn in self.forwards.get(written, ()):
            name = eqn.primitive.name
            for inner in (steps, ()):
                if (written, name, inner) in self._operands:
                    operands, place = self._operands[written, name, inner]
                    arrays = [numbers(x.array) for x in operands]
                    nodes = tuple([x.node for x in operands])
                    return Forward((written, name), call_name(name), place, arrays, Node(eqn, nodes, place))
        return None

    def _marks_into(
        self, eqn: jex.JaxprEqn, operands: list[Value], values: Sequence[Array | None]
    ) -> list[tuple[Array, Array]]:
        """For each result the marks of the NaNs and of the infinities that go into its elements."""
        nothing = np.zeros((), np.int32)
        if all(x.marks is None for x in operands):
            return [(nothing, nothing) for _ in values]
        name = eqn.primitive.name
        parts = [
            (nothing, nothing) if x.marks is None else apart(numbers(x.array), x.marks) for x in operands
        ]
        if name in MOVING:
            return list(zip(*[_moved(eqn, operands, [p[i] for p in parts]) for i in (0, 1)], strict=True))
        if name in ELEMENTWISE:
            marks = first_of([p[0] for p in parts]), first_of([p[1] for p in parts])
            if all(_fits(marks, x) for x in values):
                self._beside(parts)
                return [marks for _ in values]
        axes = eqn.params.get("axes") if name in REDUCING else None
        for x in operands:
            if x.marks is not None:
                self.events.together(x.marks, np.concatenate([_all(p) for p in parts]))
        if axes is not None:
            return [(least(parts[0][0], axes), least(parts[0][1], axes))]
        whole = first_of([least(p[0]) for p in parts]), first_of([least(p[1]) for p in parts])
        return [whole for _ in values]

    def _beside(self, parts: Sequence[tuple[Array, Array]]) -> None:
        """Note events that meet in one element."""
        several = [marks for part in parts for marks in part if marks.any()]
        for i, first in enumerate(several):
            for other in several[i + 1 :]:
                a, b = np.broadcast_arrays(first, other)
                both = (a != 0) & (b != 0) & (a != b)
                self.events.together(a[both], b[both])
                self.events.together(b[both], a[both])


def _all(part: tuple[Array, Array]) -> Array:
    return np.unique(np.concatenate([np.ravel(part[0]), np.ravel(part[1])]))


def _fits(marks: tuple[Array, Array], x: Array | None) -> bool:
    try:
        return x is None or all(np.broadcast_shapes(m.shape, x.shape) == x.shape for m in marks)
    except ValueError:
        return False


def _bind(eqn: jex.JaxprEqn, operands: Sequence[Value]) -> list[Any]:
    """Apply a primitive as JAX's own evaluation of jaxprs does."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # Before JAX 0.10, both.
    with eqn.ctx.manager:
        results = eqn.primitive.bind(*functions, *[x.array for x in operands], **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _moved(eqn: jex.JaxprEqn, operands: Sequence[Value], parts: Sequence[Array]) -> list[Array]:
    """Marks moved as a primitive moves the elements of its operands."""
    count = MOVING[eqn.primitive.name]
    first = 1 if eqn.primitive.name == "select_n" else 0
    arguments = []
    for i, (x, marks) in enumerate(zip(operands, parts, strict=True)):
        moves = i >= first and (count is None or i < count)
        shape = np.shape(x.array)
        arguments.append(jnp.asarray(np.broadcast_to(marks, shape), jnp.int32) if moves else x.array)
    params = dict(eqn.params)
    if params.get("fill_value") is not None:
        params["fill_value"] = 0
    results = eqn.primitive.bind(*arguments, **params)
    arrays = [np.asarray(y) for y in (results if eqn.primitive.multiple_results else [results])]
    return [np.where(y > 0, y, 0) for y in arrays]


def _row(x: Value, i: int) -> Value:
    return Value(x.array[i], None if x.marks is None or not x.marks[i].any() else x.marks[i], x.node)


def _stacked(rows: Sequence[Value]) -> Value:
    array = jnp.stack([x.array for x in rows])
    marks = None
    if any(x.marks is not None for x in rows):
        empty = np.zeros(array.shape[1:], np.int32)
        marks = np.stack([empty if x.marks is None else x.marks for x in rows])
    return Value(array, marks, rows[-1].node)


def _fixed(jaxpr: jex.Jaxpr, live: Sequence[bool], consts: int, carries: int) -> list[bool]:
    """Which results of a loop's body are the user's own, if some of the loop are."""
    own = list(live)
    while True:
        live_vars = {v for v, is_live in zip(jaxpr.outvars, own, strict=True) if is_live and _is_var(v)}
        for eqn in reversed(jaxpr.eqns):
            if not live_vars.isdisjoint(eqn.outvars):
                live_vars.update(v for v in eqn.invars if _is_var(v))
        carried = [v in live_vars for v in jaxpr.invars[consts : consts + carries]]
        grown = [a or b for a, b in zip(own[:carries], carried, strict=True)] + own[carries:]
        if grown == own:
            return own
        own = grown


def _last_uses(jaxpr: jex.Jaxpr) -> dict[int, list[Any]]:
    """For each equation, what no later one needs."""
    seen = {v for v in jaxpr.outvars if _is_var(v)}
    last: dict[int, list[Any]] = {}
    for eqn in reversed(jaxpr.eqns):
        fresh = {v for v in (*eqn.invars, *eqn.outvars) if _is_var(v)} - seen
        seen |= fresh
        last[id(eqn)] = list(fresh)
    return last


def _is_var(v: Any) -> bool:
    return not isinstance(v, jex.Literal)


def call_name(primitive: str) -> str:
    """A primitive as users call it."""
    for module, name in ((jax.lax, "jax.lax"), (jax.lax.linalg, "jax.lax.linalg")):
        if hasattr(module, primitive):
            return f"{name}.{primitive}"
    return primitive


def _short(x: Any) -> str:
    """A constant by its number, or its shape."""
    return f"{numbers(x).item()}" if np.size(numbers(x)) == 1 else f"of shape {list(np.shape(x))}"
