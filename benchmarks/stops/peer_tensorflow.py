"""What TensorFlow, in graph mode answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stops.questions import Answer, depth, hidden, inexact, lacks, right


class TensorFlow:
    def __init__(self) -> None:
        import tensorflow as tf

        self.tf, self.version = tf, tf.__version__

    def at(self, build: Callable[[Any], Any], value: Any, shape: tuple[Any, ...] = ()) -> Any:
        """Build in a graph, and run what was built."""
        with self.tf.Graph().as_default(), self.tf.compat.v1.Session() as session:
            x = self.tf.compat.v1.placeholder(self.tf.float32, shape)
            return session.run(build(x), {x: value})

    def reverse(self) -> Answer:
        return right(
            self.at(lambda x: self.tf.gradients(x * self.tf.stop_gradient(x), [x])[0], 5.0),
            5.0,
            "tf.gradients at 5",
        )

    def forward(self) -> Answer:
        @self.tf.function
        def f(x: Any) -> Any:
            with self.tf.autodiff.ForwardAccumulator(x, self.tf.constant(1.0)) as accumulator:
                y = x * self.tf.stop_gradient(x)
            return accumulator.jvp(y)

        return right(f(self.tf.constant(5.0)), 5.0, "ForwardAccumulator in a tf.function, at 5")

    def higher(self) -> Answer:
        def build(x: Any) -> Any:
            (first,) = self.tf.gradients(x * x * self.tf.stop_gradient(x), [x])
            return self.tf.gradients(first, [x])[0]

        return right(self.at(build, 3.0), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("tensorflow")

    def graph(self) -> Answer:
        with self.tf.Graph().as_default() as graph:
            x = self.tf.compat.v1.placeholder(self.tf.float32, ())
            y = self.tf.tanh(x)
            before = len(graph.get_operations())
            self.tf.gradients(y, [x])
            return "yes", f"tf.gradients adds {len(graph.get_operations()) - before} operations to the graph"

    def absence(self) -> Answer:
        with self.tf.Graph().as_default():
            x, z = (self.tf.compat.v1.placeholder(self.tf.float32, ()) for _ in range(2))
            ys = [self.tf.stop_gradient(x) * 1.0, z * 1.0, self.tf.floor(x)]
            found = [self.tf.gradients(y, [x])[0] for y in ys]
        return ("no" if found == [None] * 3 else "partly"), f"tf.gradients: {', '.join(map(str, found))}"

    def explain(self) -> Answer:
        with self.tf.Graph().as_default():
            x = self.tf.compat.v1.placeholder(self.tf.float32, ())
            found = self.tf.gradients(self.tf.stop_gradient(x) * 1.0, [x])
        return "no", f"tf.gradients: {found[0]}, and nothing else"

    def wrt(self) -> Answer:
        return lacks(self.tf.stop_gradient, "wrt")

    def switch(self) -> Answer:
        with self.tf.Graph().as_default(), self.tf.compat.v1.Session() as session:
            x, off = (
                self.tf.compat.v1.placeholder(self.tf.float32, ()),
                self.tf.compat.v1.placeholder(self.tf.bool, ()),
            )
            (dx,) = self.tf.gradients(self.tf.where(off, self.tf.stop_gradient(x * x), x * x), [x])
            found = [float(session.run(dx, {x: 3.0, off: value})) for value in (False, True)]
        return (
            "partly" if found == [6.0, 0.0] else "no"
        ), "no gate; tf.where(flag, stop_gradient(y), y) does it, and computes a choice"

    def argument(self) -> Answer:
        def build(x: Any) -> Any:
            y = x * 2.0
            return self.tf.gradients(y * x, [x], stop_gradients=[y])[0]

        return right(self.at(build, 3.0), 6.0, "tf.gradients(…, stop_gradients=[2x]) of 2x·x at 3")

    def straight(self) -> Answer:
        x = np.random.default_rng(0).normal(0, 1, 10_000).astype(np.float32)

        def build(t: Any) -> Any:
            y = self.tf.grad_pass_through(self.tf.sign)(t)
            return [y, self.tf.gradients(y, [t])[0], t + self.tf.stop_gradient(0.1 * self.tf.sign(t) - t)]

        value, gradient, common = self.at(build, x, (None,))
        exact = np.array_equal(value, np.sign(x)) and np.all(gradient == 1)
        return ("yes" if exact else "no"), f"tf.grad_pass_through; {inexact(lambda _: common)}"

    def prevent(self) -> Answer:
        try:
            self.at(
                lambda x: self.tf.gradients(
                    self.tf.raw_ops.PreventGradient(input=x, message="use the other loss"), [x]
                ),
                3.0,
            )
        except LookupError as error:
            here = Path(__file__).name in str(error)
            return (
                ("yes" if here else "partly"),
                "raw_ops.PreventGradient: LookupError with the message, "
                f"{'with' if here else 'without'} a line",
            )
        return "no", "no error"

    def scale(self) -> Answer:
        names = [n for n in dir(self.tf) if "grad" in n.lower()]

        @self.tf.custom_gradient
        def reverse(x: Any) -> Any:
            return self.tf.identity(x), lambda g: -g

        value = float(self.at(lambda x: self.tf.gradients(reverse(x), [x])[0], 3.0))
        assert not any(part in n for n in names for part in ("scale", "reverse", "clip"))
        return (
            "partly" if value == -1.0 else "no"
        ), f"by hand, with tf.custom_gradient; built in: {', '.join(names)}"

    def nested(self) -> Answer:
        with self.tf.Graph().as_default():
            x = self.tf.compat.v1.placeholder(self.tf.float32, ())
            self.tf.stop_gradient({"a": x, "b": [x]})
        return "yes", "a dict of a tensor and a list"

    def rewrite(self) -> Answer:
        @self.tf.function
        def f(x: Any) -> Any:
            return x * self.tf.stop_gradient(x)

        x = self.tf.constant(5.0)
        with self.tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return right(tape.gradient(y, x), 5.0, "gradient of a compiled tf.function at 5")

    def depth(self) -> Answer:
        return depth("tensorflow")

    def trace(self) -> Answer:
        tf = self.tf

        def f(x: Any) -> Any:
            return x * tf.stop_gradient(x)

        text = tf.function(f, jit_compile=True).experimental_get_compiler_ir(tf.constant(5.0))(
            stage="optimized_hlo"
        )
        kinds = [
            op.type for op in tf.function(f).get_concrete_function(tf.TensorSpec(())).graph.get_operations()
        ]
        under_xla = "stop" not in text.lower().replace("peers_stop", "")
        verdict = "yes" if "StopGradient" not in kinds else "partly" if under_xla else "no"
        return (
            verdict,
            f"none under XLA: {under_xla}; the graph that runs otherwise holds a StopGradient operation: "
            f"{'StopGradient' in kinds}",
        )
