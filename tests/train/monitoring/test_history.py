"""Verdicts go in, and changes come out: what is told, and when nothing is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.train.monitoring.history import UNSTEADY, History
from stopgrad.train.monitoring.verdicts import Sample, Verdict, merged, verdicts_of

GOOD = Verdict("arrives")


def texts(history: History, step: int, **verdicts: Verdict) -> list[str]:
    return [str(change) for change in history.take(Sample(step, verdicts))]


def test_nothing_is_told_while_all_gradients_arrive() -> None:
    history = History()
    assert [texts(history, step, w=GOOD, v=GOOD) for step in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("stopped", "no gradient arrives at w (stopped): net.py:4 detach"),
        ("zero", "the gradient of w is exactly 0: net.py:4 detach"),
        ("vanishing", "the gradient of w vanishes: net.py:4 detach"),
        ("exploding", "the gradient of w explodes: net.py:4 detach"),
        ("nothing", "no gradient arrives at w: net.py:4 detach"),
        ("not finite", "the gradient of w is NaN or infinite: net.py:4 detach"),
    ],
)
def test_a_change_is_told_once_with_the_step_since_when_it_is_known(state: str, says: str) -> None:
    history = History()
    assert texts(history, 0, w=GOOD) == []
    assert texts(history, 100, w=Verdict(state, "net.py:4 detach")) == [f"since step 100, {says}"]
    assert texts(history, 200, w=Verdict(state, "net.py:4 detach")) == []
    assert texts(history, 300, w=GOOD) == ["since step 300, a gradient arrives again at w"]


def test_what_is_wrong_in_the_first_sample_is_told() -> None:
    assert texts(History(), 0, w=Verdict("zero")) == ["since step 0, the gradient of w is exactly 0"]


def test_another_cause_of_the_same_state_is_no_change() -> None:
    """The numbers in causes differ from sample to sample."""
    history = History()
    assert len(texts(history, 0, w=Verdict("vanishing", "sigmoid passes on 0.24 of it"))) == 1
    assert texts(history, 1, w=Verdict("vanishing", "sigmoid passes on 0.23 of it")) == []


def test_parameters_that_change_alike_are_told_together_and_others_apart() -> None:
    dead, other = Verdict("zero", "net.py:4 relu"), Verdict("zero", "net.py:9 relu")
    names = {f"encoder.{i}.w": dead for i in range(12)} | {"head": other, "rest": GOOD}
    changes = History().take(Sample(5, names))
    assert [change.text for change in changes] == [
        "since step 5, the gradient of encoder (12 tensors) is exactly 0: net.py:4 relu",
        "since step 5, the gradient of head is exactly 0: net.py:9 relu",
    ]
    assert changes[0].keys == tuple(f"encoder.{i}.w" for i in range(12))
    assert (changes[0].step, changes[0].state, changes[0].cause) == (5, "zero", "net.py:4 relu")


def test_a_verdict_that_goes_to_and_fro_is_called_unsteady_and_then_only_nans_are_told() -> None:
    history, zero = History(), Verdict("zero")
    told = [texts(history, step, w=zero if step % 2 == 0 else GOOD) for step in range(10)]
    assert [len(some) for some in told] == [1] * UNSTEADY + [0] * (10 - UNSTEADY)
    assert told[UNSTEADY - 1][0].startswith(
        f"at step {UNSTEADY - 1}, the verdict on the gradient of w has changed"
    )
    assert texts(history, 10, w=Verdict("not finite")) == [
        "since step 10, the gradient of w is NaN or infinite"
    ]


def test_a_parameter_that_is_not_sampled_keeps_its_verdict() -> None:
    history = History()
    texts(history, 0, w=Verdict("zero"), v=GOOD)
    assert texts(history, 1, v=GOOD) == []
    assert texts(history, 2, w=Verdict("zero"), v=GOOD) == []


# ------------------------------------------------------------------------------------------- verdicts


def test_verdicts_are_those_of_a_report_with_the_line_of_the_first_cause() -> None:
    def f(a: Any, b: Any, c: Any, n: Any) -> Any:
        return sg.relu(a - 9.0) + sg.stop_gradient(b) + c * sg.cast(n, sg.float64)

    found = verdicts_of(sg.explain(f, 1.0, 1.0, 1.0, np.array(2), magnitudes=True))
    assert [(name, one.state) for name, one in found.items()] == [
        ("a", "zero"),
        ("b", "stopped"),
        ("c", "arrives"),
    ]
    line = "test_history.py:"
    assert line in found["a"].cause
    assert found["a"].cause.endswith(" Relu is dead: it is off wherever a gradient arrives")
    assert line in found["b"].cause
    assert found["b"].cause.endswith(" stop_gradient")
    assert found["c"].cause == ""
    assert found["c"].magnitude is not None
    assert found["c"].magnitude.norm == 2.0


def test_of_several_backward_passes_a_gradient_arrives_if_it_does_in_any_and_nans_count_most() -> None:
    stopped, zero, nan = Verdict("stopped"), Verdict("zero"), Verdict("not finite")
    passes = [
        {"a": stopped, "b": stopped, "c": GOOD, "d": zero},
        {"a": GOOD, "b": zero, "c": nan, "d": stopped},
    ]
    assert {name: one.state for name, one in merged(passes).items()} == {
        **{"a": "arrives", "b": "zero", "c": "not finite", "d": "zero"}
    }
