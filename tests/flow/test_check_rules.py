"""``check_gradients`` passes right rules and fails wrong ones, where either is hard to tell."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from checked_rules import Rule, right, table, wrong

RIGHT, WRONG = list(right()), list(wrong())
QUICK = {"stationary points", "kinks", "ties", "infinite slopes", "sums of broadcasting", "outside of a kink"}


def by_kind(rules: list[Rule]) -> list[object]:
    """A case for each kind, the quick ones in plain tests."""
    cases = []
    for kind, some in groupby(rules, lambda rule: rule.kind):
        marks = () if kind in QUICK else pytest.mark.slow
        cases.append(pytest.param(list(some), id=kind, marks=marks))
    return cases


@pytest.mark.parametrize("rules", by_kind(RIGHT))
def test_right_rules_pass(rules: list[Rule]) -> None:
    assert not [str(rule) for rule in rules if not rule.passes()]


@pytest.mark.parametrize("rules", by_kind(WRONG))
def test_wrong_rules_fail(rules: list[Rule]) -> None:
    assert not [str(rule) for rule in rules if rule.passes()]


def test_there_are_a_hundred_of_each() -> None:
    assert len(RIGHT) >= 100
    assert len(WRONG) >= 100
    assert len({str(rule) for rule in [*RIGHT, *WRONG]}) == len(RIGHT) + len(WRONG)


@pytest.mark.nightly
def test_the_page_shows_what_is_found() -> None:
    page = Path(__file__).parents[2] / "docs" / "verdicts.md"
    assert "\n".join(table()) in page.read_text()
