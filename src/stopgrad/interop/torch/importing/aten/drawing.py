"""Random numbers. Each operator that draws has a key of its own, folded from the model's ``random_key``."""

from __future__ import annotations

from collections.abc import Sequence

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.torch.importing.aten.calling import Call, Table, table


def _uniform(call: Call, size: Sequence[Size], *_: object, **__: object) -> sg.Output:
    return sg.random_uniform(list(size), call.key(), dtype=call.dtype)


def _uniform_like(call: Call, x: sg.Output, low: float = 0.0, high: float = 1.0, **_: object) -> sg.Output:
    return sg.random_uniform(list(x.shape), call.key(), low, high, dtype=call.dtype)


def _normal(call: Call, size: Sequence[Size], *_: object, **__: object) -> sg.Output:
    return sg.random_normal(list(size), call.key(), dtype=call.dtype)


def _normal_like(
    call: Call, x: sg.Output, mean: float = 0.0, std: sg.Output | float = 1.0, **_: object
) -> sg.Output:
    return sg.random_normal(list(x.shape), call.key(), mean, std, dtype=call.dtype)


def _normal_from(call: Call, mean: sg.Output | float, std: sg.Output | float = 1.0, **_: object) -> sg.Output:
    drawn = sg.random_normal(list(call.shape), call.key(), dtype=call.dtype)
    spread = sg.multiply(drawn, brought(std, call.dtype))
    return sg.add(brought(mean, call.dtype), spread)


def _integers(call: Call, high: int, size: Sequence[Size], **_: object) -> sg.Output:
    return _drawn(call, 0, high, size)


def _integers_between(call: Call, low: int, high: int, size: Sequence[Size], **_: object) -> sg.Output:
    return _drawn(call, low, high, size)


def _integers_like(call: Call, x: sg.Output, *bounds: int, **_: object) -> sg.Output:
    low, high = (0, *bounds) if len(bounds) == 1 else bounds
    return _drawn(call, low, high, x.shape)


def _drawn(call: Call, low: int, high: int, size: Sequence[Size]) -> sg.Output:
    whole = call.dtype if call.dtype.is_integer else sg.int64
    return brought(sg.random_integers(list(size), call.key(), low, high, dtype=whole), call.dtype)


def _order(call: Call, n: Size, **_: object) -> sg.Output:
    return sg.cast(sg.random_permutation(sg.range(0, n, dtype=sg.int64), call.key()), call.dtype)


def _dropped(call: Call, x: sg.Output, p: float, train: bool | None = True) -> tuple[sg.Output, Tensor]:
    """Dropout: the kept elements divided by the probability to keep them, and the mask of those kept."""
    if not train:
        return x, sg.full(list(x.shape), True, sg.bool_)
    if p >= 1:
        return sg.multiply(x, brought(0, x.dtype)), sg.full(list(x.shape), False, sg.bool_)
    mask = sg.random_bernoulli(list(x.shape), call.key(), 1.0 - p)
    masked = sg.multiply(x, sg.cast(mask, x.dtype))
    return sg.multiply(masked, brought(1.0 / (1.0 - p), x.dtype)), mask


def _coins(call: Call, x: sg.Output, p: float | None = None, **_: object) -> sg.Output:
    """Bernoulli draws: 1 with the probability that a tensor or number gives, else 0."""
    chance = x if p is None else p
    drawn = sg.random_bernoulli(list(x.shape), call.key(), sg.stop_gradient(chance))
    return sg.cast(drawn, call.dtype)


def _exponential(call: Call, x: sg.Output, rate: float = 1.0, **_: object) -> sg.Output:
    return sg.random_exponential(list(x.shape), call.key(), rate, dtype=call.dtype)


def _categories(call: Call, x: sg.Output, count: int, replacement: bool = False, **_: object) -> Tensor:
    """Categories drawn by weight; without replacement, those with the largest logits plus Gumbel noise."""
    logits = sg.log(sg.stop_gradient(x))
    if replacement:
        return sg.random_categorical(logits, count, call.key(), sg.int64)
    noise = sg.random_gumbel(list(x.shape), call.key(), dtype=x.dtype)
    return sg.cast(sg.top_k(sg.add(logits, noise), count).indices, sg.int64)


DRAWING: Table = dict(
    table(
        {
            "rand": _uniform,
            "randn": _normal,
            "rand_like": lambda call, x, **_: _uniform_like(call, x),
            "randn_like": lambda call, x, **_: _normal_like(call, x),
            "uniform": _uniform_like,
            "normal_functional": _normal_like,
            "randint": _integers,
            "randint.low": _integers_between,
            "randint_like randint_like.low_dtype": _integers_like,
            "randperm": _order,
            "native_dropout": _dropped,
            "bernoulli.p": _coins,
            "exponential": _exponential,
            "multinomial": _categories,
            "log_normal": lambda call, x, mean=1.0, std=2.0, **_: sg.exp(_normal_like(call, x, mean, std)),
            "cauchy": lambda call, x, median=0.0, sigma=1.0, **_: sg.random_cauchy(
                list(x.shape), call.key(), median, sigma, dtype=call.dtype
            ),
            "normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor": _normal_from,
        }
    )
)
