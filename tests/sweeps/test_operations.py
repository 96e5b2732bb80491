"""One test for all operations: each definition is held to what it says of itself, on each of its samples.

What it says is compared with what happens: inferred types with computed ones, one engine with the other,
gradients of first and second order with finite differences, reverse with forward mode, symbolic with fixed
sizes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from all_engines import engines_for
from operation_cases import (
    COMPUTED,
    DIFFERENTIATED,
    EXTREME,
    SYMBOLIC,
    Array,
    assert_close,
    attribute_values,
    build,
    compiled,
    draw,
)
from sample_tools import with_dtype
from together import together

import stopgrad as sg
from stopgrad.base.namespaces import NUMPY
from stopgrad.base.samples import Sample, Values
from stopgrad.base.types import bfloat16, dtype_of, float16, float32, float64, size_value
from stopgrad.engines.xla import jax_namespace
from stopgrad.graph.graph import Output
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.interpreter import lowering
from stopgrad.graph.op import REGISTRY, Op, Unsupported
from stopgrad.graph.operands import type_of
from stopgrad.transforms.gradients.forward import push_forward

FIRST_OF_EACH = [
    case
    if case.values[1] is case.values[0].samples[0]
    else pytest.param(*case.values, id=case.id, marks=pytest.mark.nightly)
    for case in DIFFERENTIATED
]
SOME_EXTREME = [
    case if i % 4 == 0 else pytest.param(*case.values, id=case.id, marks=pytest.mark.slow)
    for i, case in enumerate(EXTREME)
]
FLOATING = [
    pytest.param(definition, definition.samples[0], id=name)
    for name, definition in REGISTRY.items()
    if definition.samples and not isinstance(definition.lower, Unsupported)
    if any(isinstance(o, Values) and o.dtype is float64 for o in definition.samples[0].operands)
]
STEP = 1e-6


# ------------------------------------------------------------------------------------------ types, values


@together(("definition", "sample"), COMPUTED, parts=8)
def test_inferred_types_are_the_computed_ones(definition: type[Op], sample: Sample) -> None:
    arrays = draw(sample)
    attributes = dict(sample.attributes)
    types = infer_types(definition, tuple(type_of(a) for a in arrays), attribute_values(definition, sample))
    with np.errstate(all="ignore"):
        by_numpy = definition.lower(NUMPY, *arrays, **attributes)
    xp, form = jax_namespace(), lowering(definition, "xla")
    if "accumulate" in inspect.signature(form).parameters:
        attributes["accumulate"] = None
    with jax.enable_x64(True):
        by_xla = jax.eval_shape(lambda *xs: form(xp, *xs, **attributes), *[xp.asarray(a) for a in arrays])
    for made in (by_numpy, by_xla):
        results = made if len(types) > 1 else (made,)
        assert [(str(v.dtype), tuple(v.shape)) for v in results] == [(t.dtype.name, t.shape) for t in types]


@together(("definition", "sample"), SYMBOLIC, parts=4)
def test_symbolic_sizes_give_what_fixed_sizes_give(definition: type[Op], sample: Sample) -> None:
    for n in (1, 4):
        arrays = draw(sample, n)
        for a, o in zip(arrays, sample.operands, strict=True):
            assert not isinstance(o, Values) or a.shape == tuple(n if s == "n" else s for s in o.shape)
        _, xs, ys = build(definition, sample, arrays)
        fixed = Sample(tuple(arrays), sample.attributes)
        _, fixed_xs, fixed_ys = build(definition, fixed, arrays)
        found, expected = compiled("numpy", ys, xs, n)(arrays), compiled("numpy", fixed_ys, fixed_xs)(arrays)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@together("definition", SOME_EXTREME, parts=2)
@pytest.mark.parametrize("dtype", [float64, pytest.param(float32, marks=pytest.mark.slow)], ids=str)
def test_engines_agree_on_extreme_values(definition: type[Op], dtype: Any) -> None:
    """Values and gradients. Operands of one shape share a graph, so that it is compiled once."""
    attributes = definition.samples[0].attributes
    engines: dict[Any, Any] = {}
    for operands in definition.extremes:
        arrays = [o if isinstance(o, np.ndarray) else np.asarray(o, dtype.numpy) for o in operands]
        key = tuple(a.shape for a in arrays)
        if key not in engines:
            graph, xs, ys = build(definition, Sample(tuple(arrays), attributes), arrays)
            moving, moved = [x for x in xs if x.type.differentiable], [y for y in ys if y.type.differentiable]
            with graph.as_default():
                outputs = [
                    *ys,
                    *(
                        g
                        for g in (
                            sg.gradients(moved, moving) if moved and moving and not definition.gate else []
                        )
                        if g is not None
                    ),
                ]
            engines[key] = compiled("numpy", outputs, xs), compiled("xla", outputs, xs), outputs
        by_numpy, by_xla, outputs = engines[key]
        for a, b, y in zip(by_numpy(arrays), by_xla(arrays), outputs, strict=True):
            assert_close(a, b, f"{definition.type}{operands}: {y!r}")


SMALL = {
    "Complex": {"float32"},
    "Rfft": {"float32"},
    "ClipGradient": set(),
    "ClipGradientByNorm": set(),
    "RandomLogGamma": set(),
    "RandomPoisson": set(),
}
"""Operations whose first sample fits only these of the smaller dtypes; all others take all."""


@pytest.mark.slow
@pytest.mark.parametrize(("definition", "sample"), FLOATING)
def test_small_dtypes_are_as_precise_as_they_can_be(definition: type[Op], sample: Sample) -> None:
    for dtype in (float32, float16, bfloat16):
        (small,) = with_dtype([sample], dtype)
        arrays = draw(small)
        if dtype.name not in SMALL.get(definition.type, {dtype.name}):
            with pytest.raises(sg.DTypeError):
                build(definition, small, arrays)
            continue
        _, xs, ys = build(definition, small, arrays)
        wide = [a.astype(np.float64) if dtype_of(a.dtype) is dtype else a for a in arrays]
        _, wide_xs, wide_ys = build(definition, sample, wide)
        expected = compiled("numpy", wide_ys, wide_xs)(wide)
        limit = {float32: 1e-4, float16: 2e-2, bfloat16: 1e-1}[dtype]
        for name in engines_for(ys):
            for found, want, y in zip(compiled(name, ys, xs)(arrays), expected, ys, strict=True):
                assert found.dtype == y.dtype.numpy
                assert_close(found, want, f"{definition.type} of {dtype} by {name}", limit)


# --------------------------------------------------------------------------------------------- gradients


class Derivatives:
    """An operation on a sample, its first and second derivatives, and how to compute all of them at once.

    Second derivatives are those of the first, weighted, with respect to the operands and the cotangents.
    """

    def __init__(self, definition: type[Op], sample: Sample) -> None:
        self.arrays = draw(sample)
        generator = np.random.default_rng(1)
        graph, self.xs, outputs = build(definition, sample, self.arrays)
        self.ys = [y for y in outputs if y.type.differentiable]
        self.moving = [x for x in self.xs if x.type.differentiable]
        with graph.as_default():
            self.us = [sg.placeholder(y.dtype, y.shape) for y in self.ys]
            self.first = (
                sg.gradients(self.ys, self.moving, self.us)
                if self.ys and self.moving
                else [None] * len(self.moving)
            )
            self.live = [g for g in self.first if g is not None]
            self.ws = [sg.placeholder(g.dtype, g.shape) for g in self.live]
            self.wrt = [*self.moving, *self.us]
            self.second = sg.gradients(self.live, self.wrt, self.ws) if self.live else [None] * len(self.wrt)
            self.ts = [sg.placeholder(x.dtype, x.shape) for x in self.moving]
            self.pushed = push_forward(self.ys, self.moving, self.ts) if self.live else [None] * len(self.ys)
        self.inputs = [*self.xs, *self.us, *self.ws, *self.ts]
        extra = [np.asarray(_random(generator, x)) for x in self.inputs[len(self.xs) :]]
        self.values = dict(zip(self.inputs, [*self.arrays, *extra], strict=True))
        self.outputs = [*outputs, *[v for v in (*self.first, *self.second, *self.pushed) if v is not None]]

    @functools.cached_property
    def by_numpy(self) -> Callable[[Sequence[Array]], list[Array]]:
        return compiled("numpy", self.outputs, self.inputs)

    def at(self, moved: dict[Output, Array] | None = None) -> dict[Output, Array]:
        values = self.values | (moved or {})
        return dict(zip(self.outputs, self.by_numpy([values[x] for x in self.inputs]), strict=True))

    def slope(
        self, results: Sequence[Output], weights: Sequence[Output], x: Output, direction: Array
    ) -> float:
        """The derivative of the weighted sum of results when x moves, from differences."""
        here = self.values[x]
        ahead, behind = self.at({x: here + STEP * direction}), self.at({x: here - STEP * direction})
        return sum(
            inner(self.values[w], (ahead[y] - behind[y]) / (2 * STEP))
            for y, w in zip(results, weights, strict=True)
        )


def _random(generator: np.random.Generator, x: Output) -> Array:
    drawn = generator.uniform(-1, 1, [size_value(s, {"n": 3}) for s in x.shape])
    if x.dtype.is_complex:
        drawn = drawn + 1j * generator.uniform(-1, 1, drawn.shape)
    return drawn.astype(x.dtype.numpy)


def inner(a: Array, b: Array) -> float:
    return float(np.sum(np.conj(a) * b).real)


@pytest.mark.parametrize(("definition", "sample"), FIRST_OF_EACH)
def test_engines_agree_on_derivatives(definition: type[Op], sample: Sample) -> None:
    case = Derivatives(definition, sample)
    here = case.at()
    for name in engines_for(case.outputs):
        found = compiled(name, case.outputs, case.inputs)([case.values[x] for x in case.inputs])
        for y, value in zip(case.outputs, found, strict=True):
            assert_close(here[y], value, f"numpy and {name}: {y!r}", atol=1e-9)


@together(("definition", "sample"), DIFFERENTIATED, parts=8)
def test_derivatives(definition: type[Op], sample: Sample) -> None:
    case = Derivatives(definition, sample)
    here = case.at()

    # gradients and finite differences; no gradient is a gradient of zero
    generator = np.random.default_rng(2)
    wide = all(x.dtype.itemsize >= 8 for x in (*case.wrt, *case.live))
    for order, results, weights, gradients in (
        (1, case.ys, case.us, dict(zip(case.moving, case.first, strict=True))),
        (2, case.live, case.ws, dict(zip(case.wrt, case.second, strict=True))),
    ):
        for x, g in gradients.items():
            if not results or not wide:
                continue
            direction = _random(generator, x)
            expected = case.slope(results, weights, x, direction)
            found = 0.0 if g is None else inner(here[g], direction)
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), f"order {order}: {x!r}"
            assert g is None or here[g].shape == case.values[x].shape

    # reverse and forward
    back = sum(
        inner(here[g], case.values[t]) for g, t in zip(case.first, case.ts, strict=True) if g is not None
    )
    forth = sum(
        inner(case.values[u], here[t]) for u, t in zip(case.us, case.pushed, strict=True) if t is not None
    )
    assert back == pytest.approx(forth, rel=1e-6 if wide else 1e-3, abs=1e-9 if wide else 1e-4)


HANDED_ON = {
    "Assign": 1,
    "ClipGradient": 0,
    "ClipGradientByNorm": 0,
    "ForeignStop": 0,
    "Identity": 0,
    "ImplicitLogGamma": 0,
    "Named": 0,
    "PreventGradient": 0,
    "Probe": 0,
    "ScaleGradient": 0,
    "StopGradient": 0,
    "StopGradientTowards": 0,
    "StopGradientWhen": 0,
    "StraightThrough": 0,
    "ZeroGradient": 0,
}
"""Operations whose value is an operand, and which one: written down here, not asked of the definition."""


def test_every_gate_is_among_those_that_hand_an_operand_on() -> None:
    assert {name for name, d in REGISTRY.items() if d.gate} <= set(HANDED_ON)


@pytest.mark.parametrize("name", HANDED_ON)
def test_gates_hand_their_operand_on(name: str) -> None:
    definition, position = REGISTRY[name], HANDED_ON[name]
    assert definition.samples
    for sample in definition.samples:
        arrays = draw(sample)
        others = [a for i, a in enumerate(arrays) if i != position]
        assert not any(np.array_equal(a, arrays[position]) for a in others)
        _, xs, ys = build(definition, sample, arrays)
        for engine_name in engines_for(ys):
            (found,) = compiled(engine_name, ys, xs)(arrays)
            np.testing.assert_array_equal(found, arrays[position])


# ------------------------------------------------------------------------------------------- the samples

_BODIES = "a sample would hold a traced function; tests of its own run it"
NOT_SAMPLED = dict.fromkeys(("CustomGradient", "Case", "Scan", "While", "Checkpoint"), _BODIES)
NOT_SAMPLED["Ensure"] = "half of all samples would raise; tests/interop/onnx/test_loops.py runs it"
NOT_SAMPLED["Foreign"] = "it is another framework's to compute"
NOT_SAMPLED["DebugCallback"] = "a sample would hold a function of Python; tests of its own run it"


def test_every_definition_has_samples_with_elements() -> None:
    for name, definition in REGISTRY.items():
        if name in NOT_SAMPLED:
            assert not definition.samples
            continue
        drawn = [draw(sample) for sample in definition.samples]
        assert any(all(a.size for a in arrays) for arrays in drawn), f"{name}: no sample has elements"


def test_every_gradient_rule_meets_a_gradient_that_is_not_zero() -> None:
    """Otherwise the comparison with finite differences is one of zero with zero."""
    met: dict[str, set[int]] = {name: set() for name in REGISTRY}
    for case in DIFFERENTIATED:
        definition, sample = case.values
        rules = set(definition.differentiable)
        if rules <= met[definition.type]:
            continue
        derivatives = Derivatives(definition, sample)
        here = derivatives.at()
        for x, g in zip(derivatives.moving, derivatives.first, strict=True):
            if g is not None and np.any(here[g]):
                at = next(i for i, operand in enumerate(derivatives.xs) if operand is x)
                met[definition.type].add(min(at, len(definition.rules) - 1))
    never = {
        name: set(definition.differentiable) - met[name]
        for name, definition in REGISTRY.items()
        if not definition.gate and name not in NOT_SAMPLED and set(definition.differentiable) - met[name]
    }
    assert not never
