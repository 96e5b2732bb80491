"""Predictions that are compared with every target, by mistake; and broadcasting that is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from broadcasting import SIZES, TRAINED, WRONG, correct, loss, values

import stopgrad as sg

OURS = {
    **{
        "mean": sg.reduce_mean,
        "sum_": sg.reduce_sum,
        "min_": sg.reduce_min,
        "logsumexp": sg.reduce_logsumexp,
    },
    **{"sq": sg.square, "abs_": sg.abs, "softmax": sg.softmax},
    **{
        name: getattr(sg, name)
        for name in ("sqrt", "where", "maximum", "log", "exp", "relu", "sigmoid", "softplus")
    },
}


def told(text: str, n: int, every: bool = False) -> list[str]:
    """What is said of a loss: of what is trained; or where nobody said what is."""
    given = values(n)
    names = list(given) if every else list(TRAINED)
    fixed = {name: x for name, x in given.items() if name not in names}

    def f(*args: Any) -> Any:
        held = {name: sg.constant(x) for name, x in fixed.items()}
        return loss(text, OURS, {**held, **dict(zip(names, args, strict=True))})

    flow = sg.explain(f, *[given[name] for name in names])
    return [one.message for one in flow.findings if one.kind == "broadcast-loss"]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_compared_with_all_by_mistake(text: str) -> None:
    (message,) = told(text, 6)[:1] or [""]
    assert "6, 6]: each" in message, text
    assert "each prediction is compared with every target; give both one shape: " in message
    assert not told(WRONG[text], 6)


@pytest.mark.parametrize("n", SIZES)
def test_broadcasting_that_is_meant(n: int) -> None:
    alarms = [text for text in correct() if told(text, n)]
    assert not alarms


def test_one_row_is_no_mistake() -> None:
    assert not [text for text in WRONG if told(text, 1)]


def test_targets_among_the_arguments_that_are_asked_about() -> None:
    def f(w: Any, x: Any, y: Any) -> Any:
        return sg.reduce_mean(sg.square(x @ w - y))

    given = np.ones((3, 1)), np.ones((8, 3))
    assert [one.kind for one in sg.explain(f, *given, np.ones(8)).findings] == ["broadcast-loss"]
    assert not sg.explain(f, *given, np.ones((8, 1))).findings


def test_losses_of_ours() -> None:
    given = np.ones((3, 1)), np.ones((8, 3))
    for function in (sg.mean_squared_error, sg.mean_absolute_error, sg.huber, sg.log_cosh):
        for y, wanted in ((np.ones(8), ["broadcast-loss"]), (np.ones((8, 1)), [])):
            flow = sg.explain(lambda w, x, y=y, f=function: sg.reduce_mean(f(y, x @ w)), *given, argnums=0)
            assert [one.kind for one in flow.findings] == wanted, function


def test_the_forms_of_the_report() -> None:
    def f(w: Any, x: Any) -> Any:
        return sg.reduce_mean(sg.square(x @ w - sg.constant(np.ones(8))))

    flow = sg.explain(f, np.ones((3, 1)), np.ones((8, 3)), argnums=0)
    assert "broadcast-loss: " in flow.to_text()
    assert [one["kind"] for one in flow.to_dict()["findings"]] == ["broadcast-loss"]
    assert "title=stopgrad%3A broadcast-loss" in flow.to_github()
    (one,) = flow.comparisons
    assert (one.shapes, one.result, one.is_trained) == (((8, 1), (8,)), (8, 8), True)


def test_what_runs_in_a_loop() -> None:
    y = np.ones(8)

    def f(w: Any, x: Any) -> Any:
        return sg.scan(lambda total, _: (total + sg.reduce_mean(sg.square(x @ w - y)), total), 0.0, length=3)[
            0
        ]

    flow = sg.explain(f, np.ones((3, 1)), np.ones((8, 3)), argnums=0)
    assert [one.kind for one in flow.findings] == ["broadcast-loss"]
