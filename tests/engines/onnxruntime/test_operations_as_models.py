"""Each operation as a model of ONNX: onnxruntime computes on each of its samples what NumPy computes.

Models are written at the version of ONNX's operators that ``save`` takes by default and at the newest one,
and are checked by ``onnx`` with inference of all shapes. What cannot be written stands in one table, with
reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from operation_cases import (
    COMPUTED,
    EXTREME,
    SYMBOLIC,
    Array,
    assert_close,
    build,
    compiled,
    draw,
)

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.base.samples import Sample, Values
from stopgrad.base.types import bfloat16, float32, float64
from stopgrad.engines.onnxruntime.nodes import unwritable
from stopgrad.engines.onnxruntime.nodes.forms.refusals import REFUSALS
from stopgrad.engines.onnxruntime.nodes.program import LATEST
from stopgrad.graph.graph import Output
from stopgrad.graph.op import Op
from stopgrad.interop.onnx.saving import OPSET

OPSETS = (OPSET, LATEST)

NOT_WRITTEN = {definition.type for definition in REFUSALS}
"""Operations that ONNX has no form for."""


def is_complex(sample: Sample) -> bool:
    return any(o.dtype.is_complex if isinstance(o, Values) else o.dtype.kind == "c" for o in sample.operands)


def is_written(case: Any) -> bool:
    definition, sample = case.values
    return definition.type not in NOT_WRITTEN and not is_complex(sample)


WRITTEN = [case for case in COMPUTED if is_written(case)]
REFUSED = [case for case in COMPUTED if not is_written(case)]


def session_of(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def has_bfloat16(values: Sequence[Any]) -> bool:
    return any(x.dtype is bfloat16 for x in values)


def model_at(opset: int, xs: Sequence[Output], ys: Sequence[Output]) -> Any:
    model = sgo.to_model(
        {f"y{i}": y for i, y in enumerate(ys)}, {f"x{i}": x for i, x in enumerate(xs)}, opset=opset
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def run_model(model: Any, arrays: Sequence[Array]) -> list[Array]:
    session = session_of(model)
    read = {x.name for x in session.get_inputs()}
    fed = {f"x{i}": np.asarray(a) for i, a in enumerate(arrays)}
    found: list[Array] = session.run(None, {name: a for name, a in fed.items() if name in read})
    return found


def close(found: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype, what
        assert_close(a, b, what)


def test_each_operation_once_in_one_model() -> None:
    graph = sg.Graph()
    inputs: list[Output] = []
    outputs: list[Output] = []
    fed: list[Array] = []
    names: list[str] = []
    for case in WRITTEN:
        definition, sample = case.values
        if sample is definition.samples[0]:
            arrays = draw(sample)
            _, xs, ys = build(definition, sample, arrays, graph)
            inputs, fed = [*inputs, *xs], [*fed, *arrays]
            outputs, names = [*outputs, *ys], [*names, *[definition.type] * len(ys)]
    found, expected = (compiled(name, outputs, inputs)(fed) for name in ("onnxruntime", "numpy"))
    for name, a, b in zip(names, found, expected, strict=True):
        close([a], [b], name)


@pytest.mark.slow
@pytest.mark.parametrize(("definition", "sample"), WRITTEN)
def test_what_is_written_runs_and_gives_the_same(definition: type[Op], sample: Sample) -> None:
    arrays = draw(sample)
    _, xs, ys = build(definition, sample, arrays)
    expected = compiled("numpy", ys, xs)(arrays)
    if has_bfloat16([*xs, *ys]):  # Python's interface of the runtime has no such arrays; the engine does.
        close(compiled("onnxruntime", ys, xs)(arrays), expected, definition.type)
        return
    for opset in OPSETS:
        close(run_model(model_at(opset, xs, ys), arrays), expected, f"{definition.type} at {opset}")


@pytest.mark.parametrize(("definition", "sample"), REFUSED)
def test_what_cannot_be_written_is_refused_with_a_reason(definition: type[Op], sample: Sample) -> None:
    arrays = draw(sample)
    _, xs, ys = build(definition, sample, arrays)
    with pytest.raises(sg.EngineError, match=f"{definition.type}.*(complex|has no form in ONNX)|complex"):
        sgo.to_model(ys, xs)


def test_the_table_of_what_cannot_be_written_is_exact() -> None:
    """What it lists has samples that are refused, above, and what it does not list ones that run."""
    assert {case.values[0].type for case in REFUSED} >= NOT_WRITTEN
    written = {case.values[0].type for case in WRITTEN}
    unseen = {"Conj"}  # Its samples are complex; of real numbers it is the identity.
    assert {case.values[0].type for case in COMPUTED} - written == NOT_WRITTEN | unseen


@pytest.mark.slow
@pytest.mark.parametrize(("definition", "sample"), [case for case in SYMBOLIC if is_written(case)])
def test_one_model_serves_all_sizes(definition: type[Op], sample: Sample) -> None:
    _, xs, ys = build(definition, sample, draw(sample))
    if has_bfloat16([*xs, *ys]):
        pytest.skip("as above, by the engine only")
    model = model_at(LATEST, xs, ys)
    for n in (1, 4):
        arrays = draw(sample, n)
        close(run_model(model, arrays), compiled("numpy", ys, xs, n)(arrays), f"{definition.type}, n = {n}")


@pytest.mark.slow
@pytest.mark.parametrize("definition", [case for case in EXTREME if case.values[0].type not in NOT_WRITTEN])
@pytest.mark.parametrize("dtype", [float64, float32], ids=str)
def test_extreme_values(definition: type[Op], dtype: Any) -> None:
    """Values and gradients. Operands of one shape share a model."""
    attributes = definition.samples[0].attributes
    models: dict[Any, Any] = {}
    for operands in definition.extremes:
        arrays = [o if isinstance(o, np.ndarray) else np.asarray(o, dtype.numpy) for o in operands]
        key = tuple(a.shape for a in arrays)
        if key not in models:
            graph, xs, ys = build(definition, Sample(tuple(arrays), attributes), arrays)
            moving, moved = [x for x in xs if x.type.differentiable], [y for y in ys if y.type.differentiable]
            with graph.as_default():
                found = sg.gradients(moved, moving) if moved and moving and not definition.gate else []
            outputs = [*ys, *[g for g in found if g is not None and not unwritable(graph.subgraph_to([g]))]]
            models[key] = compiled("numpy", outputs, xs), compiled("onnxruntime", outputs, xs), outputs
        by_numpy, by_runtime, outputs = models[key]
        for a, b, y in zip(by_numpy(arrays), by_runtime(arrays), outputs, strict=True):
            assert_close(b, a, f"{definition.type}{operands}: {y!r}")
