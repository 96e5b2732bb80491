"""What rules for operators of other frameworks' files share: known values, and what a rule asks of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType, DTypeLike, dtype_of
from stopgrad.interop.shared.conversions import Refused

Value: TypeAlias = "sg.Output | Known | Sequence[Value] | None"
"""What a name of a file stands for: a tensor, a known value, a list of them, or nothing."""

Rule: TypeAlias = Callable[..., object]
"""What builds an operator: of a :class:`Call` and the node's operands, its result, or a tuple of several."""

Table = dict[str, Rule]

R = TypeVar("R", bound=Rule)


class Known:
    """A value that is known while the graph is built: numbers, or sizes that may be symbolic.

    Attributes:
        array: the values; an array of objects where a :class:`stopgrad.Dim` is among them.
        dtype: the element type; for symbolic sizes, the one to which they would be cast; None for one that
            we lack, such as float8.
        initializer: the name of the parameter whose stored value it is, or "".
    """

    __slots__ = ("array", "dtype", "initializer", "output")

    dtype: DType | None
    initializer: str
    output: sg.Output | None

    def __init__(
        self,
        array: np.generic | np.ndarray[Any, Any],
        dtype: DType | None = None,
        initializer: str = "",
        output: sg.Output | None = None,
    ) -> None:
        self.array: np.ndarray[Any, Any] = array if isinstance(array, np.ndarray) else np.asarray(array)
        self.dtype = dtype_from(self.array.dtype) if dtype is None else dtype
        self.initializer = initializer
        self.output = output  # The parameter or constant for it in the graph, once there is one.

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def is_symbolic(self) -> bool:
        """Whether a symbolic size is among the values."""
        return self.array.dtype.kind == "O"

    def __repr__(self) -> str:
        return f"<Known {self.dtype} {self.array!r:.80}>"


def dtype_from(dtype: DTypeLike) -> DType | None:
    """Our element type for a dtype, or None."""
    try:
        return dtype_of(dtype)
    except sg.DTypeError:
        return None


def knows(*positions: int) -> Callable[[R], R]:
    """Decorator: the rule takes the operands at these positions as known values, not as tensors.

    They arrive as :class:`Known`, or as outputs if their values are not known. No constant is built for them,
    and a floating-point parameter that is only used so becomes none. Negative positions count from the last
    operand.
    """

    def decorate(rule: R) -> R:
        _KNOWS[rule] = frozenset(positions)
        return rule

    return decorate


def knows_all(rule: R) -> R:
    """Decorator: the rule takes all operands as they are, known or not."""
    _KNOWS[rule] = None
    return rule


_KNOWS: dict[Rule, frozenset[int] | None] = {}


def known_positions(rule: Rule | None, count: int) -> frozenset[int]:
    """The positions, of so many operands, that a rule takes as known values."""
    positions = _KNOWS.get(rule, frozenset()) if rule is not None else frozenset()
    if positions is None:
        return frozenset(range(count))
    return frozenset([i + count if i < 0 else i for i in positions])


class Translator(Protocol):
    """What a :class:`Call` asks of the translator that builds the graph."""

    def known(self, x: object) -> Known | None: ...
    def tensor(self, x: object) -> Any: ...


T = TypeVar("T", bound=Translator)


class Call:
    """A node, as its rule sees it.

    Attributes:
        op_type, name: of the node.
        attributes: by name, as Python values.
        outputs: how many results the node has.
    """

    CURE = "make it a constant"
    """What a user can do about an operand that must be known."""

    op_type: str
    name: str
    outputs: int

    def __init__(
        self,
        op_type: str,
        name: str,
        outputs: int,
        attributes: dict[str, Any],
        operands: Sequence[Any],
        translator: Translator,
    ) -> None:
        self.op_type, self.name, self.outputs = op_type, name, outputs
        self.attributes = attributes
        self._raw = tuple(operands)
        self._operands: Sequence[Any] = self._raw
        self._translator: Any = translator

    # ---------------------------------------------------------------------------------------- questions

    def attribute(self, name: str, default: object = None) -> Any:
        """An attribute, or a default if the node does not have it."""
        return self.attributes.get(name, default)

    def fail(self, reason: str) -> NoReturn:
        """Refuse to translate the node, for this reason."""
        raise Refused(reason)

    def operand_name(self, i: int) -> str:
        """An operand, as messages name it."""
        return f"operand {i}"

    # ------------------------------------------------------------------------------------------ operands

    @property
    def operands(self) -> tuple[Any, ...]:
        """The operands as they were given: outputs, :class:`Known` values, lists and None."""
        return self._raw

    def raw(self, x: object) -> Any:
        """The :class:`Known` from which an operand was made, or the operand itself."""
        for operand, raw in zip(self._operands, self._raw, strict=True):
            if operand is x:
                return raw
        return x

    def is_known(self, x: sg.Output | Known) -> bool:
        """Whether the value of an operand is known."""
        return self._translator.known(self.raw(x)) is not None

    def sizes(self, x: sg.Output | Known, i: int | None = None) -> tuple[Any, ...]:
        """The sizes that operand *i* = *x* holds, as numbers or :class:`stopgrad.Dim`.

        Raises:
            Refused: they are not known when the graph is built.
        """
        value = self._translator.known(self.raw(x))
        if value is None:
            self.unknown(self._position(x) if i is None else i, "the model computes it")
        return tuple([s if isinstance(s, sg.Dim) else int(s) for s in value.array.reshape(-1).tolist()])

    def _numbers(self, i: int, x: sg.Output | Known) -> np.ndarray[Any, Any]:
        """The value of operand *i* = *x*, which must be known and without symbolic sizes."""
        value = self._translator.known(self.raw(x))
        if value is not None and not value.is_symbolic:
            array: np.ndarray[Any, Any] = value.array
            return array
        self.unknown(i, "a symbolic size is in it" if value is not None else "the model computes it")

    def _position(self, x: object) -> int:
        return next((i for i, operand in enumerate(self._operands) if operand is x), 0)

    def unknown(self, i: int, why: str) -> NoReturn:
        """Refuse the node because operand *i* is not known when the graph is built."""
        self.fail(f"{self.operand_name(i)} must be known when the graph is built, and {why}; {self.CURE}")

    def tensor(self, x: sg.Output | Known | Sequence[Any] | None) -> Any:
        """An operand as an output, also if it is a :class:`Known`."""
        return self._translator.tensor(x)

    # ------------------------------------------------------------------------------------------- running

    def ruled(self, rule: Rule) -> Any:
        """What a rule returns for the node; known values arrive as tensors where it does not ask for them."""
        positions = known_positions(rule, len(self._raw))
        self._operands = [
            x if i in positions or not isinstance(x, Known) else self.tensor(x)
            for i, x in enumerate(self._raw)
        ]
        return rule(self, *self._operands)
