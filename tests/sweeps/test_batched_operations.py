"""Every operation, on each of its samples: many examples at once give what they give one after the other."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from together import together

import stopgrad as sg
from stopgrad.base.samples import Sample, Values
from stopgrad.graph.build import emit
from stopgrad.graph.op import REGISTRY, Op, Undefined, Unsupported

Array = np.ndarray[Any, Any]
Computed = Callable[[Sequence[Array]], list[Array]]
EXAMPLES = 3

CASES = [
    pytest.param(definition, s, id=f"{name}-{i}", marks=[pytest.mark.slow] if i else [])
    for name, definition in REGISTRY.items()
    if not isinstance(definition.lower, Unsupported) and not definition.stateful
    for i, s in enumerate(definition.samples)
    if s.operands
]


def examples(sample: Sample) -> list[list[Array]]:
    """For each operand as many values as there are examples, all different."""
    generator = np.random.default_rng(zlib.crc32(repr(sample).encode()))
    drawn = []
    for o in sample.operands:
        if isinstance(o, Values):
            drawn.append([o.draw(generator, {"n": 3}) for _ in range(EXAMPLES)])
        elif o.dtype == bool and o.ndim == 0:
            drawn.append([np.asarray(i % 2 == 0) for i in range(EXAMPLES)])
        else:
            drawn.append(
                [np.roll(o, i, -1) if o.ndim else o + np.asarray(i, o.dtype) for i in range(EXAMPLES)]
            )
    return drawn


def function_of(definition: type[Op], sample: Sample) -> Callable[..., list[Any]]:
    """The operation's outputs and, for cotangents given behind its operands, those of its operands."""
    values = tuple(sample.attributes[name] for name in definition.attributes)
    count = len(sample.operands)

    def f(*given: Any) -> list[Any]:
        xs = [sg.identity(x) for x in given[:count]]
        ys = emit(definition, tuple(xs), values).outputs
        found: list[Any] = list(ys)
        moved, moving = ([t for t in some if t.dtype.is_differentiable] for some in (ys, xs))
        if not moved or not moving or any(isinstance(rule, Undefined) for rule in definition.rules):
            return found
        return found + [g for g in sg.gradients(moved, moving, list(given[count:])) if g is not None]

    return f


def cotangents(definition: type[Op], sample: Sample, drawn: Sequence[Sequence[Array]]) -> list[list[Array]]:
    generator = np.random.default_rng(3)
    with sg.Graph().as_default():
        xs = [sg.placeholder(values[0].dtype, values[0].shape) for values in drawn]
        ys = emit(definition, tuple(xs), tuple(sample.attributes[n] for n in definition.attributes)).outputs
    return [
        [generator.uniform(-1, 1, y.shape).astype(y.dtype.numpy) for _ in range(EXAMPLES)]
        for y in ys
        if y.dtype.is_differentiable
    ]


def by_loop(f: Computed, drawn: Sequence[Sequence[Array]], batched: Sequence[bool]) -> list[Array]:
    rows = [
        f([values[i] if b else values[0] for values, b in zip(drawn, batched, strict=True)])
        for i in range(EXAMPLES)
    ]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def computed(f: Callable[..., Any]) -> Computed:
    """Traced and prepared once, for all examples."""
    function = sg.function(f, engine="numpy")
    return lambda arrays: [np.asarray(v) for v in function(*arrays)]


def at_once(f: Callable[..., Any], drawn: Sequence[Sequence[Array]], batched: Sequence[bool]) -> list[Array]:
    arrays = [np.stack(values) if b else values[0] for values, b in zip(drawn, batched, strict=True)]
    return computed(sg.vmap(f, in_axes=tuple(0 if b else None for b in batched)))(arrays)


def assert_same(found: Sequence[Array], expected: Sequence[Array], what: str) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype, what
        if a.dtype.kind in "fcV":
            limit = {2: 2e-2, 4: 1e-5, 8: 1e-9, 16: 1e-9}[a.dtype.itemsize]
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=limit, atol=limit, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)


@together(("definition", "sample"), CASES, parts=8)
def test_examples_at_once_give_what_they_give_one_by_one(definition: type[Op], sample: Sample) -> None:
    """Values and gradients: each operand batched alone, and all together with the cotangents."""
    drawn = examples(sample)
    drawn += cotangents(definition, sample, drawn)
    f = function_of(definition, sample)
    alone = computed(f)
    choices = [[i == k for i in range(len(drawn))] for k in range(len(drawn))]
    if len(drawn) > 1:
        choices.append([True] * len(drawn))
    for batched in choices:
        assert_same(at_once(f, drawn, batched), by_loop(alone, drawn, batched), f"batched: {batched}")


GROUPS = [CASES[i : i + 32 : 4] for i in range(0, len(CASES), 32)]


@pytest.mark.slow
@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: cases[0].id)
def test_examples_at_once_give_the_same_on_xla(cases: Sequence[Any]) -> None:
    """Several operations in one program: most of the time of a small one is that of compiling it at all."""
    functions, given = [], []
    for definition, sample in (case.values for case in cases):
        drawn = examples(sample)
        given.append(drawn + cotangents(definition, sample, drawn))
        functions.append(function_of(definition, sample))
    together = sg.function(
        lambda all_of_them: [sg.vmap(f)(*xs) for f, xs in zip(functions, all_of_them, strict=True)],
        engine="xla",
    )
    found = together([[np.stack(values) for values in drawn] for drawn in given])
    wrong = {}
    for case, f, drawn, ours in zip(cases, functions, given, found, strict=True):
        expected = by_loop(computed(f), drawn, [True] * len(drawn))
        try:
            assert_same([np.asarray(v) for v in ours], expected, "xla")
        except AssertionError as error:
            wrong[case.id] = str(error)
    assert not wrong


@pytest.mark.slow
@together(("definition", "sample"), CASES[::2], parts=8)
def test_examples_of_examples(definition: type[Op], sample: Sample) -> None:
    """The first operand batched by the outer one alone, the others by the inner one alone."""
    drawn = examples(sample)
    f = function_of(definition, sample)
    drawn += cotangents(definition, sample, drawn)
    first = [i == 0 for i in range(len(drawn))]
    arrays = [np.stack(values) for values in drawn]
    inner = sg.vmap(f, in_axes=tuple(None if b else 0 for b in first)) if len(drawn) > 1 else f
    found = computed(sg.vmap(inner, in_axes=tuple(0 if b else None for b in first)))(arrays)
    alone = computed(f)
    rows = [
        by_loop(alone, [[drawn[0][i]] * EXAMPLES, *drawn[1:]], [not b for b in first])
        if len(drawn) > 1
        else alone([drawn[0][i]])
        for i in range(EXAMPLES)
    ]
    assert_same(found, [np.stack(column) for column in zip(*rows, strict=True)], "nested")
