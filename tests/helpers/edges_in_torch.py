"""PyTorch's own gradients against those of graphs that are loaded from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import stopgrad as sg
import stopgrad.torch as sgt
from helpers.edges import LINE, MATRICES, PAIRS, PLAIN, VECTORS, Comparison, table, write

F: Any = torch.nn.functional
OF_ONE: dict[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "ceil": torch.ceil,
    "clamp": lambda x: x.clamp(-1.0, 1.0),
    "cos": torch.cos,
    "cosh": torch.cosh,
    "digamma": torch.digamma,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "frac": torch.frac,
    "lgamma": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "neg": torch.neg,
    "pow 0": lambda x: x**0.0,
    "pow 0.5": lambda x: x**0.5,
    "pow 2": lambda x: x**2.0,
    "pow 3": lambda x: x**3.0,
    "reciprocal": torch.reciprocal,
    "round": torch.round,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "sin": torch.sin,
    "sinc": torch.sinc,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
    "logit": torch.logit,
    "nan_to_num": torch.nan_to_num,
    "relu": F.relu,
    "relu6": F.relu6,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "mish": F.mish,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "clamp_max": lambda x: x.clamp_max(1.0),
    "i0": torch.i0,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
    "ndtri": torch.special.ndtri,
    "polygamma": lambda x: torch.polygamma(1, x),
    "sgn": torch.sgn,
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "where and sqrt": lambda x: torch.where(x > 0, torch.sqrt(x), 0.0),
}
"""Functions of one number, for each of the points of LINE."""
OF_TWO: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "atan2": torch.atan2,
    "div": torch.div,
    "copysign": torch.copysign,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "fmod": torch.fmod,
    "xlog1py": torch.special.xlog1py,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "pow": torch.pow,
    "remainder": torch.remainder,
    "sub": torch.sub,
    "xlogy": torch.xlogy,
    "where": lambda x, y: torch.where(x > y, x, y),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
}
"""Functions of two numbers, for each of the points of PAIRS, with respect to both."""
OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(0),
    "cummax": lambda x: x.cummax(0)[0],
    "cummin": lambda x: x.cummin(0)[0],
    "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: x.cumsum(0),
    "log_softmax": lambda x: x.log_softmax(0)[:1],
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "kthvalue": lambda x: x.kthvalue(2)[0],
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "pdist": lambda x: torch.pdist(x[:, None]),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "median": lambda x: x.median(),
    "norm": lambda x: torch.linalg.vector_norm(x),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, torch.inf),
    "normalize": lambda x: F.normalize(x, dim=0) * torch.arange(x.shape[0]),
    "prod": lambda x: x.prod(),
    "softmax": lambda x: x.softmax(0) * torch.arange(x.shape[0]),
    "sort": lambda x: x.sort(0)[0] * torch.arange(x.shape[0]),
    "std": lambda x: x.std(),
    "var": lambda x: x.var(),
    "topk": lambda x: x.topk(2)[0],
    "max_pool": lambda x: F.max_pool1d(x[None, None], 2, 1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[0],), eps=0.0) * torch.arange(x.shape[0]),
}
"""Functions of a vector, at each of VECTORS."""
OF_MATRICES: dict[str, Callable[..., Any]] = {
    "cholesky": torch.linalg.cholesky,
    "det": torch.linalg.det,
    "inv": torch.linalg.inv,
    "matrix_exp": torch.linalg.matrix_exp,
    "eigh values": lambda a: torch.linalg.eigh(a)[0] * torch.arange(3.0),
    "eigh vectors": lambda a: torch.linalg.eigh(a)[1] ** 2 * torch.arange(3.0),
    "svd values": lambda a: torch.linalg.svd(a)[1] * torch.arange(3.0),
    "svd vectors": lambda a: torch.linalg.svd(a)[0] ** 2 * torch.arange(3.0),
    "qr": lambda a: torch.linalg.qr(a)[1],
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "solve": lambda a: torch.linalg.solve(a, torch.ones(3)),
}
"""Functions of a symmetric matrix, at each of MATRICES."""


NO_ROW = {
    "what it makes has no gradient, or one of 0 everywhere": "all any argmax argmin bitwise_and "
    "bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor __lshift__ __rshift__ eq ge "
    "gt le lt ne floor_divide heaviside isfinite isinf isnan item _local_scalar_dense logical_and "
    "logical_not logical_or logical_xor nextafter signbit detach detach_copy",
    "it is the identity, or moves elements": "contiguous copy lift_fresh lift_fresh_copy resolve_conj "
    "resolve_neg to _to_copy col2im im2col scalar_tensor",
    "it is of complex numbers": "_conj _conj_physical angle complex conj_physical imag polar real "
    "view_as_complex view_as_complex_copy view_as_real view_as_real_copy linalg_eig",
    "it is linear in each operand": "addbmm addmm addmv addr baddbmm bmm convolution dot linalg_cross linear "
    "matmul mm mv vdot",
    "it is another name of one with a row": "clip rsub square true_divide log_softmax softmax "
    "var_mean cholesky ldexp",
    "it is made of ones with rows": "_cdist_forward _safe_softmax scaled_dot_product_attention "
    "_scaled_dot_product_flash_attention_for_cpu _native_batch_norm_legit "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_batch_norm "
    "native_group_norm cholesky_solve linalg_solve_triangular",
    "it is a gradient itself": "convolution_backward native_group_norm_backward native_layer_norm_backward",
    "PyTorch has no gradient of it by its first operand": "igamma igammac",
}
"""Operators of the numeric families that no row calls, by the reason."""


class _Called(TorchDispatchMode):
    """Notes the ATen operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._schema.name.partition("::")[2])
        return func(*args, **(kwargs or {}))


def called() -> set[str]:
    """The ATen operators that the rows call."""
    given = (OF_ONE, (LINE,)), (OF_TWO, PAIRS), (OF_SEVERAL, (PLAIN,)), (OF_MATRICES, (MATRICES["plain"],))
    with _Called() as seen:
        for rows, args in given:
            for f in rows.values():
                f(*map(torch.tensor, args))
    return seen.names


class _Summed(torch.nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *xs: Any) -> Any:
        return self.f(*xs).sum()


def comparisons() -> Iterator[tuple[str, Comparison]]:
    """All functions, with both gradients at their points; without what PyTorch itself refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, one in _all():
            if one is not None:
                yield name, one


def _all() -> Iterator[tuple[str, Comparison | None]]:
    for name, f in OF_ONE.items():
        yield name, compared(f, (LINE,), [f"{x:g}" for x in LINE])
    for name, f in OF_TWO.items():
        yield name, compared(f, PAIRS, [f"{x:g}, {y:g}" for x, y in zip(*PAIRS, strict=True)])
    for several, places in ((OF_SEVERAL, VECTORS), (OF_MATRICES, MATRICES)):
        for name, f in several.items():
            for point, x in places.items():
                yield name, compared(f, (x,), [point])


def compared(f: Callable[..., Any], args: tuple[Any, ...], points: list[str]) -> Comparison | None:
    """Both gradients of the sum of what a function returns; None if PyTorch computes none."""
    module = _Summed(f)
    tensors = [torch.tensor(x, requires_grad=True) for x in args]
    try:
        gradients = torch.autograd.grad(module(*tensors), tensors, allow_unused=True)
    except (RuntimeError, IndexError):
        return None
    theirs = _joined([None if g is None else g.detach().numpy(force=True) for g in gradients], args)
    which = tuple(range(len(args)))
    names = (
        points
        if len(points) == 1
        else [f"{p}, of {i}" if len(args) > 1 else p for i in which for p in points]
    )
    try:
        made = sg.grad(sgt.load(module, *tensors), list(which))(*args)
    except sg.StopgradError as error:
        return Comparison(names, theirs, None, type(error).__name__)
    return Comparison(names, theirs, _joined(made, args))


def _joined(gradients: Any, args: tuple[Any, ...]) -> Any:
    some = zip(gradients, args, strict=True)
    return np.concatenate([np.ravel(np.zeros_like(x) if g is None else np.asarray(g)) for g, x in some])


if __name__ == "__main__":
    write("PyTorch", table(comparisons()))
