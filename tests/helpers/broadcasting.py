"""Losses as they are written in all frameworks: some that broadcast by mistake, and many that mean it.

``p`` is a prediction of shape ``[n, 1]`` and ``q`` the same of shape ``[n]``; ``c`` of shape ``[n]``, ``C``
of shape ``[n, n]`` and ``s`` of shape ``[n, 1]`` are trained, too. Data are ``y`` ``[n]``, ``Y`` ``[n, 1]``,
the weights ``u`` ``[n]`` and ``U`` ``[n, 1]``, ``X`` and ``M`` ``[n, n]``, the scalar ``k``, and ``k1``
of shape ``[1]``. All data are between 0 and 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WRONG = {
    "mean(sq(p - y))": "mean(sq(p - y[:, None]))",
    "mean(sq(y - p))": "mean(sq(y - q))",
    "mean(sq(q - Y))": "mean(sq(q - Y[:, 0]))",
    "mean(abs_(p - y))": "mean(abs_(p - Y))",
    "sum_(sq(p - y))": "sum_(sq(q - y))",
    "mean(sum_(sq(p - y), -1))": "mean(sum_(sq(p - Y), -1))",
    "sqrt(mean(sq(p - y)))": "sqrt(mean(sq(p - Y)))",
    "mean(where(abs_(p - y) < 1, 0.5 * sq(p - y), abs_(p - y) - 0.5))": (
        "mean(where(abs_(q - y) < 1, 0.5 * sq(q - y), abs_(q - y) - 0.5))"
    ),
    "mean(maximum(0.9 * (p - y), -0.1 * (p - y)))": "mean(maximum(0.9 * (p - Y), -0.1 * (p - Y)))",
    "mean(U * sq(p - y))": "mean(U * sq(p - Y))",
    "mean(u * sq(p - y))": "mean(u * sq(q - y))",
    "mean(sq((p - y) / k))": "mean(sq((p - Y) / k))",
    "mean(log(1 + sq(p - y)))": "mean(log(1 + sq(p - Y)))",
    "mean(relu(abs_(p - y) - 0.1))": "mean(relu(abs_(q - y) - 0.1))",
    "-mean(y * log(sigmoid(p)) + (1 - y) * log(1 - sigmoid(p)))": (
        "-mean(Y * log(sigmoid(p)) + (1 - Y) * log(1 - sigmoid(p)))"
    ),
    "-mean(log(sigmoid(p)) * y)": "-mean(log(sigmoid(q)) * y)",
    "mean(sq(p - y) / exp(s) + s)": "mean(sq(p - Y) / exp(s) + s)",
    "mean(sq(log(sigmoid(p)) - log(y)))": "mean(sq(log(sigmoid(p)) - log(Y)))",
    "mean(sq((X[:, :, None] @ C[:1, :1]) - y))": "mean(sq((X[:, :, None] @ C[:1, :1])[:, :, 0] - y))",
}
"""Losses by mistake, with the right ones."""

CORRECT = """
mean(sq(p - Y)) | mean(sq(q - y)) | mean(sq(p - y[:, None])) | mean(sq(q[:, None] - Y))
mean(sq(q - Y[:, 0])) | mean(sq(p - 1.0)) | mean(sq(p - k)) | mean(sq(p - k1)) | mean(sq(q - k1))
mean(abs_(p - mean(y))) | mean(sq(X - c)) | mean(sq(X @ C + c - X)) | mean(sq(p * c - X))
mean(sq(p + c - X)) | mean(sq(p + y - X)) | mean(sq(X - mean(X, 0)) * p) | mean(u * sq(q - y))
mean(U * sq(p - Y)) | mean(u[:, None] * sq(p - Y)) | sum_(sq(p - y[None, :]) * M) | mean(sq(p - y[None, :]))
mean(abs_(q[:, None] - y[None, :])) | mean(sq(q[:, None] - y)) | mean(exp(-sq(p - y)))
mean(exp(-sq(p - y[None, :]))) | sum_(exp(-abs_(p - y))) | mean(sq(p - q)) | mean(M * sq(p - q))
mean(exp(-sq(p - q))) - 2 * mean(exp(-sq(p - y))) + mean(exp(-sq(Y - y))) | mean(min_(sq(p - y), 1))
mean(min_(sq(p - y), 0)) + mean(min_(sq(p - y), 1)) | -mean(logsumexp(-sq(p - y), 1))
mean(relu(1 - M * (p - q))) | mean(M * sq(p - y)) | mean(where(M > 0.5, sq(p - y), 0 * M))
mean(softplus(q - p)) | mean(sq(sum_(sigmoid(p - y), 0) - y)) | -mean(log(sigmoid(p - y)))
mean(sq(sum_(sigmoid(p - y), 1) - y)) | mean(sq(relu(p - y) @ c[:, None] - Y))
mean(sq(sum_(relu(p - y) * c, 1) - y)) | mean(sq(sum_(abs_(p - y), 1) - y))
mean(sq(softmax(p * y, 1) @ X)) | mean(sq(p * y)) | mean(sq(p * y - X)) | mean(relu(p * y)) | mean(p * y)
-mean(sigmoid(p) * log(sigmoid(p))) | -mean(log(sigmoid(p)) * Y)
-mean(Y * log(sigmoid(p)) + (1 - Y) * log(1 - sigmoid(p))) | mean(u * sq(X @ C - X))
-mean(sum_(X * log(softmax(X @ C, 1)) * u, 1)) | mean(sq(X @ C - mean(X @ C, 0)))
mean(sq(X @ C - mean(X @ C, 1)[:, None])) | mean(sq(p - mean(p))) | mean(sq(p / sum_(abs_(p)) - Y))
mean(maximum(u * (Y - (p + c)), (u - 1) * (Y - (p + c)))) | mean(maximum(u * (Y - c), (u - 1) * (Y - c)))
mean(min_(sq(Y - c), 1)) | mean(sq(X * u - p)) | mean(sq(softmax(X @ C, 1) - M))
mean(sq(M * (X @ C) - M * X)) | mean(sq(p - Y)) + 0.1 * mean(sq(c)) | mean(sq(p - Y) * u[:, None])
mean(sq((X @ c[:, None])[:, 0] - y)) | mean(sq(X @ c[:, None] - Y)) | mean(softmax(-sq(p - y), 1) * M)
mean(sq(softmax(-abs_(p - y), 1) @ Y - Y)) | mean(sq(p[:, 0] - y)) | mean(sq(p - q[:, None]))
"""
"""Losses in which nothing is broadcast, or it is meant: masks, weights, kernels, pairs, written layers."""


def correct() -> list[str]:
    """The correct losses."""
    return [one.strip() for line in CORRECT.strip().splitlines() for one in line.split(" | ")]


SIZES = (1, 3, 6)


def values(n: int) -> dict[str, Any]:
    """Data and what is trained, as arrays."""
    random = np.random.default_rng(n)
    shapes = {
        **{"w": (3, 1), "c": (n,), "C": (n, n), "s": (n, 1), "x": (n, 3), "y": (n,), "Y": (n, 1), "u": (n,)},
        **{"U": (n, 1), "X": (n, n), "M": (n, n), "k": (), "k1": (1,)},
    }
    return {name: random.uniform(0.1, 0.9, shape).astype(np.float32) for name, shape in shapes.items()}


TRAINED = ("w", "c", "C", "s")


def loss(text: str, functions: dict[str, Any], given: dict[str, Any]) -> Any:
    """A loss of the tables."""
    p = given["x"] @ given["w"]
    return eval(text, {**functions, **given, "p": p, "q": p[:, 0]})
