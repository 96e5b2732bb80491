"""Optimisers: one step of training as operations in the graph of a loss.

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

from stopgrad.train.optimizers.adaptive import (
    Adagrad as Adagrad,
    Adam as Adam,
    AdamW as AdamW,
    RMSprop as RMSprop,
)
from stopgrad.train.optimizers.descent import SGD as SGD, Lion as Lion
from stopgrad.train.optimizers.matrix_rules import Adafactor as Adafactor, Muon as Muon
from stopgrad.train.optimizers.optimizer_arguments import How as How
from stopgrad.train.optimizers.optimizer_functions import (
    adafactor as adafactor,
    adagrad as adagrad,
    adam as adam,
    adamw as adamw,
    lion as lion,
    muon as muon,
    rmsprop as rmsprop,
    sgd as sgd,
)
from stopgrad.train.optimizers.rules import Rule as Rule
from stopgrad.train.optimizers.schedules import (
    Schedule as Schedule,
    constant as constant,
    cosine as cosine,
    exponential as exponential,
    join as join,
    linear as linear,
    piecewise as piecewise,
    polynomial as polynomial,
    warmup as warmup,
)
from stopgrad.train.optimizers.update import Update as Update
