"""The JSON form of values, places and operations, for all reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from stopgrad.base.source import Location
from stopgrad.flow.asked import label
from stopgrad.flow.source_lines import character_columns
from stopgrad.graph.graph import Operation

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can say."""

EXACT = 2**53
"""The largest integer that every reader of JSON reads exactly."""


@overload
def json_of(value: Mapping[Any, Any]) -> dict[str, Json]: ...
@overload
def json_of(value: object) -> Json: ...
def json_of(value: Any) -> Json:
    """A value as dicts, lists, strings, numbers and None; objects become dicts of their fields.

    Numbers that are not finite, which JSON lacks, become ``"nan"``, ``"inf"`` and ``"-inf"``; complex ones
    become texts, too.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (str, complex)):
        return str(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(float(value))
    if isinstance(value, np.generic):
        return json_of(value.item())
    if isinstance(value, Mapping):
        return {label(key): json_of(one) for key, one in value.items()}
    if isinstance(value, Location):
        return place_of(value)
    if isinstance(value, Operation):
        return operation_of(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return fields_of(value)
    return [json_of(one) for one in value]


def fields_of(
    value: DataclassInstance | type[DataclassInstance], without: Iterable[str] = ()
) -> dict[str, Any]:
    """The fields of a dataclass, without some."""
    names = [field.name for field in fields(value)]
    return {name: json_of(getattr(value, name)) for name in names if name not in without}


def integer(n: int) -> int | str:
    """An integer; above 2**53, which not every reader of JSON reads exactly, as the text "0x..."."""
    return n if n <= EXACT else hex(n)


def place_of(location: Location | None) -> dict[str, Any] | None:
    """A place in a file. Lines count from 1, columns in characters from 0; the end is exclusive."""
    if location is None:
        return None
    columns = character_columns(location)
    return {
        "file": location.file,
        "line": location.line,
        "end_line": location.end_line,
        "column": None if columns is None else columns[0],
        "end_column": None if columns is None else columns[1],
        "function": location.function or None,
        "expression": location.source or None,
        "caller": place_of(location.caller),
    }


def operation_of(op: Operation) -> dict[str, Any]:
    """An operation: its name, its type, and the name of its forward operation."""
    return {"name": op.name, "type": op.type, "gradient_of": None if op.origin is None else op.origin.name}
