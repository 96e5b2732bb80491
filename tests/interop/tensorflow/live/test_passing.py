"""What operations do with gradients is what TensorFlow's own gradient functions do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiers import some

tf = pytest.importorskip("tensorflow")

from tensorflow_case import Random  # noqa: E402
from tensorflow_cases import FAMILIES  # noqa: E402
from tensorflow_runs import _built  # noqa: E402

import stopgrad.tensorflow as sgtf  # noqa: E402
from stopgrad.interop.tensorflow.recording import internals, passing  # noqa: E402
from stopgrad.interop.tensorflow.recording.bodies import _sizes  # noqa: E402

ALL = {op: make for _, ops in FAMILIES.items() for op, make in ops.items()}


def is_real(x: Any) -> bool:
    return bool(x.dtype.is_floating or x.dtype.is_complex)


@pytest.mark.parametrize("op", some(ALL, 40))
def test_inputs_and_results_that_get_none_are_those_of_tensorflow(op: str) -> None:
    fed: dict[str, Any] = {}
    with tf.Graph().as_default() as graph:
        _built(ALL[op](Random([50, *op.encode()])), "case", fed)
        for node in [node for node in graph.get_operations() if node.type == op]:
            answer = passing.of_graph(node, list(map(_sizes, node.inputs)), list(map(_sizes, node.outputs)))
            assert not answer.unknown
            results, inputs = list(filter(is_real, node.outputs)), list(node.inputs)
            if not results:
                continue
            try:
                gradients = tf.gradients(results, inputs, [tf.ones_like(y) for y in results])
            except LookupError:
                assert all(status == passing.UNDEFINED for _, status, _ in answer.walls)
                continue
            none = {i for i, _, reason in answer.walls if reason != passing.FLAT and is_real(inputs[i])}
            assert none == {
                i for i, (x, g) in enumerate(zip(inputs, gradients, strict=True)) if g is None and is_real(x)
            }
            for j, _ in answer.dead:  # Its gradients are zeros, if there are any.
                y = node.outputs[j]
                given = [g for g in tf.gradients([y], inputs, [tf.ones_like(y)]) if g is not None]
                with tf.compat.v1.Session(graph=graph) as session:
                    for g in session.run(given, {f"{name}:0": x for name, x in fed.items()}):
                        assert not np.any(g)


def test_a_gradient_function_that_has_a_tape_is_asked_also_where_recording_is_stopped() -> None:
    x, scale = tf.ones((2, 3, 3, 2)), tf.Variable([1.0, 2.0], name="scale")
    with sgtf.watch() as seen:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.compat.v1.nn.fused_batch_norm(x * x, scale, [0.0, 0.0])[0]
                cubes = tf.reduce_sum(y**3)
            loss = tf.reduce_sum(tape.gradient(cubes, x) ** 2)
        assert outer.gradient(loss, scale) is not None
    calls = seen.gradient_calls
    with seen, internals.record.stop_recording():
        assert calls[-1].explain()["scale"].arrives
        assert internals.is_stopped()
    assert not internals.is_stopped()
    assert len(seen.gradient_calls) == len(calls)


def test_what_cannot_be_asked_is_said() -> None:
    @tf.custom_gradient
    def picky(x: Any) -> Any:
        def gradient(g: Any) -> Any:
            if g.op.type == "Placeholder":
                raise RuntimeError("only in earnest")
            return g

        return x * 1.0, gradient

    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def loss() -> Any:
        return tf.reduce_sum(picky(w * 1.0))

    flow = sgtf.explain(loss)
    assert flow["w"].arrives
    assert any("could not be asked (RuntimeError: only in earnest)" in one.message for one in flow.findings)
