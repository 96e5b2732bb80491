"""What test_processes.py runs in each of several processes; every check prints how it went.

Each computes on all devices of the run, and the same on one device by itself, and compares.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import stopgrad as sg
from stopgrad.scale import distributed

CHECKS: dict[str, Callable[[], None]] = {}
HEARTBEAT = 20.0
"""Seconds."""

ALL = "--all" in sys.argv
DRAW = np.random.default_rng(0)
"""The same numbers in all processes."""


def check(f: Callable[[], None]) -> Callable[[], None]:
    """Decorator: run it."""
    CHECKS[f.__name__] = f
    return f


def is_last() -> bool:
    return sg.distributed.process_index() == sg.distributed.process_count() - 1


def drawn(*shape: int) -> Any:
    return DRAW.normal(size=shape).astype(np.float32) * 0.5


def part() -> Any:
    """What a process feeds: two rows for each of its devices."""
    return np.ones((2 * jax.local_device_count(), 2), np.float32)


def own(mesh: sg.Mesh, value: Any, axis: str = "data") -> Any:
    """The rows that this process feeds, of such as are divided along an axis of the mesh."""
    grid = mesh.native().devices
    along = list(mesh.axes).index(axis)
    me = sg.distributed.process_index()
    mine = sorted({place[along] for place in np.ndindex(grid.shape) if grid[place].process_index == me})
    rows = len(value) // grid.shape[along]
    return value[mine[0] * rows : (mine[-1] + 1) * rows]


def close(ours: Any, theirs: Any, what: str) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6, err_msg=what)


def meshes() -> dict[str, sg.Mesh]:
    """Data parallel, tensor parallel, both."""
    return {
        "data": sg.Mesh(data=-1, model=1),
        "model": sg.Mesh(data=1, model=-1),
        "both": sg.Mesh(data=-1, model=2),
    }


# ------------------------------------------------------------------------------------------- the same numbers


def gated(x: Any) -> Any:
    """Through gates of several kinds."""
    x = sg.clip_gradient(sg.scale_gradient(x, 0.5), -0.1, 0.1)
    return sg.straight_through(sg.round(x * 4.0) / 4.0, x) + 0.1 * sg.reverse_gradient(x)


def perceptron(x: Any) -> tuple[Any, list[Any]]:
    a = sg.parameter(drawn(16, 32), name="a", sharding=(None, "model"))
    b = sg.parameter(drawn(32), name="b", sharding=("model",))
    c = sg.parameter(drawn(32, 16), name="c", sharding=("model", None))
    hidden = gated(sg.gelu(x @ a + b))
    return hidden @ c - sg.stop_gradient(sg.reduce_max(x, axis=1, keepdims=True)), [a, b, c]


def attention(x: Any) -> tuple[Any, list[Any]]:
    """A block over rows of 16 numbers, as 4 tokens of 4 by 8 heads."""
    weights = [
        sg.parameter(drawn(4, 8, 4), name=name, sharding=(None, "model", None)) for name in ("q", "k", "v")
    ]
    out = sg.parameter(drawn(8, 4, 4), name="out", sharding=("model", None, None))
    tokens = sg.reshape(x, [-1, 4, 4])
    q, k, v = (sg.einsum("nti,ihj->nhtj", tokens, w) for w in weights)
    mixed = sg.softmax(q @ sg.transpose(k, [0, 1, 3, 2]) * 0.5, axis=-1) @ v
    mixed = sg.shard(mixed, ("data", "model", None, None))
    return sg.reshape(sg.einsum("nhtj,hji->nti", mixed, out), [-1, 16]), [*weights, out]


def trained(model: Callable[[Any], Any], optimizer: str) -> tuple[Any, ...]:
    """A graph that trains: the graph, what is fed, what is fetched and the parameters."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["batch", 16], name="x", sharding=("data", None))
        y = sg.placeholder(sg.float32, ["batch", 16], name="y", sharding=("data", None))
        found, parameters = model(x)
        loss = sg.reduce_mean(sg.square(found - y))
        gradients = sg.gradients(loss, parameters)
        step = getattr(sg.optimizers, optimizer)(loss, parameters, learning_rate=0.05)
    return graph, (x, y), {"loss": loss, "gradients": gradients, "found": found, "step": step.run}, parameters


def compare(model: Callable[[Any], Any], optimizer: str, names: Sequence[str]) -> None:
    graph, fed, fetches, parameters = trained(model, optimizer)
    batches = [(drawn(16, 16), drawn(16, 16)) for _ in range(3)]
    with sg.Session(graph, engine="xla") as alone:
        expected = [alone.run(fetches, dict(zip(fed, batch, strict=True))) for batch in batches]
        values = [alone.value(p) for p in parameters]
    for name, mesh in meshes().items():
        if name not in names and not ALL:
            continue
        with sg.Session(graph, engine="xla", mesh=mesh) as session:
            for batch, wanted in zip(batches, expected, strict=True):
                mine = {p: own(mesh, value) for p, value in zip(fed, batch, strict=True)}
                found = session.run(fetches, mine)
                assert isinstance(found["loss"], np.ndarray)
                close(found["loss"], wanted["loss"], f"{name}: loss")
                close(found["found"], wanted["found"], f"{name}: result")
                for p, g, h in zip(parameters, found["gradients"], wanted["gradients"], strict=True):
                    close(g, h, f"{name}: gradient of {p.op.name}")
            for p, value in zip(parameters, values, strict=True):
                close(
                    session.value(p), value, f"{name}: {p.op.name} after {len(batches)} steps of {optimizer}"
                )


@check
def perceptron_by_adamw() -> None:
    compare(perceptron, "adamw", ["data", "both"])


@check
def attention_by_sgd() -> None:
    compare(attention, "sgd", ["model"])


@check
def functions() -> None:
    weights, batch = drawn(16, 32), drawn(16, 16)

    def loss(params: Any, x: Any) -> Any:
        return sg.reduce_mean(sg.square(sg.tanh(x @ params["w"])))

    expected = sg.function(sg.value_and_grad(loss), engine="xla")({"w": weights}, batch)
    for name, mesh in meshes().items():
        if "model" in mesh.axes:
            shardings = {"params.w": (None, "model"), "x": ("data", None)}
            f = sg.function(sg.value_and_grad(loss), engine="xla", mesh=mesh, shardings=shardings)
            columns = own(mesh, weights.T, "model").T
            value, gradient = f({"w": columns}, own(mesh, batch))
            close(value, expected[0], f"{name}: value")
            close(gradient["w"], expected[1]["w"], f"{name}: gradient")


@check
def random_numbers_have_the_same_bits() -> None:
    graph = sg.Graph()
    with graph.as_default():
        key = sg.placeholder(sg.uint32, [2], name="key")
        x = sg.placeholder(sg.float32, [16, 8], name="x", sharding=("data", None))
        noise = sg.shard(sg.random_normal([16, 8], key), ("data", None))
        fetches = {"noise": noise, "bits": sg.random_bits([16], key), "sum": noise + x}
    feeds = {key: np.array([3, 4], np.uint32)}
    whole = drawn(16, 8)
    with sg.Session(graph, engine="xla") as alone:
        expected = alone.run(fetches, {**feeds, x: whole})
    for mesh in meshes().values():
        with sg.Session(graph, engine="xla", mesh=mesh) as session:
            found = session.run(fetches, {**feeds, x: own(mesh, whole)})
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


# ------------------------------------------------------------------------------------------ what is fed


@check
def a_part_of_the_wrong_size() -> None:
    mesh = sg.Mesh(data=-1)
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [16, 2], name="x", sharding=("data", None))
        y = sg.reduce_sum(x)
    rows = 16 // sg.distributed.process_count()
    with sg.Session(graph, engine="xla", mesh=mesh) as session:
        says = rf"was fed \[16, 2\] by this process, whose own part is to be \[{rows}, 2\]; with those"
        refused(sg.FeedError, says, session.run, y, {x: drawn(16, 2)})
        assert session.run(y, {x: np.ones((rows, 2), np.float32)}) == 32


@check
def sizes_that_differ() -> None:
    mesh = sg.Mesh(data=-1)
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["batch", 2], name="x", sharding=("data", None))
        y = sg.reduce_sum(x)
    fed = np.concatenate([part(), part()]) if is_last() else part()
    with sg.Session(graph, engine="xla", mesh=mesh) as session:
        differs(r"process 0 .*\n.*process \d", session.run, y, {x: fed})
        assert session.run(y, {x: part()}) == 4 * mesh.size


# ------------------------------------------------------------------------------------------ what differs


def refused(kind: type[Exception], says: str, call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(kind, match=says) as caught:
        call(*arguments)
    return str(caught.value)


def differs(says: str, call: Callable[..., Any], *arguments: Any) -> None:
    """All processes raise the same, at once."""
    began = time.monotonic()
    text = refused(sg.DistributedError, says, call, *arguments)
    assert "the processes differ in" in text, text
    assert time.monotonic() - began < HEARTBEAT
    distributed.agree("the message", [text.partition("\n  at ")[0]])


def built(constant: float = 2.0, first: float = 1.0, other: bool = False, rows: Any = "n") -> tuple[Any, ...]:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [rows, 2], name="x", sharding=("data", None))
        w = sg.parameter(np.full(2, first, np.float32), name="w")
        a, b = sg.exp(x), x * constant
        y = sg.reduce_sum((b - a if other else a - b) * w)
    return graph, x, y


@check
def graphs_that_differ() -> None:
    odd = is_last()
    mesh = sg.Mesh(data=-1)
    line = r"differ in compiling the graph, line \d+:\n.*"
    for says, how in (
        (rf"{line}\(\S+\): Const .*process_program.py:\d+.* 2\.0\n.* 3\.0\n", {"constant": 3.0}),
        (rf"{line} Sub .* of Exp:0, Mul:0\n.* of Mul:0, Exp:0\n", {"other": True}),
        (r"differ in the first values of parameters, line 1:\n.*w ", {"first": 5.0}),
    ):
        graph, x, y = built(**(how if odd else {}))
        with sg.Session(graph, engine="xla", mesh=mesh) as session:
            differs(says, session.run, y, {x: part()})
    graph, x, y = built()
    names = {"data": -1, "model": 1}
    other = sg.Mesh(**dict(reversed(names.items()))) if odd else sg.Mesh(**names)
    with sg.Session(graph, engine="xla", mesh=other) as session:
        differs(r"Mesh\(data=\d, model=1\).*\n.*Mesh\(model=1, data=\d\)", session.run, y, {x: part()})
    with sg.Session(graph, engine="xla", mesh=mesh) as session:  # And all goes on.
        session.run(y, {x: part()})


# ---------------------------------------------------------------------------- who does not come, who dies


@check
def a_process_that_does_not_run_the_step() -> None:
    graph, x, y = built(constant=7.0)
    distributed.agree("all are here", [])
    began = time.monotonic()
    distributed._RUN.timeout = 6.0  # Those who do come may be late on a busy machine.
    with sg.Session(graph, engine="xla", mesh=sg.Mesh(data=-1)) as session:
        if sg.distributed.process_index() == 1:
            time.sleep(9)
        says = rf"process 1 \(\S+\) of {sg.distributed.process_count()} did not come to .* within 6 s"
        refused(sg.DistributedError, says, session.run, y, {x: part()})
    assert time.monotonic() - began < 40
    distributed._RUN.timeout = 60.0


@check
def a_value_that_one_process_does_not_ask_for() -> None:
    graph = sg.Graph()
    with graph.as_default():
        w = sg.parameter(np.arange(16, dtype=np.float32), name="w", sharding=("data",))
        y = sg.reduce_sum(w)
    with sg.Session(graph, engine="xla", mesh=sg.Mesh(data=-1)) as session:
        assert session.run(y) == 120
        np.testing.assert_array_equal(session.value(w), np.arange(16))
        distributed.agree("all are here", [])
        distributed._RUN.timeout = 4.0
        if sg.distributed.process_index() == 0:
            time.sleep(7)
        said = refused(sg.DistributedError, r"process \d .* Session\.value", session.value, w)
        assert "did not come to Session.value within 4 s" in said or "did not wait any more" in said
        distributed._RUN.timeout = 60.0
        np.testing.assert_array_equal(session.run(w * 1.0), np.arange(16))


def killed_in_a_run() -> None:
    """One is killed between steps, while the others compute on."""
    graph, x, y = built(constant=9.0)
    with sg.Session(graph, engine="xla", mesh=sg.Mesh(data=-1)) as session:
        for i in range(100_000):
            session.run(y, {x: part()})
            if i == 20 and sg.distributed.process_index() == 1:
                print("time", time.time(), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    sg.distributed.initialize(timeout=60.0, heartbeat_timeout=HEARTBEAT)
    print("pid", os.getpid(), flush=True)
    for name in CHECKS:
        began = time.monotonic()
        try:
            CHECKS[name]()
        except Exception:
            print(json.dumps({"check": name, "failed": traceback.format_exc()}), flush=True)
        else:
            seconds = round(time.monotonic() - began, 2)
            print(json.dumps({"check": name, "seconds": seconds}), flush=True)
    killed_in_a_run()


if __name__ == "__main__":
    main()
