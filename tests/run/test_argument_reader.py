"""Readers return what optree finds in arguments of their structure, and refuse all others."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import optree
import pytest

from stopgrad.base.structure import NAMESPACE, flatten
from stopgrad.run.argument_reader import DIFFERS, reader


class Point(NamedTuple):
    x: Any
    y: Any


class Other(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any


class Twice(dict[str, Any]):
    """A dict whose values are other than those that are in it."""


STRUCTURES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1.0,), {}),
    ((1.0, 2.0), {}),
    (([1.0, 2.0],), {}),
    (((1.0, 2.0),), {}),
    ((((1.0,), 2.0),), {}),
    (([],), {}),
    (((),), {}),
    (({},), {}),
    ((None,), {}),
    ((None, 1.0), {}),
    (({"w": 1.0, "b": 2.0},), {}),
    (({"w": 1.0, "c": 2.0},), {}),
    (({"w": 1.0, "b": 2.0, "c": 3.0},), {}),
    (({"z": [1.0, {"y": 2.0}], "a": (3.0,)}, 4.0), {}),
    (({3: 1.0, 1: 2.0, 2: 3.0},), {}),
    (({"a": 1.0, 2: 2.0, (3,): 3.0},), {}),
    ((Point(1.0, [2.0]),), {}),
    ((Other(1.0, [2.0]),), {}),
    (((1.0, [2.0]),), {}),
    ((OrderedDict(b=1.0, a=2.0),), {}),
    ((Pair(1.0, [2.0, 3.0]),), {}),
    ((1.0,), {"k": 2.0, "a": {"x": 3.0}}),
    ((), {"k": 1.0}),
]


def read(structure: int, given: int) -> Any:
    """What the reader of one structure finds in another; None if it refuses it."""
    spec = flatten(STRUCTURES[structure])[1]
    try:
        return [*reader(spec)(*STRUCTURES[given])]
    except DIFFERS:
        return None


@pytest.mark.parametrize("i", range(len(STRUCTURES)))
def test_leaves_come_in_the_order_of_optree(i: int) -> None:
    flatten(STRUCTURES[i])  # Dataclasses become known to optree.
    assert read(i, i) == optree.tree_leaves(STRUCTURES[i], namespace=NAMESPACE)


def test_other_structures_are_refused() -> None:
    for i in range(len(STRUCTURES)):
        for j in range(len(STRUCTURES)):
            found = read(i, j)
            # What stands where a leaf stood is not looked at: that it is no structure, the caller sees.
            assert i == j or found is None or not all(isinstance(x, float) for x in found), (i, j)


def test_dicts_are_known_by_their_keys_whatever_their_order() -> None:
    a, b = object(), object()
    found = reader(flatten((({"w": a, "b": b},), {}))[1])
    assert [*found(({"b": b, "w": a},), {})] == [b, a]


def test_leaves_that_are_one_object_are_told_apart_later() -> None:
    same = object()
    found = reader(flatten((({"w": same, "b": [same]},), {}))[1])
    assert [*found(({"w": 1, "b": [2]},), {})] == [2, 1]


def test_classes_made_of_dicts_are_refused() -> None:
    found = reader(flatten((({"w": 1.0},), {}))[1])
    with pytest.raises(DIFFERS):
        found((Twice(w=1.0),), {})


def test_keys_are_no_part_of_the_text() -> None:
    keys = ["a'); raise SystemExit #", "__import__('os')", "\n", "{0}"]
    tree = (({key: float(i) for i, key in enumerate(keys)},), {})
    assert [*reader(flatten(tree)[1])(*tree)] == optree.tree_leaves(tree)
