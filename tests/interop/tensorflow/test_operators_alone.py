"""Rules for operations that TensorFlow has for no processor, and what rules refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorflow_nodes import Nodes

import stopgrad as sg
import stopgrad.tensorflow as sgtf


def image(channels: int) -> Any:
    return np.random.default_rng(0).normal(size=(2, 4, 4, channels)).astype(np.float32)


def test_a_fused_normalisation_adds_its_other_operand_and_applies_its_activation() -> None:
    nodes = Nodes()
    x, side = (nodes.place(name, np.float32, 2, 4, 4, 3) for name in ("x", "side"))
    parts = [nodes.constant(f"part{i}", np.full(3, 0.5 + i), np.float32) for i in range(4)]
    nodes.add("FusedBatchNormV3", "plain", x, *parts, is_training=False, epsilon=0.01)
    fused = {"is_training": False, "epsilon": 0.01, "num_side_inputs": 1, "activation_mode": "Relu"}
    nodes.add("_FusedBatchNormEx", "fused", x, *parts, side, **fused)
    model = sgtf.load(nodes.content(), outputs=["plain", "fused"])
    found = model(x=image(3), side=image(3)[::-1])
    np.testing.assert_allclose(found["fused"], np.maximum(found["plain"] + image(3)[::-1], 0), rtol=1e-6)


def test_a_layout_with_the_channels_first_pools_as_one_with_the_channels_last() -> None:
    for op in ("MaxPool", "AvgPool"):
        found = []
        for layout, shape in (("NHWC", (2, 4, 4, 3)), ("NCHW", (2, 3, 4, 4))):
            nodes = Nodes()
            nodes.add(op, "y", nodes.place("x", np.float32, *shape), padding="SAME", data_format=layout)
            sizes = [1, 3, 2, 1] if layout == "NHWC" else [1, 1, 3, 2]
            for key in ("ksize", "strides"):
                nodes.graph.node[-1].attr[key].list.i.extend(sizes)
            model = sgtf.load(nodes.content())
            x = image(3) if layout == "NHWC" else image(3).transpose(0, 3, 1, 2)
            slope = sg.grad(lambda x, model=model: sg.reduce_sum(sg.square(model(x))))(x)
            found.append([model(x), slope])
        for last, first in zip(*found, strict=True):
            np.testing.assert_allclose(first.transpose(0, 2, 3, 1), last, rtol=1e-6)


def test_a_check_of_shapes_lets_pass_what_fits_and_refuses_what_does_not() -> None:
    nodes = Nodes()
    nodes.add("EnsureShape", "y", nodes.place("x", np.float32, 2, 3), T=np.float32)
    nodes.graph.node[-1].attr["shape"].shape.dim.add(size=5)
    with pytest.raises(sg.GraphError, match=r"the shape \(2, 3\), not \(5,\)"):
        sgtf.load(nodes.content())


def test_the_places_of_what_the_model_computes_are_refused_with_the_reason() -> None:
    nodes = Nodes()
    nodes.add("Where", "y", nodes.place("x", np.bool_, 4), T=np.bool_)
    with pytest.raises(sg.GraphError, match="must be known when the graph is built"):
        sgtf.load(nodes.content())


def test_the_index_of_one_element_may_be_an_input() -> None:
    """``x[:, i]``, of which only the index is read."""
    nodes = Nodes()
    x, i = nodes.place("x", np.float32, 3, 4), nodes.place("i", np.int32)
    zero, one = nodes.constant("zero", 0, np.int32), nodes.constant("one", 1, np.int32)
    begin = nodes.add("Pack", "begin", zero, i)
    end = nodes.add("Pack", "end", zero, nodes.add("AddV2", "next", i, one))
    steps = nodes.constant("steps", [1, 1], np.int32)
    masks = {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}
    nodes.add("StridedSlice", "y", x, begin, end, steps, **masks)
    model = sgtf.load(nodes.content(), outputs="y", shapes={"i": ()})
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for index in (0, 2, -1):
        np.testing.assert_array_equal(model(x=values, i=np.int32(index)), values[:, index])
    slope = sg.grad(lambda x: sg.reduce_sum(model(x=x, i=np.int32(2))))(values)
    np.testing.assert_array_equal(slope, np.tile([0, 0, 1, 0], (3, 1)))


def test_unknown_sizes_go_through_shapes_reshapes_and_slices() -> None:
    """What ``tf.reshape(x, [tf.shape(x)[0], 6])`` writes."""
    nodes = Nodes()
    x = nodes.place("x", np.float32, -1, 2, 3)
    shape = nodes.add("Shape", "shape", x)
    bounds = [nodes.constant(f"b{i}", [i], np.int32) for i in (0, 1)]
    first = nodes.add("StridedSlice", "first", shape, *bounds, bounds[1], shrink_axis_mask=1)
    sizes = nodes.add("Pack", "sizes", first, nodes.constant("six", 6, np.int32))
    nodes.add("Reshape", "y", x, sizes)
    model = sgtf.load(nodes.content(), outputs="y")
    for count in (1, 4):
        assert model(np.zeros((count, 2, 3), np.float32)).shape == (count, 6)


def test_zero_times_the_logarithm_of_zero_has_the_gradient_of_tensorflow() -> None:
    nodes = Nodes()
    x, y = (nodes.place(name, np.float32, 3) for name in "xy")
    nodes.add("Xlogy", "z", x, y)
    model = sgtf.load(nodes.content())
    given = np.asarray([0, 0, 2], np.float32), np.asarray([0, 3, 3], np.float32)
    np.testing.assert_allclose(model(*given), [0, 0, 2 * np.log(3)], rtol=1e-6)
    slopes = sg.grad(lambda x, y: sg.reduce_sum(model(x, y)), argnums=(0, 1))(*given)
    np.testing.assert_allclose(slopes[0], [0, 0, np.log(3)], rtol=1e-6)
    np.testing.assert_allclose(slopes[1], [0, 0, 2 / 3], rtol=1e-6)


def _quantized(nodes: Nodes, x: str) -> None:
    nodes.add("FakeQuantWithMinMaxArgs", "y", x, num_bits=2**40)


def _stitched(nodes: Nodes, x: str) -> None:
    nodes.add("DynamicStitch", "y", nodes.constant("at", [0, 2**31 - 1], np.int32), x)


def _unpacked(nodes: Nodes, x: str) -> None:
    nodes.add("Unpack", "y", x, num=2**40, axis=0)


def _diagonals(nodes: Nodes, x: str) -> None:
    sizes = [nodes.constant(f"size{i}", -1, np.int32) for i in range(2)]
    between = nodes.constant("k", [-(2**31), 2**31 - 1], np.int32)
    nodes.add("MatrixDiagV3", "y", x, between, *sizes, nodes.constant("zero", 0.0, np.float32))


def _neighbours(nodes: Nodes, x: str) -> None:
    nodes.add("LRN", "y", nodes.place("wide", np.float32, 1, 2, 2, -1), depth_radius=2**40)


def _numbers(nodes: Nodes, x: str) -> None:
    ends = [nodes.constant(f"end{i}", i, np.float32) for i in range(2)]
    nodes.add("LinSpace", "y", *ends, nodes.constant("count", 2**31 - 1, np.int32))


@pytest.mark.parametrize(
    "write", [_quantized, _stitched, _unpacked, _diagonals, _neighbours, _numbers], ids=lambda f: f.__name__
)
def test_numbers_that_ask_for_too_much_are_refused_at_once(write: Any) -> None:
    nodes = Nodes()
    write(nodes, nodes.place("x", np.float32, 2, 3))
    with pytest.raises(sg.GraphError, match=r"at most \d+ are|of 2 to 16 bits"):
        sgtf.load(nodes.content(), outputs="y")
