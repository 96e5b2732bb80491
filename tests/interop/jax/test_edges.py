"""Our gradient rules against JAX's own, at ordinary points and at edges: the page lists where they differ."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")

from jax.interpreters import ad

from helpers.edges import differing, on_page, table
from helpers.edges_in_jax import NO_ROW, OF_ONE, called, compared, comparisons
from stopgrad.interop.jax.steps import RULES


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_the_page_lists_where_rules_differ() -> None:
    assert on_page("JAX").strip() == table(comparisons())


def test_a_rule_that_differs_is_found_and_one_that_agrees_is_not() -> None:
    at = np.array([0.0, 4.0], np.float32)
    sqrt, power = (compared(OF_ONE[name], (at,), ["0", "4"]) for name in ("sqrt", "pow 0"))
    assert sqrt is not None
    assert power is not None
    assert not differing(sqrt)
    assert [point for point, _, _ in differing(power)] == ["0"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_each_primitive_with_a_rule_and_a_gradient_has_a_row_or_a_reason() -> None:
    differentiable = {one.name for one in (*ad.primitive_jvps, *ad.primitive_transposes)}
    assert (set(RULES) & differentiable) - called() <= {
        name for names in NO_ROW.values() for name in names.split()
    }
