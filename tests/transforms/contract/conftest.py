"""What the contract tests share: the engines, a way to run outputs, and the line one stands on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from all_engines import engines_where

import stopgrad as sg
from stopgrad.base.structure import flatten


def run_on(engine: str, fetches: Any, feeds: Any = None) -> Any:
    graph = flatten(fetches)[0][0].graph
    with sg.Session(graph, engine=engine) as session:
        return session.run(fetches, feeds)


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run outputs on the reference engine."""

    def run(fetches: Any, feeds: Any = None) -> Any:
        return run_on("numpy", fetches, feeds)

    return run


@pytest.fixture(params=engines_where(["numpy"]))
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def run_everywhere(engine: str) -> Callable[..., Any]:
    """Run outputs on each engine in turn."""

    def run(fetches: Any, feeds: Any = None) -> Any:
        return run_on(engine, fetches, feeds)

    return run


@pytest.fixture
def graph() -> Any:
    """A fresh graph, the default one during the test."""
    made = sg.Graph()
    with made.as_default():
        yield made


@pytest.fixture
def here() -> Callable[[], int]:
    """The line of the test that asks."""

    def line() -> int:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        return frame.f_back.f_lineno

    return line


@pytest.fixture
def same_bits() -> Callable[[Any, Any], bool]:
    """Equal to the last bit: NaN payloads and signs of zeros too."""

    def same(a: Any, b: Any) -> bool:
        a, b = np.asarray(a), np.asarray(b)
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    return same
