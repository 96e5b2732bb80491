"""The public names of TensorFlow's operations."""

from __future__ import annotations

import functools
import re

import tensorflow as tf

NAMES = 1024
"""The most names that are kept."""
_SPACES = ("", "math", "nn", "linalg", "image", "random", "signal", "strings", "sparse")


_FUNCTIONS = {"Mul": "tf.multiply", "Neg": "tf.negative", "Sub": "tf.subtract"}
"""Operations that functions of another name make."""


@functools.lru_cache(NAMES)
def spelled(kind: str) -> str:
    """How a user writes an operation: ``tf.stop_gradient`` for StopGradient; else as in ``tf.raw_ops``.

    Examples:
        >>> spelled("StopGradient"), spelled("ArgMax"), spelled("TopKV2")
        ('tf.stop_gradient', 'tf.argmax', 'tf.math.top_k')
    """
    if kind in _FUNCTIONS:
        return _FUNCTIONS[kind]
    plain = re.sub(r"V\d+$", "", kind)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain).lower()
    for space in _SPACES:
        home = getattr(tf, space) if space else tf
        for name in (snake, snake.replace("_", "")):
            if callable(getattr(home, name, None)):
                return ".".join(part for part in ("tf", space, name) if part)
    return f"tf.raw_ops.{kind}" if hasattr(tf.raw_ops, kind) else kind
