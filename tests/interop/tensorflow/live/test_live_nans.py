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


def guarded_behind(x: Any) -> Any:
    return tf.reduce_sum(tf.where(x > 0, tf.math.log(x), 0.0))  # <log>


def guarded_before(x: Any) -> Any:
    safe = tf.where(x > 0, x, 1.0)
    return tf.reduce_sum(tf.where(x > 0, tf.math.log(safe), 0.0))


@tf.function
def divided(x: Any) -> Any:
    zero = x - x
    return tf.reduce_sum(x / zero)  # <division>


def norm(x: Any) -> Any:
    return tf.norm(x * 0.0)  # <norm>


CASES = [
    (root, [0.0, 4.0], "root", "gradient", "inf"),
    (guarded_behind, [0.0, 1.0], "log", "gradient", "inf"),
    (divided, [1.0, 4.0], "division", "forward", "inf"),
    (norm, [1.0, 2.0], "norm", "gradient", "inf"),
]


@pytest.mark.parametrize(("f", "x", "marker", "where", "kind"), CASES, ids=[case[2] for case in CASES])
def test_names_the_line(f: Callable[..., Any], x: list[float], marker: str, where: str, kind: str) -> None:
    found = sgtf.trace_nan(f, tf.constant(x))
    assert found.first is not None
    assert found.first.location is not None
    assert (found.first.where, found.first.kind) == (where, kind)
    assert (Path(found.first.location.file).name, found.first.location.line) == (HERE.name, line_of(marker))
    assert found.first.cure


def test_right_twins_are_finite() -> None:
    assert not sgtf.trace_nan(guarded_before, tf.constant([0.0, 1.0]))
    assert not sgtf.trace_nan(root, tf.constant([1.0, 4.0]))


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
