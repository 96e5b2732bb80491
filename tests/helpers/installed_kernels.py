"""Shows that an installed wheel brings kernels: a loss and its gradient, with no compiler to build any.

python installed_kernels.py
"""

from __future__ import annotations

import os

import numpy as np

import stopgrad as sg
from stopgrad.engines.xla.native.library import HERE, library


def main() -> None:
    """Compare a loss and its gradient with the closed form."""
    os.environ["CXX"] = "/no/compiler"
    x = np.random.default_rng(0).normal(size=(256, 1000)).astype(np.float32)
    labels = np.arange(256) % 1000
    with sg.Graph().as_default() as graph:
        logits = sg.placeholder(sg.float32, x.shape)
        loss = sg.reduce_mean(sg.sparse_softmax_cross_entropy_with_logits(labels, logits))
        (slope,) = sg.gradients(loss, [logits])
        value, gradient = sg.Session(graph, engine="xla").run([loss, slope], {logits: x})
    shifted = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    p = shifted / shifted.sum(1, keepdims=True)
    np.testing.assert_allclose(value, -np.log(p[np.arange(256), labels]).mean(), rtol=1e-5)
    np.testing.assert_allclose(gradient, (p - np.eye(1000)[labels]) / 256, rtol=1e-4, atol=1e-8)
    found = library()
    assert found.available, found.reason
    assert found.path is not None
    assert found.path.parent == HERE, found.path
    print(f"{sg.__version__} with {found.path.name}")


if __name__ == "__main__":
    main()
