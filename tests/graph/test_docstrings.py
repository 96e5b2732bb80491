"""What a definition's docstring gets from its family and its rule, and what stays its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import stopgrad as sg
from stopgrad.graph import defining as d
from stopgrad.graph.defining import Arithmetic, Elementwise, Op
from stopgrad.graph.docstrings import composed
from stopgrad.graph.op import REGISTRY


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Definitions of a test are gone after it."""
    before = set(REGISTRY)
    yield
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def test_a_member_that_says_what_it_returns_gets_the_rest_from_its_rule() -> None:
    class Gap(Arithmetic):
        """Elementwise distance.

        Returns:
            |a - b|.
        """

        infer = d.broadcast(d.is_real, "a", "b")
        gradient = d.not_differentiable("a test")
        lower = lambda xp, a, b: xp.abs(a - b)
        samples = d.pairs()

    gap = d.binary(Gap, "gap", "a", "b")
    assert inspect.getdoc(gap) == inspect.getdoc(Gap) == Gap.__doc__
    assert Gap.__doc__ == (
        "Elementwise distance.\n"
        "\n"
        "Args:\n"
        "    a: real numbers.\n"
        "    b: real numbers, of a shape that broadcasts with a's.\n"
        "\n"
        "Returns:\n"
        "    |a - b|.\n"
        "\n"
        "Constraints:\n"
        "    (C1) a and b hold real numbers, of one dtype.\n"
        "    (C2) The shapes of a and b broadcast."
    )
    with pytest.raises(sg.DTypeError, match=r"Gap: \(C1\) takes real numbers"):
        gap(1j, 2.0)


def test_a_member_with_a_rule_of_its_own_gets_nothing_of_the_familys_rule() -> None:
    class Doubled(Elementwise):
        """Elementwise double."""

        infer = staticmethod(lambda x: x)
        gradient = {"x": lambda g, op: 2.0 * g}
        lower = lambda xp, x: x + x
        samples = d.singles()

    assert Doubled.__doc__ == "Elementwise double."


def test_the_nearest_family_counts_and_words_for_operands_that_a_member_lacks_do_not() -> None:
    class Scaled(Op, abstract=True):
        """One operand, scaled.

        Args:
            x: any.
            y: no operand of the members.
            by: the factor.

        Raises:
            ValueError: at times.

        Examples:
            not a member's
        """

        infer = d.same(d.is_floating)
        gradient = d.not_differentiable("a test")
        lower = lambda xp, x: x
        samples = d.singles()

    class Turned(Scaled, abstract=True):
        """Scaled by -1.

        Args:
            x: to be turned.
        """

    class Minus(Turned):
        """Elementwise minus.

        Constraints:
            (C2) none.

        References:
            A book.
        """

    assert Minus.__doc__ == (
        "Elementwise minus.\n\n"
        "Args:\n    x: to be turned.\n\n"
        "Constraints:\n    (C1) x is floating-point.\n    (C2) none.\n\n"
        "Raises:\n    ValueError: at times.\n\n"
        "References:\n    A book."
    )


def test_rules_say_the_dtypes_that_they_allow() -> None:
    for allowed, said in {
        d.is_number: "(C1) x and y hold numbers, of one dtype.",
        d.is_inexact: "(C1) x and y are floating-point or complex, of one dtype.",
        d.is_boolean: "(C1) x and y hold booleans.",
        d.is_any: "(C1) x and y have one dtype.",
    }.items():
        rule: Any = d.broadcast(allowed)
        assert said in rule.document.format("x", "y")


def test_entries_stand_in_the_order_of_the_signature_and_of_the_numbers() -> None:
    family = (
        "Args:\n    x: one,\n        on two lines.\n    z: three.\n\nConstraints:\n    (C2) b.\n    (C10) d."
    )
    own = "Sum.\n\nArgs:\n    y: two.\n\nConstraints:\n    (C9) c.\n    (C1) a."
    assert composed(own, [family], ["x", "y", "z"]) == (
        "Sum.\n\nArgs:\n    x: one,\n        on two lines.\n    y: two.\n    z: three.\n\n"
        "Constraints:\n    (C1) a.\n    (C2) b.\n    (C9) c.\n    (C10) d."
    )


def test_what_inherits_nothing_stays_as_it_is() -> None:
    assert composed("Sum.\n\nReturns:\n    It.\n", ["A family."], []) == "Sum.\n\nReturns:\n    It.\n"


def test_public_functions_tell_what_their_operation_does() -> None:
    for part in "Args:", "Returns:", "(C2) The shapes of x and y broadcast.", ">>> sg.add(":
        assert part in (inspect.getdoc(sg.add) or "")
