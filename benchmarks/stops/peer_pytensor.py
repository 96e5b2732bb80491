"""What PyTensor answers."""

from __future__ import annotations

import inspect
from pathlib import Path

import libraries
import numpy as np

from stops.questions import Answer, depth, hidden, inexact, lacks, right


class PyTensor:
    def __init__(self) -> None:
        import pytensor
        import pytensor.gradient

        self.pytensor, self.pt, self.g, self.version = (
            pytensor,
            pytensor.tensor,
            pytensor.gradient,
            pytensor.__version__,
        )
        self.stop = pytensor.gradient.disconnected_grad

    def reverse(self) -> Answer:
        x = self.pt.scalar("x")
        return right(
            self.g.grad(x * self.stop(x), x).eval({x: 5.0}), 5.0, "grad at 5, with disconnected_grad"
        )

    def forward(self) -> Answer:
        x = self.pt.scalar("x")
        return right(
            self.g.pushforward(x * self.stop(x), x, self.pt.constant(1.0)).eval({x: 5.0}),
            5.0,
            "pushforward at 5",
        )

    def higher(self) -> Answer:
        x = self.pt.scalar("x")
        return right(self.g.grad(self.g.grad(x * x * self.stop(x), x), x).eval({x: 3.0}), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("pytensor")

    def graph(self) -> Answer:
        x = self.pt.scalar("x")
        count = libraries.PyTensor.computing([self.g.grad(self.pt.tanh(x), x)])
        return "yes", f"grad: {count} Apply nodes"

    def absence(self) -> Answer:
        x, z = self.pt.scalars("x", "z")
        ys = [self.stop(x) * 1.0, z * 1.0, self.pt.floor(x)]
        found = [
            self.g.grad(y, x, disconnected_inputs="ignore", return_disconnected="disconnected") for y in ys
        ]
        told = [
            "disconnected" if isinstance(f.type, self.g.DisconnectedType) else str(float(f.eval({x: 3.0})))
            for f in found
        ]
        return ("partly" if len(set(told)) > 1 else "no"), f"grad: {', '.join(told)}"

    def explain(self) -> Answer:
        x = self.pt.scalar("x")
        line = inspect.currentframe().f_lineno + 1
        y = self.stop(x) * 1.0
        try:
            self.g.grad(y, x)
        except self.g.DisconnectedInputError as error:
            shown = f"line {line}" in str(error)
            made = f"line {line - 2}" in str(error)
            return (
                ("yes" if shown else "no"),
                f"DisconnectedInputError, with the line that made x: {made}; with the line of the stop: "
                f"{shown}",
            )
        return "no", "no error"

    def wrt(self) -> Answer:
        return lacks(self.stop, "wrt")

    def switch(self) -> Answer:
        x, off = self.pt.scalar("x"), self.pt.scalar("off", dtype="bool")
        dx = self.g.grad(self.pt.where(off, self.stop(x * x), x * x), x)
        found = [float(dx.eval({x: 3.0, off: value})) for value in (False, True)]
        return (
            "partly" if found == [6.0, 0.0] else "no"
        ), "no gate; pt.where(flag, disconnected_grad(y), y) does it, and computes a choice"

    def argument(self) -> Answer:
        x = self.pt.scalar("x")
        y = x * 2.0
        return right(
            self.g.grad(y * x, x, consider_constant=[y]).eval({x: 3.0}),
            6.0,
            "grad(…, consider_constant=[2x]) of 2x·x at 3",
        )

    def straight(self) -> Answer:
        from pytensor.compile.builders import OpFromGraph

        t = self.pt.fvector("t")
        hard = OpFromGraph([t], [self.pt.sgn(t)], pullback=lambda inputs, outputs, gs: gs)
        y = hard(t)
        value, gradient = self.pytensor.function([t], [y, self.g.grad(y.sum(), t)])(
            np.array([100.1, -3.7], "float32")
        )
        by_hand = value.tolist() == [1.0, -1.0] and gradient.tolist() == [1.0, 1.0]
        common = self.pytensor.function(
            [t], t + self.stop(np.float32(0.1) * self.pt.sgn(t) - t), mode="FAST_COMPILE"
        )
        return ("partly" if by_hand else "no"), f"by hand, with OpFromGraph; {inexact(common)}"

    def prevent(self) -> Answer:
        x = self.pt.scalar("x")
        try:
            self.g.grad(self.g.undefined_grad(x) * 1.0, x)
        except self.g.NullTypeGradError as error:
            return (
                "partly",
                f"undefined_grad: {type(error).__name__}, with a text of its own: "
                f"{Path(__file__).name not in str(error)}",
            )
        return "no", "no error"

    def scale(self) -> Answer:
        x = self.pt.scalar("x")
        gates = [
            lambda x: self.g.grad_scale(x, 3.0),
            lambda x: self.g.grad_scale(x, -1.0),
            lambda x: self.g.grad_clip(x, -0.5, 0.5),
        ]
        found = [float(self.g.grad(gate(x), x).eval({x: 3.0})) for gate in gates]
        return ("yes" if found == [3.0, -1.0, 0.5] else "no"), f"grad_scale, grad_clip: {found}"

    def nested(self) -> Answer:
        try:
            self.stop({"a": self.pt.scalar("x")})
        except (TypeError, AttributeError) as error:
            return "no", f"{type(error).__name__}: {error}"[:110]
        return "yes", "a dict"

    def rewrite(self) -> Answer:
        from pytensor.graph.rewriting.utils import rewrite_graph

        x = self.pt.scalar("x")
        gates = [
            self.stop(x) * x,
            self.g.grad_scale(x, 3.0) * x,
            self.g.grad_clip(x, -1.0, 1.0) * self.g.grad_clip(x, -2.0, 2.0),
        ]
        wanted = [float(self.g.grad(y, x).eval({x: 5.0})) for y in gates]
        found = [
            float(self.g.grad(rewrite_graph(y, include=("canonicalize", "specialize")), x).eval({x: 5.0}))
            for y in gates
        ]
        return (
            "yes" if found == wanted else "no"
        ), f"stop, scale, two clips at 5: {wanted}; after rewriting: {found}"

    def depth(self) -> Answer:
        return depth("pytensor")

    def trace(self) -> Answer:
        x = self.pt.scalar("x")
        nodes = [
            str(n.op)
            for n in self.pytensor.function([x], x * self.stop(x), mode="FAST_RUN").maker.fgraph.toposort()
        ]
        return ("no" if any("Disconnected" in n for n in nodes) else "yes"), f"compiled: {', '.join(nodes)}"
