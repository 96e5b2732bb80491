"""Our gradient rules against PyTorch's own, also at edges: the page lists where they differ."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from helpers.edges import differing, on_page, table
from helpers.edges_in_torch import OF_ONE, compared, comparisons


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_the_page_lists_where_rules_differ() -> None:
    assert on_page("PyTorch").strip() == table(comparisons())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_rule_that_agrees_is_not_listed() -> None:
    sqrt = compared(OF_ONE["sqrt"], (np.array([0.0, 4.0], np.float32),), ["0", "4"])
    assert sqrt is not None
    assert not differing(sqrt)
