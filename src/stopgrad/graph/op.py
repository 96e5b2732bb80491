"""Definitions of operations: what they consist of.

A definition is a class with everything about the operation in one block::

    class Mul(Op):
        '''Elementwise product, with broadcasting. ...'''
        infer = broadcast_same_dtype                  # positional parameters are the operands,
        gradient = {"x": lambda g, op: g * op.y,      # keyword-only ones the attributes
                    "y": lambda g, op: g * op.x}
        lower = lambda xp, x, y: xp.multiply(x, y)    # over any array namespace
        samples = pairs()

It is checked when the class is created; a definition is never instantiated. :mod:`stopgrad.graph.build`
builds operations from definitions, :mod:`stopgrad.graph.interpreter` computes them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeAlias, cast

from stopgrad.base.arrays import Array, ArrayLike
from stopgrad.base.errors import ArgumentError, DefinitionError, GradientError, ShapeError
from stopgrad.base.promotion import Promotion
from stopgrad.base.samples import Sample
from stopgrad.base.types import (
    TensorType,
    map_sizes,
)
from stopgrad.graph.body import Body
from stopgrad.graph.definitions import Registry, parameters
from stopgrad.graph.docstrings import docstring
from stopgrad.graph.graph import COMMON, Graph, Operation, Output, describe, read_by
from stopgrad.graph.kinds import BY_ANNOTATION, CANONICAL, INEXACT, SIZED, Kind
from stopgrad.graph.operands import shorten
from stopgrad.graph.scope import Scope, as_scope
from stopgrad.graph.traits import Cure, Held, Magnitudes, Unsound, check_traits

Rule: TypeAlias = "Callable[..., ArrayLike | None] | Undefined"
Gradient: TypeAlias = "Mapping[str, Rule | NoGradient] | NoGradient | Joint"
Samples: TypeAlias = Sequence[Sample]
Extremes: TypeAlias = Sequence[tuple[Any, ...]]
Lowered: TypeAlias = Array | Sequence[Array]
"""What a lowering computes: the array of its output, or those of its several outputs."""
Lower: TypeAlias = Callable[..., Lowered]
"""Computes an operation from a namespace, its operands and its attributes."""
Lowering: TypeAlias = "Lower | Unsupported"


# ------------------------------------------------------------------------------------------ gradients


class Status(StrEnum):
    """Whether a gradient arrives, and if not, why not; ordered from best to worst."""

    FLOWS = "flows"
    PARTLY_STOPPED = "partly stopped"
    UNDEFINED = "undefined"
    STOPPED = "stopped"
    NOT_DIFFERENTIABLE = "not differentiable"
    DISCONNECTED = "disconnected"

    __repr__ = str.__repr__


class NoGradient(NamedTuple):
    """A wall in the place of a gradient rule: `status` is what it causes, `reason` or `about` says why."""

    reason: str
    status: Status = Status.NOT_DIFFERENTIABLE
    about: Callable[[Operation], str] | None = None


def not_differentiable(reason: str) -> NoGradient:
    """The operand has no gradient, like TensorFlow's NotDifferentiable: the path ends here."""
    return NoGradient(reason)


def stopped(reason: str) -> NoGradient:
    """The operand is cut off by a gate."""
    return NoGradient(reason, Status.STOPPED)


def unconnected(reason: str) -> NoGradient:
    """The operand is only named, and its value is not used: no path leads through it, not even a cut one."""
    return NoGradient(reason, Status.DISCONNECTED)


class Undefined(NamedTuple):
    """A gradient rule that always raises: asking for the gradient is an error.

    The reason may depend on the operation.
    """

    reason: Callable[[Operation], str]

    def __call__(self, g: object, op: Operation, *_: int) -> NoReturn:
        raise GradientError(f"{op.type}: the gradient of {describe(op)} is undefined: {self.reason(op)}")


class Joint(NamedTuple):
    """One pullback for all operands together, which share work (loops, branches, custom gradients).

    ``pull(gs, op, live, acting)`` takes the cotangents of all outputs, with None for those that did not
    arrive, and the positions of the operands whose cotangents are wanted; it returns a cotangent or None for
    each of these, or its parts, where selective gates in bodies are open. ``acting`` are the selective gates
    that act for this gradient. ``walls`` are, by name, the operands to which no gradient passes.
    """

    pull: Callable[..., Sequence[Any]]
    walls: Mapping[str, NoGradient] = MappingProxyType({})


class Wire(NamedTuple):
    """How an operation runs one of its bodies.

    Attributes:
        body: the body.
        operands: for each parameter of the body, the position of the operand whose value (or part) it gets.
        outputs: for each result of the body, the position of the operation's output that it is (or is part
            of); None if it is no output.
        feedback: for each result that the next run of the body gets, the parameter that gets it.
        runs: how many times the body runs, each run fed by the one before; None if that is not known.
        skipped: whether any of these runs may be left out; what would be fed back then stays as it is.
        condition: a body with the same parameters, whose result says whether to run the body once more.
    """

    body: Body
    operands: Sequence[int]
    outputs: Sequence[int | None]
    feedback: Mapping[int, int]
    runs: int | None = 1
    skipped: bool = False
    condition: Body | None = None


# ------------------------------------------------------------------------------------------- lowering


class Unsupported(NamedTuple):
    """Stands for a lowering that does not exist, and says why."""

    reason: str


def unsupported(reason: str) -> Unsupported:
    """The operation cannot be computed: by no engine, or not by the one for whose form this stands."""
    return Unsupported(reason)


# ----------------------------------------------------------------------------------------- definition

REGISTRY: Registry[type[Op]] = Registry()
"""All definitions by type, in the order in which they were defined."""


class _Forgetful(dict[Any, Any]):
    """A dictionary that stays empty, so that a cache keyed by attributes keeps no arrays alive."""

    def get(self, key: object, default: object = None) -> Any:
        return default

    def __setitem__(self, key: object, value: object) -> None:
        pass


class Op:
    """Base of all definitions.

    Class attributes that a definition gives:

    - ``infer``: maps the operands' :class:`TensorType` (positional) and the attributes (keyword-only) to the
      type of the output, or a tuple of types; raises :class:`ShapeError` or :class:`DTypeError`. The
      annotations of the attributes are their kinds; ``kinds`` gives them if ``infer`` has none.
    - ``gradient``: a dict from operand names to rules or :func:`not_differentiable`; or one
      :func:`not_differentiable` or :class:`Joint` for all. A rule takes the output's cotangent (a tuple for
      several outputs) and the operation, and for a variadic operand also the operand's position; it returns
      the operand's cotangent. It need not care for broadcasting and dtypes.
    - ``lower``: computes the value from a namespace (NumPy's functions, or JAX's), the operands and the
      attributes. A parameter called ``types`` gets the inferred types, ``run`` a function that runs a body.
      An engine's own form has the engine's name (``xla = ...``).
    - ``batch``: the rule of :mod:`stopgrad.graph.batch_rules` by which ``vmap`` batches it; None for a loop.
    - ``samples``: calls from which tests are made; ``extremes``: operands on which engines must agree.
    - ``cached``: whether inferred types are cached; False if an attribute holds a whole array or body.
    - ``type``: the name of the type, if it is not that of the class.

    Its docstring says what differs from its family's, and inherits the rest from there
    (:mod:`stopgrad.graph.docstrings`).

    And its traits:

    - ``passes``: the operand that the operation returns unchanged; before running, the operation is replaced
      by it. Such an operation is a ``gate``.
    - ``rounds_once``: whether its lowering gets float16 and bfloat16 operands as float32, and the result is
      rounded at the end; so for all operations that compute instead of moving values. A lowering with a
      parameter ``accumulate`` gets its operands unchanged, and in that parameter the dtype to add in:
      float32, or None for the operands' own.
    - ``promotes``: the :class:`Promotion` by which the public function brings operands to one dtype; by
      default that of ``infer``, if it is a rule of :mod:`stopgrad.graph.type_rules`. The operation is strict.
    - ``merged``: whether equal operations may be built once; not so for gates and operations with state.
    - ``acts``: whether it runs for what it does, such as printing, whoever uses its result.
    - ``stateful``: whether it stands for a value that outlives a run. ``fed``: for a value that is fed.
    - ``selective``: the gate acts only with respect to the tensors that are its variadic operands; for all
      others it is open.
    - ``switched``: the wall that a gate is while a condition holds; the condition is read at run time.
    - ``tells_apart``: whether gradients of its outputs may pass to different inputs, because it has bodies or
      its own ``dependence``. Read from the definition.

    What it does with elements:

    - ``moves``: the operands whose elements are in the result, unchanged: the operation moves, repeats or
      omits them. ``pads``: whether it adds elements of its own, such as zeros. A gate moves its operand.
    - ``elementwise``: whether each element of the result depends on the elements at its position in the
      operands, which broadcast. Follows from the batching rule, if that is :func:`ELEMENTWISE`.
    - ``views``: whether NumPy makes the result without writing to memory.
    - ``remade``: whether a loop's gradient computes it again from its operands, which are no larger, and
      keeps these instead.
    - ``folded``: whether it is computed when a graph is prepared, if its operands are small constants.
    - ``iterates``: whether NumPy computes it in a Python loop, so that fewer, larger calls are faster.

    And with numbers:

    - ``never_negative``: whether its result is never negative. ``keeps_sign``: whether the result is nowhere
      negative, or nowhere positive, if the operand is.
    - ``magnitudes``: a bound of the result, by the absolute values of the operands.
    - ``not_holomorphic``: if it takes complex operands and is not holomorphic, why not.
    - ``flops``: maps an operation of known sizes to its floating-point operations; by default one an element.
    - ``unsound``: where it returns a finite number although there is no right one.
    - ``cures``: what helps if it makes a NaN or an infinity, the most specific first.
    - ``stops``: whether the gate deliberately hides something from the gradient; ablation opens it.
    - ``held``: the gate's result in the function whose derivative the gradient is: computed from the
      operands' arrays now, those at the point of the derivative, and whether a selective gate acts. By
      default, a gate that stops returns its operand at that point. ``check_gradients`` uses it.
    - ``clips``: whether the gate bounds the gradient, which is then the derivative of no function.
    - ``alternatives``: whether only one of its bodies runs.
    """

    type: ClassVar[str]
    operands: ClassVar[tuple[str, ...]]
    variadic: ClassVar[str | None]
    attributes: ClassVar[tuple[str, ...]]
    kinds: ClassVar[Mapping[str, Kind]] = {}
    slots: ClassVar[dict[str, tuple[str, int | slice]]]
    rules: ClassVar[tuple[Rule | NoGradient, ...]]
    joint: ClassVar[Joint | None]
    differentiable: ClassVar[tuple[int, ...]]
    always_open: ClassVar[tuple[int, ...] | None]
    has_bodies: ClassVar[bool]
    may_act: ClassVar[bool]
    tells_apart: ClassVar[bool]
    inexact: ClassVar[bool]
    function: ClassVar[Callable[..., Any]]

    infer: ClassVar[Callable[..., TensorType | tuple[TensorType, ...]]]
    gradient: Gradient
    lower: Lowering
    batch: ClassVar[Any] = None
    samples: Samples
    extremes: ClassVar[Extremes] = ()
    cached: ClassVar[bool] = True
    passes: ClassVar[int | None] = None
    gate: ClassVar[bool]
    rounds_once: ClassVar[bool] = False
    promotes: ClassVar[Promotion | None] = None
    merged: ClassVar[bool] = True
    acts: ClassVar[bool] = False
    stateful: ClassVar[bool] = False
    selective: ClassVar[bool] = False
    switched: ClassVar[NoGradient | None] = None
    fed: ClassVar[bool] = False

    moves: ClassVar[tuple[str, ...]] = ()
    pads: ClassVar[bool] = False
    elementwise: ClassVar[bool] = False
    views: ClassVar[bool] = False
    remade: ClassVar[bool] = False
    folded: ClassVar[bool] = False
    iterates: ClassVar[bool] = False
    never_negative: ClassVar[bool] = False
    keeps_sign: ClassVar[bool] = False
    magnitudes: ClassVar[Magnitudes | None] = None
    not_holomorphic: ClassVar[str | None] = None
    flops: ClassVar[Callable[[Operation], int] | None] = None
    unsound: ClassVar[Unsound | None] = None
    cures: ClassVar[tuple[Cure, ...]] = ()
    stops: ClassVar[bool] = False
    held: ClassVar[Held | None] = None
    clips: ClassVar[bool] = False
    alternatives: ClassVar[bool] = False

    def __init_subclass__(cls, abstract: bool = False, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "infer" in cls.__dict__ and "promotes" not in cls.__dict__:
            cls.promotes = getattr(cls.infer, "promotion", None)
        if abstract:
            return
        for needed in ("infer", "gradient", "samples", "lower"):
            if not hasattr(cls, needed):
                raise DefinitionError(f"operation {cls.__name__} lacks {needed!r}")
        if not cls.__dict__.get("__doc__"):
            raise DefinitionError(f"operation {cls.__name__} lacks a docstring")
        cls.type = cls.__dict__.get("type", cls.__name__)
        cls.gate = cls.passes is not None
        cls._read_signature()
        cls._read_rules()
        cls._read_traits()
        cls.__doc__ = docstring(cls, cls.__mro__[1 : cls.__mro__.index(Op)])
        cls._inferred = {} if cls.cached else _Forgetful()
        REGISTRY.add(cls)

    _inferred: ClassVar[dict[Any, tuple[TensorType, ...]]]

    @classmethod
    def canonical(cls, values: Sequence[Any]) -> tuple[Any, ...]:
        """Canonical attributes: plain Python numbers of their kinds.

        Raises:
            ArgumentError: an attribute is not of its kind.
        """
        converted = []
        for (name, kind), value in zip(cls.kinds.items(), values, strict=True):
            try:
                converted.append(CANONICAL[kind](value))
            except (TypeError, ShapeError, OverflowError):
                raise ArgumentError(f"{name} is {kind.value}, not {shorten(value)}") from None
        return tuple(converted)

    @classmethod
    def sized(cls, values: tuple[Any, ...], binding: Mapping[str, int]) -> tuple[Any, ...]:
        """Attributes with sizes replaced by numbers, from the values of their names."""
        replaced = []
        for kind, value in zip(cls.kinds.values(), values, strict=True):
            bind = SIZED.get(kind)
            replaced.append(value if bind is None else map_sizes(value, partial(bind, binding=binding)))
        return tuple(replaced)

    @classmethod
    def identity(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """A key of attributes in which different values are never equal, such as ``0.0`` and ``-0.0``."""
        if not cls.inexact:
            return values
        return tuple([struct.pack("d", v) if type(v) is float else v for v in values])

    @classmethod
    def _read_signature(cls) -> None:
        cls.operands, cls.variadic, attributes = parameters(cls.infer)
        declared = cls.kinds
        cls.kinds = {}
        for name, annotation in attributes.items():
            kind = declared.get(name) or BY_ANNOTATION.get(annotation)
            if kind is None:
                raise DefinitionError(
                    f"operation {cls.__name__}: the attribute {name!r} has no kind; annotate it "
                    f"in infer as one of {', '.join(BY_ANNOTATION)}, or name it in 'kinds'"
                )
            cls.kinds[name] = kind
        cls.attributes = tuple(cls.kinds)
        cls.inexact = not INEXACT.isdisjoint(cls.kinds.values())
        cls.has_bodies = any(kind in (Kind.BODY, Kind.BODIES) for kind in cls.kinds.values())
        plain = cls.dependence.__func__ is Op.dependence.__func__  # type: ignore[attr-defined]
        cls.tells_apart = cls.has_bodies or not plain
        cls.may_act = cls.acts or cls.has_bodies
        cls.slots = {name: ("inputs", i) for i, name in enumerate(cls.operands)}
        cls.slots |= {name: ("values", i) for i, name in enumerate(cls.attributes)}
        cls.slots["result"] = ("outputs", 0)
        if cls.variadic:
            cls.slots[cls.variadic] = ("inputs", slice(len(cls.operands), None))
        clash = [name for name in cls.slots if name in COMMON]
        if clash:
            raise DefinitionError(
                f"operation {cls.__name__}: {clash[0]!r} is a name that every operation has already"
            )
        for name in cls.slots:
            read_by(name)

    @classmethod
    def _read_rules(cls) -> None:
        names = cls.operands + ((cls.variadic,) if cls.variadic else ())
        rules = cls.gradient
        cls.joint = rules if isinstance(rules, Joint) else None
        if isinstance(rules, (NoGradient, Joint)):
            walls = rules.walls if isinstance(rules, Joint) else {}
            rules = {name: walls.get(name, cast("Rule | NoGradient", rules)) for name in names}
        if set(rules) != set(names):
            raise DefinitionError(
                f"operation {cls.__name__}: gradient rules for {sorted(rules)}, operands {sorted(names)}; "
                "give each a rule or not_differentiable(reason)"
            )
        cls.rules = tuple(rules[name] for name in names)
        cls.differentiable = tuple(i for i, rule in enumerate(cls.rules) if not isinstance(rule, NoGradient))
        depends = cls.variadic or cls.selective or cls.tells_apart
        cls.always_open = None if depends else cls.differentiable

    @classmethod
    def _read_traits(cls) -> None:
        if "elementwise" not in cls.__dict__:
            cls.elementwise = cls.elementwise or getattr(cls.batch, "elementwise", False)
        if cls.passes is not None and not cls.moves:
            cls.moves = (cls.operands[cls.passes],)
        check_traits(cls)

    @classmethod
    def rule(cls, op: Operation, i: int) -> Rule | NoGradient | Undefined:
        """The rule of the i-th input of an operation of this type."""
        return cls.rules[min(i, len(cls.rules) - 1)]

    @classmethod
    def open_inputs(cls, op: Operation) -> Sequence[int]:
        """The positions of the inputs that have a rule."""
        if cls.variadic is None:
            return cls.differentiable
        return [i for i in range(len(op.inputs)) if not isinstance(cls.rule(op, i), NoGradient)]

    @classmethod
    def called(cls, op: Operation) -> str:
        """The kind of an operation, as messages and reports name it."""
        return cls.type

    @classmethod
    def settle(cls, op: Operation) -> None:
        """Make implicit parts of the operation explicit; called before it is written or copied."""

    @classmethod
    def trust(cls, op: Operation) -> None:
        """Let native code that the operation carries run; called if a graph is loaded as trusted."""

    @classmethod
    def handed_on(cls, op: Operation) -> Sequence[int]:
        """The operands, one for each output, that replace it before running; empty if it stays."""
        return () if cls.passes is None else (cls.passes,)

    @classmethod
    def moved_from(cls, op: Operation, i: int = 0) -> int | None:
        """The single operand whose elements its i-th output has; None if there is no such operand."""
        handed_on = cls.handed_on(op)
        if handed_on:
            return handed_on[i]
        alone = len(cls.moves) == 1 and cls.moves[0] in cls.operands
        return cls.operands.index(cls.moves[0]) if alone else None

    @classmethod
    def wires(cls, op: Operation) -> Iterable[Wire]:
        """How it runs its bodies, for analyses of what depends on what."""
        return ()

    @classmethod
    def runs(cls, op: Operation) -> int:
        """The most times that it runs its bodies, as a size; negative if there is no bound."""
        return 1

    @classmethod
    def dependence(cls, op: Operation) -> Sequence[frozenset[int]] | None:
        """For each output, the inputs on which it depends, of those with rules if it hands values on."""
        return None

    @classmethod
    def create(
        cls, scope: Scope | Graph, *operands: object, name: str | None = None, **attributes: object
    ) -> Operation:
        """A new operation of this type in a scope, as by its public function there."""
        with as_scope(scope, f"{cls.type}.create"):
            result = cls.function(*operands, name=name, **attributes)
        while isinstance(result, (tuple, list)):
            result = result[0]
        return cast("Output", result).op
