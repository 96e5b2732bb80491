"""Our gradient rules against JAX's own, at ordinary points and at edges: the page lists where they differ."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")

from helpers.edges import differing, on_page, table
from helpers.edges_in_jax import OF_ONE, compared, comparisons


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
