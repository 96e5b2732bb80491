"""Our gradient rules against TensorFlow's own, also at edges: the page lists where they differ."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tensorflow.python.framework import ops  # noqa: E402

from helpers.edges import differing, on_page, table  # noqa: E402
from helpers.edges_in_tensorflow import NO_ROW, OF_ONE, called, compared, comparisons  # noqa: E402
from stopgrad.interop.tensorflow.operators import (  # noqa: E402
    ACTIVATIONS,
    ELEMENTWISE,
    LOSSES,
    NORMALIZATIONS,
    PRODUCTS,
    REDUCTIONS,
)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_the_page_lists_where_rules_differ() -> None:
    assert on_page("TensorFlow").strip() == table(comparisons())


@pytest.mark.filterwarnings("ignore")
def test_a_rule_that_differs_is_found_and_one_that_agrees_is_not() -> None:
    at = np.array([0.0, 4.0], np.float32)
    sqrt, power = (compared(OF_ONE[name], (at,), ["0", "4"]) for name in ("Sqrt", "Pow 0"))
    assert sqrt is not None
    assert power is not None
    assert not differing(sqrt)
    assert [point for point, _, _ in differing(power)] == ["0"]


def _has_gradient(name: str) -> bool:
    try:
        return ops._gradient_registry.lookup(name) is not None
    except LookupError:
        return False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_each_operation_of_the_numeric_families_has_a_row_or_a_reason() -> None:
    families = (ACTIVATIONS, ELEMENTWISE, LOSSES, NORMALIZATIONS, PRODUCTS, REDUCTIONS)
    ours = {name for family in families for name in family if _has_gradient(name)}  # Others move elements.
    assert ours - called() <= {name for names in NO_ROW.values() for name in names.split()}
