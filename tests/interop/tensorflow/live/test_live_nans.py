"""The line that makes the first NaN or infinity of live TensorFlow, in values or in the gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import stopgrad as sg  # noqa: E402
import stopgrad.tensorflow as sgtf  # noqa: E402
from stopgrad.tools import cli  # noqa: E402

HERE = Path(__file__)


def line_of(marker: str) -> int:
    """The line of this file that ends in a marker."""
    lines = HERE.read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# <{marker}>"))


def root(x: Any) -> Any:
    return tf.reduce_sum(tf.sqrt(x))  # <root>


def root_right(x: Any) -> Any:
    return tf.reduce_sum(tf.sqrt(x + 1e-12))


def guarded_behind(x: Any) -> Any:
    y = tf.math.log(x)  # <log>
    return tf.reduce_sum(tf.where(x > 0, y, 0.0))


def guarded_behind_and_broadcast(x: Any) -> Any:
    y = tf.math.log(x[0])  # <broadcast>
    return tf.reduce_sum(tf.where(x > 0, y, tf.zeros((3, 2))))


def guarded_before(x: Any) -> Any:
    safe = tf.where(x > 0, x, 1.0)
    return tf.reduce_sum(tf.where(x > 0, tf.math.log(safe), 0.0))


@tf.function
def divided(x: Any) -> Any:
    zero = x - x
    return tf.reduce_sum(x / zero)  # <division>


def divided_right(x: Any) -> Any:
    return tf.reduce_sum(tf.math.divide_no_nan(x, x - x))


def norm(x: Any) -> Any:
    return tf.norm(x * 0.0)  # <norm>


def norm_right(x: Any) -> Any:
    return tf.sqrt(tf.reduce_sum((x * 0.0) ** 2) + 1e-12)


def deviation(x: Any) -> Any:
    return tf.math.reduce_std(x * 0.0)  # <deviation>


def spread(x: Any) -> Any:
    return tf.sqrt(tf.math.reduce_variance(x * 0.0) + 1e-6)


def softmax_written(x: Any) -> Any:
    parts = tf.exp(100.0 * x)  # <exp>
    return tf.reduce_sum((parts / tf.reduce_sum(parts))[:1])


def softmax_right(x: Any) -> Any:
    return tf.reduce_sum(tf.nn.softmax(100.0 * x)[:1])


def moved(x: Any) -> Any:
    rows = tf.stack([tf.math.log(x - 1.0), x])  # <moved>
    return tf.reduce_sum(tf.transpose(rows)[1:])


def moved_right(x: Any) -> Any:
    return tf.reduce_sum(tf.transpose(tf.stack([tf.math.log(x + 1.0), x]))[1:])


def power(x: Any) -> Any:
    return tf.reduce_sum(x**0.5)  # <power>


kept = tf.Variable([1.0, 1.0], name="kept")


def assigned(x: Any) -> Any:
    kept.assign(tf.math.log(x))  # <assigned>
    return tf.reduce_sum(kept * x)


def assigned_right(x: Any) -> Any:
    kept.assign(tf.math.log(x + 1.0))
    return tf.reduce_sum(kept * x)


@tf.custom_gradient
def inverse_of_own(x: Any) -> Any:
    return x * 2.0, lambda g: g / (x - x)  # <own>


def own(x: Any) -> Any:
    return tf.reduce_sum(inverse_of_own(x))


def own_right(x: Any) -> Any:
    return tf.reduce_sum(x * 2.0)


BEHIND = "branch not taken"
CASES = [
    (root, root_right, [0.0, 4.0], "root", "gradient", "gradient of a root at 0"),
    (guarded_behind, guarded_before, [0.0, 1.0], "log", "gradient", BEHIND),
    (guarded_behind_and_broadcast, guarded_before, [[0.0, 1.0]], "broadcast", "gradient", BEHIND),
    (divided, divided_right, [1.0, 4.0], "division", "forward", "division by 0"),
    (norm, norm_right, [1.0, 2.0], "norm", "gradient", "gradient of a norm at 0"),
    (
        deviation,
        spread,
        [1.0, 2.0],
        "deviation",
        "gradient",
        "gradient of a standard deviation of 0",
    ),
    (softmax_written, softmax_right, [1.0, 2.0], "exp", "forward", "overflow of exp"),
    (moved, moved_right, [0.5, 1.0], "moved", "forward", "logarithm of 0"),
    (power, root_right, [0.0, 1.0], "power", "gradient", "gradient of a power at 0"),
    (assigned, assigned_right, [0.0, 1.0], "assigned", "forward", "logarithm of 0"),
    (own, own_right, [0.0, 1.0], "own", "gradient", "division by 0"),
]


def is_finite(f: Callable[..., Any], x: Any) -> tuple[bool, bool]:
    """Whether TensorFlow's own value is finite, and its own gradient."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = f(x)
    gradient = tape.gradient(value, x)
    return bool(np.isfinite(value)), gradient is None or bool(np.all(np.isfinite(gradient)))


@pytest.mark.parametrize("case", CASES, ids=[case[3] for case in CASES])
def test_names_the_line_and_the_cure(case: tuple[Any, ...]) -> None:
    wrong, right, numbers, marker, where, pattern = case
    x = tf.constant(numbers)
    value, gradient = is_finite(wrong, x)
    assert not (value and gradient)
    found = sgtf.trace_nan(wrong, x)
    assert found.first is not None
    assert found.first.location is not None
    assert ("the result" in found.reaches) is not value
    assert ("the gradient of x" in found.reaches) is not gradient
    assert (found.first.where, found.first.pattern) == (where, pattern)
    assert (Path(found.first.location.file).name, found.first.location.line) == (HERE.name, line_of(marker))
    assert is_finite(right, x) == (True, True)
    assert not sgtf.trace_nan(right, x)


def test_what_is_discarded_does_not_count() -> None:
    found = sgtf.trace_nan(lambda x: tf.reduce_sum(tf.exp(tf.math.log(x * 0.0)) + x), tf.constant([1.0]))
    assert found.harmless or found.first is not None  # exp(-inf) is 0; its gradient is 0 times infinity.
    x = tf.constant([1.0, 2.0])
    mask = lambda x: tf.reduce_sum(tf.where(x > 0, x, tf.stop_gradient(x / (x - x))))
    found = sgtf.trace_nan(mask, x)
    assert not found
    assert found.harmless == 1


def test_an_argument_that_holds_one_is_named() -> None:
    found = sgtf.trace_nan(lambda x: tf.reduce_sum(x), tf.constant([0.0, np.nan]))
    assert found.first is not None
    assert (found.first.source, found.first.name, found.first.index) == ("argument", "x", (1,))


def test_functions_run_as_before_and_gradient_functions_are_found_as_before() -> None:
    from tensorflow.python.framework import ops

    registry = ops._gradient_registry
    with pytest.raises(ZeroDivisionError):
        sgtf.trace_nan(lambda x: 1 / 0, tf.constant(1.0))
    assert not tf.config.functions_run_eagerly()
    sgtf.trace_nan(root, tf.constant([0.0]))
    assert ops._gradient_registry is registry
    assert not tf.config.functions_run_eagerly()


def test_the_library_and_the_command_ask_tensorflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import tensorflow as tf\nw = tf.Variable([0.0, 1.0], name='w')\n\n"
        "def loss():\n    return tf.reduce_sum(tf.sqrt(w))\n\n"
        "def fine():\n    return tf.reduce_sum(w * w)\n"
    )
    assert cli.main(["trace-nan", f"{path}:fine"]) == cli.OK
    assert cli.main(["trace-nan", f"{path}:loss"]) == cli.FAILED
    assert "train.py:5" in capsys.readouterr().out
    assert sg.trace_nan(root, tf.constant([0.0])).first is not None
    assert not sg.trace_nan(root, tf.constant([0.0]), gradient=False)
