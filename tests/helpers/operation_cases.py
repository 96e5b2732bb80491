"""Each definition with each of its samples, and how a sample is drawn, built and compiled."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from stopgrad.base.samples import Sample, Values
from stopgrad.base.types import dtype_of, shape_of
from stopgrad.engines import engine
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Graph, Output
from stopgrad.graph.op import REGISTRY, Op, Unsupported
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.rewrite import prepare

Array = np.ndarray[Any, Any]
CASES = [
    pytest.param(definition, s, id=f"{name}-{i}")
    for name, definition in REGISTRY.items()
    for i, s in enumerate(definition.samples)
]
COMPUTED = [case for case in CASES if not isinstance(case.values[0].lower, Unsupported)]
IMPLICIT = {"RandomLogGamma"}
"""Draws whose gradient another operation gives, as quantiles move; test_distributions.py compares it."""
DIFFERENTIATED = [
    case
    for case in COMPUTED
    if not case.values[0].gate and case.values[1].operands and case.values[0].type not in IMPLICIT
]
SYMBOLIC = [
    case
    for case in COMPUTED
    if any(isinstance(n, str) for o in case.values[1].operands if isinstance(o, Values) for n in o.shape)
]
EXTREME = [
    pytest.param(definition, id=name)
    for name, definition in REGISTRY.items()
    if definition.extremes and definition.samples
]


def draw(sample: Sample, n: int = 3) -> list[Array]:
    """Operands of a sample, the same in every run."""
    generator = np.random.default_rng(zlib.crc32(repr(sample).encode()))
    return [o.draw(generator, {"n": n}) if isinstance(o, Values) else o for o in sample.operands]


def attribute_values(definition: type[Op], sample: Sample) -> tuple[Any, ...]:
    return tuple(sample.attributes[name] for name in definition.attributes)


def build(
    definition: type[Op], sample: Sample, arrays: Sequence[Array], graph: Graph | None = None
) -> tuple[Graph, list[Output], tuple[Output, ...]]:
    """A graph with the operation on placeholders, symbolic where the sample names a size."""
    graph = Graph() if graph is None else graph
    shapes = [o.shape for o in sample.operands]
    xs = [
        emit(Placeholder, (), (dtype_of(a.dtype), shape_of(s), ()), "", graph).outputs[0]
        for a, s in zip(arrays, shapes, strict=True)
    ]
    return graph, xs, emit(definition, tuple(xs), attribute_values(definition, sample), None, graph).outputs


def compiled(
    name: str, outputs: Sequence[Output], inputs: Sequence[Output], n: int = 3
) -> Callable[[Sequence[Array]], list[Array]]:
    ready = prepare(list(outputs), list(inputs), {"n": n})
    run = engine(name).compile(ready.inputs, ready.outputs)
    return lambda arrays: [np.asarray(v) for v in run(arrays)]


def tolerance(dtype: Any) -> float:
    if dtype.name == "bfloat16":
        return 1e-1
    return (
        {2: 2e-2, 4: 2e-5, 8: 1e-8}[dtype.itemsize // (2 if dtype.kind == "c" else 1)]
        if dtype.kind in "fc"
        else 0
    )


def assert_close(
    found: Any, expected: Any, what: str, rtol: float | None = None, atol: float | None = None
) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, f"{what}: shapes {found.shape} and {expected.shape}"
    limit = max(tolerance(found.dtype), tolerance(expected.dtype)) if rtol is None else rtol
    wide = np.complex128 if "c" in (found.dtype.kind, expected.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            found.astype(wide),
            expected.astype(wide),
            rtol=limit,
            atol=limit if atol is None else atol,
            err_msg=what,
        )
