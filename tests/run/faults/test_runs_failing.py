"""Engines that fail while they compile or compute: an error of ours, and the parameters as they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from all_engines import each_engine, form_for
from fault_tools import Counting

import stopgrad as sg
from stopgrad.engines.xla import XlaEngine

pytestmark = pytest.mark.slow

HUGE = [1 << 40]


def huge(c: Counting) -> sg.Output:
    """A result of 8 TB, which nothing can allocate."""
    with c.graph.as_default():
        return sg.broadcast_to(sg.reshape(c.steps[2], [1]), HUGE) * c.by


@each_engine
def test_an_allocation_that_fails_leaves_the_parameters_as_they_were(engine: str) -> None:
    c = Counting()
    y = huge(c)
    with sg.Session(c.graph, engine=engine) as session:
        c.step(session)
        for _ in range(3):
            with pytest.raises(
                sg.EngineError, match=rf"the {engine} engine could not compute \w+ '"
            ) as caught:
                session.run([y, c.steps], {c.by: 1.0})
            assert caught.value.__cause__ is not None
            assert c.count(session) == 1
        c.step(session)
        assert c.count(session) == 2


def test_the_original_error_of_xla_is_the_cause() -> None:
    c = Counting()
    y = huge(c)
    with (
        sg.Session(c.graph, engine="xla") as session,
        pytest.raises(sg.EngineError, match="RESOURCE_EXHAUSTED") as caught,
    ):
        session.run([y, c.steps], {c.by: 1.0})
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)
    assert "Mul 'Mul" in str(caught.value)
    assert "4 more" in str(caught.value)


def test_a_function_that_cannot_allocate_says_so() -> None:
    f = sg.function(lambda x: sg.broadcast_to(x, HUGE) * x, engine="xla")
    for _ in range(2):
        with pytest.raises(sg.EngineError, match=r"could not compute Mul.*RESOURCE_EXHAUSTED"):
            f(np.ones(1))


@each_engine
def test_a_lowering_that_fails_is_named_and_leaves_all_as_it_was(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = Counting()
    with c.graph.as_default():
        y = sg.tanh(c.steps[0], name="bend")
    fails = [True]

    def lower(xp: Any, x: Any) -> Any:
        if fails[0]:
            raise ValueError("my own")
        return xp.tanh(x)

    monkeypatch.setattr(sg.ops.Tanh, form_for(engine), staticmethod(lower), raising=False)
    with sg.Session(c.graph, engine=engine) as session:
        c.step(session)
        for _ in range(2):
            with pytest.raises(
                sg.EngineError, match=r"could not compute Tanh 'bend'.*ValueError: my own"
            ) as caught:
                session.run([y, c.steps], {c.by: 1.0})
            assert isinstance(caught.value.__cause__, ValueError)
            assert c.count(session) == 1
        fails[0] = False
        session.run([y, c.steps], {c.by: 1.0})
        assert c.count(session) == 2


def test_an_error_that_comes_only_when_results_are_waited_for_comes_before_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Counting()
    with sg.Session(c.graph, engine="xla") as session:
        c.step(session)

        def late(wait: Callable[..., Any]) -> Callable[..., Any]:
            def fail(self: XlaEngine, values: Sequence[Any]) -> None:
                wait(self, values)
                raise jax.errors.JaxRuntimeError("INTERNAL: too late")

            return fail

        with monkeypatch.context() as patch:
            for name in ("finish", "taken"):  # Either waits.
                patch.setattr(XlaEngine, name, late(getattr(XlaEngine, name)))
            for _ in range(3):
                with pytest.raises(sg.EngineError, match="INTERNAL: too late"):
                    c.step(session)
                assert c.count(session) == 1
        c.step(session)
        assert c.count(session) == 2


def test_an_array_that_jax_has_deleted_is_refused() -> None:
    c = Counting()
    gone = jax.numpy.ones(4, "float32")
    gone.delete()
    with jax.enable_x64(True):
        also = jax.numpy.ones(4, "float64")
        also.delete()
    f = sg.function(lambda x: x * 2.0, engine="xla")
    with sg.Session(c.graph, engine="xla") as session:
        for array in (gone, also):
            with pytest.raises((sg.FeedError, sg.EngineError), match="deleted"):
                session.run([c.steps, c.total], {c.by: 1.0, c.x: array})
            with pytest.raises(sg.EngineError, match="deleted"):
                f(array)
        assert c.count(session) == 0
        c.step(session)


def test_one_session_does_not_touch_what_another_holds() -> None:
    """The arrays that xla writes results into are this session's own."""
    c = Counting()
    with sg.Session(c.graph, engine="xla") as one, sg.Session(c.graph, engine="xla") as two:
        for _ in range(4):
            c.step(one)
        c.step(two)
        assert (c.count(one), c.count(two)) == (4, 1)
