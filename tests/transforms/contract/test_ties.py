"""Contract 6: where elements tie, the gradient is what TensorFlow documents."""

from __future__ import annotations

import numpy as np
import pytest

import stopgrad as sg

INF = np.inf


def gradient(f, *at, cotangent=None):
    _, pullback = sg.vjp(f, *(np.asarray(v, np.float64) for v in at))
    value = f(*(np.asarray(v, np.float64) for v in at))
    return [
        g.tolist()
        for g in pullback(np.ones_like(value) if cotangent is None else np.asarray(cotangent, np.float64))
    ]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
        ([2.0, 2.0, 2.0, 2.0], [0.25] * 4),
        ([1.0, 3.0, 2.0], [0.0, 1.0, 0.0]),
        ([INF, 1.0, INF], [0.5, 0.0, 0.5]),
        ([-INF, -INF], [0.5, 0.5]),
        ([-0.0, 0.0, -1.0], [0.5, 0.5, 0.0]),
        ([5.0], [1.0]),
    ],
)
def test_reductions_share_evenly(x, expected):
    assert gradient(sg.reduce_max, x) == [expected]
    assert gradient(sg.reduce_min, -np.array(x)) == [expected]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    "reduction", [sg.reduce_max, lambda x, **k: -sg.reduce_min(-x, **k)], ids=["max", "min"]
)
def test_reductions_over_axes_share_within_each(reduction, keepdims):
    x = [[1.0, 2.0, 2.0], [3.0, 3.0, 3.0], [0.0, 5.0, 1.0]]
    rows = gradient(
        lambda x: reduction(x, axis=1, keepdims=keepdims),
        x,
        cotangent=np.reshape([4.0, 6.0, 8.0], (3, 1) if keepdims else 3),
    )
    assert rows == [[[0.0, 2.0, 2.0], [2.0, 2.0, 2.0], [0.0, 8.0, 0.0]]]
    assert gradient(lambda x: reduction(x, axis=(0, 1)), [[7.0, 1.0], [7.0, 7.0]]) == [
        [[1 / 3, 0.0], [1 / 3, 1 / 3]]
    ]
    columns = gradient(
        lambda x: reduction(x, axis=0, keepdims=keepdims),
        [[1.0, 2.0], [1.0, 0.0]],
        cotangent=np.reshape([2.0, 3.0], (1, 2) if keepdims else 2),
    )
    assert columns == [[[1.0, 3.0], [1.0, 0.0]]]


@pytest.mark.parametrize(
    ("x", "y", "dx", "dy"),
    [
        (2.0, 2.0, 1.0, 0.0),
        (3.0, 2.0, 1.0, 0.0),
        (1.0, 2.0, 0.0, 1.0),
        (-0.0, 0.0, 1.0, 0.0),
        (0.0, -0.0, 1.0, 0.0),
        (INF, INF, 1.0, 0.0),
    ],
)
def test_elementwise_extrema_give_all_to_the_first(x, y, dx, dy):
    assert gradient(sg.maximum, x, y) == [dx, dy]
    assert gradient(sg.minimum, -x, -y) == [dx, dy]


def test_elementwise_extrema_with_broadcasting():
    assert gradient(sg.maximum, [1.0, 2.0, 3.0], 2.0) == [[0.0, 1.0, 1.0], 1.0]
    assert gradient(sg.minimum, [1.0, 2.0, 3.0], 2.0) == [[1.0, 1.0, 0.0], 1.0]


@pytest.mark.parametrize(
    ("direction", "expected"),
    # In order: 1 (at 1), 2 (at 3), 3 (at 0), 3 (at 2); downwards: 3 (at 0), 3 (at 2), 2 (at 3), 1 (at 1).
    [("ASCENDING", [30.0, 10.0, 40.0, 20.0]), ("DESCENDING", [10.0, 40.0, 20.0, 30.0])],
)
def test_sorting_counts_equal_elements_in_their_order(direction, expected):
    assert gradient(
        lambda x: sg.sort(x, direction=direction), [3.0, 1.0, 3.0, 2.0], cotangent=[10.0, 20.0, 30.0, 40.0]
    ) == [expected]


def test_top_k_takes_the_first_of_equal_elements():
    assert gradient(lambda x: sg.top_k(x, 2)[0], [3.0, 4.0, 3.0, 1.0], cotangent=[10.0, 20.0]) == [
        [20.0, 10.0, 0.0, 0.0]
    ]


@pytest.mark.parametrize(
    ("f", "at", "expected"),
    [
        (sg.abs, [-2.0, 0.0, -0.0, 2.0], [-1.0, 0.0, 0.0, 1.0]),
        (sg.relu, [-1.0, 0.0, -0.0, 1.0], [0.0, 0.0, 0.0, 1.0]),
        (sg.relu6, [0.0, 3.0, 6.0, 7.0], [0.0, 1.0, 0.0, 0.0]),
        (sg.sign, [-2.0, 0.0, 2.0], [0.0, 0.0, 0.0]),
        (lambda x: sg.clip_by_value(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0], [0.0, 1.0, 1.0, 1.0, 0.0]),
    ],
    ids=["abs", "relu", "relu6", "sign", "clip_by_value"],
)
def test_kinks(f, at, expected):
    assert gradient(f, at) == [expected]


def test_products_with_zeros_are_exact():
    """No division by the element: TensorFlow's gradient of a product is right at zeros."""
    assert gradient(sg.reduce_prod, [0.0, 2.0, 3.0]) == [[6.0, 0.0, 0.0]]
    assert gradient(sg.reduce_prod, [0.0, 0.0, 3.0]) == [[0.0, 0.0, 0.0]]


def test_the_stop_in_stable_softmax_is_for_ties():
    """The even shares cancel exactly in softmax: both forms have one gradient; the stop spares work."""

    def softmax(x, gate):
        e = sg.exp(x - gate(sg.reduce_max(x)))
        return e / sg.reduce_sum(e)

    x, g = [1.0, 3.0, 3.0], [1.0, 10.0, 100.0]
    p = np.exp(np.array(x) - 3)
    p /= p.sum()
    expected = p * (np.array(g) - (p * g).sum())
    for gate in (sg.stop_gradient, sg.identity):
        assert np.allclose(
            gradient(lambda x, gate=gate: softmax(x, gate), x, cotangent=g), [expected], rtol=1e-12
        )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reduction", [sg.reduce_max, sg.reduce_min])
def test_a_nan_among_the_elements_is_not_hidden(reduction, compiled):
    """TensorFlow's formula is 0 / 0 there; the rows without one are unaffected."""
    f = sg.grad(lambda x: sg.reduce_sum(reduction(x, axis=-1)))
    found = (sg.function(f) if compiled else f)(np.array([[np.nan, 1.0], [2.0, 2.0]]))
    np.testing.assert_array_equal(found, [[np.nan, np.nan], [0.5, 0.5]])
