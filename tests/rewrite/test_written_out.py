"""Loops of Python that are compiled step by step are told before that; those that are rolled are not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.engines import engine as engine_named
from stopgrad.engines.protocol import Variant
from stopgrad.rewrite import Rewritten, prepare
from stopgrad.rewrite.rolling import roll
from stopgrad.rewrite.written_out import written_out

STEPS, INSIDE = 60, 30


def chain(x: Any, width: Callable[[int], int] = lambda step: 2) -> Any:
    """STEPS steps of INSIDE expressions, each on one line; the width of each step may be another."""
    for step in range(STEPS):
        x = sg.zeros((width(step),), x.dtype) + x[0]
        for _ in range(INSIDE):
            x = sg.sin(x)
    return x


LINE = chain.__code__.co_firstlineno + 5  # of sg.sin


def prepared(f: Callable[..., Any]) -> Rewritten:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, (2,))
        return prepare([f(x)], [x], {})


def test_the_line_and_how_often_it_repeats() -> None:
    told = written_out(prepared(chain).graph.operations)
    assert f"test_written_out.py:{LINE}" in told
    assert f"repeats {STEPS * INSIDE:,} times" in told
    assert "sg.scan" in told


def test_operations_of_the_gradient_count_with_those_of_the_forward_run() -> None:
    def one_step(x: Any) -> Any:
        for _ in range(800):
            x = sg.sin(x)
        return sg.reduce_sum(x * x)

    def gradient(x: Any) -> Any:
        return sg.gradients(one_step(x), [x])[0]

    assert not written_out(prepared(one_step).graph.operations)
    told = written_out(prepared(gradient).graph.operations)
    assert "repeats 800 times" in told
    assert f"test_written_out.py:{one_step.__code__.co_firstlineno + 2}" in told


def test_a_loop_that_runs_as_a_loop_is_not_told() -> None:
    plain = prepared(chain)
    assert written_out(plain.graph.operations)
    assert not written_out(roll(plain).graph.operations)


def test_large_graphs_without_repetition_are_not_told() -> None:
    assert not written_out(prepared(lambda x: chain(x, lambda step: 2 + step)).graph.operations)


@pytest.mark.parametrize(("passes", "count"), [((lambda graph: graph,), 1), ((roll,), 0), ((), 0)])
def test_it_is_logged_before_compiling_and_stands_in_the_report(
    passes: Sequence[Any], count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Engines without passes compile large graphs as fast as small ones."""
    engine, before = engine_named("numpy"), []
    compile = type(engine).compile

    def compiling(self: Any, *args: Any, **kwargs: Any) -> Any:
        before.append([record.getMessage() for record in caplog.records])
        return compile(self, *args, **kwargs)

    monkeypatch.setattr(type(engine), "compile", compiling)
    monkeypatch.setattr(type(engine), "variants", [Variant("one", (), passes)])
    f = sg.function(chain, engine="numpy")
    with caplog.at_level(logging.INFO, "stopgrad"):
        f(np.ones(2, np.float32))
    (messages,) = before
    assert len(messages) == count
    assert sum("sg.scan" in note and str(LINE) in note for note in f.report()[0].notes) == count
    for message in messages:
        assert message.startswith("chain: ")
        assert f"test_written_out.py:{LINE}" in message
