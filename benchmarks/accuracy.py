"""How accurate reductions, losses and norms are in float32, beside JAX's: values and gradients.

    python benchmarks/accuracy.py [--size 1000000] [--engines xla,numpy,onnxruntime] [--only logsumexp,norm]
                                  [--draws 3] [--json out.json]

Each case is computed by stopgrad on each engine, by JAX in its own best form (``jax.nn``, ``jax.scipy``,
optax) compiled for XLA, and in float64 from the same float32 numbers. An error is the greatest difference
from that, divided by the greatest number there; of several draws, the largest counts, since a single
number can be right by chance. The ratio is our error to JAX's, both taken to be at least one unit in the last
place, 2⁻²³, which is what rounding to float32 can leave. The gradient is that of Σ w f(x) with weights w.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import stopgrad as sg

UNIT = 2.0**-23
ROW = 1000
"""The length of a row, in the cases that work on rows."""


class Case(NamedTuple):
    """One function, of data x and of labels y, in both libraries.

    Attributes:
        ours: takes x and y.
        theirs: likewise, with jnp arrays.
        rows: how long the rows of x are; 0 for one vector.
        labels: makes y from a generator and a shape.
    """

    ours: Callable[[Any, Any], Any]
    theirs: Callable[[Any, Any], Any]
    rows: int = 0
    labels: Callable[[np.random.Generator, tuple[int, ...]], Any] = lambda rng, shape: np.zeros(())


def likewise(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.normal(size=shape)


def shares(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1])


def classes(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, shape[-1], shape[:-1]).astype(np.int32)


def halves(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, 2, shape)


def counts(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.poisson(2.0, shape)


def standardized(x: Any, axis: Any, epsilon: float) -> Any:
    # jax.nn.standardize without a variance takes E[x²] - E[x]², and loses all digits around 1000.
    variance = jnp.var(x, axis, keepdims=True)
    return jax.nn.standardize(x, axis, variance=variance, epsilon=epsilon)


def kernels(lib: Any) -> Callable[[Any, Any], Any]:
    """The sum of a Gaussian kernel over all pairs of 256 vectors."""
    total = lib.reduce_sum if lib is sg else lib.sum

    def f(x: Any, y: Any) -> Any:
        points = lib.reshape(x[: 256 * (x.shape[0] // 256)], (256, -1))[:, :16] / 4
        distance = total(lib.square(points[:, None] - points[None]), axis=-1)
        return total(lib.exp(distance * -0.5))

    return f


CASES: dict[str, Case] = {
    "sum": Case(lambda x, y: sg.reduce_sum(x), lambda x, y: jnp.sum(x)),
    "sum of columns": Case(lambda x, y: sg.reduce_sum(x, 0), lambda x, y: jnp.sum(x, 0), ROW),
    "mean": Case(lambda x, y: sg.reduce_mean(x), lambda x, y: jnp.mean(x)),
    "product of 4": Case(lambda x, y: sg.reduce_prod(x, -1), lambda x, y: jnp.prod(x, -1), 4),
    "max of rows": Case(lambda x, y: sg.reduce_max(x, -1), lambda x, y: jnp.max(x, -1), ROW),
    "logsumexp": Case(lambda x, y: sg.reduce_logsumexp(x), lambda x, y: jax.scipy.special.logsumexp(x)),
    "logsumexp of rows": Case(
        lambda x, y: sg.reduce_logsumexp(x, -1), lambda x, y: jax.nn.logsumexp(x, -1), ROW
    ),
    "variance": Case(lambda x, y: sg.reduce_variance(x), lambda x, y: jnp.var(x)),
    "variance of columns": Case(lambda x, y: sg.reduce_variance(x, 0), lambda x, y: jnp.var(x, 0), ROW),
    "std": Case(lambda x, y: sg.reduce_std(x), lambda x, y: jnp.std(x)),
    "euclidean norm": Case(lambda x, y: sg.norm(x), lambda x, y: optax.safe_norm(x, 0.0)),
    "norm 1": Case(lambda x, y: sg.norm(x, 1), lambda x, y: jnp.linalg.norm(x, 1)),
    "norm 3": Case(lambda x, y: sg.norm(x, 3), lambda x, y: jnp.linalg.norm(x, 3)),
    "cumsum": Case(lambda x, y: sg.cumsum(x), lambda x, y: jnp.cumsum(x)),
    "cumulative logsumexp": Case(
        lambda x, y: sg.cumulative_logsumexp(x), lambda x, y: jax.lax.cumlogsumexp(x)
    ),
    "softmax": Case(lambda x, y: sg.softmax(x), lambda x, y: jax.nn.softmax(x)),
    "log_softmax": Case(lambda x, y: sg.log_softmax(x), lambda x, y: jax.nn.log_softmax(x)),
    "log_softmax of rows": Case(lambda x, y: sg.log_softmax(x), lambda x, y: jax.nn.log_softmax(x), ROW),
    "l2_normalize": Case(
        lambda x, y: sg.l2_normalize(x, -1), lambda x, y: x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    ),
    "layer norm": Case(lambda x, y: sg.layer_norm(x), lambda x, y: standardized(x, -1, 1e-5), ROW),
    "layer norm of all": Case(lambda x, y: sg.layer_norm(x), lambda x, y: standardized(x, -1, 1e-5)),
    "rms norm": Case(
        lambda x, y: sg.rms_norm(x),
        lambda x, y: x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6),
        ROW,
    ),
    "batch norm": Case(
        lambda x, y: sg.batch_normalization(x, *sg.moments(x, 0), None, None, 1e-5),
        lambda x, y: standardized(x, 0, 1e-5),
        ROW,
    ),
    "sum of kernels": Case(kernels(sg), kernels(jnp)),
    "mean squared error": Case(
        lambda x, y: sg.mean_squared_error(y, x),
        lambda x, y: jnp.mean(optax.squared_error(x, y)),
        0,
        likewise,
    ),
    "huber": Case(lambda x, y: sg.huber(y, x), lambda x, y: jnp.mean(optax.huber_loss(x, y)), 0, likewise),
    "log_cosh": Case(
        lambda x, y: sg.log_cosh(y, x), lambda x, y: jnp.mean(optax.log_cosh(x, y)), 0, likewise
    ),
    "softmax cross entropy": Case(
        lambda x, y: sg.softmax_cross_entropy_with_logits(y, x), optax.softmax_cross_entropy, ROW, shares
    ),
    "softmax cross entropy of all": Case(
        lambda x, y: sg.softmax_cross_entropy_with_logits(y, x), optax.softmax_cross_entropy, 0, shares
    ),
    "sparse softmax cross entropy": Case(
        lambda x, y: sg.sparse_softmax_cross_entropy_with_logits(y, x),
        optax.softmax_cross_entropy_with_integer_labels,
        ROW,
        classes,
    ),
    "sigmoid cross entropy": Case(
        lambda x, y: sg.reduce_mean(sg.sigmoid_cross_entropy_with_logits(y, x)),
        lambda x, y: jnp.mean(optax.sigmoid_binary_cross_entropy(x, y)),
        0,
        halves,
    ),
    "sigmoid focal loss": Case(
        lambda x, y: sg.reduce_mean(sg.sigmoid_focal_loss(y, x)),
        lambda x, y: jnp.mean(optax.sigmoid_focal_loss(x, y)),
        0,
        halves,
    ),
    "kl_divergence of softmax": Case(
        lambda x, y: sg.kl_div(sg.log_softmax(x), y, "batchmean"),
        lambda x, y: jnp.mean(optax.losses.kl_divergence(jax.nn.log_softmax(x), y)),
        ROW,
        shares,
    ),
    "squared hinge": Case(
        lambda x, y: sg.squared_hinge(y, x),
        lambda x, y: jnp.mean(jnp.square(optax.hinge_loss(x, 2 * y - 1))),
        0,
        halves,
    ),
    "log poisson loss": Case(
        lambda x, y: sg.reduce_mean(sg.log_poisson_loss(y, sg.log_sigmoid(x))),
        lambda x, y: jnp.mean(jnp.exp(jax.nn.log_sigmoid(x)) - y * jax.nn.log_sigmoid(x)),
        0,
        counts,
    ),
}


def _cancelling(rng: np.random.Generator, size: int) -> Any:
    """Sorted sizes with alternating signs: sums are small beside their terms."""
    return np.sort(np.abs(rng.normal(size=size))) * np.where(np.arange(size) % 2, -1, 1)


DATA: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "around 1000": lambda rng, size: 1000 + rng.normal(size=size),
    "wide": lambda rng, size: np.exp(rng.normal(scale=5, size=size)),
    "equal": lambda rng, size: np.full(size, rng.uniform(0.1, 2)),
    "cancelling": _cancelling,
}

Results = tuple[Any, Any]
"""A value and a gradient."""
Row = dict[str, Any]


def theirs(case: Case) -> Callable[..., Results]:
    weighted = lambda x, y, w: jnp.sum(case.theirs(x, y) * w)
    return jax.jit(lambda x, y, w: (case.theirs(x, y), jax.grad(weighted)(x, y, w)))


def ours(case: Case, engine: str) -> Callable[..., Results]:
    weighted = lambda x, y, w: sg.reduce_sum(case.ours(x, y) * w)
    return sg.function(lambda x, y, w: (case.ours(x, y), sg.grad(weighted)(x, y, w)), engine=engine)


def drawn(case: Case, data: str, size: int, seed: int) -> list[Any]:
    """x, y and w, which float32 holds exactly."""
    rng = np.random.default_rng(seed)
    x = DATA[data](rng, size)
    x = x.reshape(-1, case.rows) if case.rows else x
    y = case.labels(rng, x.shape)
    shape = jax.eval_shape(case.theirs, x, y).shape
    w = rng.normal(size=shape) if shape else np.ones(())
    return [a if a.dtype == np.int32 else a.astype(np.float32) for a in (x, y, w)]


def exact(function: Callable[..., Results], arguments: Sequence[Any]) -> list[Any]:
    """JAX's results in float64."""
    with jax.enable_x64(True):
        wide = [a if a.dtype == np.int32 else a.astype(np.float64) for a in arguments]
        return [np.asarray(a) for a in function(*wide)]


def errors(found: Results, right: Sequence[Any]) -> list[float]:
    """Of value and gradient: the greatest difference, relative to the greatest number unless all are 0."""
    made = []
    for one, other in zip(found, right, strict=True):
        scale = np.abs(other).max()
        off = np.abs(np.asarray(one, np.float64) - other).max()
        made.append(float(off / scale) if not scale < UNIT**2 else float(off))
    return made


def measure(name: str, kinds: Sequence[str], engines: Sequence[str], size: int, draws: int) -> Iterator[Row]:
    """The errors of a case, of each engine and of JAX: the largest of several draws of the data."""
    case = CASES[name]
    functions = {"jax": theirs(case), **{engine: ours(case, engine) for engine in engines}}
    for data in kinds:
        worst = {who: [0.0, 0.0] for who in functions}
        for seed in range(draws):
            arguments = drawn(case, data, size, seed)
            right = exact(functions["jax"], arguments)
            for who, function in functions.items():
                worst[who] = np.maximum(worst[who], errors(function(*arguments), right)).tolist()
        yield {"case": name, "data": data, "errors": worst}


def ratios(row: Row, engine: str) -> list[float]:
    """Our errors to JAX's; NaN where one is NaN."""
    pairs = zip(row["errors"][engine], row["errors"]["jax"], strict=True)
    return [float(np.maximum(a, UNIT) / np.maximum(b, UNIT)) for a, b in pairs]


def shown(row: Row, engines: Sequence[str]) -> str:
    cells = [f"{row['case']:28}", f"{row['data']:11}"]
    cells += [f"{a:8.1e} {b:8.1e}" for a, b in [row["errors"]["jax"]]]
    cells += [" ".join(f"{r:7.2f}" for r in ratios(row, engine)) for engine in engines]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--engines", default="xla,numpy,onnxruntime")
    parser.add_argument("--only", default="", help="parts of the names of cases")
    parser.add_argument("--data", default="", help="kinds of data")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--limit", type=float, default=2.0, help="ratios above it are listed at the end")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engines, only = options.engines.split(","), options.only.split(",")
    kinds = options.data.split(",") if options.data else list(DATA)
    print(
        f"stopgrad {sg.__version__}, jax {jax.__version__}; {options.size:,} numbers, {options.draws} draws"
    )
    head = " | ".join(f"{engine:>15}" for engine in engines)
    print(f"| {'case':28} | {'data':11} | {'errors of JAX':17} | {head} |")
    print("|" + "|".join("-" * n for n in (30, 13, 19, *[17] * len(engines))) + "|")
    rows = []
    start = time.perf_counter()
    for name in CASES:
        if any(part in name for part in only):
            for row in measure(name, kinds, engines, options.size, options.draws):
                rows.append(row)
                print(shown(row, engines), flush=True)
    above = [
        f"{row['case']}, {row['data']}, {engine}: {what} {ratio:.3g}"
        for row in rows
        for engine in engines
        for what, ratio in zip(("value", "gradient"), ratios(row, engine), strict=True)
        if not (ratio <= options.limit or math.isnan(row["errors"]["jax"][what == "gradient"]))
    ]
    print(f"\n{len(rows)} rows in {time.perf_counter() - start:.0f} s; above {options.limit:g}: {len(above)}")
    print("\n".join(above))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
