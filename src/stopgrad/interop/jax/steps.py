"""Builds jaxprs equation by equation: each primitive has a rule, a small function in a table.

A rule takes the :class:`Step` and the operands, as outputs, and returns the results. If our operations cannot
express the equation, it raises :class:`NotOurs`; the equation then becomes a foreign operation, as for a
primitive without a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex

import stopgrad as sg
from stopgrad.base.errors import InternalError
from stopgrad.base.source import RawLocation, decode
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.graph.build import constant_in, emit
from stopgrad.graph.builder import Inside, current
from stopgrad.graph.graph import Output
from stopgrad.interop.jax.avals import agrees, array_of, is_key, type_of
from stopgrad.interop.jax.foreign import foreign_of
from stopgrad.interop.jax.places import is_inside, place_of
from stopgrad.ops.elementwise.convert import Cast
from stopgrad.ops.gates.custom import CustomGradient, Untraced
from stopgrad.ops.structural.sources import Const

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
"""The rules by the names of primitives."""
ANY = "*"
"""The name of the rule for primitives that have none by their names."""
KEYED: set[str] = set()
"""Primitives whose rules take keys as they are; others are applied to each word of a key."""
REFUSED = {
    "shard_map": "spreads a function over devices; load the function that runs on one of them",
    "xla_pmap": "spreads a function over devices; load the function that runs on one of them",
    "io_callback": "acts on the world; take it out of what is loaded",
    "run_state": "changes references; write it with jax.lax.scan",
    "new_ref": "changes references; write it with jax.lax.scan",
}
"""Primitives that cannot be imported, and the cure."""
CALLS = {
    "jit": "jaxpr",
    "composite": "jaxpr",
    "call": "call_jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_vmap_call": "call",
}
"""Primitives that call a jaxpr with their operands, and which of their parameters it is."""
RECOMPUTED = {"checkpoint": "jaxpr", "remat2": "jaxpr"}
"""The same of those that compute it again for the gradient."""
SILENT = {"debug_callback", "debug_print"}
"""Primitives that print, and compute nothing."""


class NotOurs(Exception):  # noqa: N818 - no error: it chooses the other way.
    """The operations of the catalogue cannot express an equation; the text says why."""


@dataclass(frozen=True)
class Step:
    """An equation that is being translated.

    Attributes:
        eqn: JAX's equation.
        place: the user's line.
        depth: in how many nested custom gradients it is.
        held: whether it is in a function that has a gradient of its own, by which it is differentiated.
    """

    eqn: Any
    place: RawLocation | None = None
    depth: int = 0
    held: bool = False

    @property
    def name(self) -> str:
        name: str = self.eqn.primitive.name
        return name

    @property
    def params(self) -> Mapping[str, Any]:
        params: Mapping[str, Any] = self.eqn.params
        return params

    def __getitem__(self, name: str) -> Any:
        return self.eqn.params[name]

    @property
    def results(self) -> list[TensorType]:
        return [type_of(v.aval) for v in self.eqn.outvars]

    @property
    def result(self) -> TensorType:
        """The type of the first result."""
        return type_of(self.eqn.outvars[0].aval)

    @property
    def avals(self) -> list[Any]:
        """The operands' abstract values, as JAX has them."""
        return [v.aval for v in self.eqn.invars]

    def run(self, closed: jex.ClosedJaxpr | jex.Jaxpr, *inputs: Output) -> list[Output]:
        """Build a jaxpr that the equation holds; its results."""
        jaxpr = getattr(closed, "jaxpr", closed)
        consts = getattr(closed, "consts", ())
        return run(jaxpr, consts, inputs, self.place, self.depth, self.held)


def rule(*names: str, keys: bool = False) -> Callable[[Rule], Rule]:
    """Decorator: registers the rule of these primitives; with *keys*, it handles keys itself."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        if keys:
            KEYED.update(names)
        return function

    return register


def plain(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Register functions that take the operands alone."""
    RULES.update({name: _ignoring(function) for name, function in functions.items()})


def _ignoring(function: Callable[..., Any]) -> Rule:
    return lambda step, *inputs: function(*inputs)


def const(value: object, aval: jax.core.ShapedArray | None = None) -> Output:
    """A constant in the graph being built, of the dtype of an abstract value."""
    graph = current().graph
    assert graph is not None
    array = array_of(value)
    if aval is not None and not is_key(aval) and array.dtype != aval.dtype:
        array = array.astype(aval.dtype)
    return constant_in(graph, array)


def run(
    jaxpr: jex.Jaxpr,
    consts: Iterable[Any],
    inputs: Sequence[Output],
    around: RawLocation | None,
    depth: int = 0,
    held: bool = False,
) -> list[Output]:
    """Build a jaxpr for *inputs*, without what its results do not need."""
    env: dict[Any, Output] = dict(zip(jaxpr.invars, inputs, strict=True))
    env.update((v, const(value, v.aval)) for v, value in zip(jaxpr.constvars, consts, strict=True))
    for eqn in needed(jaxpr):
        place = place_of(eqn, around)
        with Inside(place=place):
            operands = [_read(env, v) for v in eqn.invars]
            results = _translated(Step(eqn, place, depth, held), operands)
        env.update(zip(eqn.outvars, results, strict=True))
    return [_read(env, v) for v in jaxpr.outvars]


def unconnected(x: Output) -> Output:
    """*x* without a gradient, and without a cut in reports: JAX's own functions do this, not the user."""
    op = emit(CustomGradient, (x,), (1, Untraced(lambda g: []), 0, ()), None)
    CustomGradient.settle(op)
    return op.outputs[0]


def uniform(x: Output) -> Any:
    """The number that all elements equal, if that is known without computing; else None."""
    while (i := _spread(x)) is not None:
        x = x.op.inputs[i]
    if x.op.definition is not Const or not x.size:
        return None
    array = x.op.value.array
    return array.flat[0] if (array == array.flat[0]).all() else None


def _spread(x: Output) -> int | None:
    """The position of the operand whose elements fill an output; None if there is none."""
    definition = x.op.definition
    return 0 if definition is Cast else None if definition.pads else definition.moved_from(x.op, x.index)


_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "is_finite", "eq_to", "lt_to", "le_to"))


def refused(jaxpr: jex.Jaxpr, around: RawLocation | None) -> list[str]:
    """All equations that cannot be imported, nested ones included, with their lines and cures."""
    refusals = []
    stack = [(jaxpr, around)]
    while stack:
        inner, place = stack.pop()
        for eqn in inner.eqns:
            here = place_of(eqn, place)
            why = REFUSED.get(eqn.primitive.name)
            if why is not None:
                refusals.append(
                    f"{eqn.primitive.name}{'' if here is None else f' at {decode(here)!r}'}: {why}"
                )
            stack += [(body, here) for body in inner_jaxprs(eqn.params)]
    return refusals


def primitives_in(jaxpr: jex.Jaxpr) -> set[jex.Primitive]:
    """The primitives of all equations, nested ones included."""
    primitives, stack = set(), [jaxpr]
    while stack:
        for eqn in stack.pop().eqns:
            primitives.add(eqn.primitive)
            stack += inner_jaxprs(eqn.params)
    return primitives


def mapped(jaxpr: jex.Jaxpr, around: RawLocation | None) -> set[tuple[int, int]]:
    """The instructions of equations in functions that ``vmap`` maps: the identity of the code, and where."""
    instructions = set()
    stack = [(jaxpr, around, False)]
    while stack:
        inner, place, within = stack.pop()
        for eqn in inner.eqns:
            is_mapped = within or any(part.name == "vmap" for part in eqn.source_info.name_stack.stack)
            nested = inner_jaxprs(eqn.params)
            if is_mapped or nested:
                here = place_of(eqn, place)
                if is_mapped and here is not None:
                    instructions.add((id(here[0]), here[1]))
                stack += [(body, here, is_mapped) for body in nested]
    return instructions


def inner_jaxprs(params: Mapping[str, Any]) -> list[Any]:
    """The jaxprs that an equation holds."""
    parts = [part for value in params.values() for part in (value if isinstance(value, tuple) else (value,))]
    candidates = [getattr(part, "jaxpr", part) for part in parts]
    return [inner for inner in candidates if hasattr(inner, "eqns")]


def operands_of_scan(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a scan are constant, and how many are carried; the others are sequences."""
    if "num_consts" in params:  # Of JAX before 0.11.
        return params["num_consts"], params["num_carry"]
    constant, carried, _ = params["ft_in"].unpack()
    return len(constant), len(carried)


def needed(jaxpr: jex.Jaxpr) -> list[Any]:
    """The equations that results depend on, and those with side effects."""
    live = {v for v in jaxpr.outvars if not isinstance(v, jex.Literal)}
    equations = []
    for eqn in reversed(jaxpr.eqns):
        acts = eqn.effects and eqn.primitive.name not in SILENT
        if acts or not live.isdisjoint(eqn.outvars):
            equations.append(eqn)
            live.update(v for v in eqn.invars if not isinstance(v, jex.Literal))
    return equations[::-1]


def _read(env: Mapping[Any, Output], v: jex.Literal | jex.Var) -> Output:
    return const(v.val, v.aval) if isinstance(v, jex.Literal) else env[v]


def _translated(step: Step, operands: Sequence[Output]) -> Sequence[Output]:
    function = RULES.get(step.name, RULES[ANY])
    if step.name in _COMPARISONS and is_inside(step.eqn):
        operands = [unconnected(x) if x.type.differentiable else x for x in operands]
    try:
        if step.name not in KEYED and any(map(is_key, step.avals)):
            translated = _word_by_word(function, step, operands)
        else:
            translated = function(step, *operands)
    except NotOurs:
        return foreign(step, operands)
    results = list(translated) if isinstance(translated, (list, tuple)) else [translated]
    for y, kind in zip(results, step.results, strict=True):
        if not agrees(y, kind):
            raise InternalError(f"jax: {step.name} gives {kind!r}, and was translated to {y.type!r}")
    return results


def _word_by_word(function: Rule, step: Step, operands: Sequence[Output]) -> list[Output]:
    """Apply an equation that only moves keys to each of their words."""
    keys = [is_key(aval) for aval in step.avals]
    count = next(int(x.shape[-1]) for x, key in zip(operands, keys, strict=True) if key)
    by_word = []
    for i in range(count):
        parts = [x[..., i] if key else x for x, key in zip(operands, keys, strict=True)]
        translated = function(_Word(step.eqn, step.place, step.depth, step.held), *parts)
        by_word.append(list(translated) if isinstance(translated, (list, tuple)) else [translated])
    return [
        sg.stack(list(words), axis=-1) if is_key(v.aval) else words[0]
        for words, v in zip(zip(*by_word, strict=True), step.eqn.outvars, strict=True)
    ]


class _Word(Step):
    """An equation on keys as one on a word of each key."""

    @property
    def results(self) -> list[TensorType]:
        types = [type_of(v.aval) for v in self.eqn.outvars]
        keys = [is_key(v.aval) for v in self.eqn.outvars]
        return [
            tensor_type(kind.dtype, kind.shape[:-1]) if key else kind
            for kind, key in zip(types, keys, strict=True)
        ]

    @property
    def result(self) -> TensorType:
        return self.results[0]


class _OnWords:
    """A primitive that takes and returns the words of keys in place of keys."""

    def __init__(self, step: Step) -> None:
        self.name = step.name
        self.multiple_results = True
        self._eqn = step.eqn

    def bind(self, *arrays: jax.Array, **params: Any) -> list[Any]:
        keyed = [
            jax.random.wrap_key_data(x, impl=v.aval.dtype._impl) if is_key(v.aval) else x
            for x, v in zip(arrays, self._eqn.invars, strict=True)
        ]
        outputs = self._eqn.primitive.bind(*keyed, **params)
        results = outputs if self._eqn.primitive.multiple_results else [outputs]
        return [
            jax.random.key_data(y) if is_key(v.aval) else y
            for y, v in zip(results, self._eqn.outvars, strict=True)
        ]


def foreign(step: Step, operands: Sequence[Output]) -> Sequence[Output]:
    """A foreign operation, which JAX runs."""
    primitive = step.eqn.primitive
    if any(is_key(v.aval) for v in (*step.eqn.invars, *step.eqn.outvars)):
        primitive = _OnWords(step)
    return foreign_of(primitive, step.params, operands)
