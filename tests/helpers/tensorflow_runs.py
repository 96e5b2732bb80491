"""TensorFlow's side of cases: graphs of them, and their values and gradients. It imports TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry
from tensorflow_case import Array, Case, Written

v1 = tf.compat.v1


def written(cases: Sequence[Case], seed: int = 0) -> Written:
    """A graph with a node for each case, its values, and its gradients for random cotangents."""
    rng = np.random.default_rng(seed)
    graph = tf.Graph()
    fed: dict[str, Array] = {}
    compared: list[tuple[list[Any], list[Any], bool]] = []
    with graph.as_default():
        for i, case in enumerate(cases):
            places, results = _built(case, f"c{i}", fed)
            compared.append((places, results, case.differentiated))
        definition = graph.as_graph_def().SerializeToString()
        given = {f"{name}:0": value for name, value in fed.items()}
        seeds: dict[str, Array] = {}
        slopes: dict[str, Any] = {}
        for places, results, differentiated in compared:
            floats = [y for y in results if y.dtype.is_floating or y.dtype.is_complex]
            wanted = [x for x in places if x.dtype.is_floating or x.dtype.is_complex]
            if not differentiated or not floats or not wanted:
                continue
            for y in floats:
                shape = (
                    v1.Session(graph=graph).run(tf.shape(y), given)
                    if not y.shape.is_fully_defined()
                    else y.shape.as_list()
                )
                seeds[y.name] = np.asarray(rng.uniform(0.5, 1.5, shape), y.dtype.as_numpy_dtype)
            found = v1.gradients(floats, wanted, [seeds[y.name] for y in floats])
            slopes |= {
                x.op.name: None if g is None else tf.convert_to_tensor(g)
                for x, g in zip(wanted, found, strict=True)
            }
    names = [y.name for _, results, _ in compared for y in results]
    with v1.Session(graph=graph) as session:
        values = session.run(names, given)
        gradients = session.run({name: g for name, g in slopes.items() if g is not None}, given)
    return Written(
        definition,
        fed,
        dict(zip(names, values, strict=True)),
        seeds,
        {name: gradients.get(name) for name in slopes},
    )


def _built(case: Case, name: str, fed: dict[str, Array]) -> tuple[list[Any], list[Any]]:
    """Build a case; its placeholders and the results to compare."""
    definition = op_def_registry.get(case.op)
    places: list[Any] = []
    given: dict[str, Any] = {k: _attribute(v) for k, v in case.attributes.items()}
    for j, (argument, operand) in enumerate(zip(definition.input_arg, case.operands, strict=True)):
        many = isinstance(operand.value, list)
        parts = []
        for k, value in enumerate(operand.value if many else [operand.value]):
            label = f"{name}/in{j}_{k}"
            if operand.fed:
                fed[label] = np.asarray(value)
                parts.append(v1.placeholder(fed[label].dtype, fed[label].shape, label))
                places.append(parts[-1])
            else:
                parts.append(tf.constant(np.asarray(value), name=label))
        given[argument.name] = parts if many else parts[0]
    found = {a.type_attr for a in definition.input_arg} | {a.number_attr for a in definition.input_arg}
    for attribute in definition.attr:
        if attribute.HasField("default_value") and attribute.name not in {*given, *found}:
            given[attribute.name] = _default(attribute.default_value)
    op = op_def_library._apply_op_helper(case.op, name=name, **given)[2]
    return places, list(op.outputs)[: case.results]


def _default(value: Any) -> Any:
    """The value of an ``AttrValue``."""
    kind = value.WhichOneof("value")
    if kind != "list":
        return tf.as_dtype(value.type) if kind == "type" else getattr(value, kind)
    return [one for part in (value.list.i, value.list.s, value.list.f) for one in part]


def _attribute(value: Any) -> Any:
    return tf.as_dtype(value) if isinstance(value, type) and issubclass(value, np.generic) else value
