"""LoRA: small trained matrices beside frozen weights.

A weight W of shape [m, n] gets a first matrix [m, rank] and a second one [rank, n]; what the model computes
with is W + alpha / rank · first @ second. The one on the side of what comes in begins random, the other zero.
Where W is a factor of matrix products alone, the product with each small matrix is added to that with W, so
that no gradient of W's own size is ever computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.errors import ArgumentError
from stopgrad.graph import Graph, Operation, Output
from stopgrad.onnx.training.choosing import patterns_of
from stopgrad.operands import Array, show_shape
from stopgrad.plain import real
from stopgrad.rewrite import Rule
from stopgrad.rewrite.engine import Copying


@dataclass(frozen=True)
class Lora:
    """Which weights get adapters, and of what size.

    Attributes:
        weights: patterns of names of parameters that are matrices.
        rank: of the adapters.
        alpha: adapters count alpha / rank; by default the rank, so that they count 1.
        seed: of the random beginnings.
    """

    weights: Sequence[str]
    rank: int = 8
    alpha: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(patterns_of(self.weights, "lora")))
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 1:
            raise ArgumentError(f"lora: the rank is a whole number from 1 on, not {self.rank!r}")
        if self.alpha is not None and not real(self.alpha) > 0:
            raise ArgumentError(f"lora: alpha is a number above 0, not {self.alpha!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ArgumentError(f"lora: the seed is a whole number from 0 on, not {self.seed!r}")

    @property
    def scale(self) -> float:
        """What the product of the adapters is multiplied by."""
        return (self.rank if self.alpha is None else self.alpha) / self.rank


def lora_of(given: Any) -> Lora | None:
    """Adapters as users say them: patterns, a dict of what :class:`Lora` takes, or a Lora."""
    if given is None or isinstance(given, Lora):
        return given
    if isinstance(given, Mapping):
        known = list(Lora.__dataclass_fields__)
        wrong = next((key for key in given if key not in known), None)
        if wrong is not None or "weights" not in given:
            said = f"no {wrong!r}" if wrong is not None else "no default for weights"
            raise ArgumentError(f"lora: there is {said}; it takes {', '.join(known)}")
        return Lora(**given)
    return Lora(given)


@dataclass(frozen=True)
class Adapter:
    """The small matrices of one weight.

    Attributes:
        weight: its name.
        first, second: the names of the matrices, by their order in the product.
        values: what they begin with.
        scale: what their product is multiplied by.
        factor: whether the weight is a factor of matrix products alone.
    """

    weight: str
    first: str
    second: str
    values: tuple[Array, Array]
    scale: float
    factor: bool

    @property
    def names(self) -> tuple[str, str]:
        return self.first, self.second

    def merged(self, weight: Any, first: Any, second: Any) -> Any:
        """The weight that stands for both, of outputs or arrays."""
        return weight + (first @ second) * self.scale


def adapters(
    lora: Lora, weights: Mapping[str, Output], operations: Sequence[Operation], taken: set[str]
) -> list[Adapter]:
    """The adapters of weights.

    Raises:
        ArgumentError: a weight is no matrix of floats, or the rank is larger than it.
    """
    made = []
    random = np.random.default_rng(lora.seed)
    ways = _ways(weights, operations)
    for name, w in weights.items():
        shape = w.op.value.array.shape
        if len(shape) != 2 or not w.dtype.is_floating:
            raise ArgumentError(
                f"lora: {name!r} is {w.dtype.name}{show_shape(shape)}, and adapters are of matrices of floats; "
                "choose others"
            )
        if lora.rank > min(shape):
            raise ArgumentError(
                f"lora: the rank {lora.rank} is larger than a side of {name!r} {show_shape(shape)}"
            )
        way = ways[w]
        ends = ("lora_B", "lora_A") if way == "transposed" else ("lora_A", "lora_B")
        names = [f"{name}.{end}" for end in ends]
        clash = next((one for one in names if one in taken), None)
        if clash is not None:
            raise ArgumentError(f"lora: the model has {clash!r} already; train those, or leave {name!r} out")
        shapes = ((shape[0], lora.rank), (lora.rank, shape[1]))
        entering = 1 if way == "transposed" else 0
        bound = 1 / np.sqrt(shape[entering])
        values = [np.zeros(s, w.dtype.numpy) for s in shapes]
        values[entering] = random.uniform(-bound, bound, shapes[entering]).astype(w.dtype.numpy)
        pair = (values[0], values[1])
        made.append(Adapter(name, names[0], names[1], pair, lora.scale, way != "mixed"))
    return made


def _ways(weights: Mapping[str, Output], operations: Sequence[Operation]) -> dict[Output, str]:
    """How each weight is used: as the second factor, ``straight`` or ``transposed``; or ``mixed``."""
    known: dict[Output, tuple[Output, bool]] = {w: (w, False) for w in weights.values()}
    found: dict[Output, set[str]] = {w: set() for w in weights.values()}
    for op in operations:
        for i, x in enumerate(op.inputs):
            if x not in known:
                continue
            w, turned = known[x]
            if op.type == "Transpose" and op.perm == (1, 0):
                known[op.outputs[0]] = w, not turned
            elif op.type == "MatMul" and i == 1:
                found[w].add("transposed" if turned != op.transpose_b else "straight")
            else:
                found[w].add("mixed")
    return {w: ways.pop() if len(ways) == 1 else "mixed" for w, ways in found.items()}


def adapting(
    made: Sequence[Adapter], weights: Mapping[str, Output], operations: Sequence[Operation]
) -> tuple[Rule, dict[str, Output]]:
    """The rule that adds adapters; and what their parameters are in the new graph, filled as it runs."""
    by_weight = {weights[one.weight]: one for one in made}
    turned: dict[Output, tuple[Output, bool]] = {w: (w, False) for w in by_weight}
    for op in operations:
        if op.type == "Transpose" and op.inputs[0] in turned and op.perm == (1, 0):
            w, way = turned[op.inputs[0]]
            turned[op.outputs[0]] = w, not way
    places: dict[str, Output] = {}

    def rule(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        y = op.outputs[0]
        if y in by_weight:
            one = by_weight[y]
            kept = copying.add(op.definition, inputs, values, op)
            # A weight stays as it is: it is frozen, and no gradient of it is made.
            kept = copying.add(sg.ops.StopGradient, kept, (), op)
            return kept if one.factor else _placed(copying, one, kept, places, one.merged)
        if op.type == "MatMul" and op.inputs[1] in turned:
            w, way = turned[op.inputs[1]]
            if by_weight[w].factor:
                plain = copying.add(op.definition, inputs, values, op)
                build = _beside(by_weight[w], op.transpose_a, way != op.transpose_b)
                return _placed(copying, by_weight[w], (*plain, inputs[0]), places, build)
        return None

    return rule, places


def _beside(one: Adapter, transpose_a: bool, transposed: bool) -> Callable[..., Any]:
    """What takes the place of a product with a weight: the sum of it and the product with the adapters."""

    def build(plain: Any, x: Any, first: Any, second: Any) -> Any:
        entering, leaving = (second, first) if transposed else (first, second)
        small = sg.matmul(x, entering, transpose_a=transpose_a, transpose_b=transposed)
        return plain + sg.matmul(small, leaving, transpose_b=transposed) * one.scale

    return build


def _placed(
    copying: Copying,
    one: Adapter,
    given: Sequence[Output],
    places: dict[str, Output],
    build: Callable[..., Any],
) -> list[Output]:
    """What is built of some tensors of the new graph and the two adapters of a weight, which are made once."""
    for name, value in zip(one.names, one.values, strict=True):
        if name not in places:
            with Graph().as_default():
                parameter = sg.parameter(value, name=_label(name))
            places[name] = copying.inline([parameter], {})[0]
    inner = [*given, *(places[name] for name in one.names)]
    with Graph().as_default():
        stands = [sg.placeholder(x.dtype, x.shape) for x in inner]
        result = build(*stands)
    return copying.inline([result], dict(zip(stands, inner, strict=True)))


def _label(name: str) -> str:
    """A name as operations may bear it."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_.-/") else "_" for c in name).strip("/_.-")
    return plain or "adapter"
