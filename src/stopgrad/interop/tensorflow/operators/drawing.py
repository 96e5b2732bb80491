"""Random numbers.

They come from keys of ours: one for each node, or from its seeds. The same key gives the same numbers on
every engine, which are not those of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.interop.tensorflow.operators.elementwise import wanted_dtype

Drawn = Callable[[Call, sg.Output, list[Size]], sg.Output]
"""Draws numbers for a node, with a key, of a shape."""


def _own_key(node: Call) -> sg.Output:
    return node.next_key(int(node.attribute("seed", 0)), int(node.attribute("seed2", 0)))


def _uniform(node: Call, key: sg.Output, shape: list[Size]) -> sg.Output:
    return sg.random_uniform(shape, key, dtype=wanted_dtype(node, "dtype", sg.float32))


def _normal(node: Call, key: sg.Output, shape: list[Size]) -> sg.Output:
    return sg.random_normal(shape, key, dtype=wanted_dtype(node, "dtype", sg.float32))


def _truncated(node: Call, key: sg.Output, shape: list[Size]) -> sg.Output:
    return sg.random_truncated_normal(shape, key, dtype=wanted_dtype(node, "dtype", sg.float32))


# ---------------------------------------------------------------------------------- with keys of the nodes


def _stateful(draw: Drawn) -> Rule:
    @knows(0)
    def rule(node: Call, shape: sg.Output | Known) -> sg.Output:
        return draw(node, _own_key(node), list(node.sizes(shape)))

    return rule


@knows(0)
def _integers(node: Call, shape: sg.Output | Known, low: sg.Output, high: sg.Output) -> sg.Output:
    return sg.random_integers(list(node.sizes(shape)), _own_key(node), low, high, low.dtype)


@knows(1)
def _multinomial(node: Call, logits: sg.Output, count: sg.Output | Known) -> sg.Output:
    drawn = sg.random_categorical(logits, node.sizes(count)[0], _own_key(node))
    return brought(drawn, wanted_dtype(node, "output_dtype", sg.int64))


@knows(0)
def _gamma(node: Call, shape: sg.Output | Known, alpha: sg.Output) -> sg.Output:
    """So many draws for each parameter."""
    return sg.random_gamma([*node.sizes(shape), *alpha.shape], _own_key(node), alpha)


def _shuffled(node: Call, x: sg.Output) -> sg.Output:
    return sg.random_shuffle(x, _own_key(node))


# --------------------------------------------------------------------------------------- with given seeds


def _key_from(seed: sg.Output) -> sg.Output:
    """A key from a seed of two integers."""
    return sg.random_fold_in(sg.random_fold_in(sg.random_key(0), _low(seed[0])), _low(seed[1]))


def _low(x: sg.Output) -> sg.Output:
    """The lowest 32 bits."""
    return sg.cast(x, sg.uint32)


def _key_at(key: sg.Output, counter: sg.Output) -> sg.Output:
    """A key from TensorFlow's own form: a number of 64 bits, and how far its generator has come."""
    number = sg.reshape(key, [])
    high = sg.right_shift(number, brought(32, number.dtype))
    folded = sg.random_fold_in(sg.random_fold_in(sg.random_key(0), _low(number)), _low(high))
    return sg.random_fold_in(folded, _low(counter[0]))


def _stateless(draw: Drawn) -> Rule:
    @knows(0)
    def rule(node: Call, shape: sg.Output | Known, seed: sg.Output) -> sg.Output:
        return draw(node, _key_from(seed), list(node.sizes(shape)))

    return rule


def _stateless_v2(draw: Drawn) -> Rule:
    @knows(0, 3)
    def rule(
        node: Call, shape: sg.Output | Known, key: sg.Output, counter: sg.Output, algorithm: object
    ) -> sg.Output:
        return draw(node, _key_at(key, counter), list(node.sizes(shape)))

    return rule


@knows(0)
def _stateless_integers(
    node: Call, shape: sg.Output | Known, seed: sg.Output, low: Any, high: Any
) -> sg.Output:
    return sg.random_integers(list(node.sizes(shape)), _key_from(seed), low, high, low.dtype)


@knows(0, 3)
def _stateless_integers_v2(
    node: Call,
    shape: sg.Output | Known,
    key: sg.Output,
    counter: sg.Output,
    algorithm: object,
    low: Any,
    high: Any,
) -> sg.Output:
    return sg.random_integers(list(node.sizes(shape)), _key_at(key, counter), low, high, low.dtype)


@knows(1)
def _stateless_multinomial(
    node: Call, logits: sg.Output, count: sg.Output | Known, seed: sg.Output
) -> sg.Output:
    drawn = sg.random_categorical(logits, node.sizes(count)[0], _key_from(seed))
    return brought(drawn, wanted_dtype(node, "output_dtype", sg.int64))


def _key_and_counter(node: Call, seed: sg.Output) -> tuple[sg.Output, Tensor]:
    """A number of 64 bits that stands for the seed, and a counter at its beginning."""
    low, high = (sg.cast(_low(seed[i]), sg.uint64) for i in (0, 1))
    number = sg.bitwise_xor(low, sg.left_shift(high, brought(32, sg.uint64)))
    return sg.reshape(number, [1]), sg.zeros([2], sg.uint64)


def _algorithm(node: Call) -> Known:
    return Known(np.asarray(1, np.int32))


DRAWING: Table = {
    "RandomUniform": _stateful(_uniform),
    "RandomStandardNormal": _stateful(_normal),
    "TruncatedNormal": _stateful(_truncated),
    "RandomUniformInt": _integers,
    "Multinomial": _multinomial,
    "RandomGamma": _gamma,
    "RandomShuffle": _shuffled,
    "StatelessRandomUniform": _stateless(_uniform),
    "StatelessRandomNormal": _stateless(_normal),
    "StatelessTruncatedNormal": _stateless(_truncated),
    "StatelessRandomUniformInt": _stateless_integers,
    "StatelessMultinomial": _stateless_multinomial,
    "StatelessRandomUniformV2": _stateless_v2(_uniform),
    "StatelessRandomNormalV2": _stateless_v2(_normal),
    "StatelessTruncatedNormalV2": _stateless_v2(_truncated),
    "StatelessRandomUniformIntV2": _stateless_integers_v2,
    "StatelessRandomGetKeyCounter": _key_and_counter,
    "StatelessRandomGetAlg": _algorithm,
}
