"""Losses in PyTorch that make a NaN or infinity, each with a right twin that makes none.

The line at fault has the comment ``# here``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

X = [0.0, 4.0]
Z = [0.0, 0.0, 0.0]
EYE = [[1.0, 0.0], [0.0, 1.0]]
APART = [[1.0, 0.0], [0.0, 2.0]]
NONE = [[0.0, 0.0], [0.0, 0.0]]


class Case(NamedTuple):
    """A loss that makes a NaN or infinity, and one that does not.

    Attributes:
        wrong, right: the losses.
        given: the numbers of their argument.
        where: where the wrong one makes it.
        pattern: which cure is told; None for none.
        fixed: the numbers for the right one, if they are others.
    """

    wrong: Callable[..., Any]
    right: Callable[..., Any]
    given: Any
    where: str
    pattern: str | None
    fixed: Any = None


def root(x: Any) -> Any:
    return torch.sqrt(x).sum()  # here


def root_right(x: Any) -> Any:
    return torch.sqrt(x + 1e-12).sum()


def norm_written(x: Any) -> Any:
    return (x * x).sum().sqrt()  # here


def norm(x: Any) -> Any:
    return torch.linalg.norm(x)


def choice(x: Any) -> Any:
    y = torch.sqrt(x)  # here
    return torch.where(x > 0, y, 0.0).sum()


def choice_right(x: Any) -> Any:
    safe = torch.where(x > 0, x, 1.0)
    return torch.where(x > 0, torch.sqrt(safe), 0.0).sum()


def filled(x: Any) -> Any:
    y = x.sqrt()  # here
    return y.masked_fill(x == 0, 0.0).sum()


def filled_right(x: Any) -> Any:
    return x.masked_fill(x == 0, 1.0).sqrt().masked_fill(x == 0, 0.0).sum()


def multiplied(x: Any) -> Any:
    y = torch.sqrt(x)  # here
    return (y * (x > 0)).sum()


def multiplied_right(x: Any) -> Any:
    return (torch.sqrt(x + 1.0) * (x > 0)).sum()


def logarithm(x: Any) -> Any:
    return torch.log(x).sum()  # here


def logarithm_right(x: Any) -> Any:
    return torch.log(x + 1e-12).sum()


def negative(x: Any) -> Any:
    return torch.log(x - 1.0).sum()  # here


def quotient(x: Any) -> Any:
    return (x / x.sum()).sum()  # here


def quotient_right(x: Any) -> Any:
    return (x / (x.sum() + 1e-6)).sum()


def softmax(x: Any) -> Any:
    e = torch.exp(x)  # here
    return (e / e.sum())[0]


def softmax_right(x: Any) -> Any:
    return torch.softmax(x, 0)[0]


def power(x: Any) -> Any:
    return (x**0.5).sum()  # here


def power_right(x: Any) -> Any:
    return ((x + 1e-12) ** 0.5).sum()


def reciprocal(x: Any) -> Any:
    return torch.reciprocal(x).sum()  # here


def reciprocal_right(x: Any) -> Any:
    return torch.reciprocal(x + 1e-3).sum()


def angle(x: Any) -> Any:
    return torch.acos(x).sum()  # here


def angle_right(x: Any) -> Any:
    return torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6)).sum()


def direction(x: Any) -> Any:
    return torch.atan2(x[0], x[1]) * torch.log(x[2])  # here


def direction_right(x: Any) -> Any:
    return torch.atan2(x[0], x[1])


def vectors(a: Any) -> Any:
    _, v = torch.linalg.eigh(a)  # here
    return (v[:, 0] ** 2 * torch.arange(2.0)).sum()


def eigenvalues(a: Any) -> Any:
    return (torch.linalg.eigvalsh(a) ** 2).sum()


def singular(a: Any) -> Any:
    u, _, _ = torch.linalg.svd(a)  # here
    return (u[:, 0] ** 2 * torch.arange(2.0)).sum()


def deviation(x: Any) -> Any:
    return x.var().sqrt()  # here


def deviation_right(x: Any) -> Any:
    return (x.var() + 1e-6).sqrt()


def of_one(x: Any) -> Any:
    return x[:1].std()  # here


def of_two(x: Any) -> Any:
    return x[:2].std()


def masked(x: Any) -> Any:
    return (0.0 * torch.log(x)).sum()  # here


def half(x: Any) -> Any:
    h = x.half() * 60000.0  # here
    return (h * 2.0).float().sum()


def half_right(x: Any) -> Any:
    return (x * 60000.0 * 2.0).sum()


def in_place(x: Any) -> Any:
    y = x * 1.0
    y.log_()  # here
    return y.sum()


def in_place_right(x: Any) -> Any:
    y = x * 1.0
    y.add_(1.0).log_()
    return y.sum()


def into_a_view(x: Any) -> Any:
    y = torch.ones(3) * x.sum()
    y[1:].div_(x[0])  # here
    return y.sum()


def into_a_view_right(x: Any) -> Any:
    y = torch.ones(3) * x.sum()
    y[1:].div_(x[1])
    return y.sum()


def written_over(x: Any) -> Any:
    y = torch.log(x.detach())
    y[0] = 0.0
    return (y * x).sum()


def repeated(x: Any) -> Any:
    y = x
    for _ in range(3):
        y = torch.exp(y)  # here
    return y.sum()


def repeated_right(x: Any) -> Any:
    y = x
    for _ in range(3):
        y = torch.tanh(y)
    return y.sum()


def batched(x: Any) -> Any:
    def one(t: Any) -> Any:
        return torch.log(t)  # here

    return torch.func.vmap(one)(x).sum()


def batched_right(x: Any) -> Any:
    return torch.func.vmap(lambda t: torch.log(t + 1.0))(x).sum()


def remembered(x: Any) -> Any:
    def block(y: Any) -> Any:
        return torch.sin(torch.sqrt(y))  # here

    return checkpoint(block, x, use_reentrant=False).sum()


def remembered_right(x: Any) -> Any:
    return checkpoint(lambda y: torch.sin(torch.sqrt(y + 1.0)), x, use_reentrant=False).sum()


def reentrant(x: Any) -> Any:
    def block(y: Any) -> Any:
        return torch.log(y) * 2.0  # here

    return checkpoint(block, x, use_reentrant=True).sum()


def reentrant_right(x: Any) -> Any:
    return checkpoint(lambda y: torch.log(y + 1.0), x, use_reentrant=True).sum()


class Ruled(torch.autograd.Function):
    """A square root with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sqrt()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] / ctx.saved_tensors[0]  # here


def ruled(x: Any) -> Any:
    return Ruled.apply(x).sum()  # type: ignore[no-untyped-call]


def ruled_right(x: Any) -> Any:
    return Ruled.apply(x + 1.0).sum()  # type: ignore[no-untyped-call]


def all_masked(x: Any) -> Any:
    scores = x.masked_fill(x < 1e9, float("-inf"))
    return torch.softmax(scores, 0)[0]  # here


def all_masked_right(x: Any) -> Any:
    scores = x.masked_fill(x == 0.0, float("-inf"))
    return (torch.softmax(scores, 0) * torch.arange(2.0)).sum()


def entropy(x: Any) -> Any:
    p = torch.softmax(x, 0)
    return -(p * torch.log(p)).sum()  # here


def entropy_right(x: Any) -> Any:
    return -(torch.softmax(x, 0) * torch.log_softmax(x, 0)).sum()


def cross_entropy(x: Any) -> Any:
    return torch.nn.functional.cross_entropy(x[None], torch.tensor([-100]))  # here


def cross_entropy_right(x: Any) -> Any:
    return torch.nn.functional.cross_entropy(x[None], torch.tensor([1]))


def nothing(x: Any) -> Any:
    return x[x > 1e9].mean()  # here


def nothing_right(x: Any) -> Any:
    return x[x > 1.0].mean()


def inverse_error(x: Any) -> Any:
    return torch.erfinv(x).sum()  # here


def inverse_error_right(x: Any) -> Any:
    return torch.erfinv(x.clamp(-0.999, 0.999)).sum()


def one_step(x: Any) -> Any:
    torch.sqrt(x).sum().backward()  # here


def one_step_right(x: Any) -> Any:
    torch.sqrt(x + 1.0).sum().backward()


ONES = [0.5, 1.0]
CASES: dict[str, Case] = {
    "root at 0": Case(root, root_right, X, "gradient", "gradient of a root at 0"),
    "norm written out": Case(norm_written, norm, Z, "gradient", "gradient of a root at 0"),
    "where and sqrt": Case(choice, choice_right, X, "gradient", "branch not taken"),
    "masked_fill and sqrt": Case(filled, filled_right, X, "gradient", "branch not taken"),
    "mask times sqrt": Case(multiplied, multiplied_right, X, "gradient", "0 times an infinity"),
    "log 0": Case(logarithm, logarithm_right, X, "forward", "logarithm of 0"),
    "log of a negative number": Case(
        negative, logarithm, X, "forward", "logarithm of a negative number", [2.0, 3.0]
    ),
    "0 / 0": Case(quotient, quotient_right, Z, "forward", "0 divided by 0"),
    "softmax written out": Case(softmax, softmax_right, [100.0, 1.0], "forward", "overflow of exp"),
    "power at 0": Case(power, power_right, X, "gradient", "gradient of a power at 0"),
    "reciprocal of 0": Case(reciprocal, reciprocal_right, X, "forward", "division by 0"),
    "acos at 1": Case(angle, angle_right, ONES, "gradient", "edge of the domain"),
    "0 times log 0": Case(direction, direction_right, Z, "forward", "logarithm of 0", [1.0, 2.0, 3.0]),
    "eigh, equal": Case(vectors, vectors, EYE, "gradient", "equal eigenvalues", APART),
    "eigh, values alone": Case(vectors, eigenvalues, EYE, "gradient", "equal eigenvalues"),
    "svd, equal": Case(singular, singular, EYE, "gradient", "equal eigenvalues", APART),
    "std of alike": Case(deviation, deviation_right, Z, "gradient", "gradient of a root at 0"),
    "std of one": Case(of_one, of_two, X, "forward", "standard deviation of one element"),
    "0 * inf": Case(masked, root_right, X, "forward", "logarithm of 0"),
    "float16": Case(half, half_right, X, "forward", "overflow of float16"),
    "in place": Case(in_place, in_place_right, X, "forward", "logarithm of 0"),
    "into a view": Case(into_a_view, into_a_view_right, X, "forward", "division by 0"),
    "written over": Case(logarithm, written_over, X, "forward", "logarithm of 0"),
    "loop": Case(repeated, repeated_right, X, "forward", "overflow of exp"),
    "vmap": Case(batched, batched_right, X, "forward", "logarithm of 0"),
    "checkpoint": Case(remembered, remembered_right, X, "gradient", "gradient of a root at 0"),
    "reentrant checkpoint": Case(reentrant, reentrant_right, X, "forward", "logarithm of 0"),
    "autograd.Function": Case(ruled, ruled_right, X, "gradient", "division by 0"),
    "all masked": Case(all_masked, all_masked_right, X, "forward", None),
    "p log p": Case(entropy, entropy_right, [0.0, 200.0], "forward", "logarithm of 0"),
    "no class left": Case(cross_entropy, cross_entropy_right, X, "forward", None),
    "mean of nothing": Case(nothing, nothing_right, X, "forward", "mean of nothing"),
    "erfinv at 1": Case(inverse_error, inverse_error_right, ONES, "forward", "edge of the domain"),
    "backward of its own": Case(one_step, one_step_right, X, "gradient", "gradient of a root at 0"),
}
