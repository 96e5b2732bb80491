"""What a watch costs in a training step of TensorFlow, beside ``tf.debugging.enable_check_numerics``.

    python benchmarks/tensorflow_watch_cost.py [--only mlp,conv] [--seconds 20] [--json out.json]

**A step** opens a tape, computes the loss of a Keras model on one batch, asks the tape for the gradients and
lets Adam apply them: eagerly, or as a ``tf.function`` that is compiled before anything is timed. In float32.

**Ways.** *plain*: the step alone. *watch*: ``with sgtf.watch()``, a new one in each step. *monitor*: ``with
sgtf.monitor(model, every=1_000_000)`` between its samples. *check numerics*: what TensorFlow's users switch
on to find NaNs. It cannot be switched off and on cheaply, so it has rounds of its own at the end. For what is
compiled, *trace* is tracing the loss once, and *explain* ``sgtf.explain`` of the traced loss, which runs it.

**Times** are wall times in one process. The ways take turns in a new random order each round, with as many
steps as fit into a tenth of a second, after one that is not timed; a cell has the fastest step of all rounds,
and its ratio to plain.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import tensorflow as tf

import stopgrad.tensorflow as sgtf

Step = Callable[[], Any]


def mlp(width: int, layers: int, batch: int) -> tuple[Any, Any, Any]:
    """Dense layers with a ReLU each, and a batch."""
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    return model, tf.random.normal((batch, width)), tf.random.normal((batch, 1))


def conv(batch: int) -> tuple[Any, Any, Any]:
    """Four convolutions with batch normalisation."""
    parts: list[Any] = []
    for filters in (16, 32, 64, 64):
        parts += [
            keras.layers.Conv2D(filters, 3, strides=2, padding="same"),
            keras.layers.BatchNormalization(),
        ]
        parts += [keras.layers.ReLU()]
    head = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((64, 64, 3)), *parts, *head])
    return model, tf.random.normal((batch, 64, 64, 3)), tf.random.normal((batch, 1))


CASES: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "mlp 64, 2 layers": lambda: mlp(64, 2, 64),
    "mlp 512, 20 layers": lambda: mlp(512, 20, 64),
    "mlp 1024, 6 layers": lambda: mlp(1024, 6, 256),
    "conv 64x64": lambda: conv(32),
}


def step_of(model: Any, x: Any, y: Any) -> Step:
    """A training step."""
    optimizer = keras.optimizers.Adam(1e-4)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def fastest(step: Step, around: Callable[[], AbstractContextManager[Any]], seconds: float = 0.1) -> float:
    """The fastest step of those that fit into a time, in seconds."""
    best, end = float("inf"), 0.0
    with around():
        step()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        begun = time.perf_counter()
        with around():
            step()
        best = min(best, time.perf_counter() - begun)
    return best


Way = Callable[[], AbstractContextManager[Any]]


def measured(step: Step, ways: dict[str, Way], seconds: float) -> dict[str, float]:
    """The fastest step of each way, in milliseconds."""
    best = dict.fromkeys(ways, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        order = list(ways)
        random.shuffle(order)
        for way in order:
            best[way] = min(best[way], fastest(step, ways[way]) * 1e3)
    return best


def traced(model: Any, x: Any, y: Any) -> dict[str, float]:
    """What tracing a loss takes, a run of it, and explaining it once it is traced, in milliseconds."""
    loss = tf.function(lambda: tf.reduce_mean((model(x, training=True) - y) ** 2))
    begun = time.perf_counter()
    loss.get_concrete_function()
    trace = time.perf_counter() - begun
    run = fastest(loss, nullcontext)
    explain = min(_seconds(lambda: sgtf.explain(loss)) for _ in range(5))
    return {"trace": trace * 1e3, "run": run * 1e3, "explain": explain * 1e3}


def _seconds(act: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", help="cases whose names contain one of these, by commas")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each case and kind of step")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    cases = {
        name: made() for name, made in CASES.items() if any(one in name for one in wanted.only.split(","))
    }
    rows: dict[str, dict[str, Any]] = {}
    for name, (model, x, y) in cases.items():
        monitor = sgtf.monitor(model, every=1_000_000)
        step = step_of(model, x, y)
        with monitor:
            step()
        ways = {"plain": nullcontext, "watch": sgtf.watch, "monitor": lambda monitor=monitor: monitor}
        rows[name] = {
            "eager": measured(step, ways, wanted.seconds),
            "compiled": measured(tf.function(step_of(model, x, y)), ways, wanted.seconds),
            "traced": traced(model, x, y),
        }
    tf.debugging.enable_check_numerics()
    for name, (model, x, y) in cases.items():
        rows[name]["eager"] |= measured(
            step_of(model, x, y), {"check numerics": nullcontext}, wanted.seconds / 3
        )
    tf.debugging.disable_check_numerics()
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}")
    for name, row in rows.items():
        for kind in ("eager", "compiled"):
            plain = row[kind]["plain"]
            cells = [f"{way} {ms:.2f} ({ms / plain:.2f})" for way, ms in row[kind].items()]
            print(f"{name}, {kind}, ms: {', '.join(cells)}")
        print(f"{name}, traced, ms: " + ", ".join(f"{what} {ms:.1f}" for what, ms in row["traced"].items()))
    if wanted.json:
        wanted.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
