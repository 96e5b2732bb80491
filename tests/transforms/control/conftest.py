"""What the tests of control flow share: the engines, and a way to run outputs on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from all_engines import engines_where

import stopgrad as sg
from stopgrad.base.structure import flatten


@pytest.fixture(params=engines_where(["numpy"]))
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def run(engine: str) -> Callable[..., Any]:
    """Run outputs on each engine in turn."""

    def run(fetches: Any, feeds: Any = None) -> Any:
        graph = flatten(fetches)[0][0].graph
        with sg.Session(graph, engine=engine) as session:
            return session.run(fetches, feeds)

    return run


@pytest.fixture
def graph() -> Any:
    """A fresh graph, the default one during the test."""
    made = sg.Graph()
    with made.as_default():
        yield made
