"""For each documented constraint of the operations that run bodies, a call that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import TensorType, bool_, dtype_of, tensor_type
from stopgrad.graph.body import Body
from stopgrad.graph.build import close, emit, parameter_of, tracing
from stopgrad.graph.op import REGISTRY

SCALAR, VECTOR = tensor_type(sg.float32, ()), tensor_type(sg.float32, (3,))
TRUTH, TRUTHS = tensor_type(bool_, ()), tensor_type(bool_, (3,))
HALF = tensor_type(sg.float16, ())


def body(takes: Sequence[TensorType], gives: Sequence[TensorType]) -> Body:
    """A body of these types, whose results are zeros."""
    with tracing("a test", None) as trace:
        parameters = [parameter_of(trace.graph, t) for t in takes]
        zeros = [sg.zeros(t.shape, t.dtype) for t in gives]
        return close(trace, parameters, zeros)


def build(type: str, operands: Sequence[Any], *values: Any) -> Callable[[], Any]:
    def call() -> Any:
        with sg.Graph().as_default() as graph:
            inputs = [
                x if isinstance(x, TensorType) else tensor_type(dtype_of(np.asarray(x).dtype), np.shape(x))
                for x in operands
            ]
            xs = tuple(sg.placeholder(t.dtype, t.shape) for t in inputs)
            return emit(REGISTRY[type], xs, values, None, graph)

    return call


INDEX = tensor_type(sg.int32, ())
SAME = body([SCALAR], [SCALAR])
HOLDS = body([SCALAR], [TRUTH])

CASES: dict[tuple[str, str], Callable[[], Any]] = {
    ("Case", "C1"): build("Case", [SCALAR, SCALAR], (SAME, SAME)),
    ("Case", "C2"): build("Case", [INDEX, VECTOR], (SAME, SAME)),
    ("Case", "C3"): build("Case", [INDEX, SCALAR], (SAME, body([SCALAR], [HALF]))),
    ("Scan", "C1"): build("Scan", [VECTOR], SAME, 1, 0, 3, False, 1),
    ("Scan", "C2"): build("Scan", [SCALAR], body([SCALAR], [HALF]), 1, 0, 3, False, 1),
    ("Scan", "C3"): build("Scan", [SCALAR, VECTOR], body([SCALAR, SCALAR], [SCALAR]), 1, 1, 4, False, 1),
    ("While", "C1"): build("While", [VECTOR], HOLDS, SAME, -1),
    ("While", "C2"): build("While", [SCALAR], body([SCALAR], [TRUTHS]), SAME, -1),
    ("While", "C3"): build("While", [SCALAR], HOLDS, body([SCALAR], [VECTOR]), -1),
    ("Checkpoint", "C1"): build("Checkpoint", [VECTOR], SAME, False),
    ("Ensure", "C1"): build("Ensure", [TRUTHS], "it holds"),
}
