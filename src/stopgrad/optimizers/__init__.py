"""Optimisers: one step of training as operations of the graph that a loss stands in.

Examples:
    >>> with sg.Graph().as_default() as graph:
    ...     x = sg.placeholder(sg.float32, ["batch", 2], name="x")
    ...     w = sg.parameter([[0.5], [-0.5]], name="w")
    ...     loss = sg.reduce_mean(sg.square(x @ w - 1.0))
    ...     update = sg.optimizers.adamw(loss, [w], learning_rate=0.1)
    >>> with sg.Session(graph) as session:
    ...     losses = [float(session.run([loss, update.run], {x: [[1.0, 2.0]]})[0]) for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
"""

from __future__ import annotations

from stopgrad.optimizers.adaptive import Adam as Adam, AdamW as AdamW
from stopgrad.optimizers.descent import SGD as SGD
from stopgrad.optimizers.functions import adam as adam, adamw as adamw, sgd as sgd
from stopgrad.optimizers.update import Update as Update
