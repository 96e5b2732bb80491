"""What the tests of forms share: a function's value and gradient in its form, as written, and in float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.engines.numpy import NumPyEngine
from stopgrad.engines.xla import XlaEngine
from stopgrad.graph.graph import Output
from stopgrad.rewrite import Rewritten, formed, prepare
from stopgrad.rewrite.forms import FORMS

Array = np.ndarray[Any, Any]

ENGINES: list[Any] = [NumPyEngine(), XlaEngine()]
"""What forms are held against: in tests, one of them at a time."""


class Case:
    """A function and its gradients with respect to its floating-point arguments, prepared, and in forms."""

    def __init__(self, f: Callable[..., Output], arrays: Sequence[Any], forms: Sequence[Any] = FORMS) -> None:
        self.arrays = [np.asarray(a) for a in arrays]
        with sg.Graph().as_default():
            xs = [sg.placeholder(str(a.dtype), a.shape) for a in self.arrays]
            y = f(*xs)
            total = sg.reduce_sum(y * sg.constant(np.cos(np.arange(y.type.size)).reshape(y.shape), y.dtype))
            live = [x for x in xs if x.dtype.is_floating]
            dxs = sg.gradients(total, live, unconnected_gradients="zero")
            self.plain = prepare([y, *dxs], xs)
        self.formed = formed(self.plain, forms)

    def types(self) -> Counter[str]:
        """How often each operation occurs that is needed, bodies left out."""
        return Counter(op.type for op in self.formed.graph.subgraph_to(self.formed.outputs))

    def run(self, done: Rewritten, engine: Any = None) -> list[Array]:
        engine = engine or NumPyEngine()
        return [np.asarray(v) for v in engine.compile(done.inputs, done.outputs)(self.arrays)]

    def changed(self) -> bool:
        plain = [op.type for op in self.plain.graph.subgraph_to(self.plain.outputs)]
        return plain != [op.type for op in self.formed.graph.subgraph_to(self.formed.outputs)]


def wide(arrays: Sequence[Any]) -> list[Array]:
    arrays = [np.asarray(a) for a in arrays]
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


def agree(f: Callable[..., Output], *arrays: Any, rtol: float = 3e-5, forms: Sequence[Any] = FORMS) -> Case:
    """Hold a function's form against itself as written, and both against float64 on the engines."""
    case = Case(f, arrays, forms)
    exact = Case(f, wide(arrays), ())
    expected = exact.run(exact.plain)
    # Where a gradient is 0 in exact arithmetic, what it is made of says how large an error is.
    scale = max(np.max(np.abs(want[np.isfinite(want)]), initial=1e-30) for want in expected)
    for engine in ENGINES:
        for made, want in zip(case.run(case.formed, engine), expected, strict=True):
            assert made.shape == want.shape
            np.testing.assert_allclose(made, want, rtol=rtol, atol=rtol * scale)
    return case


def same_as_written(
    f: Callable[..., Output], *arrays: Any, rtol: float = 3e-5, forms: Sequence[Any] = FORMS
) -> Case:
    """Hold a function's form against itself as written: also where float64 would give something else."""
    case = Case(f, arrays, forms)
    for engine in ENGINES:
        pairs = zip(case.run(case.formed, engine), case.run(case.plain, engine), strict=True)
        for made, want in pairs:
            scale = np.max(np.abs(want[np.isfinite(want)]), initial=1e-30)
            np.testing.assert_allclose(made, want, rtol=rtol, atol=rtol * scale)
    return case
