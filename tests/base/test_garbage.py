"""How often garbage is collected while graphs are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import stopgrad as sg
from stopgrad.base.garbage import RARE, with_rare_gc


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_it_is_rare_while_a_function_is_traced_and_as_before_afterwards(usual: Any) -> None:
    seen = []
    f = sg.function(
        lambda x: seen.append((gc.isenabled(), gc.get_threshold()[0])) or sg.exp(x), engine="numpy"
    )
    f(1.0)
    assert seen == [(True, RARE)]
    assert gc.get_threshold() == usual


def test_an_error_leaves_it_as_before(usual: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        with_rare_gc(lambda: 1 / 0)
    assert gc.get_threshold() == usual


def test_what_a_function_sets_itself_stays() -> None:
    with_rare_gc(gc.set_threshold, 123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


@pytest.mark.parametrize("first", [0, RARE, 2 * RARE])
def test_one_that_is_off_or_rare_already_is_left_alone(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    assert with_rare_gc(gc.get_threshold) == (first, 10, 10)
    assert gc.get_threshold() == (first, 10, 10)
