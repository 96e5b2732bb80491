"""What small programs send between devices, held against JAX's own of the same: equal or less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo_tools import hlo
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import stopgrad as sg

pytestmark = pytest.mark.slow

AXES = {"data": 4, "model": 2}
Spec = tuple[str | None, ...]


class Program(NamedTuple):
    """A loss in both languages, with the shapes and shardings of w, x and labels y (integers)."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    specs: tuple[Spec, ...]


def norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


def chosen(x: Any, y: Any) -> Any:
    return jnp.take_along_axis(x, y, axis=-1)


ROWS = (64, 32)
SQUARE, J = sg.square, jnp.square
PROGRAMS = {
    "a weight, batches": Program(
        lambda w, x, y: SQUARE(x @ w), lambda w, x, y: J(x @ w), ((32, 48), (8, 64, 32)), ((), ("data",))
    ),
    "a weight, sequences": Program(
        lambda w, x, y: SQUARE(x @ w), lambda w, x, y: J(x @ w), ((32, 48), (8, 64, 32)), ((), (None, "data"))
    ),
    "a weight, both": Program(
        lambda w, x, y: SQUARE(x @ w),
        lambda w, x, y: J(x @ w),
        ((32, 48), (8, 64, 32)),
        ((), ("data", "model")),
    ),
    "layer norm, features": Program(
        lambda w, x, y: SQUARE(sg.layer_norm(x, w) * x),
        lambda w, x, y: J(norm(x) * w * x),
        ((32,), (8, 16, 32)),
        (("model",), ("data", None, "model")),
    ),
    "softmax, features": Program(
        lambda w, x, y: SQUARE(sg.softmax(x @ w)),
        lambda w, x, y: J(jax.nn.softmax(x @ w)),
        ((32, 64), ROWS),
        ((None, "model"), ("data",)),
    ),
    "cross entropy, classes": Program(
        lambda w, x, y: sg.sparse_softmax_cross_entropy_with_logits(y[:, 0], x @ w),
        lambda w, x, y: -chosen(jax.nn.log_softmax(x @ w), y),
        ((32, 64), ROWS, (64, 1)),
        ((None, "model"), ("data",), ("data",)),
    ),
    "cross entropy of probabilities, classes": Program(
        lambda w, x, y: sg.softmax_cross_entropy_with_logits(sg.softmax(x), x @ w),
        lambda w, x, y: -jnp.sum(jax.nn.softmax(x) * jax.nn.log_softmax(x @ w), -1),
        ((32, 32), ROWS),
        ((None, "model"), ("data", "model")),
    ),
    "log_softmax taken, classes": Program(
        lambda w, x, y: sg.take_along_axis(sg.log_softmax(x @ w), y),
        lambda w, x, y: chosen(jax.nn.log_softmax(x @ w), y),
        ((32, 64), ROWS, (64, 1)),
        ((None, "model"), ("data",), ("data",)),
    ),
    "several taken": Program(
        lambda w, x, y: sg.take_along_axis(sg.tanh(x @ w), y),
        lambda w, x, y: chosen(jnp.tanh(x @ w), y),
        ((32, 64), ROWS, (64, 4)),
        ((), ("data",), ("data",)),
    ),
    "gather in batches": Program(
        lambda w, x, y: sg.gather(sg.tanh(x @ w), y, axis=1, batch_dims=1),
        lambda w, x, y: jax.vmap(lambda a, i: a[i])(jnp.tanh(x @ w), y),
        ((32, 64), (64, 8, 32), (64, 4)),
        ((), ("data",), ("data",)),
    ),
    "embedding, words": Program(
        lambda w, x, y: SQUARE(sg.gather(w, y)),
        lambda w, x, y: J(w[y]),
        ((64, 32), ROWS, (64, 16)),
        (("model",), (), ("data",)),
    ),
    "scan": Program(
        lambda w, x, y: SQUARE(sg.scan(lambda h, _: (sg.tanh(h @ w), None), x, length=5)[0]),
        lambda w, x, y: J(jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=5)[0]),
        ((32, 32), ROWS),
        ((), ("data",)),
    ),
    "scan, units": Program(
        lambda w, x, y: SQUARE(sg.scan(lambda h, _: (sg.tanh(h @ w), None), x, length=5)[0]),
        lambda w, x, y: J(jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=5)[0]),
        ((32, 32), ROWS),
        ((None, "model"), ("data",)),
    ),
    "convolution": Program(
        lambda w, x, y: SQUARE(sg.conv2d(x, w, 1, "SAME")),
        lambda w, x, y: J(
            jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        ),
        ((3, 3, 8, 16), (8, 16, 16, 8)),
        ((), ("data",)),
    ),
    "batch norm": Program(
        lambda w, x, y: SQUARE((x * w - sg.reduce_mean(x * w, 0)) / sg.reduce_std(x * w, 0) * x),
        lambda w, x, y: J((x * w - jnp.mean(x * w, 0)) / jnp.std(x * w, 0) * x),
        ((32,), ROWS),
        ((), ("data",)),
    ),
    "random numbers": Program(
        lambda w, x, y: SQUARE(x @ w) * sg.random_uniform((64, 64), sg.random_key(0)),
        lambda w, x, y: J(x @ w) * jax.random.uniform(jax.random.key(0), (64, 64)),
        ((32, 64), ROWS),
        ((), ("data",)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_sends_no_more_than_that_of_jax(name: str) -> None:
    """Both leave it divided as the weight is, as a step of training does."""
    found = PROGRAMS[name]
    kinds = [np.float32, np.float32, np.int32]
    arrays = [jax.ShapeDtypeStruct(s, d) for s, d in zip((*found.shapes, (1,))[:3], kinds, strict=True)]
    specs = (*found.specs, ())[:3]

    def gradient(w: Any, x: Any, y: Any) -> Any:
        value, slope = sg.value_and_grad(lambda w: sg.reduce_mean(found.ours(w, x, y)))(w)
        return value, sg.shard(slope, specs[0])

    ours = sg.function(
        gradient,
        mesh=sg.Mesh(**AXES),
        shardings={name: spec for name, spec in zip("wxy", specs, strict=True) if spec},
    )
    mesh = jax.make_mesh(tuple(AXES.values()), tuple(AXES), axis_types=(AxisType.Auto,) * 2)
    placed = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
        for x, spec in zip(arrays, specs, strict=True)
    ]
    theirs = jax.jit(
        jax.value_and_grad(lambda w, x, y: jnp.mean(found.theirs(w, x, y))),
        out_shardings=(NamedSharding(mesh, PartitionSpec()), placed[0].sharding),
    )
    expected = hlo.moved(theirs.lower(*placed).compile().as_text())
    assert expected > 0
    assert hlo.moved(ours.lower(*arrays).compile().as_text()) <= expected
