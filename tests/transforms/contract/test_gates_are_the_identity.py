"""Contract 1: forward, a gate is its input, bit for bit, and costs nothing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import stopgrad as sg
from stopgrad.engines import engine as engine_called
from stopgrad.rewrite import prepare

# Patterns that arithmetic would disturb: quiet and signalling NaNs with payloads and signs, zeros of both
# signs, infinities, subnormals, ordinary numbers.
BITS = {
    "float16": (np.uint16, [0x7E01, 0xFE55, 0x7C01, 0x0000, 0x8000, 0x7C00, 0xFC00, 0x0001, 0x3C00]),
    "bfloat16": (np.uint16, [0x7FC1, 0xFFD5, 0x7F81, 0x0000, 0x8000, 0x7F80, 0xFF80, 0x0001, 0x3F80]),
    "float32": (
        np.uint32,
        [0x7FC00001, 0xFFC12345, 0x7F800001, 0, 0x80000000, 0x7F800000, 0xFF800000, 1, 0x3F800000],
    ),
    "float64": (
        np.uint64,
        [
            0x7FF8000000000001,
            0xFFF8123456789ABC,
            0x7FF0000000000001,
            0,
            1 << 63,
            0x7FF0 << 48,
            0xFFF0 << 48,
            1,
            0x3FF0 << 48,
        ],
    ),
}
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def values(dtype: str) -> np.ndarray:
    if dtype in BITS:
        kind, patterns = BITS[dtype]
        return np.array(patterns, kind).view(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if dtype.startswith("complex"):
        parts = values("float32" if dtype == "complex64" else "float64")
        return np.stack([parts, parts[::-1]], -1).reshape(-1).view(dtype)
    if dtype == "bool":
        return np.array([True, False])
    return np.array([np.iinfo(dtype).min, 0, 1, np.iinfo(dtype).max], dtype)


INEXACT = [*BITS, "complex64", "complex128"]
GATES = {
    "stop": sg.stop_gradient,
    "stop when": lambda x: sg.stop_gradient(x, when=sg.constant(True)),
    "stop towards": lambda x: sg.stop_gradient(x, wrt=[x]),
    "zero": sg.zero_gradient,
    "scale": lambda x: sg.scale_gradient(x, 3),
    "reverse": sg.reverse_gradient,
    "clip norm": lambda x: sg.clip_gradient_norm(x, 1),
    "prevent": sg.prevent_gradient,
    "probe": lambda x: sg.probe(x, "here"),
    "straight through": lambda x: sg.straight_through(x, sg.zeros_like(x)),
    "custom": sg.custom_gradient(lambda x: (sg.stop_gradient(x), lambda g: g)),
}


@pytest.mark.parametrize("dtype", [*INEXACT, *INTEGERS, "bool"])
def test_a_stop_keeps_every_bit_on_every_engine(dtype, graph, run_everywhere, same_bits):
    fed = values(dtype)
    x = sg.placeholder(dtype, [None])
    assert sg.stop_gradient(x).type is x.type
    assert same_bits(run_everywhere(sg.stop_gradient(x), {x: fed}), fed)


@pytest.mark.parametrize("dtype", INEXACT)
@pytest.mark.parametrize("gate", GATES)
def test_every_gate_keeps_every_bit(gate, dtype, graph, run, same_bits):
    fed = values(dtype)
    x = sg.placeholder(dtype, [None])
    y = GATES[gate](x)
    assert y is not x
    assert y.type is x.type
    assert same_bits(run(y, {x: fed}), fed)


@pytest.mark.parametrize("dtype", [d for d in INEXACT if not d.startswith("complex")])
def test_a_clipping_gate_keeps_every_bit_though_it_clips_gradients(dtype, graph, run, same_bits):
    fed = values(dtype)
    x = sg.placeholder(dtype, [None])
    assert same_bits(run(sg.clip_gradient(x, -1, 1), {x: fed}), fed)


@pytest.mark.parametrize("dtype", [*INEXACT, *INTEGERS, "bool"])
def test_a_stop_on_arrays_outside_of_a_graph_keeps_every_bit(dtype, same_bits):
    assert same_bits(sg.stop_gradient(values(dtype)), values(dtype))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3, 4)])
def test_a_stop_keeps_shapes_also_empty_ones(shape, graph, run_everywhere):
    x = sg.placeholder(sg.float32, shape)
    fed = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    found = run_everywhere(sg.stop_gradient(x), {x: fed})
    assert found.shape == shape
    assert (found == fed).all()


def test_a_stop_keeps_symbolic_sizes(graph):
    x = sg.placeholder(sg.float32, ["n", 3, "m"])
    assert sg.stop_gradient(x).shape == x.shape


def body(x, gate):
    h = gate(sg.tanh(gate(x) * 2.0))
    return sg.reduce_sum(gate(h) * sg.exp(gate(gate(-h))))


def shape_of_graph(graph):
    """What a prepared graph computes, without its names."""
    return [
        (op.type, [(x.op.id, x.index) for x in op.inputs], dict(op.attributes), [y.type for y in op.outputs])
        for op in graph.operations
    ]


def prepared(gate):
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [5])
        y = body(x, gate)
    return prepare([y], [x])


@pytest.mark.parametrize("gate", GATES)
def test_what_engines_get_holds_no_trace_of_a_gate(gate):
    ready = prepared(GATES[gate])
    assert not [op for op in ready.graph.operations if op.definition.gate]
    plain = prepared(lambda x: x)
    needed = [op.type for op in ready.graph.subgraph_to(ready.outputs)]
    assert needed == [op.type for op in plain.graph.subgraph_to(plain.outputs)]


def test_a_stopped_graph_is_prepared_into_the_same_graph_as_one_without():
    assert shape_of_graph(prepared(sg.stop_gradient).graph) == shape_of_graph(prepared(lambda x: x).graph)


def test_compiled_code_is_the_same_with_and_without_stops():
    jax = pytest.importorskip("jax")

    def compiled(gate):
        ready = prepared(gate)
        run = engine_called("xla").compile(ready.inputs, ready.outputs)
        return jax.jit(lambda x: run([x])).lower(np.zeros(5, np.float32)).compile().as_text()

    # Both from one line, because XLA notes the line of the call in the code.
    plain, stopped = [compiled(gate) for gate in (lambda x: x, sg.stop_gradient)]
    assert "tanh" in plain
    assert stopped == plain


def test_gradients_are_prepared_without_gates_too(graph):
    x = sg.placeholder(sg.float32, [5])
    y = sg.reduce_sum(
        sg.probe(sg.clip_gradient(sg.scale_gradient(x * x, 2.0), -1.0, 1.0), "p")
        * sg.stop_gradient(sg.exp(x))
    )
    (dx,) = sg.gradients(y, [x])
    (ddx,) = sg.gradients(dx, [x])
    assert any(op.definition.gate for op in graph.subgraph_to([ddx]))
    ready = prepare([dx, ddx], [x])
    assert not [op for op in ready.graph.operations if op.definition.gate]
