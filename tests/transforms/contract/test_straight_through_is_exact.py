"""Contract 8: the value of straight_through(hard, soft) is hard, bit for bit; the gradient is soft's."""

from __future__ import annotations

import numpy as np
import pytest
from all_engines import engines_where

import stopgrad as sg

HARD = np.array([1e30, 1.0, np.inf, -np.inf, np.nan, -0.0, 0.1, 3.4e38, 1e-45], np.float32)
SOFT = np.array([1.0, 1e30, 1.0, np.inf, 0.0, 1.0, 1e8, -3.4e38, 1.0], np.float32)


def test_the_value_is_hard_bit_for_bit(graph, run_everywhere, same_bits):
    hard, soft = sg.placeholder(sg.float32, [None]), sg.placeholder(sg.float32, [None])
    assert same_bits(run_everywhere(sg.straight_through(hard, soft), {hard: HARD, soft: SOFT}), HARD)


def test_the_usual_trick_is_not_exact():
    """soft + sg(hard - soft) loses the value at every one of these; the gate is needed."""
    with np.errstate(all="ignore"):
        trick = sg.add(SOFT, sg.stop_gradient(sg.subtract(HARD, SOFT)))
    assert (trick.view(np.uint32) != HARD.view(np.uint32)).sum() >= 6


def test_outside_of_a_graph(same_bits):
    assert same_bits(sg.straight_through(HARD, SOFT), HARD)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_every_dtype(dtype, graph, run, same_bits):
    hard, soft = sg.placeholder(dtype, [3]), sg.placeholder(dtype, [3])
    fed = np.array([0.1, 1e4, -0.0]).astype(hard.dtype.numpy)
    assert same_bits(
        run(sg.straight_through(hard, soft), {hard: fed, soft: np.ones(3, hard.dtype.numpy)}), fed
    )


def test_the_gradient_goes_to_soft_as_it_is(graph, run_everywhere):
    hard, soft = sg.placeholder(sg.float32, [2]), sg.placeholder(sg.float32, [2])
    g = np.array([3.0, np.inf], np.float32)
    dh, ds = sg.gradients(sg.straight_through(hard, soft), [hard, soft], [g])
    assert dh is None
    assert run_everywhere(ds, {hard: [1, 2], soft: [3, 4]}).tolist() == g.tolist()


def test_it_says_that_hard_is_stopped(graph):
    x = sg.placeholder(sg.float32)
    hard, soft = sg.exp(x), sg.placeholder(sg.float32)
    y = sg.straight_through(hard, soft)
    flow = sg.explain(y, [x, soft])
    assert (flow[x].status, flow[soft].status) == ("stopped", "flows")
    assert flow[x].cuts[0].operation is y.op


def test_rounding_with_the_gradient_of_the_identity(run):
    f = lambda x: sg.reduce_sum(sg.straight_through(sg.round(x), x) ** 2.0)
    x = np.array([0.2, 1.7, -2.6])
    # The value is Σ round(x)²; its gradient is 2·round(x), the derivative at the hard value.
    assert sg.value_and_grad(f)(x)[0] == 0.0 + 4.0 + 9.0
    assert sg.grad(f)(x).tolist() == [0.0, 4.0, -6.0]


def test_one_hot_of_argmax_with_the_gradient_of_softmax():
    """A straight-through categorical: the value exactly one-hot, the gradient that of softmax."""
    x = np.array([1.0, 3.0, 2.0])
    c = np.array([10.0, 20.0, 30.0])
    f = lambda x: sg.reduce_sum(
        sg.straight_through(sg.one_hot(sg.argmax(x), 3, dtype=sg.float64), sg.softmax(x)) * c
    )
    value, gradient = sg.value_and_grad(f)(x)
    p = np.exp(x) / np.exp(x).sum()
    assert value == 20.0
    assert np.allclose(gradient, p * (c - (p * c).sum()), rtol=1e-12)


def test_second_order_passes_through_soft(graph, run):
    """y = st(h, x²)·x: y' = st + x·2x; y'' = 2x + 4x, whatever h is."""
    x = sg.placeholder(sg.float64)
    (dx,) = sg.gradients(sg.straight_through(sg.round(x), x * x) * x, [x])
    (ddx,) = sg.gradients(dx, [x])
    assert run([dx, ddx], {x: 1.7}) == pytest.approx([2.0 + 2 * 1.7**2, 6 * 1.7])


@pytest.mark.parametrize("engine_name", engines_where(["numpy", "xla"]))
def test_compiled_functions_keep_it(engine_name, same_bits):
    f = sg.function(lambda h, s: sg.straight_through(h, s * 2.0) * 1.0, engine=engine_name)
    expected = np.array([1e30, np.inf, -0.0], np.float32)
    assert same_bits(np.asarray(f(expected, np.ones(3, np.float32))), expected)


@pytest.mark.parametrize(
    "soft",
    [np.ones(3, np.float64), np.ones(2, np.float32), np.ones((1, 3), np.float32)],
    ids=["dtype", "size", "rank"],
)
def test_both_must_have_one_type(soft):
    with pytest.raises(sg.StopgradError):
        sg.straight_through(np.ones(3, np.float32), soft)
