"""Losses in TensorFlow that compare each prediction with every target, by mistake, and those that mean it."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from broadcasting import SIZES, TRAINED, WRONG, correct, loss, values  # noqa: E402

import stopgrad.tensorflow as sgtf  # noqa: E402

FUNCTIONS = {
    **{
        "mean": tf.reduce_mean,
        "sum_": tf.reduce_sum,
        "min_": tf.reduce_min,
        "logsumexp": tf.reduce_logsumexp,
    },
    **{
        "sq": tf.square,
        "abs_": tf.abs,
        "softmax": tf.nn.softmax,
        "relu": tf.nn.relu,
        "softplus": tf.nn.softplus,
    },
    **{"log": tf.math.log},
    **{name: getattr(tf, name) for name in ("sqrt", "where", "maximum", "exp", "sigmoid")},
}


def of(f: Any, trained: Any) -> list[Any]:
    return [one for one in sgtf.explain(f, model=trained).findings if one.kind == "broadcast-loss"]


def told(text: str, n: int) -> list[Any]:
    """What is said of a loss."""
    given: dict[str, Any] = {
        name: tf.Variable(x) if name in TRAINED else tf.constant(x) for name, x in values(n).items()
    }
    return of(
        lambda: loss(text, FUNCTIONS, {name: tf.convert_to_tensor(x) for name, x in given.items()}),
        {name: given[name] for name in TRAINED},
    )


@pytest.mark.slow
@pytest.mark.parametrize("text", WRONG)
def test_what_is_compared_with_all_by_mistake(text: str) -> None:
    assert told(text, 6)
    assert not told(WRONG[text], 6)


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_broadcasting_that_is_meant(n: int) -> None:
    assert not [text for text in correct() if told(text, n)]


def test_squared_difference_and_losses_of_keras() -> None:
    w, x = tf.Variable(tf.ones((3, 1))), tf.ones((8, 3))
    for y, wanted in ((tf.ones(8), 1), (tf.ones((8, 1)), 0)):
        assert len(of(lambda y=y: tf.reduce_mean(tf.math.squared_difference(x @ w, y)), [w])) == wanted
        # Keras gives both one shape.
        assert not of(lambda y=y: tf.reduce_mean(tf.keras.losses.MSE(y, x @ w)), [w])
