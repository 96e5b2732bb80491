"""The page about TensorFlow's graphs, and what it lists."""

from __future__ import annotations

from tests.helpers.tensorflow_table import PAGE, families, written

from stopgrad.interop.tensorflow.operators import OPERATORS


def test_the_page_lists_the_operations_that_have_a_rule() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "python -m tests.helpers.tensorflow_table writes the table"


def test_each_operation_stands_in_one_family() -> None:
    listed = [name for names in families().values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(OPERATORS) <= set(listed)
