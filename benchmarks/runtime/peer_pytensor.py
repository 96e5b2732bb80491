"""The rows in PyTensor: the small ones, since the large take it far longer than all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.gradient
import pytensor.tensor as pt

from runtime.problems import Data, LeftOut, leaves

Call = Callable[[], Any]


class Library:
    """PyTensor with its default linker."""

    unwritten = "the large rows take it far longer than all others"

    def __init__(self, variant: str, device: str) -> None:
        self.version = pytensor.__version__
        pytensor.config.floatX = "float32"

    def touch(self) -> None:
        x = pt.vector("x")
        pytensor.function([x], x + 1.0)(np.ones(2, np.float32))

    to_numpy = staticmethod(np.asarray)

    def softmax_loss(self, data: Data) -> Call:
        if data["x"].size > 100_000:
            raise LeftOut("takes 5 to 20 times as long as the others")
        x, w = pt.matrix("x"), pt.matrix("w")
        z = x - pytensor.gradient.disconnected_grad(pt.max(x, axis=-1, keepdims=True))
        e = pt.exp(z)
        loss = pt.sum(w * (e / pt.sum(e, axis=-1, keepdims=True)))
        f = pytensor.function([x, w], [loss, pytensor.grad(loss, x)])
        return lambda: f(data["x"], data["w"])

    def call(self, data: Data) -> Call:
        if data["kind"] == "own":
            raise LeftOut("its arrays are NumPy's")
        if isinstance(data["arguments"][0], dict):
            raise LeftOut("takes no dicts")
        arguments = list(leaves(data["arguments"]))
        inputs = [pt.vector(f"x{i}") for i in range(len(arguments))]
        total = inputs[0]
        for x in inputs[1:]:
            total = total + x
        f = pytensor.function(inputs, total * np.float32(2.0))
        return lambda: f(*arguments)
