"""Real graphs, whose texts and files the fuzzers mutate: operations, loops, branches, gradients, gates."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

import stopgrad as sg
from stopgrad.base.samples import Values
from stopgrad.base.types import dim
from stopgrad.graph.build import emit
from stopgrad.graph.op import REGISTRY
from stopgrad.ops.structural.foreign import foreign, foreign_stop
from stopgrad.ops.structural.foreign_programs import Step, written


def operations() -> list[sg.Graph]:
    """A graph for each sample of each operation."""
    graphs = []
    for definition in list(REGISTRY.values()):
        for sample in definition.samples:
            graph = sg.Graph()
            with graph.as_default():
                inputs = []
                for i, operand in enumerate(sample.operands):
                    shape = [dim(s) if isinstance(s, str) else s for s in operand.shape]
                    dtype = operand.dtype if isinstance(operand, Values) else str(operand.dtype)
                    inputs.append(sg.placeholder(dtype, shape, name=f"x{i}"))
                emit(
                    definition, tuple(inputs), tuple(sample.attributes[a] for a in definition.attributes), "y"
                )
            graphs.append(graph)
    return graphs


def network() -> None:
    x = sg.placeholder(sg.float32, [None, 4], name="x")
    w = sg.parameter(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), name="layer/w")
    b = sg.parameter(np.zeros(3, np.float32), name="layer/b")
    h = sg.relu(x @ w + b)[1:, ::2]
    with sg.no_gradient():
        target = sg.exp(h) * 2.0
        with sg.no_gradient():
            target = target + sg.constant(np.arange(40.0, dtype=np.float32))[0]
    loss = sg.reduce_mean(sg.square(h - sg.stop_gradient(target)))
    dw, db = sg.gradients(loss, [w, b])
    sg.assign(w, w - 0.1 * dw, name="step")
    sg.assign(b, b - db)


def loops() -> None:
    x = sg.placeholder(sg.float32, ["n"], name="x")
    w = sg.constant([0.5, float("nan"), -0.0], name="w")
    last, _ = sg.scan(lambda h, v: (h * 0.5 + v * w, sg.sin(h)), sg.constant(np.ones(3, np.float32)), x)
    (y,) = sg.while_loop(lambda v: sg.reduce_sum(v) < 9.0, lambda v: [v + 1.0], [last], maximum_iterations=4)
    z = sg.cond(sg.reduce_sum(x) > 0.0, lambda: y * 2.0, lambda: sg.stop_gradient(y))
    sg.gradients(sg.reduce_sum(z), [x])


def gates() -> None:
    x = sg.placeholder(sg.complex64, [2, 3], name="x")
    y = sg.probe(sg.reverse_gradient(sg.real(x), 0.5), "label")
    y = sg.prevent_gradient(y, "a \u2028 'reason' \\ of \U0001f600") + y
    sg.constant(np.full(2, complex(-0.0, float("inf"))), name="c")
    z = sg.straight_through(sg.round(y), y)
    c = sg.custom_gradient(lambda v: (v * 2.0, lambda g: sg.clip_gradient(g, -1.0, 1.0)))(z)
    sg.gradients(c, [z])


def pictures() -> None:
    x = sg.placeholder(sg.float32, ["batch", 8, 8, 2], name="x")
    k = sg.parameter(np.ones((3, 3, 2, 2), np.float32), name="k")
    y = sg.max_pool(sg.conv2d(x, k, 1, "SAME"), 2, 2, "VALID")
    parts = sg.split(sg.softmax(sg.reshape(y, [-1, 32])), 2, axis=1)
    sg.gradients(sg.concat(parts, 0), [x, k])


def programs() -> None:
    x, y = (sg.placeholder(sg.float32, [3], name=name) for name in "xy")
    kinds = (("float32", 3), ("int64", 2))
    first = Step("lax.two", kinds, ((1, "disconnected", "no"),), ((0,), (0,)), ((1, "why"),), code=b"abc")
    then = Step("gradient of lax.two", (("float32", 3),), towards=(0,), wants=(0,), code=b"\0\xff")
    z, _ = foreign([x, y], *first[:4], program=written([first, then, Step("", reason="no more")]))
    sg.gradients(sg.reduce_sum(foreign_stop(z, "Tensor.detach", "detach") + z), [x])


BUILDERS: list[Callable[[], None]] = [network, loops, gates, pictures, programs]


def graphs() -> list[sg.Graph]:
    """The larger graphs, and those of single operations."""
    made = []
    for build in BUILDERS:
        graph = sg.Graph()
        with graph.as_default():
            build()
        made.append(graph)
    return made + operations()


@cache
def texts() -> tuple[str, ...]:
    """What the graphs are as texts; large constants are not in them."""
    return tuple(graph.to_text() for graph in graphs())


@cache
def files() -> tuple[bytes, ...]:
    """Files of some graphs."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph"
        for graph in [*graphs()[: len(BUILDERS)], *operations()[::20]]:
            graph.save(path)
            found.append(path.read_bytes())
    return tuple(found)
