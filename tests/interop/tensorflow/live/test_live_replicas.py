"""What replicas of a strategy do is followed: they run in threads of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

PROGRAM = """
import sys
import tensorflow as tf
import stopgrad.tensorflow as sgtf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
line = next(i for i, text in enumerate(open(__file__), 1) if "tf.stop_" + "gradient" in text)
strategies = {
    "mirrored": lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    "single": lambda: tf.distribute.MirroredStrategy(["CPU:0"]),
    "one device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
}
for kind, make in strategies.items():
    strategy = make()
    with strategy.scope():
        w, v, unused = [tf.Variable([1.0, 2.0], name=name) for name in ("w", "v", "unused")]
    data = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([1.0, 2.0]) * (1.0 + context.replica_id_in_sync_group)
    )

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.stop_gradient(w) * x * v)  # <stop>
        gradients = tape.gradient(loss, [w, v])
        v.assign_sub(0.1 * gradients[1])
        return loss, gradients[1]

    for way, f in (("eager", step), ("traced", tf.function(step))):
        plain = strategy.experimental_local_results(strategy.run(f, (data,))[1])
        with sgtf.watch() as seen:
            loss, gradient = strategy.run(tf.function(step) if way == "traced" else f, (data,))
        watched = strategy.experimental_local_results(gradient)
        assert all(bool(tf.reduce_all(a == b)) for a, b in zip(plain, watched))
        calls = seen.gradient_calls
        assert [call.given for call in calls] == [{"w": False, "v": True}] * strategy.num_replicas_in_sync
        for call in calls:
            assert {k: x.status for k, x in call.explain().items()} == {"w": "stopped", "v": "flows"}
        statuses = {k: x.status for k, x in seen.explain(loss, [w, v, unused]).items()}
        assert statuses == {"w": "stopped", "v": "flows", "unused": "disconnected"}, statuses
        assert seen.explain(loss)["w"].cuts[0].location.line == line
        print(kind, way, len(calls))
"""
TRAINING = """
import sys
import tensorflow as tf, keras
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
keras.utils.set_random_seed(0)
with strategy.scope():
    encoder, head = keras.layers.Dense(4, name="encoder"), keras.layers.Dense(1, name="head")
    encoder.build((None, 3)), head.build((None, 4))
    optimizer = keras.optimizers.SGD(0.01)
    variables = [*encoder.trainable_variables, *head.trainable_variables]
    optimizer.build(variables)

def step(x):
    with tf.GradientTape() as tape:
        features = encoder(x)
        if STOPS: features = tf.stop_gradient(features)
        loss = tf.reduce_mean(head(features) ** 2)
    pairs = [(g, v) for g, v in zip(tape.gradient(loss, variables), variables) if g is not None]
    optimizer.apply_gradients(pairs)
    return loss

for x in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(tf.ones((4, 3))).repeat(5)):
    strategy.run(step, (x,))
"""
FIT = """
import tensorflow as tf, keras
import stopgrad.tensorflow as sgtf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = tf.random.stateless_normal((16, 3), (0, 0)).numpy()

def trained(is_monitored):
    keras.utils.set_random_seed(0)
    cut = keras.layers.Lambda(tf.stop_gradient) if STOPS else keras.layers.Identity()
    with strategy.scope():
        encoder, head = keras.layers.Dense(4, name="encoder"), keras.layers.Dense(1)
        layers = [encoder, cut, keras.layers.Dropout(0.5), head]
        model = keras.Sequential([keras.layers.Input((3,)), *layers], name="net")
        model.compile(keras.optimizers.SGD(0.1), "mse")
    callbacks = [sgtf.monitor(model, every=2).keras_callback()] if is_monitored else None
    model.fit(x, x[:, :1], 4, 2, 0, callbacks, shuffle=False)
    return [weight.numpy() for weight in model.weights]

print("same:", all((a == b).all() for a, b in zip(trained(False), trained(True))))
"""

KINDS = ("mirrored ", "single ", "one device ")


def run(*args: str) -> str:
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_watch_sees_what_replicas_do(tmp_path: Path) -> None:
    program = tmp_path / "replicas.py"
    program.write_text(PROGRAM.lstrip())
    assert [line for line in run(str(program)).splitlines() if line.startswith(KINDS)] == [
        "mirrored eager 2", "mirrored traced 2", "single eager 1", "single traced 1", "one device eager 1",
        "one device traced 1",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("stops", [True, False])
def test_the_steps_of_replicas_are_counted_once(tmp_path: Path, stops: bool) -> None:
    program = tmp_path / "training.py"
    program.write_text(TRAINING.replace("STOPS", str(stops)).lstrip())
    said = run("-m", "stopgrad", "run", str(program))
    assert "(5 steps, " in said
    assert ("no-gradient: encoder/kernel, encoder/bias" in said) is stops
    assert ("nothing found" in said) is not stops


@pytest.mark.slow
@pytest.mark.parametrize("stops", [True, False])
def test_a_monitor_of_fit_sees_what_the_first_replica_does(tmp_path: Path, stops: bool) -> None:
    program = tmp_path / "fit.py"
    program.write_text(FIT.replace("STOPS", str(stops)).lstrip())
    said = run(str(program))
    assert "same: True" in said
    assert "the monitor failed" not in said
    assert ("no gradient arrives at net/encoder/kernel, net/encoder/bias (stopped)" in said) is stops
