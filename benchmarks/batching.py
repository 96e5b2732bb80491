"""What batched gradients cost beside JAX's: gradients per example, and Jacobians.

    python benchmarks/batching.py [--rounds 30] [--json out.json]

Both libraries compile for XLA and are given jax arrays. ``run`` is the wall time of a call in each one's
fastest round, rounds of the two alternating, results waited for; ``first call`` is tracing, compiling and
running once, in a fresh function each time; ``build`` is the part of it in which stopgrad builds the graph.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import stopgrad as sg

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return jnp.asarray(RNG.normal(size=shape, scale=shape[0] ** -0.5).astype(np.float32))


def network(lib: Any, params: Any, x: Any) -> Any:
    for w, b in params[:-1]:
        x = lib.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def our_loss(params: Any, x: Any, label: Any) -> Any:
    return sg.reduce_sum(sg.square(network(sg, params, x) - label))


def their_loss(params: Any, x: Any, label: Any) -> Any:
    return jnp.sum(jnp.square(network(jnp, params, x) - label))


def parameters(*sizes: int) -> Any:
    return [(array(m, n), array(n)) for m, n in itertools.pairwise(sizes)]


Case = tuple[str, Callable[[], Any], Callable[[], Any], list[Any]]
"""A name, makers of the function of the one and of the other, and its arguments."""


def cases(quick: bool) -> list[Case]:
    examples, sizes = (8, (16, 16, 4)) if quick else (128, (256, 512, 512, 10))
    outputs = 20 if quick else 200
    params = parameters(*sizes)
    per_example: Case = (
        f"gradients of {examples} examples, MLP {'-'.join(map(str, sizes))}",
        lambda: sg.vmap(sg.grad(our_loss), in_axes=(None, 0, 0)),
        lambda: jax.vmap(jax.grad(their_loss), in_axes=(None, 0, 0)),
        [params, array(examples, sizes[0]), array(examples, sizes[-1])],
    )
    clipped: Case = (
        "the same, clipped and averaged",
        lambda: _ours_clipped,
        lambda: _theirs_clipped,
        per_example[3],
    )
    inner = parameters(outputs, outputs, outputs)
    jacobian: Case = (
        f"jacobian, {outputs} results",
        lambda: lambda x: sg.jacobian(lambda v: network(sg, inner, v))(x),
        lambda: jax.jacrev(lambda v: network(jnp, inner, v)),
        [array(outputs)],
    )
    hessian: Case = (
        f"hessian, {outputs} arguments",
        lambda: lambda x: sg.hessian(lambda v: sg.reduce_sum(sg.square(network(sg, inner, v))))(x),
        lambda: jax.hessian(lambda v: jnp.sum(jnp.square(network(jnp, inner, v)))),
        [array(outputs)],
    )
    return [per_example, clipped, jacobian, hessian]


def _ours_clipped(params: Any, x: Any, label: Any) -> Any:
    found = sg.vmap(sg.grad(our_loss), in_axes=(None, 0, 0))(params, x, label)
    norm = sum(sg.reduce_sum(g * g, axis=tuple(range(1, g.ndim))) for pair in found for g in pair)
    factor = sg.minimum(1.0, sg.rsqrt(norm))
    return [tuple(sg.einsum("b,b...->...", factor, g) / x.shape[0] for g in pair) for pair in found]


def _theirs_clipped(params: Any, x: Any, label: Any) -> Any:
    found = jax.vmap(jax.grad(their_loss), in_axes=(None, 0, 0))(params, x, label)
    norm = sum(jnp.sum(g * g, axis=tuple(range(1, g.ndim))) for pair in found for g in pair)
    factor = jnp.minimum(1.0, jax.lax.rsqrt(norm))
    return [tuple(jnp.einsum("b,b...->...", factor, g) / x.shape[0] for g in pair) for pair in found]


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def build_seconds(made: Callable[..., Any], arguments: list[Any]) -> tuple[float, int]:
    """How long stopgrad takes to build the graph, computing nothing; and how many operations it has."""
    graph = sg.Graph()
    with graph.as_default():
        given = jax.tree.map(lambda a: sg.placeholder(str(a.dtype), a.shape), arguments)
        start = time.perf_counter()
        made(*given)
        return time.perf_counter() - start, len(graph)


def measure(rounds: int, quick: bool) -> list[dict[str, Any]]:
    rows = []
    for name, ours, theirs, arguments in cases(quick):
        fast, jitted = sg.function(ours(), engine="xla"), jax.jit(theirs())
        found, expected = jax.tree.leaves(fast(*arguments)), jax.tree.leaves(jitted(*arguments))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4, err_msg=name)
        run = [
            (seconds(lambda: fast(*arguments)), seconds(lambda: jitted(*arguments))) for _ in range(rounds)
        ]
        first = []
        for _ in range(1 if quick else 5):
            jax.clear_caches()
            one = seconds(lambda: sg.function(ours(), engine="xla")(*arguments))
            jax.clear_caches()
            first.append((one, seconds(lambda: jax.jit(theirs())(*arguments))))
        built = [build_seconds(ours(), arguments) for _ in range(5)]
        rows.append(
            {
                "case": name,
                "run_ms": {"stopgrad": 1e3 * min(t for t, _ in run), "jax": 1e3 * min(t for _, t in run)},
                "first_ms": {
                    "stopgrad": 1e3 * min(t for t, _ in first),
                    "jax": 1e3 * min(t for _, t in first),
                },
                "build_ms": 1e3 * min(t for t, _ in built),
                "operations": built[0][1],
            }
        )
    return rows


def large(count: int) -> dict[str, Any]:
    """A square Jacobian, of which only the building is timed."""
    w = array(count, count)
    made = lambda x: sg.jacobian(lambda v: sg.tanh(np.asarray(w) @ sg.tanh(v)))(x)
    built = [build_seconds(made, [array(count)]) for _ in range(5)]
    return {
        "case": f"a {count} × {count} jacobian, built",
        "build_ms": 1e3 * min(t for t, _ in built),
        "operations": built[0][1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.rounds, options.quick)
    built = large(100 if options.quick else 1000)
    print(f"ms; stopgrad {sg.__version__}, jax {jax.__version__}\n")
    print(
        f"| {'case':52} | {'run':>8} | {'jax':>8} | {'ratio':>5} | {'first call':>10} | {'jax':>8} |"
        f" {'ratio':>5} | {'build':>6} | {'operations':>10} |"
    )
    print("|" + "-" * 54 + "|" + "|".join(["-" * n + ":" for n in (9, 9, 6, 11, 9, 6, 7, 11)]) + "|")
    for row in rows:
        run, first = row["run_ms"], row["first_ms"]
        print(
            f"| {row['case']:52} | {run['stopgrad']:8.2f} | {run['jax']:8.2f} |"
            f" {run['stopgrad'] / run['jax']:5.2f} | {first['stopgrad']:10.1f} | {first['jax']:8.1f} |"
            f" {first['stopgrad'] / first['jax']:5.2f} | {row['build_ms']:6.1f} | {row['operations']:10} |"
        )
    print(f"\n{built['case']}: {built['build_ms']:.1f} ms, {built['operations']} operations")
    if options.json:
        options.json.write_text(json.dumps([*rows, built], indent=1))


if __name__ == "__main__":
    main()
