"""Cached inference of types, and errors that name the operation they are about."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn

from stopgrad.base.errors import DefinitionError, DTypeError, StopgradError
from stopgrad.base.types import TensorType
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.op import REGISTRY, Op
from stopgrad.graph.operands import shorten, type_of


def infer_types(
    definition: type[Op], types: tuple[TensorType, ...], values: tuple[Any, ...]
) -> tuple[TensorType, ...]:
    """The types of the outputs, cached by operand types and attributes."""
    key = (types, values)
    output_types = definition._inferred.get(key)
    if output_types is None:
        if definition.cached:
            check_canonical(definition, values)
            if next(_REMEMBERED) % REMEMBERED == 0:
                for other in dict.values(REGISTRY):  # Only those that have been imported.
                    other._inferred.clear()
        inferred = definition.infer(*types, **dict(zip(definition.attributes, values, strict=True)))
        output_types = inferred if isinstance(inferred, tuple) else (inferred,)
        definition._inferred[key] = output_types
    return output_types


REMEMBERED = 8192
"""The most inferences that are cached, of all operations together. Beyond it, all are dropped."""
_REMEMBERED = itertools.count(1)


def check_canonical(definition: type[Op], values: tuple[Any, ...]) -> None:
    """Raise for attributes that equal those of other operations, such as ``1.0`` or ``True`` for ``1``.

    This is checked only for the first operation of its kind, so that it costs nothing afterwards: public
    functions and readers of files make attributes canonical.
    """
    for name, value, canonical in zip(
        definition.attributes, values, definition.canonical(values), strict=True
    ):
        if not _is_same(value, canonical):
            raise DefinitionError(
                f"{name} is {shorten(value)}, not the plain {shorten(canonical)}; make attributes plain with "
                f"{definition.type}.canonical before building with them"
            )


def _is_same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    return all(map(_is_same, a, b)) if type(a) is tuple else True


def raise_for(definition: type[Op], error: StopgradError, operands: Sequence[Any]) -> NoReturn:
    """Raise *error* again with the operation and its operands. It has the user's line already."""
    shown = [describe(x) if isinstance(x, Output) else repr(type_of(x)) for x in operands]
    names = definition.operands
    if definition.variadic:
        names += (definition.variadic,) * (len(shown) - len(names))
    listing = "".join(f"\n  {name} = {text}" for name, text in zip(names, shown, strict=False))
    if isinstance(error, DTypeError):
        listing += "".join(dict.fromkeys(widened(x) for x in operands if isinstance(x, Output)))
    raise type(error)(f"{definition.type}: {error.message}{listing}") from None


def widened(x: Output) -> str:
    """Where a promotion brought *x* to its dtype, as a line of a message; empty if none did."""
    dtype, seen, stack, first = x.type.dtype, {x.op}, [x.op], None
    while stack:
        op = stack.pop()
        if (first is None or op.id < first.id) and any(_is_promotion(y, op) for y in op.inputs):
            first = op
        for y in op.inputs:
            if y.type.dtype is dtype and y.op not in seen:
                seen.add(y.op)
                stack.append(y.op)
    if first is None:
        return ""
    met = [describe(y.op.inputs[0] if _is_promotion(y, first) else y) for y in first.inputs]
    return f"\n  {dtype} came in with {describe(first)}, where these met:" + "".join(
        f"\n    {m}" for m in met
    )


def _is_promotion(y: Output, user: Operation) -> bool:
    """Whether a tensor is a cast that a public function built for the operation that uses it."""
    op = y.op
    here = op._place is not None and op._place is user._place and op._instruction == user._instruction
    return here and op.type == "Cast"


class about:  # noqa: N801 - used as a function is
    """A context in which errors are raised again with the operation and its operands."""

    __slots__ = ("definition", "operands")

    definition: type[Op]
    operands: tuple[object, ...]

    def __init__(self, definition: type[Op], *operands: object) -> None:
        self.definition = definition
        self.operands = operands

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, place: TracebackType | None) -> None:
        if isinstance(error, StopgradError):
            raise_for(self.definition, error, self.operands)


class naming:  # noqa: N801 - used as a function is
    """A context in which errors name the operation."""

    __slots__ = ("definition",)

    definition: type[Op]

    def __init__(self, definition: type[Op]) -> None:
        self.definition = definition

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, place: TracebackType | None) -> None:
        if isinstance(error, StopgradError):
            error.name_after(self.definition.type)
