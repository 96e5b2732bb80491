"""Writes the graphs of TensorFlow that tests read, with values and gradients.

``python -m tests.helpers.tensorflow_graphs`` writes all, or those that are named. It needs TensorFlow
2.21, which tests do not. For each graph there is a file (``.pb``) or a folder (a
SavedModel) in ``tests/interop/tensorflow/graphs``, and an ``.npz`` beside it:

- ``in/x``: what the input ``x`` is given,
- ``out/y``: what TensorFlow computes for the output ``y``,
- ``seed/y``: the cotangent of ``y``, where gradients are compared,
- ``grad/x``: the gradient of the input ``x``; it is missing where TensorFlow has none,
- ``variable/k`` and ``slope/k``: the value of a variable, by which it is found, and its gradient.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

v1 = tf.compat.v1

FOLDER = Path(__file__).parents[1] / "interop" / "tensorflow" / "graphs"

MAKERS: dict[str, Callable[[Path], None]] = {}
"""What writes each graph, given the path of the file or folder; the name without its suffix is the key."""


def maker(f: Callable[[Path], None]) -> Callable[[Path], None]:
    """Decorator: the function writes the graph of its name."""
    MAKERS[f.__name__] = f
    return f


def numbers(*shape: int, seed: int = 0) -> Any:
    """Random numbers from a normal distribution, as float32."""
    return np.random.default_rng([len(shape), *shape, seed]).standard_normal(shape).astype(np.float32)


def keep(path: Path, **groups: Mapping[str, Any]) -> None:
    """Write the numbers of a graph beside it."""
    flat = {f"{group}/{name}": value for group, held in groups.items() for name, value in held.items()}
    np.savez_compressed(path.with_suffix(".npz"), **{k: np.asarray(v) for k, v in flat.items()})


# ------------------------------------------------------------------------------------------- TensorFlow 2


def expected(
    f: Callable[..., Any], fed: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What a function of named tensors computes, and its gradients for random cotangents."""
    xs = {name: tf.constant(value) for name, value in fed.items()}
    with tf.GradientTape() as tape:
        tape.watch([x for x in xs.values() if x.dtype.is_floating])
        ys = tf.function(f)(**xs)
        ys = ys if isinstance(ys, dict) else {"output": ys}
        floats = {name: y for name, y in ys.items() if y.dtype.is_floating}
        seeds = {name: numbers(*y.shape, seed=7) for name, y in floats.items()}
        total = tf.add_n([tf.reduce_sum(tf.cast(y, tf.float32) * seeds[name]) for name, y in floats.items()])
    names = [name for name, x in xs.items() if x.dtype.is_floating]
    slopes = tape.gradient(total, [xs[name] for name in names] + list(variables.values()))
    return {
        "in": dict(fed),
        "out": dict(ys),
        "seed": seeds,
        "grad": {name: g for name, g in zip(names, slopes, strict=False) if g is not None},
        "variable": {name: v.numpy() for name, v in variables.items()},
        "slope": {
            name: tf.convert_to_tensor(g)
            for name, g in zip(variables, slopes[len(names) :], strict=True)
            if g is not None
        },
    }


def freeze(
    path: Path,
    f: Callable[..., Any],
    fed: Mapping[str, Any],
    variables: Mapping[str, Any] | None = None,
    *,
    open_sizes: bool = True,
    lowered: bool = False,
) -> None:
    """Write a function of named tensors as a frozen graph; its results are called ``y0``, ``y1``, ..."""

    def named(**xs: Any) -> Any:
        ys = tf.nest.flatten(f(**xs))
        return [tf.identity(y, name=f"y{i}") for i, y in enumerate(ys)]

    specs = {
        name: tf.TensorSpec(
            [None, *value.shape[1:]] if open_sizes and value.ndim else value.shape, value.dtype, name
        )
        for name, value in fed.items()
    }
    concrete = tf.function(named).get_concrete_function(**specs)
    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=lowered)
    graph = frozen.graph.as_graph_def()
    kept = [y.op.inputs[0].op.name if y.op.name == "Identity" else y.op.name for y in frozen.outputs]
    names = {f"y{i}": name for i, name in enumerate(kept)}
    path.with_suffix(".pb").write_bytes(graph.SerializeToString())
    numbers_of = expected(
        lambda **xs: dict(zip(names.values(), tf.nest.flatten(f(**xs)), strict=True)), fed, variables or {}
    )
    keep(path, **numbers_of)


# ------------------------------------------------------------------------------------------- TensorFlow 1


def old(
    path: Path,
    build: Callable[..., Mapping[str, Any]],
    fed: Mapping[str, Any],
    *,
    sizes: Mapping[str, Any] | None = None,
) -> None:
    """Write a graph that is built in the way of TensorFlow 1; *build* gets placeholders by their names."""
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        xs = {
            name: v1.placeholder(value.dtype, (sizes or {}).get(name, value.shape), name=name)
            for name, value in fed.items()
        }
        ys = {name: tf.identity(y, name=name) for name, y in build(**xs).items()}
        given = {f"{name}:0": value for name, value in fed.items()}
        session.run(v1.global_variables_initializer())
        variables = {v.op.name: v for v in v1.trainable_variables()}
        definition = graph.as_graph_def()
        floats = {name: y for name, y in ys.items() if y.dtype.is_floating}
        values = session.run(ys, given)
        seeds = {name: numbers(*values[name].shape, seed=7) for name in floats}
        names = [name for name, x in xs.items() if x.dtype.is_floating]
        slopes = v1.gradients(
            list(floats.values()),
            [xs[name] for name in names] + list(variables.values()),
            [tf.constant(seeds[name]) for name in floats],
        )
        found = session.run({i: g for i, g in enumerate(slopes) if g is not None}, given)
        held = session.run(variables)
        frozen = v1.graph_util.convert_variables_to_constants(session, definition, list(ys))
    path.with_suffix(".pb").write_bytes(frozen.SerializeToString())
    count = len(names)
    keep(
        path,
        **{
            "in": fed, "out": values, "seed": seeds,
            "grad": {name: found[i] for i, name in enumerate(names) if i in found},
            "variable": held,
            "slope": {name: found[count + i] for i, name in enumerate(variables) if count + i in found},
        },
    )  # fmt: skip


def main() -> None:
    """Write the graphs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    for name in given.names or MAKERS:
        path = given.folder / name
        shutil.rmtree(path, ignore_errors=True)
        MAKERS[name](path)
        print(name)


from tests.helpers import (  # noqa: E402 - they fill the table
    tensorflow_graphs_asked,  # noqa: F401
    tensorflow_graphs_control,  # noqa: F401
)

if __name__ == "__main__":
    from tests.helpers import tensorflow_graphs

    tensorflow_graphs.main()
