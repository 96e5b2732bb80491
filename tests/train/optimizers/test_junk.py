"""Whatever is given for an argument, the error is ours, at the user's line, and nothing is left built."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from junk import JUNK

import stopgrad as sg
from stopgrad import optimizers as so

SCHEDULES: dict[str, tuple[Any, ...]] = {
    "constant": (0.1,),
    "linear": (0.1, 0.0, 3),
    "polynomial": (0.1, 0.0, 3, 2.0),
    "cosine": (0.1, 3, 0.0),
    "exponential": (0.1, 0.5, 3),
    "piecewise": ([0.1, 0.2], [3]),
    "join": ([0.1, 0.2], [3]),
    "warmup": (0.1, 3, 0.0),
}
OPTIMISERS = [name for name, f in vars(so).items() if inspect.isfunction(f) and name not in SCHEDULES]
ADAPTERS = ("outputs", "weights", "rank", "alpha", "key", "dtype")
USABLE = [
    junk for junk in JUNK if not inspect.isfunction(junk)
]  # What a user's function raises is handed on.


def attempt(call: Callable[[], Any], graph: sg.Graph | None = None) -> None:
    length, found = 0 if graph is None else len(graph), None
    try:
        call()
    except sg.StopgradError as error:
        found = error
    if found is not None:
        assert not isinstance(found, sg.InternalError), found
        assert "test_junk.py" in str(found)
        assert graph is None or len(graph) == length


def matrices() -> tuple[Any, ...]:
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.ones((2, 2)), name="w")
        y = sg.matmul(w, sg.placeholder(sg.float64, [2, 2]))
        return graph, w, y, sg.reduce_sum(y)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name: str) -> None:
    function = getattr(so, name)
    own = [k for k, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD]
    assert len(OPTIMISERS) == 8
    graph, w, _, loss = matrices()
    length = len(graph)
    for key in (*own, *so.How.__annotations__):
        for junk in USABLE:
            attempt(lambda: function(**{"loss": loss, "parameters": [w], key: junk}), graph)
            graph.truncate(length)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    function, given = getattr(so, name), SCHEDULES[name]
    for key in inspect.signature(function).parameters:
        for junk in USABLE:
            arguments = {**dict(zip(inspect.signature(function).parameters, given, strict=False)), key: junk}
            attempt(lambda: function(**arguments)(3))


@pytest.mark.parametrize("key", ADAPTERS)
def test_adapters(key: str) -> None:
    graph, w, y, _ = matrices()
    for junk in USABLE:
        attempt(lambda: sg.add_lora(**{"outputs": y, "weights": [w], "key": 0, key: junk}), graph)


@pytest.mark.parametrize(
    "rule", [so.SGD(), so.AdamW(), so.Muon(), so.Adafactor(), so.Lion()], ids=lambda r: r.name
)
def test_rules(rule: Any) -> None:
    p = {"w": np.ones((2, 2))}
    for junk in USABLE:
        attempt(lambda: rule.init(junk))
        for i in range(3):
            arguments = [p, p, rule.init(p)]
            arguments[i] = junk
            attempt(lambda: rule.apply(*arguments))
