"""``while_loop`` and ``fori_loop`` for lowerings, named as in JAX, as loops of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.engines.onnxruntime.nodes.node_writing import BOOL, INT64, Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Kind
from stopgrad.engines.onnxruntime.nodes.values import Operand, Value


class Loops:
    """What lowerings take from ``jax.lax``: ``while_loop`` and ``fori_loop`` over tuples of arrays."""

    def __init__(self, xp: Writing) -> None:
        self._xp = xp

    def while_loop(
        self, goes_on: Callable[[Any], Any], step: Callable[[Any], Any], start: Sequence[Operand]
    ) -> Any:
        """Calls *step* on the state while *goes_on* of it is true."""
        xp = self._xp
        state = [xp.value(x) for x in start]
        kinds = [(x.dtype, x.shape) for x in state]

        def body(n: Value, on: Value, *carry: Value) -> list[Any]:
            after = self._fitted(step(tuple(carry)), kinds)
            return [xp.value(goes_on(tuple(after)), BOOL), *after]

        first = xp.value(goes_on(tuple(state)), BOOL)
        loop = xp.body([(INT64, ()), (BOOL, ()), *kinds], body)
        return tuple(xp.write("Loop", [None, first, *state], kinds, body=loop))

    def fori_loop(
        self, low: int, high: int | Value, step: Callable[[Any, Any], Any], start: Sequence[Operand]
    ) -> Any:
        """Calls *step* with each number from *low* to *high*, which may be an array."""
        xp = self._xp
        alone = not isinstance(start, (tuple, list))
        state = [xp.value(x) for x in ((start,) if alone else start)]
        kinds = [(x.dtype, x.shape) for x in state]

        def body(n: Value, goes_on: Value, *carry: Value) -> list[Any]:
            after = step(n + low, carry[0] if alone else tuple(carry))
            return [goes_on, *self._fitted((after,) if alone else after, kinds)]

        count = xp.maximum(high - low, 0) if isinstance(high, Value) else np.array(max(high - low, 0))
        loop = xp.body([(INT64, ()), (BOOL, ()), *kinds], body)
        values = xp.write("Loop", [xp.value(count, INT64), None, *state], kinds, body=loop)
        return values[0] if alone else tuple(values)

    def _fitted(self, values: Sequence[Operand], kinds: Sequence[Kind]) -> list[Value]:
        """The results of a step, cast and broadcast to the types of the state."""
        xp = self._xp
        return [
            xp.broadcast_to(xp.value(x, dtype), shape)
            for x, (dtype, shape) in zip(values, kinds, strict=True)
        ]
