"""What PyTorch answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stops.questions import Answer, depth, hidden, inexact, lacks, right


class Torch:
    def __init__(self) -> None:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        self.torch, self.make_fx, self.version = torch, make_fx, torch.__version__

    def at(self, value: float) -> Any:
        return self.torch.tensor(value)

    def reverse(self) -> Answer:
        return right(
            self.torch.func.grad(lambda x: x * x.detach())(self.at(5.0)),
            5.0,
            "torch.func.grad at 5, with detach",
        )

    def forward(self) -> Answer:
        return right(
            self.torch.func.jvp(lambda x: x * x.detach(), (self.at(5.0),), (self.at(1.0),))[1],
            5.0,
            "torch.func.jvp at 5",
        )

    def higher(self) -> Answer:
        grad = self.torch.func.grad
        return right(grad(grad(lambda x: x * x * x.detach()))(self.at(3.0)), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("torch")

    def graph(self) -> Answer:
        module = self.make_fx(self.torch.func.grad(self.torch.tanh))(self.at(0.5))
        count = sum(n.op == "call_function" for n in module.graph.nodes)
        return "partly", f"make_fx of torch.func.grad: {count} nodes; it runs the function on an example"

    def absence(self) -> Answer:
        found = []
        for f in (lambda x, z: x.detach() * z, lambda x, z: z * 1.0, lambda x, z: self.torch.floor(x)):
            x, z = (self.torch.tensor(v, requires_grad=True) for v in (3.0, 4.0))
            (g,) = self.torch.autograd.grad(f(x, z), [x], allow_unused=True)
            found.append(None if g is None else float(g))
        return (
            "partly" if len(set(found)) > 1 else "no"
        ), f"autograd.grad: {', '.join(map(str, found))}, without a reason"

    def explain(self) -> Answer:
        x = self.torch.tensor(3.0, requires_grad=True)
        try:
            self.torch.autograd.grad(x.detach() * 1.0, [x])
        except RuntimeError as error:
            return ("yes" if Path(__file__).name in str(error) else "no"), f"RuntimeError: {error}"[:110]
        return "no", "no error"

    def wrt(self) -> Answer:
        try:
            self.torch.Tensor.detach(self.at(3.0), wrt=[self.at(1.0)])
        except TypeError as error:
            return "no", f"detach: {error}"
        return "yes", "detach(wrt=…)"

    def switch(self) -> Answer:
        f = self.torch.func.grad(lambda x, off: self.torch.where(off, (x * x).detach(), x * x))
        found = [float(f(self.at(3.0), self.torch.tensor(value))) for value in (False, True)]
        return (
            "partly" if found == [6.0, 0.0] else "no"
        ), "no gate; torch.where(flag, y.detach(), y) does it, and computes a choice"

    def argument(self) -> Answer:
        return lacks(self.torch.autograd.grad, "stop_gradients")

    def straight(self) -> Answer:
        torch = self.torch

        class Hard(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return torch.sign(x)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        x = torch.tensor(100.1, requires_grad=True)
        by_hand = float(torch.autograd.grad(Hard.apply(x), x)[0]) == 1.0 and float(Hard.apply(x)) == 1.0

        def common(values: np.ndarray[Any, Any]) -> Any:
            t = torch.from_numpy(values)
            return (t + (0.1 * torch.sign(t) - t).detach()).numpy()

        return ("partly" if by_hand else "no"), f"by hand, with autograd.Function; {inexact(common)}"

    def prevent(self) -> Answer:
        names = [
            n
            for n in dir(self.torch) + dir(self.torch.Tensor) + dir(self.torch.autograd)
            if "prevent" in n.lower()
        ]
        return ("no" if not names else "yes"), f"names with 'prevent': {names or 'none'}"

    def scale(self) -> Answer:
        found = []
        for change in (lambda g: 3.0 * g, lambda g: -g, lambda g: g.clamp(-0.5, 0.5)):
            x = self.torch.tensor(3.0, requires_grad=True)
            y = x * 1.0
            y.register_hook(change)
            found.append(float(self.torch.autograd.grad(y, x)[0]))
        return (
            "partly" if found == [3.0, -1.0, 0.5] else "no"
        ), f"by hand, with Tensor.register_hook: {found}"

    def nested(self) -> Answer:
        try:
            self.torch.detach({"a": self.at(1.0)})
        except TypeError as error:
            return "no", f"TypeError: {error}"[:110]
        return "yes", "a dict"

    def rewrite(self) -> Answer:
        module = self.make_fx(lambda x: x * x.detach())(self.at(5.0))
        module.graph.eliminate_dead_code()
        module.recompile()
        return right(
            self.torch.func.grad(module)(self.at(5.0)),
            5.0,
            "gradient of the traced, dead-code-eliminated module at 5",
        )

    def depth(self) -> Answer:
        return depth("torch")

    def trace(self) -> Answer:
        nodes = [
            str(n.target)
            for n in self.make_fx(lambda x: x * x.detach())(self.at(5.0)).graph.nodes
            if n.op == "call_function"
        ]
        return ("no" if any("detach" in n for n in nodes) else "yes"), f"the traced graph: {', '.join(nodes)}"
