"""Our gradient rules against PyTorch's own, also at edges: the page lists where they differ."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from helpers.edges import differing, on_page, table
from helpers.edges_in_torch import NO_ROW, OF_ONE, called, compared, comparisons
from stopgrad.interop.torch.importing.aten.elementwise import ELEMENTWISE
from stopgrad.interop.torch.importing.aten.normalizations import NORMALIZATIONS
from stopgrad.interop.torch.importing.aten.products import PRODUCTS
from stopgrad.interop.torch.importing.aten.reductions import REDUCTIONS


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


@pytest.mark.filterwarnings("ignore")
def test_each_operator_of_the_numeric_families_has_a_row_or_a_reason() -> None:
    families = (ELEMENTWISE, NORMALIZATIONS, PRODUCTS, REDUCTIONS)  # Others move elements, or are linear.
    ours = {name.split(".")[1] for family in families for name in family}
    assert ours - called() <= {name for names in NO_ROW.values() for name in names.split()}
