"""Learning rates: those of Optax and PyTorch, the same on numbers and inside graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest
import torch
from all_engines import each_engine

import stopgrad as sg
from stopgrad import optimizers as so

STEPS = 70

OPTAX: list[tuple[Any, Any]] = [
    (so.constant(0.1), optax.constant_schedule(0.1)),
    (so.linear(0.0, 0.1, 10), optax.linear_schedule(0.0, 0.1, 10)),
    (so.linear(0.5, 0.1, 1), optax.linear_schedule(0.5, 0.1, 1)),
    (so.polynomial(0.4, 0.1, 20, 3.0), optax.polynomial_schedule(0.4, 0.1, 3.0, 20)),
    (so.polynomial(0.4, 0.1, 20), optax.polynomial_schedule(0.4, 0.1, 2.0, 20)),
    (so.cosine(0.1, 30), optax.cosine_decay_schedule(0.1, 30)),
    (so.cosine(0.1, 30, 0.02), optax.cosine_decay_schedule(0.1, 30, alpha=0.2)),
    (so.exponential(0.1, 0.5, 10), optax.exponential_decay(0.1, 10, 0.5)),
    (so.exponential(0.1, 0.5, 10, staircase=True), optax.exponential_decay(0.1, 10, 0.5, staircase=True)),
    (so.exponential(0.1, 0.9, end=0.05), optax.exponential_decay(0.1, 1, 0.9, end_value=0.05)),
    (so.piecewise([0.1, 0.01, 0.02], [20, 35]), optax.piecewise_constant_schedule(0.1, {20: 0.1, 35: 2.0})),
    (
        so.join([so.linear(0.0, 0.1, 10), so.cosine(0.1, 30), 0.01], [10, 40]),
        optax.join_schedules(
            [
                optax.linear_schedule(0.0, 0.1, 10),
                optax.cosine_decay_schedule(0.1, 30),
                optax.constant_schedule(0.01),
            ],
            [10, 40],
        ),
    ),
    (so.warmup(so.cosine(0.1, 30), 10), optax.warmup_cosine_decay_schedule(0.0, 0.1, 10, 40)),
    (
        so.warmup(so.cosine(0.1, 30, 0.01), 10, 0.05),
        optax.warmup_cosine_decay_schedule(0.05, 0.1, 10, 40, 0.01),
    ),
]


def in_graph(schedule: Any, engine: str = "numpy") -> np.ndarray[Any, Any]:
    """The rates of the first steps, from a counter in a graph."""
    with sg.Graph().as_default() as graph:
        step = sg.placeholder(sg.int64, name="step")
        rate = schedule(step)
        assert (rate.dtype, rate.shape) == (sg.float64, ())
    with sg.Session(graph, engine=engine) as session:
        return np.array([session.run(rate, {step: i}) for i in range(STEPS)])


@pytest.mark.parametrize(
    ("ours", "theirs"), OPTAX, ids=lambda x: repr(x) if isinstance(x, so.Schedule) else ""
)
def test_rates_are_those_of_optax(ours: Any, theirs: Any) -> None:
    expected = np.array([theirs(i) for i in range(STEPS)])
    np.testing.assert_allclose(in_graph(ours), expected, rtol=1e-5, atol=1e-7)  # Optax's are float32.


@pytest.mark.parametrize("schedule", [ours for ours, _ in OPTAX], ids=repr)
def test_a_number_gives_what_the_graph_computes(schedule: Any) -> None:
    found = np.array([schedule(i) for i in range(STEPS)])
    assert found.dtype == np.float64
    np.testing.assert_allclose(in_graph(schedule), found, rtol=1e-15)
    np.testing.assert_allclose(schedule(np.arange(STEPS)), found, rtol=1e-15)


@pytest.mark.parametrize("schedule", [ours for ours, _ in OPTAX], ids=repr)
def test_steps_of_float32_give_rates_of_float32(schedule: Any) -> None:
    found = schedule(np.arange(STEPS, dtype=np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, schedule(np.arange(STEPS)), rtol=2e-6, atol=1e-7)


def test_factors_near_one_keep_their_digits_in_float32() -> None:
    steps = np.arange(0, 1_000_000, 9_999)
    found = so.exponential(0.1, 0.99999)(steps.astype(np.float32))
    np.testing.assert_allclose(found, 0.1 * np.exp(steps * np.log(0.99999)), rtol=2e-6)


@pytest.mark.parametrize("stretch", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 7, 10])
def test_restarts_are_pytorchs(steps: int, stretch: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, steps, stretch, eta_min=0.01)
    expected = []
    for _ in range(STEPS):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    schedule = so.cosine(0.1, steps, 0.01, restarts=True, stretch=stretch)
    np.testing.assert_allclose(in_graph(schedule), expected, rtol=1e-12)
    if (steps, stretch) == (7, 2):
        np.testing.assert_allclose(in_graph(schedule, "xla"), expected, rtol=1e-12)


@pytest.mark.parametrize("stretch", [2, 3, 7])
def test_every_round_begins_at_the_start(stretch: int) -> None:
    """Also where the logarithm that says which round it is comes out a little too small."""
    schedule = so.cosine(0.1, 10, restarts=True, stretch=stretch)
    beginnings = [10 * (stretch**i - 1) // (stretch - 1) for i in range(12)]
    np.testing.assert_array_equal(schedule(np.array(beginnings)), 0.1)
    assert np.all(schedule(np.array(beginnings[1:]) - 1) < 0.01)


def test_stairs_are_pytorchs() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.3)
    expected = []
    for _ in range(STEPS):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(in_graph(so.exponential(0.1, 0.3, 7, staircase=True)), expected, rtol=1e-12)


@each_engine
def test_an_optimiser_makes_each_step_with_its_rate(engine: str) -> None:
    schedule = so.warmup(so.cosine(0.5, 5), 3)
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.float64(0.0), name="w")
        update = so.sgd(w, [w], schedule)
    with sg.Session(graph, engine=engine) as session:
        before, found = 0.0, []
        for _ in range(10):
            rate, _ = session.run([update.learning_rate, update.run])
            after = float(session.value(w))
            np.testing.assert_allclose(rate, before - after, atol=1e-15)
            found.append(float(rate))
            before = after
    np.testing.assert_allclose(found, [schedule(i) for i in range(10)], rtol=1e-14)


def test_a_schedule_says_what_it_is() -> None:
    texts = [
        "constant(0.1)",
        "linear(0.0, 0.1, 10)",
        "polynomial(0.4, 0.1, 20, 3.0)",
        "cosine(0.1, 30, 0.02)",
        "cosine(0.1, 30, restarts=True, stretch=2)",
        "exponential(0.1, 0.5, 10, staircase=True)",
        "exponential(0.1, 0.9, 1, end=0.05)",
        "piecewise([0.1, 0.01], [20])",
        "join([linear(0.0, 0.1, 10), 0.01], [10])",
        "warmup(cosine(0.1, 30), 10, 0.05)",
    ]
    for text in texts:
        assert repr(eval(text, vars(so))) == text


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: so.constant(-0.1), "rate is a number from 0 on, not -0.1"),
        (lambda: so.constant(float("nan")), "rate is a number from 0 on, not nan"),
        (lambda: so.constant("0.1"), "a number is needed"),
        (lambda: so.linear(0.1, 0.0, 0), "steps is a whole number from 1 on"),
        (lambda: so.linear(0.1, 0.0, 2.0), "steps is a whole number from 1 on"),
        (lambda: so.linear(0.1, -1.0, 2), "end is a number from 0 on"),
        (lambda: so.polynomial(0.1, 0.0, 10, -1.0), "power is a number from 0 on"),
        (lambda: so.cosine(0.1, 10, stretch=2), "give restarts=True"),
        (lambda: so.cosine(0.1, 10, restarts="yes"), "restarts is True or False"),
        (lambda: so.exponential(0.1, None), "a number is needed"),
        (
            lambda: so.piecewise([0.1, 0.2], [10, 20]),
            "one of the rates more than there are boundaries; got 2 and 2",
        ),
        (lambda: so.piecewise([0.1, 0.2, 0.3], [20, 10]), "boundaries are steps in rising order"),
        (lambda: so.piecewise(0.1, [10]), "not iterable"),
        (lambda: so.join([0.1, "b"], [10]), "a number is needed, not 'b'"),
        (lambda: so.warmup(0.1, -1), "steps is a whole number from 1 on"),
        (lambda: so.cosine(0.1, 10)("now"), "now"),
    ],
)
def test_wrong_arguments_are_errors(call: Any, told: str) -> None:
    with pytest.raises(sg.StopgradError, match=told.replace("(", r"\(")) as caught:
        call()
    assert not isinstance(caught.value, sg.InternalError)
    assert "test_schedules.py" in str(caught.value)
