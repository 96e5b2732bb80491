"""Indices with flags, new axes, ellipses and nothing in them, in all combinations, as NumPy has them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES
from tiers import some

import stopgrad as sg

SHAPES = [(2,), (2, 3), (0, 2), (2, 0, 3), (2, 1, 3)]
ITEMS: dict[str, Any] = {
    "False": False,
    "True": True,
    "None": None,
    "...": ...,
    "0": 0,
    "-1": -1,
    ":": slice(None),
    "0:0": slice(0, 0),
    "::-1": slice(None, None, -1),
    "[0]": np.array([0]),
    "[]": np.array([], np.int64),
    "[[1, 0]]": np.array([[1, 0]]),
    "[True, False]": np.array([True, False]),
    "[[...]] of flags": np.array([[True, False, True], [False, False, True]]),
}


def right(x: Any, index: Any) -> Any:
    """What NumPy takes; None where it refuses."""
    try:
        return x[index]
    except IndexError:
        return None


def indices(shape: tuple[int, ...], longest: int = 3) -> Iterator[tuple[str, Any]]:
    """All indices of up to so many items that NumPy takes for a shape."""
    x = np.zeros(shape)
    for length in range(1, longest + 1):
        for names in itertools.product(ITEMS, repeat=length):
            index = tuple([ITEMS[name] for name in names])
            if right(x, index) is not None:
                yield ", ".join(names), index


def goes(x: Any, index: Any) -> bool:
    """Whether we take it, too.

    Beside a flag that is False, or other empty indices, NumPy does not look whether 0 is outside of an axis
    without elements. We say that it is.
    """
    try:
        sg.at(x)[index].get()
    except sg.ShapeError as error:
        if "is out of range for axis" in str(error) and "of size 0" in str(error):
            return False
        raise
    return True


def taken(x: Any, index: Any) -> tuple[Any, Any]:
    """What is taken, and x with a number set there."""
    return x[index], x.at[index].set(7.0)


@pytest.mark.parametrize("shape", some(SHAPES, 2, pytest.mark.nightly), ids=str)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
def test_every_combination(engine: str, shape: tuple[int, ...]) -> None:
    x = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    found = [(names, index) for names, index in indices(shape) if 0 not in shape or goes(x, index)]
    if engine != "numpy":  # Each is compiled.
        found = random.Random(0).sample(found, 60)
    chosen = [index for _, index in found]
    made = sg.function(lambda x: [taken(x, index) for index in chosen], engine=engine)(x)
    wrong = []
    for (names, index), (value, changed) in zip(found, made, strict=True):
        expected = x.copy()
        expected[index] = 7.0
        if np.shape(value) != x[index].shape or not np.array_equal(value, x[index]):
            wrong.append((names, np.shape(value), x[index].shape))
        if not np.array_equal(changed, expected):
            wrong.append((names, "set"))
    assert not wrong


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_what_numpy_refuses_is_refused(shape: tuple[int, ...]) -> None:
    x, kept = np.zeros(shape), []
    with sg.Graph().as_default():
        t = sg.placeholder(sg.float64, shape)
        for names in itertools.product(ITEMS, repeat=2):
            index = tuple([ITEMS[name] for name in names])
            if right(x, index) is None:
                try:
                    t[index]
                except (sg.StopgradError, IndexError):
                    continue
                kept.append(names)
    assert not kept
