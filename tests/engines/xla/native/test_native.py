"""All kernels in a few programs: what the files beside this one check case by case, in the plain tier."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from native_kernels import Native, floats
from native_rows import (
    BINARY,
    LOSSES,
    REDUCTIONS,
    UNARY,
    exactly,
    is_for_positive,
    native,
    normed,
    watched,
)

import stopgrad as sg
from stopgrad.engines.xla.native import convolution, rows, schedule
from stopgrad.engines.xla.native.library import HERE, library
from stopgrad.engines.xla.native.recording import Refused, shape_of
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import Region

pytestmark = pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Region]:
    """The regions of rows of all programs that a test compiles, which may be as small as they like."""
    return watched(monkeypatch)


def agree(function: Any, *arrays: Any, rtol: float, atol: float) -> None:
    made, expected = native(function, *arrays), exactly(function, *arrays)
    for i, (ours, theirs) in enumerate(zip(made, expected, strict=True)):
        assert ours.shape == theirs.shape, i
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, err_msg=f"result {i}")


# ------------------------------------------------------------------------------------------------- rows


def test_all_instructions_in_one_program(found: list[Region]) -> None:
    def everything(x: Any, y: Any, row: Any, vector: Any, flag: Any) -> list[Any]:
        made = [f(sg.abs(x) + 0.01 if is_for_positive(f) else x) for f in UNARY]
        made += [f(x, other) for f in BINARY for other in (y, row, vector, 0.25)]
        made += [f(row, x) for f in BINARY]
        made += [f(x + 1.0, axis=-1, keepdims=keeps) for f in REDUCTIONS for keeps in (False, True)]
        made += [x * f(y, axis=-1, keepdims=True) for f in REDUCTIONS]
        cube = sg.reshape(x, (3, 3, -1))
        made += [cube * part + 1.0 for part in (y[:3], row[:3], sg.reshape(row, (3, 3, 1)), row[0])]
        made += [sg.where(flag, x, y), sg.where(flag, x, 1.0) * y]
        made += [sg.reduce_sum(x * y), sg.reduce_sum(x * y, axis=0), sg.reduce_mean(sg.square(x - y))]
        made += [sg.reduce_any(x > 2.0, axis=-1), sg.reduce_all(x > -2.0, axis=-1), x > y]
        return made

    agree(
        everything,
        floats(9, 37),
        floats(9, 37),
        floats(9, 1),
        floats(37),
        np.array(True),
        rtol=3e-6,
        atol=2e-5,
    )
    assert sum(len(region.operations) for region in found) > 200


def test_losses_labels_and_masks_with_their_gradients_in_one_program(found: list[Region]) -> None:
    def everything(x: Any, w: Any, labels: Any, mask: Any) -> list[Any]:
        of_labels = lambda x: sg.sparse_softmax_cross_entropy_with_logits(labels, x)
        hot = lambda x: sg.cast(sg.one_hot(labels, x.shape[-1]), x.dtype) * sg.log_softmax(x)
        taken = lambda x: sg.take_along_axis(sg.log_softmax(x), sg.expand_dims(labels, -1), axis=-1)
        masked = lambda x: sg.softmax(sg.where(mask, x, -1e9))
        made = [f(x) for f in (of_labels, hot, taken, masked)]
        cube, at = sg.reshape(x, (2, 3, -1)), sg.reshape(labels, (2, 3, 1))
        made.append(sg.take_along_axis(sg.log_softmax(cube), at, axis=-1))
        for f in (of_labels, hot, taken, masked):
            made.append(sg.grad(lambda x, f=f: sg.reduce_sum(f(x) * 2.0))(x))
        for loss in (*LOSSES, normed):
            value, slopes = sg.value_and_grad(loss, argnums=(0, 1))(x, w[0] if loss is normed else w)
            made += [value, *slopes]
        return made

    labels = np.array([0, 32, 7, 7, 1, 30], np.int32)
    mask = np.arange(33) % 5 > 0
    agree(everything, floats(6, 33), floats(6, 33), labels, mask, rtol=1e-5, atol=1e-4)
    assert found


def test_sizes_must_be_known() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["n", 4])
        assert shape_of(sg.zeros([2, 4])) == (2, 4)
        with pytest.raises(Refused, match="a symbolic size"):
            shape_of(x)


def test_one_number_a_row_is_taken_and_put_without_leaving_the_kernel(found: list[Region]) -> None:
    x, labels = floats(6, 40), np.array([0, 5, 39, 7, 7, 1])[:, None]

    def picked(x: Any) -> Any:
        taken = sg.take_along_axis(x * 2.0, labels, -1)
        return sg.reduce_sum(sg.exp(taken - sg.reduce_max(x, -1, keepdims=True)))

    agree(sg.value_and_grad(picked), x, rtol=1e-5, atol=1e-6)
    assert any(op.type == "TakeAlongAxis" for region in found for op in region.operations)


def test_views_and_constants_are_no_instructions(found: list[Region]) -> None:
    def everything(x: Any, row: Any) -> list[Any]:
        wide = sg.broadcast_to(row, x.shape)
        return [
            sg.expand_dims(x, 0) + 1.0,
            sg.expand_dims(wide, 1) * 2.0,
            sg.squeeze(sg.expand_dims(wide, 0) - x),
            sg.expand_dims(wide, 0),
            sg.expand_dims(x, -1),
            sg.zeros_like(x) + sg.reduce_sum(x, axis=-1, keepdims=True),
        ]

    agree(everything, floats(5, 33), floats(5, 1), rtol=1e-6, atol=1e-5)
    assert found


def test_products_between_regions_close_no_circle(found: list[Region]) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        p = sg.softmax(q @ sg.transpose(k) * 0.3)
        h = sg.layer_norm(p @ v + q)
        p = sg.softmax(h @ sg.transpose(k) + p)
        return sg.reduce_sum(sg.square(sg.layer_norm(p @ v + h) + p @ v))

    slopes = sg.grad(attention, argnums=(0, 1, 2))
    agree(slopes, floats(20, 30), floats(20, 30), floats(20, 30), rtol=1e-3, atol=1e-4)
    assert len(found) > 2


def test_rows_are_computed_where_that_pays() -> None:
    """Long enough rows, enough of them, a reduction, whole columns, and float32."""

    def number(function: Any, *shape: int, dtype: Any = sg.float32) -> int:
        with sg.Graph().as_default() as graph:
            made = function(sg.placeholder(dtype, shape))
            outputs = list(made) if isinstance(made, tuple) else [made]
            return len(rows.regions(graph.operations, outputs))

    normal = lambda x: x / sg.reduce_sum(x, axis=-1, keepdims=True)
    assert number(normal, 64, 64) == number(normal, 1, 65536) == number(normal, 2, 32, 64) == 1
    assert number(normal, 63, 64) == number(normal, 100, 63) == number(normal, 1, 65537) == 0
    assert number(normal, 64, 64, dtype=sg.float64) == 0
    assert number(sg.exp, 64, 64) == 0  # No reduction.
    assert number(lambda x: sg.reduce_sum(x, axis=-1), 64, 64) == 0  # No whole columns.
    assert number(lambda x: normal(sg.stop_gradient(x)), 64, 64) == 1
    assert number(lambda x: (normal(x), normal(x * 2.0)), 64, 64) == 1  # Both read x.
    assert number(lambda x: normal(sg.sort(normal(x))), 64, 64) == 2
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, (None, 64))
        assert not rows.regions(graph.operations, [normal(x)])


def test_instructions_have_the_machines_order() -> None:
    text = (HERE / "rows.cc").read_text() + "".join(p.read_text() for p in sorted(HERE.glob("*.h")))
    elementwise = re.findall(r"^  X\((\w+), \d", text, re.M)
    (block,) = re.findall(r"enum Special \{(.*?)\};", text, re.S)
    special = re.findall(r"^  ([A-Z_]+)\b", block, re.M)
    names = ["".join(word.capitalize() for word in name.split("_")) for name in special]
    assert (*elementwise, *names) == schedule.INSTRUCTIONS


# -------------------------------------------------------------------------------------------- convolution

CONVOLUTIONS: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 9, 8, 5), (3, 2, 5, 7), {"padding": ((2, 0), (1, 3))}),
    ((2, 9, 11, 5), (3, 2, 5, 17), {"padding": "SAME", "strides": (2, 3), "dilations": (2, 1)}),
    ((2, 20, 4), (5, 4, 8), {"padding": "SAME", "strides": 2}),
    ((2, 6, 5, 7, 4), (2, 3, 2, 4, 6), {"strides": (2, 1, 3), "padding": ((1, 0), (0, 2), (1, 1))}),
]


def test_convolutions_and_their_gradients_in_one_program() -> None:
    arrays = [floats(*shape) for x, filters, _ in CONVOLUTIONS for shape in (x, filters)]

    def everything(*given: Any) -> list[Any]:
        operands, made = iter(given), []
        for _, _, geometry in CONVOLUTIONS:
            x, filters = next(operands), next(operands)
            y = sg.conv(x, filters, **geometry)
            made += [y, *sg.gradients([sg.sin(y)], [x, filters])]
        return made

    ours = Native(everything, *arrays)
    kinds = ["Conv", "ConvBackpropInput", "ConvBackpropFilter"] * len(CONVOLUTIONS)
    assert sorted(kind for kind, *_ in ours.computed) == sorted(kinds)
    for i, (found, expected) in enumerate(zip(ours.values, exactly(everything, *arrays), strict=True)):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * scale, err_msg=f"result {i}")


def test_what_follows_a_kernel_joins_it_unless_something_else_reads_it() -> None:
    def everything(x: Any, filters: Any, bias: Any, whole: Any) -> list[Any]:
        y = lambda k: sg.conv(x * float(k), filters, padding="SAME")
        both = y(6)
        return [
            sg.relu(y(1) + bias),
            sg.relu(y(2)),
            sg.reshape(bias, (1, 1, -1)) + y(3),
            sg.relu(y(4) + whole),
            (lambda z: z + z)(y(5)),
            both,
            sg.relu(both),
            *sg.gradients([sg.conv(sg.relu(x), filters, 2, "SAME")], [x]),
        ]

    arrays = floats(2, 6, 7, 6), floats(3, 3, 6, 16), floats(16), floats(2, 6, 7, 16)
    ours = Native(everything, *arrays)
    assert sorted(ours.computed) == [
        *[["Conv"]] * 3,
        ["Conv", "AddV2"],
        ["Conv", "AddV2", "Relu"],
        ["Conv", "Relu"],
        ["ConvBackpropInput", "ReluGrad"],
    ]
    for found, expected in zip(ours.values, exactly(everything, *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_what_is_no_better_by_kernels_is_left_to_xla() -> None:
    def number(x: Any, filters: Any, *, dtype: Any = sg.float32, **geometry: Any) -> int:
        with sg.Graph().as_default() as graph:
            operands = [sg.placeholder(dtype, x), sg.placeholder(dtype, filters)]
            y = sg.conv(*operands, **geometry)
            made: list[Output] = [y, *sg.gradients([sg.sin(y)], operands)]
            return len(convolution.regions(graph.operations, made))

    assert number((2, 5, 5, 4), (3, 3, 4, 4)) == number((2, 5, 5, 32), (3, 3, 32, 4)) == 3
    assert number((2, 5, 5, 32), (3, 3, 32, 3)) == number((2, 5, 5, 3), (3, 3, 3, 5)) == 2
    assert number((2, 5, 5, 4), (3, 3, 4, 4), dtype=sg.float64) == 0
    assert number((2, 5, 5, 4), (3, 3, 2, 4), groups=2) == 0
    assert number((0, 5, 5, 4), (3, 3, 4, 4)) == number((1, 2, 2, 2, 2, 4), (1, 2, 2, 2, 4, 4)) == 0
    assert number((2, 5, 5, 4), (1, 1, 4, 4)) == 1  # The others are products of matrices.
    assert number((1, 4, 4, 256), (3, 3, 256, 256), padding="SAME") == 2
    assert number((1, 4, 4, 256), (2, 2, 256, 256), padding="SAME") == 3
