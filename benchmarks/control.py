"""Loops and their gradients, side by side with the same loops in JAX.

    python benchmarks/control.py [--rounds 20] [--groups run memory] [--quick] [--json out.json]

Run: compiled by XLA in both, on JAX's own arrays, calls alternating between the two; shown is each one's
fastest. Memory: what XLA says that the compiled program needs beside its arguments and results. Build: the
time to trace a scan and its gradient. Compile: the time from a Python function to the first result.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import stopgrad as sg
from stopgrad.base.structure import flatten
from stopgrad.engines.xla import XlaEngine
from stopgrad.graph.build import as_output
from stopgrad.graph.interpreter import program
from stopgrad.rewrite import prepare

WIDTH, BATCH, BLOCK = 64, 8, 50
Function = Callable[..., Any]


@dataclass
class Row:
    """One measurement; ``ratio`` is stopgrad's figure by JAX's."""

    group: str
    case: str
    unit: str
    stopgrad: float
    jax: float

    @property
    def ratio(self) -> float:
        return self.stopgrad / self.jax


@dataclass(frozen=True)
class Language:
    """The words in which both libraries say the same."""

    scan: Function
    fori: Function
    loop: Function
    stop: Function
    checkpoint: Function
    tanh: Function
    sigmoid: Function
    matmul: Function
    total: Function
    value_and_grad: Function
    stop_if: Function


OURS = Language(
    sg.scan,
    sg.fori_loop,
    sg.while_loop,
    sg.stop_gradient,
    sg.checkpoint,
    sg.tanh,
    sg.sigmoid,
    sg.matmul,
    sg.reduce_sum,
    sg.value_and_grad,
    lambda x, when: sg.stop_gradient(x, when=when),
)
THEIRS = Language(
    jax.lax.scan,
    jax.lax.fori_loop,
    lambda cond, body, state: jax.lax.while_loop(lambda s: cond(*s), lambda s: body(*s), state),
    jax.lax.stop_gradient,
    jax.checkpoint,
    jnp.tanh,
    jax.nn.sigmoid,
    jnp.matmul,
    jnp.sum,
    jax.value_and_grad,
    lambda x, when: jnp.where(when, jax.lax.stop_gradient(x), x),
)


# ------------------------------------------------------------------------------------------- programs


def cell(in_: Language, params: Any, h: Any, x: Any) -> Any:
    return in_.tanh(in_.matmul(h, params["w"]) + in_.matmul(x, params["u"]) + params["b"])


def rnn(in_: Language, params: Any, h: Any, xs: Any) -> Any:
    """A recurrent network; the loss takes every state."""

    def step(h: Any, x: Any) -> Any:
        h = cell(in_, params, h, x)
        return h, in_.total(h * h)

    return in_.total(in_.scan(step, h, xs)[1])


def truncated(in_: Language, params: Any, h: Any, xs: Any) -> Any:
    """The same in blocks, with a stop before each."""

    def block(h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = cell(in_, params, h, x)
            return h, in_.total(h * h)

        return in_.scan(step, in_.stop(h), xs)

    return in_.total(in_.scan(block, h, xs)[1])


def switched(in_: Language, params: Any, h: Any, xs: Any, at: Any) -> Any:
    """The same in one loop, with a stop that is closed at the steps in *at*."""

    def step(h: Any, part: Any) -> Any:
        x, closed = part
        h = cell(in_, params, in_.stop_if(h, closed), x)
        return h, in_.total(h * h)

    return in_.total(in_.scan(step, h, (xs, at))[1])


def blocks(in_: Language, recompute: bool, params: Any, h: Any, xs: Any) -> Any:
    """A long recurrent network in blocks that are kept, or computed again for the gradient."""

    def block(h: Any, xs: Any) -> Any:
        return in_.scan(lambda h, x: (cell(in_, params, h, x), None), h, xs)[0]

    inner = in_.checkpoint(block) if recompute else block
    h, _ = in_.scan(lambda h, xs: (inner(h, xs), None), h, xs)
    return in_.total(h * h)


def solver(in_: Language, a: Any, b: Any) -> Any:
    """The conjugate gradient method for a x = b, until the residual is small."""

    def going_on(i: Any, x: Any, r: Any, p: Any, norm: Any) -> Any:
        return norm > 1e-8

    def body(i: Any, x: Any, r: Any, p: Any, norm: Any) -> Any:
        ap = in_.matmul(a, p)
        alpha = norm / in_.total(p * ap)
        x, r = x + alpha * p, r - alpha * ap
        after = in_.total(r * r)
        return i + 1, x, r, r + (after / norm) * p, after

    start = (np.int32(0), b * 0.0, b, b, in_.total(b * b))
    return tuple(in_.loop(going_on, body, start))[:2]


def powers(in_: Language, steps: int, a: Any, v: Any) -> Any:
    """The largest eigenvalue by as many multiplications."""

    def body(_: Any, v: Any) -> Any:
        v = in_.matmul(a, v)
        return v / in_.total(v * v) ** 0.5

    v = in_.fori(0, steps, body, v)
    return in_.total(v * in_.matmul(a, v))


def gru(in_: Language, unrolled: bool, params: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        z = in_.sigmoid(in_.matmul(h, params["wz"]) + in_.matmul(x, params["uz"]))
        r = in_.sigmoid(in_.matmul(h, params["wr"]) + in_.matmul(x, params["ur"]))
        new = in_.tanh(in_.matmul(r * h, params["wh"]) + in_.matmul(x, params["uh"]))
        return (1.0 - z) * h + z * new, None

    if unrolled:
        for i in range(xs.shape[0]):
            h, _ = step(h, xs[i])
    else:
        h, _ = in_.scan(step, h, xs)
    return in_.total(h * h)


# ------------------------------------------------------------------------------------------- arguments


def normal(*shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(len(shape)).normal(size=shape) * scale).astype(np.float32)


def weights(*names: str) -> dict[str, Any]:
    return {name: normal(WIDTH, WIDTH, scale=WIDTH**-0.5) for name in names}


def recurrent(*steps: int) -> tuple[Any, ...]:
    params = {**weights("w", "u"), "b": normal(WIDTH, scale=0.1)}
    return params, normal(BATCH, WIDTH), normal(*steps, BATCH, WIDTH)


def positive_definite(size: int) -> Any:
    a = normal(size, size, scale=size**-0.5)
    return a @ a.T + np.eye(size, dtype=np.float32)


def native(arguments: Any) -> Any:
    return jax.tree.map(jnp.asarray, arguments)


# ------------------------------------------------------------------------------------------- measuring


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def check_alike(name: str, ours: Any, theirs: Any) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.allclose(a, b, rtol=1e-2, atol=1e-2 * float(np.max(np.abs(b))) + 1e-6), name


def fastest(name: str, ours: Function, theirs: Function, arguments: Any, rounds: int) -> tuple[float, float]:
    """Each one's fastest call in milliseconds, calls alternating."""
    given = native(arguments)
    check_alike(name, ours(*given), theirs(*given))
    times = []
    for i in range(rounds):
        pair = [lambda: ours(*given), lambda: theirs(*given)]
        order = (0, 1) if i % 2 else (1, 0)
        measured = {k: seconds(pair[k]) for k in order}
        times.append((measured[0], measured[1]))
    return 1e3 * min(t[0] for t in times), 1e3 * min(t[1] for t in times)


def both(f: Function, differentiate: bool) -> tuple[Function, Function]:
    """A program compiled by each library."""
    ours, theirs = functools.partial(f, OURS), functools.partial(f, THEIRS)
    if differentiate:
        ours, theirs = sg.value_and_grad(ours), jax.value_and_grad(theirs)
    return sg.function(ours, engine="xla"), jax.jit(theirs)


def running(steps: int, rounds: int) -> Iterator[Row]:
    side = max(int(steps**0.5), 2)
    block = min(BLOCK, steps // 2)
    params, h, xs = recurrent(steps)
    closed = np.arange(steps) % block == 0
    a = positive_definite(256)
    programs: list[tuple[str, Function, bool, tuple[Any, ...]]] = [
        (f"RNN of {steps} steps, value", rnn, False, (params, h, xs)),
        (f"RNN of {steps} steps, value and gradient", rnn, True, (params, h, xs)),
        (
            f"the same with stops every {block} steps, in blocks",
            truncated,
            True,
            (params, h, xs.reshape(-1, block, BATCH, WIDTH)),
        ),
        (f"the same with stops every {block} steps, switched", switched, True, (params, h, xs, closed)),
        ("conjugate gradients of 256, while_loop, value", solver, False, (a, normal(256))),
        (
            f"{steps} powers, fori_loop, value",
            lambda in_, *args: powers(in_, steps, *args),
            False,
            (a, normal(256)),
        ),
        (
            f"{steps} powers, fori_loop, value and gradient",
            lambda in_, *args: powers(in_, steps, *args),
            True,
            (a, normal(256)),
        ),
    ]
    for recompute in (False, True):
        name = (
            f"RNN of {side} × {side} steps, {'checkpoints' if recompute else 'all kept'}, value and gradient"
        )
        programs.append(
            (name, lambda in_, *args, r=recompute: blocks(in_, r, *args), True, recurrent(side, side))
        )
    for name, f, differentiate, arguments in programs:
        ours, theirs = fastest(name, *both(f, differentiate), arguments, rounds)
        yield Row("run", name, "ms", ours, theirs)


def temporary_bytes(compiled: Any) -> int:
    return int(compiled.memory_analysis().temp_size_in_bytes)


def our_temporary_bytes(f: Function, arguments: Any) -> int:
    """What XLA says of the computation that ``sg.function`` gives to it."""
    leaves, _ = flatten(arguments)
    with sg.Graph().as_default() as graph:
        inputs = [sg.placeholder(sg.float32, list(x.shape)) for x in leaves]
        placed = iter(inputs)
        results = flatten(f(*jax.tree.map(lambda _: next(placed), arguments)))[0]
        ready = prepare([as_output(y, graph) for y in results], inputs, {})
    run = program(ready.inputs, ready.outputs, XlaEngine())
    lowered = jax.jit(lambda *arrays: run(arrays)).lower(*[jnp.asarray(x) for x in leaves])
    return temporary_bytes(lowered.compile())


def memory(side: int) -> Iterator[Row]:
    arguments = recurrent(side, side)
    for recompute in (False, True):
        ours = sg.value_and_grad(lambda *args, r=recompute: blocks(OURS, r, *args))
        theirs = jax.jit(jax.value_and_grad(lambda *args, r=recompute: blocks(THEIRS, r, *args)))
        compiled = theirs.lower(*native(arguments)).compile()
        name = f"RNN of {side} × {side} steps, {'checkpoints' if recompute else 'all kept'}"
        yield Row(
            "memory",
            name,
            "MB",
            our_temporary_bytes(ours, arguments) / 1e6,
            temporary_bytes(compiled) / 1e6,
        )


def building(lengths: Sequence[int], rounds: int) -> Iterator[Row]:
    params, h, _ = recurrent(1)

    def ours(n: int) -> None:
        with sg.Graph().as_default():
            xs = sg.placeholder(sg.float32, [n, BATCH, WIDTH])
            given = {name: sg.placeholder(sg.float32, list(x.shape)) for name, x in params.items()}
            sg.gradients(rnn(OURS, given, h, xs), given)

    def theirs(n: int) -> None:
        xs = jax.ShapeDtypeStruct((n, BATCH, WIDTH), jnp.float32)
        # A new function each time: JAX remembers what it has traced.
        jax.make_jaxpr(jax.grad(lambda *args: rnn(THEIRS, *args)))(params, h, xs)

    for n in lengths:
        times = [(seconds(lambda: ours(n)), seconds(lambda: theirs(n))) for _ in range(rounds)]
        yield Row(
            "build",
            f"scan of {n} steps and its gradient",
            "ms",
            1e3 * min(t[0] for t in times),
            1e3 * min(t[1] for t in times),
        )


def compiling(steps: int) -> Iterator[Row]:
    params = weights("wz", "uz", "wr", "ur", "wh", "uh")
    arguments = native((params, normal(BATCH, WIDTH), normal(steps, BATCH, WIDTH)))
    for unrolled in (False, True):
        pair = both(lambda in_, *args, u=unrolled: gru(in_, u, *args), differentiate=True)
        ours, theirs = (seconds(lambda f=f: f(*arguments)) for f in pair)
        name = f"GRU of {steps} steps and its gradient, {'unrolled' if unrolled else 'scan'}"
        yield Row("compile", name, "s", ours, theirs)


# ---------------------------------------------------------------------------------------------- shown


HEAD = f"""stopgrad {sg.__version__}, jax {jax.__version__} on {jax.default_backend()}

| {"":7} | {"case":58} | {"stopgrad":>11} | {"jax":>11} | {"ratio":>6} |
|{"-" * 9}|{"-" * 60}|{"-" * 12}:|{"-" * 12}:|{"-" * 7}:|"""


def show(row: Row) -> Row:
    ours, theirs = (f"{figure:8.2f} {row.unit}" for figure in (row.stopgrad, row.jax))
    print(f"| {row.group:7} | {row.case:58} | {ours:>11} | {theirs:>11} | {row.ratio:6.2f} |", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--groups", nargs="*", choices=("run", "memory", "build", "compile"))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    quick = options.quick
    print(HEAD)
    groups = {
        "run": lambda: running(20 if quick else 1000, 1 if quick else options.rounds),
        "memory": lambda: memory(4 if quick else 100),
        "build": lambda: building((10, 100) if quick else (10, 1000, 100_000), 1 if quick else 5),
        "compile": lambda: compiling(3 if quick else 301),
    }
    rows = [show(row) for name in options.groups or groups for row in groups[name]()]
    if options.json:
        options.json.write_text(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=1))


if __name__ == "__main__":
    main()
