"""Every core operator of PyTorch's: values and gradients as PyTorch computes them, on its own samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_operators as operators

import stopgrad as sg
from stopgrad.interop.torch.importing.aten import ABSENT, TRANSLATIONS
from stopgrad.interop.torch.importing.translating import name_of

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def core_operators() -> set[str]:
    """The overloads that PyTorch marks as core, whether or not they have been used so far."""
    found = set()
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if space == "aten":
            operator = getattr(getattr(aten, name, None), overload or "default", None)
            if operator is not None and torch.Tag.core in operator.tags:
                found.add(str(operator))
    return found


def test_every_core_operator_has_a_translation_or_a_reason() -> None:
    core = core_operators()
    assert len(core) > 180
    assert core - set(TRANSLATIONS) == set(ABSENT)
    assert all(ABSENT.values())


# --------------------------------------------------------------------------------- by PyTorch's samples

DOUBLES = """
    _native_batch_norm_legit acos acosh addmm alias_copy amax amin any argmax argmin asin asinh atan
    atan2 atanh bmm cat cdist ceil clamp constant_pad_nd cos cosh cumsum diagonal div.floor_rounding erf
    exp expm1 fft.hfft2 fft.ifftshift flip floor fmod full gather ge grid_sampler_2d gt isclose isinf
    log log10 log2 log_softmax logical_or logical_xor logspace lt masked_scatter max.reduction_with_dim
    max_pool2d_with_indices_backward maximum min.reduction_with_dim minimum mm native_group_norm
    native_layer_norm ne neg nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
    nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.conv_transpose1d
    nn.functional.conv2d nn.functional.embedding nn.functional.gelu nn.functional.hardtanh
    nn.functional.leaky_relu nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.mish
    nn.functional.relu nn.functional.rms_norm nn.functional.elu
    nn.functional.scaled_dot_product_attention nn.functional.selu pow prod reciprocal remainder round
    scatter scatter_add scatter_reduce.amin scatter_reduce.mean sigmoid sign sin sinh slice_scatter
    softmax split_with_sizes stft take_along_dim tan topk trapezoid trunc var __getitem__ sort
    nanquantile nn.functional.multi_head_attention_forward _unsafe_masked_index_put_accumulate
    nn.functional.cosine_embedding_loss nn.functional.interpolate.bilinear nn.functional.embedding_bag
""".split()  # noqa: SIM905 - a list of names
TRUTHS = ("bitwise_xor", "bitwise_and", "bitwise_or", "any", "where", "sum")
WHOLE = (
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "prod",
    "div.trunc_rounding",
    "argmax",
    "bitwise_left_shift",
)
LARGEST = 2
"""So many samples of each operator are taken in the quick form."""


def _entries(names: Any, dtype: Any) -> Iterator[tuple[str, Any]]:
    wanted = set(names)
    for entry in operators.op_db:
        name = entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")
        if name in wanted and dtype in entry.supported_dtypes("cpu"):
            wanted.discard(name)
            yield name, entry
    assert not wanted, wanted


def _off(name: str, i: int, function: Any, tensors: list[Any], dtype: Any, order: int = 1) -> Iterator[str]:
    found = operators.compare(function, tensors, order=order)
    if found.refused:
        yield f"{name} {i}: {found.refused}"
    limit = operators.LIMIT.get(dtype, 1e-10)
    if max(found.value, found.gradient) > limit or found.second > 10 * limit:
        yield f"{name} {i}: value {found.value:.1e}, gradient {found.gradient:.1e}, second {found.second:.1e}"


@pytest.mark.parametrize(
    ("names", "dtype"),
    [(DOUBLES, torch.float64), (DOUBLES[::8], torch.float32), (TRUTHS, torch.bool), (WHOLE, torch.int64)],
    ids=["float64", "float32", "bool", "int64"],
)
def test_values_and_gradients_are_those_of_pytorch(names: Any, dtype: Any) -> None:
    off = []
    for name, entry in _entries(names, dtype):
        for i, (function, tensors) in enumerate(operators.samples(entry, dtype, LARGEST)):
            off += _off(name, i, function, tensors, dtype)
    assert not off, "\n".join(off)


@pytest.mark.parametrize(
    "name", ["sin", "mm", "nn.functional.gelu", "softmax", "nn.functional.layer_norm", "atan2", "var"]
)
def test_second_derivatives_are_those_of_pytorch(name: str) -> None:
    ((_, entry),) = _entries([name], torch.float64)
    smooth = 0
    for function, tensors in operators.samples(entry, torch.float64, LARGEST):
        found = operators.compare(function, tensors, order=2)
        smooth += found.smooth
        assert found.second < 1e-9
    assert smooth


# ------------------------------------------------------------------------------------- all of the samples

RANDOM = (
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "uniform"),
    *("randn", "randint", "rand_like", "randn_like", "randint_like", "svd_lowrank", "pca_lowrank"),
    *("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d"),
    *("nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu"),
    *("nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"),
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"),
)
"""What differs from run to run (attention for its samples with dropout), or was never written."""

OTHERWISE = {
    "item": "its result is no tensor",
    "as_strided_scatter": "PyTorch's gradient reaches what was overwritten",
    "cholesky_solve": "PyTorch's gradient has parts for the triangle that is not read",
    "linalg.eig": "eigenvectors may be scaled by any unit, and eigenvalues stand in another order",
    "linalg.eigh": "eigenvectors may be scaled by any unit",
    "linalg.eigvalsh": "the gradient goes to the triangle that is read; PyTorch spreads it over both",
    "nn.functional.hardsigmoid": "PyTorch's gradient takes 1/6 in single precision",
    "nn.functional.max_unpool1d": "several values for one place; the gradient goes to the one that remains",
    "nn.functional.max_unpool2d": "the same",
    "nn.functional.max_unpool3d": "the same",
    "linalg.svd": "singular vectors may be scaled by any unit",
    "svd": "the same",
}


def _is_random(name: str) -> bool:
    return any(name == one or name.startswith(one + ".") for one in RANDOM)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bool], ids=str)
def test_all_of_pytorchs_operators_agree_or_are_refused(dtype: Any) -> None:
    off, agreeing, refused = [], 0, 0
    for entry in operators.op_db:
        name = entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")
        if dtype not in entry.supported_dtypes("cpu") or _is_random(name) or name in OTHERWISE:
            continue
        for i, (function, tensors) in enumerate(operators.samples(entry, dtype, 6)):
            try:
                plain = [x.clone().contiguous() for x in tensors]
                operators.traced(function, plain)
                function(*plain)
            except Exception:  # PyTorch does not trace it: sparse tensors, shapes that depend on values.
                continue
            try:
                told = list(_off(name, i, function, tensors, dtype))
            except Exception as error:
                told = [f"{name} {i}: no value: {error!r:.200}"]
            refused += any("val" not in one for one in told)
            off += [one for one in told if "value" in one]
            agreeing += not told
    assert not off, "\n".join(off)
    assert agreeing > 3 * refused


# --------------------------------------------------------------------------------------- called directly


def _random(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _whole(*values: int) -> Any:
    return torch.tensor(values)


ALL = [True, True, True]
NORM = (torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))

DIRECT: list[tuple[str, Callable[..., Any], list[Any]]] = [
    (
        "_adaptive_avg_pool2d_backward.default",
        lambda g, x: aten._adaptive_avg_pool2d_backward(g, x),
        [_random(1, 2, 2, 3), _random(1, 2, 5, 7)],
    ),
    (
        "_embedding_bag.default",
        lambda w: aten._embedding_bag(w, _whole(1, 2, 0, 3), _whole(0, 3, 3), False, 0)[0],
        [_random(4, 3)],
    ),
    (
        "_embedding_bag.default",
        lambda w: aten._embedding_bag(w, _whole(1, 2, 0, 3), _whole(0, 3), False, 1, False, None, False, 2)[
            0
        ],
        [_random(4, 3)],
    ),
    (
        "_native_batch_norm_legit_no_training.default",
        lambda x, w, b: aten._native_batch_norm_legit_no_training(x, w, b, *NORM[::-1], 0.1, 1e-5)[0],
        [_random(4, 3, 2), _random(3), _random(3)],
    ),
    ("as_strided.default", lambda x: aten.as_strided(x, [2, 3], [1, 2], 1), [_random(10)]),
    (
        "avg_pool2d_backward.default",
        lambda g, x: aten.avg_pool2d_backward(g, x, [3, 2], [2, 2], [1, 1], True, True, None),
        [_random(1, 2, 4, 4), _random(1, 2, 6, 6)],
    ),
    ("bitwise_and.Scalar", lambda x: aten.bitwise_and.Scalar(x, 6), [_whole(1, 5, -3)]),
    ("bitwise_or.Scalar", lambda x: aten.bitwise_or.Scalar(x, 6), [_whole(1, 5, -3)]),
    ("bitwise_xor.Scalar", lambda x: aten.bitwise_xor.Scalar(x, 6), [_whole(1, 5, -3)]),
    (
        "col2im.default",
        lambda x: aten.col2im(x, [5, 6], [2, 3], [2, 1], [1, 0], [2, 1]),
        [_random(2, 12, 12)],
    ),
    (
        "convolution_backward.default",
        lambda g, x, w: aten.convolution_backward(
            g, x, w, [4], [2, 1], [1, 0], [1, 2], False, [0, 0], 2, ALL
        ),
        [_random(1, 4, 3, 2), _random(1, 4, 5, 6), _random(4, 2, 3, 3)],
    ),
    (
        "convolution_backward.default",
        lambda g, x, w: aten.convolution_backward(g, x, w, [4], [2], [1], [1], True, [1], 2, ALL),
        [_random(1, 4, 8), _random(1, 4, 4), _random(4, 2, 3)],
    ),
    ("div.Scalar_mode", lambda x: aten.div.Scalar_mode(x, 0.3, rounding_mode="floor"), [_random(5)]),
    (
        "embedding_dense_backward.default",
        lambda g: aten.embedding_dense_backward(g, _whole(1, 2, 1, 0), 4, 2, False),
        [_random(4, 3)],
    ),
    ("fill.Scalar", lambda x: aten.fill.Scalar(x, 2.5), [_random(2, 3)]),
    (
        "native_group_norm_backward.default",
        lambda g, x, w: aten.native_group_norm_backward(
            g, x, *aten.native_group_norm(x, w, None, 2, 4, 3, 2, 1e-5)[1:], w, 2, 4, 3, 2, ALL
        ),
        [_random(2, 4, 3), _random(2, 4, 3, seed=1), _random(4)],
    ),
    (
        "native_layer_norm_backward.default",
        lambda g, x, w, b: aten.native_layer_norm_backward(
            g, x, [3], *aten.native_layer_norm(x, [3], w, b, 1e-5)[1:], w, b, ALL
        ),
        [_random(2, 3), _random(2, 3, seed=1), _random(3), _random(3)],
    ),
    ("reflection_pad1d.default", lambda x: aten.reflection_pad1d(x, [2, 1]), [_random(1, 2, 4)]),
    ("reflection_pad2d.default", lambda x: aten.reflection_pad2d(x, [2, 1, 0, 3]), [_random(1, 2, 4, 4)]),
    (
        "reflection_pad3d.default",
        lambda x: aten.reflection_pad3d(x, [1, 1, 0, 1, 2, 0]),
        [_random(1, 2, 3, 3, 3)],
    ),
    ("replication_pad2d.default", lambda x: aten.replication_pad2d(x, [2, 1, 0, 3]), [_random(1, 2, 4, 4)]),
    ("replication_pad2d.default", lambda x: aten.replication_pad2d(x, [-1, 1, 2, -2]), [_random(1, 2, 4, 4)]),
    (
        "replication_pad3d.default",
        lambda x: aten.replication_pad3d(x, [1, 1, 0, 1, 2, 0]),
        [_random(1, 2, 3, 3, 3)],
    ),
    ("scatter.value", lambda x: aten.scatter.value(x, 1, _whole(2, 0)[None], 7.5), [_random(2, 3)]),
    ("select_scatter.default", lambda x, y: aten.select_scatter(x, y, 1, -1), [_random(2, 3), _random(2)]),
    ("squeeze.dim", lambda x: aten.squeeze.dim(x, 1) * aten.squeeze.dim(x, 0)[:, 0], [_random(2, 1)]),
    (
        "upsample_bilinear2d.default",
        lambda x: aten.upsample_bilinear2d.vec(x, None, False, [1.7, 0.6]),
        [_random(1, 2, 5, 4)],
    ),
    (
        "upsample_bicubic2d.default",
        lambda x: aten.upsample_bicubic2d.vec(x, [3, 9], False, None),
        [_random(1, 2, 5, 4)],
    ),
    (
        "upsample_bilinear2d.default",
        lambda x: aten.upsample_bilinear2d.vec(x, [3, 9], True, None),
        [_random(1, 2, 5, 4)],
    ),
    (
        "upsample_nearest2d.default",
        lambda x: aten.upsample_nearest2d.vec(x, None, [1.7, 0.6]),
        [_random(1, 2, 5, 4)],
    ),
    ("var.correction", lambda x: aten.var.dim(x, [1], False, True), [_random(2, 5)]),
    (
        "index_copy.default",
        lambda x, y: aten.index_copy(x, 1, _whole(3, 0), y),
        [_random(2, 5), _random(2, 2)],
    ),
    ("var.correction", lambda x: aten.var.correction(x, [1]), [_random(2, 5)]),
    ("_linalg_svd.default", lambda x: aten._linalg_svd(x)[1], [_random(2, 5)]),
    ("_linalg_svd.default", lambda x: aten._linalg_svd(x)[2].abs().detach(), [_random(2, 5)]),
    ("_pdist_forward.default", lambda x: aten._pdist_forward(x), [_random(1, 3)]),
    ("native_dropout.default", lambda x: aten.native_dropout(x, 1.0, True)[0], [_random(2, 3)]),
    (
        "grid_sampler_2d.default",
        lambda x, g: aten.grid_sampler_2d(x, g, 2, 2, False),
        [_random(1, 2, 4, 5), _random(1, 3, 3, 2)],
    ),
    (
        "index_put.default",
        lambda x, v: aten.index_put(x, [None, _whole(0, 2, 0), _whole(1, -1, 1)], v, True),
        [_random(2, 3, 4), _random(2, 3)],
    ),
    (
        "index_put.default",
        lambda x, v: aten.index_put(x, [_whole(0, 1), None, _whole(1, -1)], v),
        [_random(2, 3, 4), _random(2, 1)],
    ),
    (
        "index_put.default",
        lambda x: aten.index_put(x, [x > 0], torch.zeros((), dtype=x.dtype)),
        [_random(3, 4)],
    ),
]


def test_operators_that_no_sample_calls() -> None:
    off = []
    for name, function, tensors in DIRECT:
        found = operators.compare(function, tensors, decomposed=False)
        called = {name_of(node) for node in operators.traced(function, tensors, False).graph.nodes}
        if f"aten.{name}" not in called:
            off.append(f"{name}: not called, but {called}")
        if found.refused or max(found.value, found.gradient) > 1e-10:
            off.append(f"{name}: {found}")
    assert not off, "\n".join(off)


def _drawn(function: Callable[..., Any], *tensors: Any) -> Any:
    program = operators.traced(function, list(tensors))
    with sg.Graph().as_default() as graph:
        translator = operators.Translator(sg.random_key(3))
        xs = [sg.constant(operators.array_of(x, "x")) for x in tensors]
        y = translator.run(program, xs)
        assert not translator.refusals
        with sg.Session(graph, "numpy") as session:
            return session.run(y)


@pytest.mark.parametrize(
    ("function", "mean", "deviation"),
    [
        (lambda x: torch.rand(4000, dtype=torch.float64), 0.5, 12**-0.5),
        (lambda x: torch.randn(4000), 0.0, 1.0),
        (lambda x: aten.native_dropout(x, 0.25, True)[0], 1.0, 3**-0.5),
        (lambda x: torch.bernoulli(x * 0.3), 0.3, 0.21**0.5),
        (lambda x: torch.randint(2, 7, (4000,)), 4.0, 2**0.5),
        (lambda x: torch.randperm(4000), 1999.5, 4000 / 12**0.5),
    ],
)
def test_random_numbers_have_the_distribution(function: Any, mean: float, deviation: float) -> None:
    drawn = _drawn(function, torch.ones(4000))
    assert drawn.dtype == operators.array_of(function(torch.ones(4000)), "x").dtype
    assert abs(drawn.mean() - mean) < 5 * deviation / 4000**0.5
    assert abs(drawn.std() / deviation - 1.0) < 0.1
