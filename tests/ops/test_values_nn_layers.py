"""Values of attention, recurrent layers, CTC, embedding lookup and resizing: by JAX, by loops, by peers.

Vectors were computed once by PyTorch 2.13, Keras 3 and TensorFlow 2.21, on numbers that :func:`waves` gives.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
from all_engines import each_engine
from derivatives import check_derivatives
from values import Cases, by, normal, values_of

import stopgrad as sg

pytestmark = pytest.mark.slow

CASES = Cases()
add = CASES.add


def waves(*shape: int, k: float = 1.0) -> Any:
    return np.sin(np.arange(np.prod(shape)) * k).reshape(shape)


# ------------------------------------------------------------------------------------------- attention


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Any:
    """Attention, query by query; heads of the query share those of the key in their order."""
    groups = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    k, v = (np.repeat(x, groups, -3) if groups > 1 else x for x in (k, v))
    scores = np.einsum("...qd,...kd->...qk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    none = np.isneginf(scores).all(-1, keepdims=True)
    return np.where(none, 0, scipy.special.softmax(np.where(none, 0, scores), -1)) @ v


Q, K, V = waves(1, 4, 3, 2, k=0.7), waves(1, 2, 5, 2, k=0.9), waves(1, 2, 5, 3, k=1.1)
MASK = waves(3, 5, k=2.0) > 0
MASK[1] = False
attend = sg.scaled_dot_product_attention
add(attend, attention, Q[0, 0], K[0, 0], V[0, 0])
add(attend, lambda q, k, v, m: attention(q, k, v, m), Q[:, :2], K, V, MASK)
add(attend, lambda q, k, v, m: attention(q, k, v, m), Q[:, :2], K, V, waves(1, 2, 3, 5))
add(attend, lambda *x: attention(*x, causal=True, scale=0.3), Q[:, :2], K, V, MASK, is_causal=True, scale=0.3)
add(attend, attention, Q, K, V, waves(4, 3, 5), enable_gqa=True)
add(
    attend,
    np.array(
        [
            *[0.0, 0.8912073601, 0.8084964038, -0.0967501612, -0.2390428868, -0.1201076915, 0.0576157488],
            *[0.2544895191, 0.1732551688, 0.0, 0.8912073601, 0.8084964038, -0.0618356315, 0.1688340127],
            *[0.2150005381, -0.0484098364, -0.0163620711, 0.0335662924, -0.7117853424, -0.9488444979],
            *[-0.1489990258, 0.2556950232, 0.2155891701, -0.0601142004, 0.2226016676, 0.2335608279],
            *[-0.0107170964, -0.7117853424, -0.9488444979, -0.1489990258, -0.3471136008, -0.5099352768],
            *[-0.1154957267, -0.2614363561, -0.3092087866, -0.0190754565],
        ]
    ).reshape(1, 4, 3, 3),
    Q,
    K,
    V,
    is_causal=True,
    enable_gqa=True,
    rtol=1e-8,
    atol=1e-9,
)  # torch.nn.functional.scaled_dot_product_attention

# --------------------------------------------------------------------------------------- resizing

PICTURE = normal(2, 5, 6, 3)
for method, theirs in (("bilinear", "linear"), ("bicubic", "cubic"), ("lanczos3", "lanczos3")):
    for shape, antialias in itertools.product([(8, 9), (3, 4), (5, 2)], [False, True]):
        add(
            sg.resize,
            lambda x, size, *_, theirs=theirs, antialias=antialias: np.array(
                jax.image.resize(x, (x.shape[0], *size, x.shape[3]), theirs, antialias=antialias)
            ),
            PICTURE,
            shape,
            method,
            antialias=antialias,
            rtol=1e-6,
            atol=1e-6,  # JAX computes its weights in float32.
        )
add(
    sg.resize,
    lambda x, *_: np.array(jax.image.resize(x, (5, 9, 3), "lanczos5")),
    PICTURE[0],
    (5, 9),
    "lanczos5",
    rtol=1e-6,
    atol=1e-6,
)
add(
    sg.resize,
    lambda x, s, _: np.array(jax.image.resize(x, (2, 3, 11, 3), "nearest")),
    PICTURE,
    (3, 11),
    "nearest",
)
add(sg.resize, lambda x, *_: x.reshape(2, 5, 3, 2, 3).mean(3), PICTURE, (5, 3), "area")
add(
    sg.resize,
    lambda x, *_: np.array(jax.image.resize(x, (2, 10, 12, 3), "linear")),
    PICTURE,
    (10, 40),
    preserve_aspect_ratio=True,
    rtol=1e-6,
    atol=1e-6,
)
# Computed by tf.image.resize(..., antialias=True) of waves(1, 3, 4, 1, k=0.8) to (2, 3).
for method, expected in {
    "nearest": [0.0, 0.999574, 0.675463, 0.116549, 0.989358, 0.584917],
    "bilinear": [0.034041, 0.207859, 0.205159, 0.09934, 0.228514, 0.16363],
    "bicubic": [0.009059, 0.18813, 0.187, 0.086055, 0.211915, 0.134791],
    "area": [0.041899, 0.280149, 0.263497, 0.112892, 0.302181, 0.216521],
    "lanczos3": [-0.009258, 0.140105, 0.147498, 0.073566, 0.165919, 0.090145],
    "gaussian": [0.045512, 0.197406, 0.203611, 0.100913, 0.214343, 0.169584],
}.items():
    picture = waves(1, 3, 4, 1, k=0.8)
    found = np.reshape(expected, (1, 2, 3, 1))
    add(sg.resize, found, picture, (2, 3), method, antialias=True, rtol=1e-5, atol=1e-6)


def blocks(x: Any, b: int) -> Any:
    n, h, w, c = x.shape
    y = np.empty((n, h // b, w // b, b * b * c))
    for i, j in np.ndindex(h // b, w // b):
        y[:, i, j] = x[:, i * b : (i + 1) * b, j * b : (j + 1) * b].reshape(n, -1)
    return y


CHESS = normal(2, 4, 6, 3)
add(sg.space_to_depth, blocks, CHESS, 2)
add(
    sg.space_to_depth,
    lambda x, b, _: np.moveaxis(blocks(np.moveaxis(x, 1, -1), b), -1, 1),
    np.moveaxis(CHESS, -1, 1).copy(),
    2,
    "NCHW",
)
add(sg.depth_to_space, lambda y, b: CHESS, blocks(CHESS, 2), 2)
add(
    sg.depth_to_space,
    lambda y, b, _: np.moveaxis(CHESS, -1, 1),
    np.moveaxis(blocks(CHESS, 2), -1, 1).copy(),
    2,
    "NCHW",
)

# ----------------------------------------------------------------------------------- rows and classes

TABLE, IDS = normal(5, 4), np.array([[4, 0, 4], [1, 2, 2]])
LENGTHS = np.linalg.norm(TABLE, axis=1, keepdims=True)
add(sg.embedding_lookup, lambda t, i: t[i], TABLE, IDS)
add(sg.embedding_lookup, lambda t, i, m: (t * np.minimum(1, m / LENGTHS))[i], TABLE, IDS, 1.5)
add(sg.embedding_lookup, lambda t, i, m: t[i], np.zeros((2, 3)), np.array([1]), 1.0)
# tf.nn.in_top_k of [0, 1, 2] among these gives True, True, False for k = 1.
SCORES = np.array([[0.5, 0.5, 0.1], [0.1, 0.2, 0.2], [np.inf, 1.0, np.nan]])
add(sg.in_top_k, np.array([True, True, False]), np.array([0, 1, 2]), SCORES, 1)
add(sg.in_top_k, np.array([False, False, True]), np.array([3, -1, 1]), SCORES[[0, 1, 0]], 2)

# ------------------------------------------------------------------------------------------ recurrent

INPUTS = 0.5 * waves(2, 4, 3, k=0.7)


def torch_weights(gates: int) -> tuple[Any, Any, Any, Any]:
    """weight_ih, weight_hh, bias_ih, bias_hh of a layer of two units."""
    n = 2 * gates
    shapes = ((n, 3), (n, 2), (n,), (n,))
    return tuple(0.5 * waves(*s, k=1 + 0.3 * i) for i, s in enumerate(shapes))  # type: ignore[return-value]


A, B, C, D = torch_weights(1)
RNN = np.array(
    [
        *[0.3448082155, 0.5475023945, 0.249148112, 0.728114357, 0.00061165, 0.798055618, 0.633553372],
        *[0.3257380588, -0.0161802168, 0.7741368148, 0.0264517269, 0.7636718196, 0.6254858218],
        *[0.3400639357, 0.1398257832, 0.793679268],
    ]
).reshape(2, 4, 2)
add(sg.simple_rnn, lambda *_: (RNN, RNN[:, -1]), INPUTS, A.T.copy(), B.T.copy(), C + D, rtol=1e-8, atol=1e-9)
add(
    sg.simple_rnn_cell,
    lambda *_: RNN[:, 0],
    INPUTS[:, 0].copy(),
    np.zeros((2, 2)),
    A.T.copy(),
    B.T.copy(),
    C + D,
    rtol=1e-8,
    atol=1e-9,
)
add(
    sg.simple_rnn_cell,
    lambda x, h, k, r, *_: np.maximum(x @ k + h @ r, 0),
    INPUTS[:, 0].copy(),
    INPUTS[:, 1, :2].copy(),
    A.T.copy(),
    B.T.copy(),
    None,
    "relu",
)
A, B, C, D = torch_weights(4)
LSTM = np.array(
    [
        *[0.1648785044, 0.0456008011, 0.0899174201, 0.2365244566, 0.0739094364, 0.2609068085, 0.1820875459],
        *[0.148035448, 0.0547089799, 0.211472048, 0.0645517402, 0.2473415037, 0.1785630708, 0.1421388559],
        *[0.088370239, 0.2837319572],
    ]
).reshape(2, 4, 2)
CELLS = np.array([[0.495288081, 0.3641840155], [0.3014431712, 0.6079881786]])
FOURS = (A.T.copy(), B.T.copy(), C + D)
add(
    sg.lstm_cell,
    lambda x, _, *w: lstm_loop(x[:, None], *w)[1:],
    INPUTS[:, 0].copy(),
    [np.zeros((2, 2)), np.zeros((2, 2))],
    *FOURS,
)


def lstm_loop(x: Any, kernel: Any, recurrent: Any, bias: Any) -> tuple[Any, Any, Any]:
    """An LSTM as it is written down."""
    h = c = np.zeros((x.shape[0], recurrent.shape[0]))
    ys = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ kernel + h @ recurrent + bias, 4, -1)
        c = scipy.special.expit(f) * c + scipy.special.expit(i) * np.tanh(g)
        h = scipy.special.expit(o) * np.tanh(c)
        ys.append(h)
    return np.stack(ys, 1), h, c


@each_engine
@values_of(sg.lstm)
def test_lstm(engine: str) -> None:
    """Against torch.nn.LSTM, also both ways over packed sequences, and keras.layers.LSTM."""
    ys, (h, c) = by(engine, sg.lstm, INPUTS, *FOURS)
    np.testing.assert_allclose(ys, LSTM, atol=1e-9)
    np.testing.assert_allclose(h, LSTM[:, -1], atol=1e-9)
    np.testing.assert_allclose(c, CELLS, atol=1e-9)
    ys, (h, c) = by(
        engine, lambda x, *w: sg.lstm(x, *w, time_major=True), INPUTS.swapaxes(0, 1).copy(), *FOURS
    )
    np.testing.assert_allclose(ys.swapaxes(0, 1), LSTM, atol=1e-9)

    lengths = np.array([4, 2])
    back = np.array(
        [
            *[-0.1942982072, 0.3533538209, -0.1836525389, 0.3962685427, -0.1522053565, 0.2533003658],
            *[-0.0986637329, 0.1228961576, -0.1410768473, 0.3469597206, -0.0936772642, 0.1664469359],
            *[0.0, 0.0, 0.0, 0.0],
        ]
    ).reshape(2, 4, 2)
    cells = [[-0.5395721865, 0.6738813236], [-0.3471656081, 0.6136686953]]
    shapes = ((8, 3), (8, 2), (8,), (8,))
    a, b, p, q = (0.5 * waves(*s, k=1 + 0.3 * i) for i, s in enumerate(shapes, 4))
    ys, (h, c) = by(
        engine,
        lambda x, n, *w: sg.lstm(x, *w, sequence_length=n, reverse=True),
        *(INPUTS, lengths, a.T.copy(), b.T.copy(), p + q),
    )
    np.testing.assert_allclose(ys, back, atol=1e-9)
    np.testing.assert_allclose(h, back[:, 0], atol=1e-9)
    np.testing.assert_allclose(c, cells, atol=1e-9)
    ys, (h, c) = by(engine, lambda x, n, *w: sg.lstm(x, *w, sequence_length=n), INPUTS, lengths, *FOURS)
    np.testing.assert_allclose(ys[1], [*LSTM[1, :2], [0, 0], [0, 0]], atol=1e-9)
    np.testing.assert_allclose(h, [LSTM[0, 3], LSTM[1, 1]], atol=1e-9)
    np.testing.assert_allclose(c, [CELLS[0], [0.1910819266, 0.6001146489]], atol=1e-9)

    keras = 0.5 * waves(3, 8), 0.5 * waves(2, 8, k=1.3), 0.5 * waves(8, k=1.6)
    _, (h, _) = by(engine, sg.lstm, INPUTS, *keras)
    np.testing.assert_allclose(h, [[0.0625194633, 0.1623143069], [-0.0283314998, 0.1316597488]], atol=1e-9)


A, B, C, D = torch_weights(3)
GRU = np.array(
    [
        *[0.2854415941, 0.138993182, 0.1378471522, 0.4498200659, 0.0712742203, 0.5577271578, 0.272864368],
        *[0.4070148264, 0.0762790782, 0.3830862078, 0.0665514486, 0.5189678675, 0.2741204083, 0.3894493141],
        *[0.1037187903, 0.574361631],
    ]
).reshape(2, 4, 2)  # torch.nn.GRU
THREES = (A.T.copy(), B.T.copy(), np.stack([C, D]))
near = {"rtol": 1e-8, "atol": 1e-9}
add(sg.gru, lambda *_: (GRU, GRU[:, -1]), INPUTS, *THREES, gates="rzn", **near)
add(
    sg.gru,
    lambda *_: (GRU[:, 2:], GRU[:, -1]),
    INPUTS[:, 2:].copy(),
    *THREES,
    GRU[:, 1].copy(),
    gates="rzn",
    **near,
)
add(sg.gru_cell, lambda *_: GRU[:, 1], INPUTS[:, 1].copy(), GRU[:, 0].copy(), *THREES, "rzn", **near)
KERAS = {
    True: [
        *[-0.1059554128, -0.0729983922, -0.1486238363, -0.0299357631, 0.0966884246, 0.4219605565],
        *[-0.0359033611, 0.2296938154, -0.1026694027, 0.0279507475, 0.1160675688, 0.4443597776],
        *[-0.0294718406, 0.2448398527, -0.091105583, 0.1971502156],
    ],
    False: [
        *[-0.0543835726, 0.0318163732, -0.081417019, 0.1164388835, 0.1333372083, 0.4496477147],
        *[0.0184337781, 0.3687837323, -0.0591241372, 0.0965071549, 0.1453515792, 0.4372246916],
        *[0.0196588142, 0.3579582666, -0.0310846068, 0.3566668842],
    ],
}  # keras.layers.GRU(2, reset_after=...)
for after, values in KERAS.items():
    expected = np.reshape(values, (2, 4, 2))
    bias = 0.5 * waves(*((2, 6) if after else (6,)), k=1.6)
    add(
        sg.gru,
        lambda *_, expected=expected: (expected, expected[:, -1]),
        INPUTS,
        0.5 * waves(3, 6),
        0.5 * waves(2, 6, k=1.3),
        bias,
        reset_after=after,
        **near,
    )

# ------------------------------------------------------------------------------------------------ CTC


def alignments(logits: Any, label: list[int], blank: int) -> float:
    """-log of the probabilities of all alignments, added up one by one. Logits are [time, classes]."""
    logs = scipy.special.log_softmax(logits, -1)
    total = -np.inf
    for path in itertools.product(range(logits.shape[1]), repeat=logits.shape[0]):
        merged = [c for c, _ in itertools.groupby(path)]
        if [c for c in merged if c != blank] == label:
            total = np.logaddexp(total, sum(logs[t, c] for t, c in enumerate(path)))
    return -total


LOGITS = 2 * waves(6, 3, 4, k=0.9)
LABELS, LABEL_LENGTHS, STEPS = (
    np.array([[1, 2, 2], [3, -1, 9], [1, 1, 1]]),
    np.array([3, 1, 3]),
    np.array([6, 4, 5]),
)
add(
    sg.ctc_loss,
    lambda y, x, n, t: np.array([alignments(x[: t[b], b], y[b, : n[b]].tolist(), 0) for b in range(3)]),
    LABELS,
    LOGITS,
    LABEL_LENGTHS,
    STEPS,
)
# torch.nn.functional.ctc_loss on the logarithms of the softmax.
add(
    sg.ctc_loss,
    np.array([6.003871272, 3.5351614286, 8.769119018]),
    LABELS,
    LOGITS,
    LABEL_LENGTHS,
    STEPS,
    rtol=1e-9,
)
# tf.nn.ctc_loss, in float32.
add(
    sg.ctc_loss,
    np.array([6.429787635803223, 3.983348846435547, 11.047061920166016]),
    np.array([[0, 1, 1], [2, 0, 0], [0, 0, 0]]),
    LOGITS,
    np.array([3, 1, 0]),
    STEPS,
    blank_index=-1,
    rtol=1e-6,
)
add(
    sg.ctc_loss,
    lambda y, x, *_: np.array([alignments(x[b], y[b].tolist(), 0) for b in range(3)]),
    np.array([[1, 2], [3, 3], [1, 0]])[:, :1].copy(),
    np.moveaxis(LOGITS, 1, 0).copy(),
    None,
    None,
    False,
)
add(sg.ctc_loss, np.array([np.inf]), np.array([[1, 1]]), LOGITS[:2, :1].copy(), np.array([2]), np.array([2]))


@CASES.compared
def test_functions_of_layers(engine: str, name: str) -> None:
    CASES.check(engine, name)


# ------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize(
    ("f", "arrays"),
    [
        (sg.scaled_dot_product_attention, (Q[:, :2], K, V, waves(3, 5))),
        (lambda q, k, v: attend(q, k, v, MASK, is_causal=True), (Q[:, :2], K, V)),
        (lambda q, k, v: attend(q, k, v, enable_gqa=True), (Q, K, V)),
        (lambda t: sg.embedding_lookup(t, IDS, 1.5), (TABLE,)),
        (lambda x: sg.resize(x, (3, 9), "bicubic", antialias=True), (PICTURE,)),
        (lambda x, *w: sg.simple_rnn(x, *w), (INPUTS, waves(3, 2), waves(2, 2), waves(2))),
        (lambda x, *w: sg.lstm(x, *w, sequence_length=[3, 2])[0], (INPUTS, *FOURS)),
        (lambda x, *w: sg.lstm(x, *w, reverse=True)[1], (INPUTS, *FOURS)),
        (lambda x, *w: sg.gru(x, *w, sequence_length=[4, 1]), (INPUTS, *THREES)),
        (lambda x, *w: sg.gru(x, *w, reset_after=False)[0], (INPUTS, THREES[0], THREES[1], THREES[2][0])),
        (lambda x: sg.ctc_loss(LABELS, x, LABEL_LENGTHS, STEPS), (LOGITS,)),
        (
            lambda x, f: sg.conv2d_transpose(x, f, None, 2, "SAME", "NCHW"),
            (normal(1, 2, 3, 3), normal(3, 3, 2, 2)),
        ),
        (lambda x, f: sg.depthwise_conv2d(x, f, 2, "SAME"), (normal(1, 5, 5, 2), normal(3, 3, 2, 2))),
        (lambda x, f: sg.conv3d(x, f, 1, "VALID"), (normal(1, 3, 3, 3, 2), normal(2, 2, 2, 2, 2))),
        (lambda x: sg.adaptive_avg_pool(x, (2, 4)), (PICTURE,)),
        (lambda x: sg.max_pool3d(x, 2, 1, "SAME", "NCDHW"), (normal(1, 2, 3, 3, 3),)),
    ],
)
def test_derivatives_of_both_orders(f: Callable[..., Any], arrays: Any) -> None:
    check_derivatives(f, arrays)


@each_engine
def test_nothing_comes_back_from_what_no_query_or_alignment_reaches(engine: str) -> None:
    blocked = np.zeros((3, 5), bool)
    slopes = by(
        engine, sg.grad(lambda q, k, v: sg.reduce_sum(attend(q, k, v, blocked)), (0, 1, 2)), Q[:, :2], K, V
    )
    for slope in slopes:
        np.testing.assert_array_equal(slope, 0)
    loss = lambda x: sg.reduce_sum(sg.ctc_loss([[1, 1], [1, 2]], x, [2, 2], [2, 2]))
    slope = by(engine, sg.grad(loss), LOGITS[:2, :2].copy())
    np.testing.assert_array_equal(slope[:, 0], 0)
    assert np.isfinite(slope).all()
    assert slope[:, 1].any()


def test_dropout_of_weights_needs_a_key_and_draws_by_it() -> None:
    key, ones = sg.random_key(0), np.ones((2, 400))
    found = attend(np.zeros((3, 2)), np.zeros((400, 2)), ones.T, dropout_p=0.5, dropout_key=key)
    assert 0.8 < found[0, 0] < 1.2
    assert len(np.unique(found[:, 0])) > 1
    with pytest.raises(sg.ArgumentError, match="dropout needs a random key"):
        attend(Q, Q, Q, dropout_p=0.5)


def test_symbolic_sizes() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, ["batch", "time", 3])
        n = sg.placeholder(sg.int64, ["batch"])
        ys, h = sg.gru(x, 0.5 * waves(3, 6), 0.5 * waves(2, 6, k=1.3), sequence_length=n)
        mixed = attend(x, x, x, is_causal=True)
        labels = sg.placeholder(sg.int32, ["batch", 2])
        loss = sg.ctc_loss(labels, sg.transpose(x, (1, 0, 2)), None, n)
    assert ys.shape == (*x.shape[:2], 2)
    assert mixed.shape == x.shape
    feeds = {x: INPUTS, n: [4, 2], labels: [[1, 2], [2, 1]]}
    with sg.Session(graph) as session:
        found = session.run([ys, h, mixed, loss], feeds)
    immediate = [
        *sg.gru(INPUTS, 0.5 * waves(3, 6), 0.5 * waves(2, 6, k=1.3), sequence_length=[4, 2]),
        attend(INPUTS, INPUTS, INPUTS, is_causal=True),
        sg.ctc_loss([[1, 2], [2, 1]], INPUTS.swapaxes(0, 1), None, [4, 2]),
    ]
    for a, b in zip(found, immediate, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@each_engine
def test_layers_are_batched(engine: str) -> None:
    xs = normal(5, 2, 4, 3, seed=9)
    found = by(engine, sg.vmap(lambda x: sg.lstm(x, *FOURS, sequence_length=[3, 4])[0]), xs)
    np.testing.assert_allclose(found, [sg.lstm(x, *FOURS, sequence_length=[3, 4])[0] for x in xs], rtol=1e-10)
    found = by(engine, sg.vmap(lambda q: attend(q, K, V, MASK)), normal(5, 1, 2, 3, 2))
    np.testing.assert_allclose(found, [attend(q, K, V, MASK) for q in normal(5, 1, 2, 3, 2)], rtol=1e-10)
    logits = normal(4, 6, 3, 4)
    loss = lambda x: sg.ctc_loss(LABELS, x, LABEL_LENGTHS, STEPS)
    np.testing.assert_allclose(by(engine, sg.vmap(loss), logits), [loss(x) for x in logits], rtol=1e-10)


# ---------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("enable_gqa=True", lambda: attend(Q, K, V)),
        ("no multiple", lambda: attend(Q[:, :3], K, V)),
        ("as many axes, at least two", lambda: attend(Q, K[0], V)),
        ("join the parts", lambda: sg.embedding_lookup([TABLE, TABLE], IDS)),
        ("takes a table", lambda: sg.embedding_lookup(1.0, IDS)),
        ("integers", lambda: sg.embedding_lookup(TABLE, TABLE)),
        ("takes targets .batch.", lambda: sg.in_top_k(IDS, TABLE, 1)),
        (
            "method='cubic' is unknown; take one of 'nearest', 'bilinear'",
            lambda: sg.resize(PICTURE, (2, 2), "cubic"),
        ),
        ("two numbers above 0", lambda: sg.resize(PICTURE, (2, 0))),
        ("takes .batch, height", lambda: sg.resize(PICTURE[0, 0], (2, 2))),
        ("2 does not divide 5, the height", lambda: sg.space_to_depth(PICTURE, 2)),
        ("4 does not divide 3, the number of channels", lambda: sg.depth_to_space(PICTURE, 2)),
        ("features that the kernel takes", lambda: sg.lstm(INPUTS[..., :2], *FOURS)),
        ("recurrent_kernel must be .units, 3 · units.", lambda: sg.gru(INPUTS, *FOURS)),
        ("takes .batch, time, features.", lambda: sg.lstm(INPUTS[0], *FOURS)),
        ("a pair .h, c.", lambda: sg.lstm(INPUTS, *FOURS, initial_state=INPUTS)),
        ("a state must be", lambda: sg.gru(INPUTS, *THREES, initial_state=INPUTS[:, 0])),
        ("gates='nrz' is unknown", lambda: sg.gru(INPUTS, *THREES, gates="nrz")),
        (
            "activation='gelu' is unknown",
            lambda: sg.simple_rnn(INPUTS, waves(3, 2), waves(2, 2), activation="gelu"),
        ),
        ("sequence_length must be integers .2.", lambda: sg.lstm(INPUTS, *FOURS, sequence_length=[1, 2, 3])),
        ("unique has no use", lambda: sg.ctc_loss(LABELS, LOGITS, LABEL_LENGTHS, STEPS, True, 1)),
        ("blank_index=4 is none of 4", lambda: sg.ctc_loss(LABELS, LOGITS, None, None, blank_index=4)),
        ("integers as labels", lambda: sg.ctc_loss(TABLE, LOGITS, None, None)),
        ("label_length must be .3.", lambda: sg.ctc_loss(LABELS, LOGITS, [1], None)),
    ],
)
def test_what_does_not_fit_is_refused(what: str, call: Callable[[], Any]) -> None:
    with pytest.raises(sg.StopgradError, match=what):
        call()
