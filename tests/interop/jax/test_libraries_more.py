"""Losses of more JAX libraries, unchanged: which arguments get a gradient, and which line cuts the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

from library_table import LIGHT, losses_of_jax, losses_of_torch, titles

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # What the libraries warn of is theirs.

LOSSES = [
    pytest.param(
        loss, id=f"{loss.package}: {loss.name}", marks=[] if loss.package in LIGHT else pytest.mark.nightly
    )
    for loss in losses_of_jax()
]


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_said_of_a_library_is_what_jax_does_and_what_its_source_says(loss: Any) -> None:
    found = loss.examined(loss.build)
    assert found.parameters
    assert not found.all


def test_the_page_has_every_library_as_it_is_pinned() -> None:
    page = (Path(__file__).parents[3] / "docs" / "verdicts.md").read_text()
    pytest.importorskip("torch")
    found = [*titles(list(losses_of_torch())).values(), *titles(list(losses_of_jax())).values()]
    assert not [title for title in found if title not in page]
