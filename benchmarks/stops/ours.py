"""What stopgrad answers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from stops.questions import Answer, depth, hidden, right


class Stopgrad:
    def __init__(self) -> None:
        import stopgrad as sg

        self.sg, self.version = sg, sg.__version__

    def scalars(self, count: int) -> list[Any]:
        with self.sg.Graph().as_default():
            return [self.sg.placeholder(self.sg.float32) for _ in range(count)]

    def reverse(self) -> Answer:
        return right(self.sg.grad(lambda x: x * self.sg.stop_gradient(x))(5.0), 5.0, "sg.grad at 5")

    def forward(self) -> Answer:
        return right(
            self.sg.jvp(lambda x: x * self.sg.stop_gradient(x), (5.0,), (1.0,))[1], 5.0, "sg.jvp at 5"
        )

    def higher(self) -> Answer:
        return right(self.sg.grad(self.sg.grad(lambda x: x * x * self.sg.stop_gradient(x)))(3.0), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("stopgrad")

    def graph(self) -> Answer:
        (x,) = self.scalars(1)
        y = self.sg.tanh(x)
        before = len(x.graph)
        (dx,) = self.sg.gradients(y, [x])
        return (
            "yes",
            f"sg.gradients adds {len(x.graph) - before} operations to the graph; {dx.op.type} is the last",
        )

    def absence(self) -> Answer:
        x, z = self.scalars(2)
        ys = [self.sg.stop_gradient(x) * 1.0, z * 1.0, self.sg.floor(x)]
        found = [self.sg.explain(y, [x])[x].status for y in ys]
        return ("yes" if len(set(found)) == 3 else "no"), "sg.explain: " + ", ".join(found)

    def explain(self) -> Answer:
        (x,) = self.scalars(1)
        line = inspect.currentframe().f_lineno + 1
        y = self.sg.stop_gradient(x) * 1.0
        (cut,) = self.sg.explain(y, [x])[x].cuts
        return (
            "yes" if cut.location.line == line else "no"
        ), f"cuts[0].location: {Path(cut.location.file).name}:{cut.location.line}"

    def wrt(self) -> Answer:
        a, b = self.scalars(2)
        da, db = self.sg.gradients(self.sg.stop_gradient(a * b, wrt=[a]), [a, b])
        return ("yes" if da is None and db is not None else "no"), "stop_gradient(a·b, wrt=[a])"

    def switch(self) -> Answer:
        (x,) = self.scalars(1)
        with x.graph.as_default():
            off = self.sg.placeholder(self.sg.bool)
        (dx,) = self.sg.gradients(self.sg.stop_gradient(x * x, when=off), [x])
        with self.sg.Session(x.graph) as session:
            found = [float(session.run(dx, {x: 3.0, off: value})) for value in (False, True)]
        return (
            "yes" if found == [6.0, 0.0] else "no"
        ), f"stop_gradient(x·x, when=flag): {found[0]:g} and {found[1]:g}"

    def argument(self) -> Answer:
        (x,) = self.scalars(1)
        y = x * 2.0
        (dx,) = self.sg.gradients(y * x, [x], stop_gradients=[y])
        with self.sg.Session(x.graph) as session:
            return right(session.run(dx, {x: 3.0}), 6.0, "gradients(…, stop_gradients=[2x]) of 2x·x at 3")

    def straight(self) -> Answer:
        x = np.random.default_rng(0).normal(0, 1, 10_000).astype(np.float32)
        value, pull = self.sg.vjp(lambda x: self.sg.straight_through(self.sg.sign(x), x), x)
        exact = np.array_equal(value, np.sign(x)) and np.all(pull(np.ones_like(x))[0] == 1)
        return ("yes" if exact else "no"), "straight_through(sign x, x) is sign x in all draws"

    def prevent(self) -> Answer:
        try:
            self.sg.grad(lambda x: self.sg.prevent_gradient(x, "use the other loss"))(3.0)
        except self.sg.GradientError as error:
            told = "use the other loss" in str(error) and str(error).count(Path(__file__).name)
            return (
                "yes" if told else "partly"
            ), f"GradientError with the message and {told} lines of the user's file"
        return "no", "no error"

    def scale(self) -> Answer:
        gates = [
            lambda x: self.sg.scale_gradient(x, 3.0),
            self.sg.reverse_gradient,
            lambda x: self.sg.clip_gradient(x, -0.5, 0.5),
        ]
        found = [float(self.sg.grad(gate)(3.0)) for gate in gates]
        return ("yes" if found == [3.0, -1.0, 0.5] else "no"), f"scale, reverse, clip: {found}"

    def nested(self) -> Answer:
        (x,) = self.scalars(1)
        found = self.sg.stop_gradient({"a": x, "b": [x, 7, "name"]})
        right = found["a"].op.type == "StopGradient" and found["b"][1:] == [7, "name"]
        return ("yes" if right else "no"), "a dict of a tensor and a list with a number and a string"

    def rewrite(self) -> Answer:
        from stopgrad.rewrite import fold, merge, rewrite, simplify

        gates = [
            (lambda x: self.sg.stop_gradient(x) * x, 5.0),
            (lambda x: self.sg.scale_gradient(x, 3.0) * x, 20.0),
            (lambda x: self.sg.clip_gradient(x, -1.0, 1.0) * self.sg.clip_gradient(x, -2.0, 2.0), 3.0),
        ]
        found = []
        for gate, _ in gates:
            (x,) = self.scalars(1)
            done = rewrite([gate(x)], [x], [simplify, merge, fold])
            (dx,) = self.sg.gradients(done.outputs[0], done.inputs)
            with self.sg.Session(dx.graph) as session:
                found.append(float(session.run(dx, {done.inputs[0]: 5.0})))
        return (
            "yes" if found == [v for _, v in gates] else "no"
        ), f"stop, scale, two clips at 5, after simplify, merge, fold: {found}"

    def depth(self) -> Answer:
        return depth("stopgrad")

    def trace(self) -> Answer:
        from stopgrad.rewrite import prepare

        (x,) = self.scalars(1)
        kinds = [op.type for op in prepare([x * self.sg.stop_gradient(x)], [x]).outputs[0].graph.operations]
        return ("no" if "StopGradient" in kinds else "yes"), f"what is compiled: {', '.join(kinds)}"
