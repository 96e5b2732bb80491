"""Programs whose gradients are written as models: each with its outputs, its inputs, and what to feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime

import stopgrad as sg

Array = np.ndarray[Any, Any]


@dataclass
class Program:
    """Outputs and inputs of one graph, by name, and several batches."""

    outputs: dict[str, sg.Output]
    inputs: dict[str, sg.Output]
    batches: list[dict[str, Array]]

    def on_numpy(self, batch: Mapping[str, Array]) -> list[Array]:
        outputs = [*self.outputs.values()]
        with sg.Session(outputs[0].op.graph, engine="numpy") as session:
            found: list[Array] = session.run(outputs, {self.inputs[k]: v for k, v in batch.items()})
        return found


class Drawn:
    """Numbers of a size at which activations saturate little."""

    def __init__(self, dtype: Any = np.float32) -> None:
        self._generator, self.dtype = np.random.default_rng(7), np.dtype(dtype)

    def __call__(self, *shape: int) -> Array:
        return (self._generator.normal(size=shape) * 0.3).astype(self.dtype)

    def labels(self, count: int, classes: int) -> Array:
        return self._generator.integers(0, classes, count).astype(np.int32)


def with_gradients(loss: sg.Output, parameters: Sequence[Any], second: bool) -> dict[str, sg.Output]:
    """The loss, its gradients, and, if asked, those of their squared norm."""
    first = sg.gradients(loss, list(parameters))
    found = {"loss": loss} | {f"d{i}": d for i, d in enumerate(first)}
    if second:
        norm = sg.add_n([sg.reduce_sum(sg.square(d)) for d in first])
        again = sg.gradients(norm, list(parameters))
        found |= {f"dd{i}": d for i, d in enumerate(again) if d is not None}
    return found


def mlp(drawn: Drawn, second: bool) -> Program:
    x = sg.placeholder(drawn.dtype, ["batch", 8], name="x")
    labels = sg.placeholder(sg.int32, ["batch"], name="labels")
    w1, b1 = sg.parameter(drawn(8, 16), name="w1"), sg.parameter(drawn(16), name="b1")
    w2, b2 = sg.parameter(drawn(16, 4), name="w2"), sg.parameter(drawn(4), name="b2")
    logits = sg.relu(x @ w1 + b1) @ w2 + b2
    loss = sg.reduce_mean(sg.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    batches = [{"x": drawn(n, 8), "labels": drawn.labels(n, 4)} for n in (1, 5)]
    return Program(with_gradients(loss, [w1, b1, w2, b2], second), {"x": x, "labels": labels}, batches)


def convolutional(drawn: Drawn, second: bool) -> Program:
    x = sg.placeholder(drawn.dtype, ["batch", 10, 10, 3], name="x")
    first, later = (
        sg.parameter(drawn(3, 3, 3, 4), name="first"),
        sg.parameter(drawn(3, 3, 2, 4), name="later"),
    )
    bias, w = sg.parameter(drawn(4), name="bias"), sg.parameter(drawn(4, 2), name="w")
    h = sg.max_pool(sg.relu(sg.conv(x, first, padding="SAME") + bias), 2, 2, "VALID")
    h = sg.relu(sg.conv(h, later, strides=2, padding="SAME", groups=2))
    h = sg.avg_pool(h, 2, 1, "SAME")
    loss = sg.reduce_mean(sg.square(sg.reduce_mean(h, axis=(1, 2)) @ w))
    parameters = [first, later, bias, w]
    return Program(
        with_gradients(loss, parameters, second), {"x": x}, [{"x": drawn(n, 10, 10, 3)} for n in (1, 3)]
    )


def attention(drawn: Drawn, second: bool) -> Program:
    x = sg.placeholder(drawn.dtype, ["batch", "time", 16], name="x")
    weights = [sg.parameter(drawn(16, 16), name=name) for name in ("query", "key", "value", "out")]
    scale, offset = sg.parameter(drawn(16), name="scale"), sg.parameter(drawn(16), name="offset")
    batch, time, _ = x.shape
    h = sg.layer_norm(x, scale, offset)
    q, k, v = (sg.transpose(sg.reshape(h @ w, [batch, time, 4, 4]), [0, 2, 1, 3]) for w in weights[:3])
    seen = sg.softmax(sg.matmul(q, k, transpose_b=True) * 0.5) @ v
    y = sg.gelu(sg.reshape(sg.transpose(seen, [0, 2, 1, 3]), [batch, time, 16]) @ weights[3]) + x
    loss = sg.reduce_mean(sg.square(y))
    batches = [{"x": drawn(n, m, 16)} for n, m in ((1, 3), (2, 5))]
    return Program(with_gradients(loss, [*weights, scale, offset], second), {"x": x}, batches)


def lstm(drawn: Drawn, second: bool) -> Program:
    x = sg.placeholder(drawn.dtype, ["time", "batch", 5], name="x")
    w, u, b = (
        sg.parameter(drawn(*shape), name=name)
        for name, shape in (("w", (5, 24)), ("u", (6, 24)), ("b", (24,)))
    )
    start = sg.zeros([x.shape[1], 6], drawn.dtype)

    def step(carry: Any, part: Any) -> Any:
        h, c = carry
        i, f, o, g = sg.split(part @ w + h @ u + b, 4, 1)
        c = sg.sigmoid(f) * c + sg.sigmoid(i) * sg.tanh(g)
        h = sg.sigmoid(o) * sg.tanh(c)
        return (h, c), h

    _, hs = sg.scan(step, (start, start), x)
    loss = sg.reduce_mean(sg.square(hs))
    batches = [{"x": drawn(n, m, 5)} for n, m in ((4, 2), (7, 3))]
    return Program(with_gradients(loss, [w, u, b], second), {"x": x}, batches)


def loops(drawn: Drawn, second: bool) -> Program:
    x, a = sg.placeholder(drawn.dtype, ["batch", 4], name="x"), sg.parameter(drawn(4, 4), name="a")
    y, _ = sg.while_loop(
        lambda y, n: sg.reduce_sum(sg.square(y)) < 5.0,
        lambda y, n: (y * 1.5 + y @ a, n + 1),
        [x, sg.constant(np.int32(0))],
        maximum_iterations=9,
    )
    y = sg.cond(sg.reduce_sum(y) > 0, lambda: y * 2.0, lambda: sg.exp(y * 0.01))
    branches = [lambda: y, lambda: sg.square(y), lambda: sg.sin(y)]
    loss = sg.reduce_sum(sg.switch(sg.cast(sg.reduce_sum(x) * 10, "int32"), branches))
    batches = [{"x": drawn(n, 4)} for n in (2, 3)] + [{"x": np.full((1, 4), 0.05, drawn.dtype)}]
    return Program(with_gradients(loss, [a], second), {"x": x}, batches)


PROGRAMS: dict[str, Callable[[Drawn, bool], Program]] = {
    "mlp": mlp,
    "convolutional": convolutional,
    "attention": attention,
    "lstm": lstm,
    "loops": loops,
}


def built(name: str, second: bool = False, dtype: Any = np.float32) -> Program:
    with sg.Graph().as_default():
        return PROGRAMS[name](Drawn(dtype), second)


def session_of(model: Any) -> onnxruntime.InferenceSession:
    """A model, or its path, on the stock runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    content = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def counted(model: onnx.ModelProto) -> Counter[str]:
    """The operators of a model, those in bodies too, without constants."""
    found: Counter[str] = Counter()
    graphs = [model.graph]
    while graphs:
        for node in graphs.pop().node:
            found[node.op_type] += 1
            graphs += [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    del found["Constant"]
    return found


def assert_close(found: Sequence[Array], expected: Sequence[Array], tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        b = np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max(initial=0)))
        )
