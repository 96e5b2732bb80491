"""Every core operator of PyTorch's: values and gradients as PyTorch computes them, on its own samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_operators as operators
from torch_samples import op_db, samples

pytestmark = pytest.mark.slow

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
    for entry in op_db:
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
    [
        (DOUBLES[::3], torch.float64),
        pytest.param(DOUBLES, torch.float64, marks=pytest.mark.nightly),
        (DOUBLES[::8], torch.float32),
        (TRUTHS, torch.bool),
        (WHOLE, torch.int64),
    ],
    ids=["some of float64", "float64", "float32", "bool", "int64"],
)
def test_values_and_gradients_are_those_of_pytorch(names: Any, dtype: Any) -> None:
    off = []
    for name, entry in _entries(names, dtype):
        for i, (function, tensors) in enumerate(samples(entry, dtype, LARGEST)):
            off += _off(name, i, function, tensors, dtype)
    assert not off, "\n".join(off)


@pytest.mark.parametrize(
    "name", ["sin", "mm", "nn.functional.gelu", "softmax", "nn.functional.layer_norm", "atan2", "var"]
)
def test_second_derivatives_are_those_of_pytorch(name: str) -> None:
    ((_, entry),) = _entries([name], torch.float64)
    smooth = 0
    for function, tensors in samples(entry, torch.float64, LARGEST):
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
    for entry in op_db:
        name = entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")
        if dtype not in entry.supported_dtypes("cpu") or _is_random(name) or name in OTHERWISE:
            continue
        for i, (function, tensors) in enumerate(samples(entry, dtype, 6)):
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
