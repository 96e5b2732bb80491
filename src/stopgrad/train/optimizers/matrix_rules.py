"""Rules that treat a parameter as a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stopgrad.base.coercion import is_whole, real, whole
from stopgrad.base.errors import ArgumentError, DTypeError
from stopgrad.base.types import DType, DTypeLike, bfloat16, dtype_of
from stopgrad.graph.operands import NumpyArray, Tensor
from stopgrad.ops.elementwise.arithmetic import maximum, minimum
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.elementwise.powers import pow, rsqrt, sqrt
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.matrices import matrix_transpose
from stopgrad.ops.reductions.reduce import reduce_mean
from stopgrad.ops.shapes.reshape import reduce_sum
from stopgrad.train.optimizers.rules import Moment, Rate, Rule, arithmetic, at_least, numbers, zeros


@dataclass(frozen=True, eq=False)
class Adafactor(Rule):
    """The rule of :func:`stopgrad.optimizers.adafactor`."""

    learning_rate: Rate = 1e-2
    beta2_decay: Any = -0.8
    eps: Any = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0

    def check(self) -> None:
        if real(self.beta2_decay) > 0.0:
            raise ArgumentError(f"beta2_decay is a number up to 0, not {self.beta2_decay!r:.60}")
        at_least(self.d, "d", 1.0)
        if not isinstance(self.eps, (tuple, list)) or len(self.eps) != 2:
            raise ArgumentError(f"eps are two numbers, the first may be None; not {self.eps!r:.60}")
        if self.eps[0] is not None:
            at_least(self.eps[0], "eps[0]")
        at_least(self.eps[1], "eps[1]")

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        if len(shape) < 2 or 0 in shape:
            return {"v": zeros(shape, dtype)}
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return {"rows": np.zeros(rows, dtype.numpy), "columns": np.zeros(columns, dtype.numpy)}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        gradient, clock = at.gradient, at.clock
        size = max(math.prod(at.value.shape), 1)
        least = (
            float(np.finfo(dtype_of(at.value.dtype).numpy).eps) if self.eps[0] is None else real(self.eps[0])
        )
        new = at.scalar(("new", self.beta2_decay), lambda: pow(clock.count, real(self.beta2_decay)))
        rate = at.scalar(("slowing", 0), lambda: minimum(1.0 / sqrt(clock.count), clock.rate))
        length = maximum(_norm(at.value) / math.sqrt(size), real(self.eps[1])) * rate
        squares = gradient * gradient
        if "v" in at.state:
            square = _towards(at.state["v"], squares, new)
            state = {"v": square}
        else:
            rows = _towards(at.state["rows"], reduce_mean(squares, -1, keepdims=True), new)
            columns = _towards(at.state["columns"], reduce_mean(squares, -2, keepdims=True), new)
            state = {"rows": rows, "columns": columns}
            square = rows * columns / maximum(reduce_mean(rows, -2, keepdims=True), least)
        direction = rsqrt(maximum(square, least * least)) * gradient
        shorter = maximum(_norm(direction) / (math.sqrt(size) * self.d), 1.0)
        return at.decayed(self.weight_decay) - length / shorter * direction, state


def _norm(x: Tensor) -> Tensor:
    return sqrt(reduce_sum(x * x))


def _towards(old: Tensor, new: Tensor, part: Tensor) -> Tensor:
    return old + part * (new - old)


_ADJUSTMENTS: dict[str | None, Callable[[int, int], float]] = {
    None: lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "original": lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}
"""Factors of the learning rate, from the sizes of a matrix."""


@dataclass(frozen=True, eq=False)
class Muon(Rule):
    """The rule of :func:`stopgrad.optimizers.muon`."""

    learning_rate: Rate = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: Any = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str | None = None
    ns_dtype: DTypeLike = bfloat16

    def check(self) -> None:
        object.__setattr__(self, "ns_coefficients", numbers(self.ns_coefficients, "ns_coefficients", 3))
        object.__setattr__(self, "ns_dtype", dtype_of(self.ns_dtype))
        if not is_whole(self.ns_steps) or not 0 <= whole(self.ns_steps) < 100:
            raise ArgumentError(f"ns_steps is a whole number from 0 to 99, not {self.ns_steps!r:.60}")
        if not (self.adjust_lr_fn is None or isinstance(self.adjust_lr_fn, str)) or (
            self.adjust_lr_fn not in _ADJUSTMENTS
        ):
            raise ArgumentError(
                f"adjust_lr_fn is None, 'original' or 'match_rms_adamw', not {self.adjust_lr_fn!r:.60}"
            )
        if not dtype_of(self.ns_dtype).is_floating:
            raise DTypeError(f"ns_dtype is a floating-point dtype, not {self.ns_dtype}")

    def refusal(self, shape: tuple[int, ...]) -> str:
        if len(shape) == 2:
            return ""
        return "it is no matrix; give a rule for all others, such as others=sg.optimizers.AdamW()"

    def slots(self, shape: tuple[int, ...], dtype: DType) -> dict[str, NumpyArray]:
        return {"momentum": zeros(shape, dtype)}

    def step(self, at: Moment) -> tuple[Tensor, dict[str, Tensor]]:
        rows, columns = at.value.shape
        average = at.state["momentum"] + (1.0 - self.momentum) * (at.gradient - at.state["momentum"])
        direction = at.gradient + self.momentum * (average - at.gradient) if self.nesterov else average
        adjusted = _ADJUSTMENTS[self.adjust_lr_fn](rows, columns)
        rate = at.scalar(("adjusted", adjusted), lambda: at.clock.rate * adjusted)
        straight = cast(self._orthogonal(direction, rows > columns), at.value.dtype)
        return at.decayed(self.weight_decay) - rate * straight, {"momentum": average}

    def _orthogonal(self, matrix: Tensor, is_tall: bool) -> Tensor:
        """Approximately the nearest matrix whose singular values are 1, by the Newton-Schulz iteration."""
        a, b, c = self.ns_coefficients
        dtype = dtype_of(self.ns_dtype)
        wide = arithmetic(dtype)

        def rounded(x: Tensor) -> Tensor:
            """Round to the dtype, as PyTorch's kernels do after computing in float32 (addmm rounds once)."""
            return cast(cast(x, dtype), wide)

        x = rounded(matrix)
        x = matrix_transpose(x) if is_tall else x
        x = rounded(x / maximum(rounded(_norm(x)), self.eps))
        for _ in range(whole(self.ns_steps)):
            gram = rounded(matmul(x, x, transpose_b=True))
            polynomial = rounded(b * gram + c * matmul(gram, gram))
            x = rounded(a * x + matmul(polynomial, x))
        return matrix_transpose(x) if is_tall else x
