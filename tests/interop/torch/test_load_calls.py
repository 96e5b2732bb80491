"""PyTorch's operators, called as they are: values and gradients as PyTorch computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_operators as operators
from torch.nn import functional

import stopgrad as sg
from stopgrad.interop.torch.importing.aten import ABSENT, TRANSLATIONS
from stopgrad.interop.torch.importing.exported_program import decompositions
from stopgrad.interop.torch.importing.translating import name_of

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
    core = core_operators() - set(map(str, decompositions()))
    assert len(core) > 140
    assert core - set(TRANSLATIONS) == set(ABSENT)
    assert all(ABSENT.values())


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
    ("scatter.value", lambda x: aten.scatter.value(x, 1, _whole(2, 0)[None], 7.5), [_random(2, 3)]),
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
    ("var.correction", lambda x: aten.var.dim(x, [1], False, True), [_random(2, 5)]),
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
        lambda x, v: aten.index_put(x, [x > 0], v),
        [_random(3, 4), _random(1)],
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


# ------------------------------------------------------------------------------------- families of operators


def _indexing(x: Any, y: Any, p: Any) -> Any:
    i, mask = torch.tensor([[2, 0, 1, 1], [0, 2, 2, 0]]), x > 0.2
    return [
        *(x[:, [0, -1]], x[torch.tensor([2, 0]), torch.tensor([1, -1])], x[1:, ::2], x[..., None, -1]),
        *(x.gather(0, i), x.take_along_dim(i, 0), x.index_select(1, i[0]), torch.take(x, i)),
        *(x.scatter(0, i, y[:2]), x.scatter(0, i, 1.5), x.scatter_add(0, i, y[:2])),
        *(x.scatter_reduce(0, i, y[:2], way) for way in ("sum", "mean", "amax", "amin", "prod")),
        x.scatter_reduce(0, i, y[:2], "mean", include_self=False),
        *(x.index_add(0, i[1, :2], y[:2], alpha=2.0), x.index_copy(0, i[0, :2], y[:2])),
        *(x.index_fill(0, i[0, :1], 0.5), x.index_put((i[0, :2],), y[:2]), x.index_put((mask,), p.sum())),
        *(x.masked_fill(mask, 2.0), x.masked_scatter(mask, y), torch.where(mask, x, y)),
        *(x.select_scatter(y[0], 0, -1), x.slice_scatter(y[:, :2], 1, 1, None, 2)),
        x.diagonal_scatter(y[:, 0]),
        *(functional.embedding(i, x), functional.embedding_bag(i, x, mode="sum")),
        *(torch.bucketize(x, p[0].sort()[0]), torch.searchsorted(p[0].sort()[0], y, right=True)),
    ]


def _elementwise(x: Any, y: Any, p: Any) -> Any:
    whole = torch.tensor([[7, -3, 5, 0], [1, 2, -8, 6], [4, 4, -1, 9]])
    return [
        *(torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.rsub(x, y), x + 2, 3 - x, 2 / p),
        *(torch.div(x, p, rounding_mode=way) for way in (None, "floor", "trunc")),
        *(torch.remainder(x, p), torch.fmod(x, 0.7), whole // 3, whole % 4, torch.fmod(whole, 4), whole**2),
        *(x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(y, p), x.maximum(y), x.minimum(y), x.abs(), x.sign()),
        *(
            p**2.5,
            2.0**x,
            p**y,
            x.square(),
            p.sqrt(),
            p.rsqrt(),
            p.log2(),
            p.log10(),
            torch.log1p(p),
            x.expm1(),
        ),
        *(
            torch.xlogy(x, p),
            torch.logit(p / 4, 1e-3),
            torch.lerp(x, y, 0.3),
            torch.addcmul(x, y, p, value=2),
        ),
        *(torch.addcdiv(x, y, p, value=-1), torch.hypot(x, y), torch.atan2(x, y), torch.copysign(x, y)),
        *(functional.elu(x, 0.7), functional.leaky_relu(x, 0.1), functional.softplus(x, 2.0, 1.0)),
        *(functional.hardtanh(x), functional.threshold(x, 0.1, 9.0), functional.gelu(x)),
        *(functional.gelu(x, approximate="tanh"), functional.celu(x, 0.6), functional.hardswish(x)),
        *(torch.special.polygamma(1, p), torch.lgamma(p), torch.erfinv(x / 4), torch.digamma(p)),
        *(
            torch.heaviside(x.detach(), p.detach()),
            torch.nan_to_num(x / 0.0, 1.0, 2.0, 3.0),
            torch.frac(x),
            x.round(decimals=1),
        ),
        *(x == y, x != 0, x < y, x <= 0, x > y, x >= 0, torch.isclose(x, x + 1e-9), torch.isnan(x)),
        *(whole & 6, whole | 1, whole ^ 3, ~whole, whole << 2, whole >> 1, whole.bool() & (x > 0)),
        *(torch.logical_xor(x, whole), torch.logical_not(x), whole.double() * x, x.float(), x.long()),
        *(torch.complex(x, y).abs(), torch.view_as_real(torch.complex(x, y)), torch.polar(p, x).real),
    ]


def _shapes(x: Any, y: Any, p: Any) -> Any:
    cube = torch.stack([x, y])
    return [
        *(x.reshape(2, 6), x.view(-1), x.t(), cube.permute(2, 0, 1), cube.transpose(0, -1), x.unsqueeze(1)),
        *(
            x[None].squeeze(),
            x[None, :, :1].squeeze(0, 2),
            cube.flatten(1),
            x.expand(2, 3, 4),
            x.repeat(2, 1, 2),
        ),
        *(*x.split(2, 1), *x.split([1, 2]), *x.chunk(3), *x.unbind(1), torch.cat([x, y], 1), x.roll(1, 0)),
        *(
            x.roll((1, -2), (0, 1)),
            x.flip(0, 1),
            x.rot90(),
            x.tril(-1),
            x.triu(1),
            x.diagonal(1),
            x[0].diag(),
        ),
        *(
            torch.diag_embed(x, 1),
            x.unfold(1, 2, 1),
            x.as_strided([2, 3], [1, 4], 1),
            x.repeat_interleave(2, 1),
        ),
        *(
            torch.full_like(x, 2),
            torch.zeros(2, 3) + 1,
            torch.eye(3, 4).double() * x,
        ),
        *(torch.arange(1, 7, 2), torch.linspace(0, 1, 5), torch.logspace(0, 2, 3), torch.ones_like(x)),
        *(functional.pad(x, (1, 2), value=3.0), functional.pad(x, (-1, 1, 0, 1))),
        *(functional.pad(cube, (1, 2), mode=mode) for mode in ("reflect", "replicate", "circular")),
        *(torch.movedim(cube, 0, -1), torch.meshgrid(x[0], y[:, 0], indexing="ij")[1], torch.tile(p, (2,))),
    ]


def _reductions(x: Any, y: Any, p: Any) -> Any:
    return [
        *(x.sum(), x.sum(1), x.sum((0, 1), keepdim=True), x.mean(), x.mean(-1, True), p.prod(), p.prod(1)),
        *(x.var(), x.var(1), x.var(1, correction=0), x.std(0), *torch.var_mean(x, 1), p.logsumexp(1)),
        *(x.amax(1), x.amin(0, True), x.max(), x.min(), *x.max(1), *x.min(0, True), x.argmax(), x.argmin(1)),
        *(
            (x > 0).any(),
            (x > 0).all(1),
            (x > 0).sum(1),
            x.cumsum(1),
            p.cumprod(0),
            *x.cummax(1),
            *x.cummin(0),
        ),
        *(x.logcumsumexp(1), *x.sort(1, descending=True), *x.topk(2, 1), *x.topk(1, 0, largest=False)),
        *(
            *x.median(1),
            *x.kthvalue(2, 1),
            x.quantile(0.3, 1),
            x.nanmean(1),
            x.norm(),
            x.norm(1, 1),
            x.norm(3, 0),
        ),
        *(torch.linalg.vector_norm(x, float("inf"), 1), torch.linalg.vector_norm(x, 0), x.softmax(1)),
        *(x.log_softmax(0), torch.cdist(x, y), torch.cdist(x, y, 1.0), functional.pdist(x), x.argsort(1)),
        *(torch.aminmax(x, dim=1).max, torch.count_nonzero(x > 0, 1), torch.trapezoid(x, dim=1)),
    ]


def _products(x: Any, y: Any, p: Any) -> Any:
    square = x @ y.t() + 3.0 * torch.eye(3, dtype=x.dtype)
    whole = square @ square.t()
    cube = torch.stack([square, whole])
    return [
        *(x @ y.t(), x.mv(y[0]), x[0].dot(y[0]), torch.outer(x[0], y[0]), cube @ cube, torch.bmm(cube, cube)),
        *(torch.addmm(square, x, y.t(), beta=0.5, alpha=2.0), torch.baddbmm(cube, cube, cube, alpha=0.3)),
        *(torch.addmv(x[:, 0], x, y[0], beta=2.0), torch.addr(x, x[:, 0], y[0], alpha=0.5), torch.kron(x, y)),
        *(
            torch.einsum("ij,kj->ik", x, y),
            functional.linear(x, y, x[:, 0]),
            torch.linalg.cross(square, whole),
        ),
        *(torch.linalg.inv(square), torch.linalg.det(square), torch.linalg.slogdet(whole)[1]),
        *(torch.linalg.solve(whole, x), torch.linalg.cholesky(whole), torch.linalg.eigvalsh(whole).sum()),
        torch.linalg.solve_triangular(square.triu(), x, upper=True),
        functional.scaled_dot_product_attention(x[None], y[None], p[None]),
    ]


def _windows(x: Any, y: Any, p: Any) -> Any:
    image, line = torch.stack([torch.kron(x, y), torch.kron(y, x)])[None], torch.kron(x, y)[None]
    filters = torch.kron(p, y).reshape(4, 2, 3, 6)
    theta = torch.stack([x[:2, :3], y[:2, :3]])
    return [
        functional.conv2d(image, filters, x[0], stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        functional.conv2d(image, filters[:2, :1], groups=2),
        functional.conv_transpose2d(image, filters[:2], stride=2, padding=1, output_padding=1),
        functional.conv1d(line, p.reshape(2, 1, 6).repeat(1, 9, 1)),
        functional.max_pool2d(image, 3, 2, 1),
        functional.max_pool2d(image, 2, ceil_mode=True, return_indices=True)[1],
        functional.avg_pool2d(image, (2, 3), 2, 1, count_include_pad=False),
        functional.avg_pool1d(line, 3, 2, 1),
        *(functional.adaptive_avg_pool2d(image, (4, 5)), functional.adaptive_max_pool2d(image, (3, 5))),
        *(
            functional.interpolate(image, scale_factor=1.5, mode=m)
            for m in ("nearest", "bilinear", "bicubic")
        ),
        functional.interpolate(image, size=(4, 20), mode="bilinear", align_corners=True),
        functional.interpolate(line, size=7, mode="linear"),
        *(functional.unfold(image, (2, 3), stride=2), functional.pixel_shuffle(filters[None, :, 0], 2)),
        functional.grid_sample(
            image.expand(2, 2, 9, 16),
            functional.affine_grid(theta, [2, 2, 4, 4], align_corners=False),
            align_corners=False,
        ),
        *(
            functional.layer_norm(x, [4], y[0], p[0]),
            functional.group_norm(image, 2),
            functional.rms_norm(x, [4]),
        ),
        functional.batch_norm(image, x[0, :2].detach(), p[0, :2].detach(), training=False),
        *(functional.local_response_norm(image, 2), functional.instance_norm(image)),
    ]


FAMILIES = [_indexing, _elementwise, _shapes, _reductions, _products, _windows]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__[1:])
def test_a_family_of_operators_in_one_program(family: Callable[..., Any]) -> None:
    operands = [_random(3, 4), _random(3, 4, seed=1), 0.5 + _random(3, 4, seed=2).abs()]
    leaves, _ = operators.differentiable(family, operands)
    assert all(x.requires_grad for x in leaves)
    found = operators.compare(family, operands)
    assert not found.refused
    assert max(found.value, found.gradient) < 1e-8


# ------------------------------------------------------------------------------------------------ drawn


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
