"""Every gate, in every kind of body, out to ONNX and back: derivatives of both orders are as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_gates import BODIES, GATES, X, built, sevenfold
from stopgrad.errors import GradientError
from together import together

import stopgrad as sg
import stopgrad.onnx as sgo


def derivatives(y: Any, inputs: dict[str, Any], xs: dict[str, Any]) -> Any:
    """The value, the gradients, and those of the gradients' squared norm; or what an error says."""
    graph = y.op.graph
    with graph.as_default():
        try:
            first = [g for g in sg.gradients(y, list(xs.values())) if g is not None]
            norm = sg.add_n([sg.reduce_sum(sg.square(g)) for g in first])
            second = sg.gradients(norm, list(xs.values()))
        except GradientError as error:
            return error.message.splitlines()[0]
    fed = {inputs["x"]: X, inputs["on"]: np.array(True)}
    with sg.Session(graph, engine="numpy") as session:
        return session.run([y, first, [g for g in second if g is not None]], fed)


def statuses(y: Any, xs: dict[str, Any]) -> list[str]:
    found = sg.explain(y, list(xs.values()))
    return [found[x].status for x in xs.values()]


def agree(model: Any, y: Any, inputs: dict[str, Any], xs: dict[str, Any]) -> None:
    back = sgo.load(model)
    own = {"x": back.inputs["x"], "w": back.parameters["w"], "v": back.parameters["v"]}
    z = back.outputs["y"]
    assert statuses(z, own) == statuses(y, xs)
    found, wanted = derivatives(z, back.inputs, own), derivatives(y, inputs, xs)
    if isinstance(wanted, str):
        assert isinstance(found, str)
        assert "never here" in found
        return
    for one, other in zip(sg.tree.leaves(found), sg.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


CASES = [pytest.param(gate, body, id=f"{gate} in {body}") for body in BODIES for gate in GATES]


@pytest.mark.slow
@together(("gate", "body"), CASES, parts=4)
def test_gates_in_bodies(gate: str, body: str) -> None:
    with sg.Graph().as_default():
        y, inputs, xs = built(gate, body)
    model = sgo.to_model({"y": y}, inputs)
    onnx.checker.check_model(model, full_check=True)
    agree(model, y, inputs, xs)


def in_function(model: Any) -> Any:
    """The same model, whose nodes stand in a function of its own."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    given = [x.name for x in graph.input] + [t.name for t in graph.initializer]
    results = [y.name for y in graph.output]
    whole = onnx.helper.make_function("own", "whole", given, results, graph.node, made.opset_import)
    made.functions.append(whole)
    del graph.node[:]
    graph.node.append(onnx.helper.make_node("whole", given, results, domain="own"))
    made.opset_import.append(onnx.helper.make_opsetid("own", 1))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
def test_gates_in_functions(gate: str) -> None:
    with sg.Graph().as_default():
        y, inputs, xs = built(gate, "cond")
    agree(in_function(sgo.to_model({"y": y}, inputs)), y, inputs, xs)


# --------------------------------------------------------------------------------------- custom gradients


def sevens() -> Any:
    """A model of ``sum(tanh(x * w))``, whose gradient is said to be 7 times the cotangent."""
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 3], name="x")
        w = sg.parameter(np.ones(3, np.float32), name="w")
        return sgo.to_model({"y": sg.reduce_sum(sevenfold(x * w))}, {"x": x})


def test_a_custom_gradient_is_the_functions_own_after_it_has_come_back() -> None:
    model = sevens()
    assert [f.name for f in model.functions] == ["CustomGradient_0", "gradient_of_CustomGradient_0"]
    back = sgo.load(model)
    found = sg.grad(lambda p: back.apply(p, X))(back.values())
    np.testing.assert_allclose(found["w"], 7.0 * X.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(back(X), np.tanh(X).sum(), rtol=1e-6)


@pytest.mark.slow
def test_runtimes_compute_the_function() -> None:
    runtime = pytest.importorskip("onnxruntime")
    with sg.Graph().as_default():
        y, inputs, _ = built("custom, gates", "while")
    session = runtime.InferenceSession(sgo.to_model({"y": y}, inputs).SerializeToString())
    with sg.Session(y.op.graph, engine="numpy") as own:
        expected = own.run(y, {inputs["x"]: X, inputs["on"]: np.array(True)})
    (found,) = session.run(None, {"x": X, "on": np.array(True)})
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_gradient_function_that_onnx_cannot_express_is_refused_and_the_cure_works() -> None:
    @sg.custom_gradient
    def factorised(x: Any) -> Any:
        return x * 2.0, lambda g: g * sg.reduce_sum(sg.linalg.svd(x)[0])

    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [4, 3], name="x")
        y = sg.reduce_sum(factorised(x))
        with pytest.raises(sg.EngineError, match="gradient function has no form in ONNX") as caught:
            sgo.to_model({"y": y})
        assert "gates=False" in str(caught.value)
        plain = sgo.to_model({"y": y}, gates=False)
    assert not plain.functions
    np.testing.assert_allclose(sgo.load(plain)(X), 2.0 * X.sum(), rtol=1e-6)


def test_a_gradient_function_that_calls_python_is_refused() -> None:
    @sg.custom_gradient
    def told(x: Any) -> Any:
        def gradient(g: Any) -> Any:
            sg.debug_callback(lambda a: None, g)
            return g

        return x * 2.0, gradient

    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [4, 3], name="x")
        with pytest.raises(sg.EngineError, match=r"gradient function.*gates=False"):
            sgo.to_model({"y": sg.reduce_sum(told(x))})


def changed(model: Any, **attributes: Any) -> Any:
    """A model whose call of a custom gradient says something else."""
    node = next(node for node in model.graph.node if node.domain == "stopgrad")
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    given = {key: value for key, value in attributes.items() if value is not None}
    node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in given.items())
    return model


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"gradient": "elsewhere"}, "lacks its gradient function, stopgrad::elsewhere"),
        ({"kept": None}, "lacks kept"),
        ({"kept": "0 0"}, "does not fit"),
        ({"kept": "0 1 2 3"}, "does not fit"),
        ({"returned": "-1"}, "does not fit"),
        ({"returned": "4"}, "does not fit"),
        ({"returned": "one"}, "cannot be read"),
        ({"asked": -5}, "does not fit"),
        ({"kept": 3}, "cannot be read"),
    ],
)
def test_calls_that_say_something_else_are_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(sg.GraphError, match=why):
        sgo.load(changed(sevens(), **said))


def test_a_gradient_function_that_needs_itself_is_refused() -> None:
    model = sevens()
    own = next(f for f in model.functions if f.name == "gradient_of_CustomGradient_0")
    call = next(node for node in model.graph.node if node.domain == "stopgrad")
    again = own.node.add()
    again.CopyFrom(call)
    again.input[:], again.output[:] = ["g0", "x0"], ["again"]
    own.node.append(onnx.helper.make_node("Add", ["again", own.output[0]], ["more"]))
    own.output[0] = "more"
    own.opset_import.append(onnx.helper.make_opsetid("stopgrad", 1))
    with pytest.raises(sg.FileError, match="one calls itself"):
        sgo.load(model)


def test_a_gradient_function_whose_unread_inputs_a_tool_has_dropped_is_read_by_name() -> None:
    with sg.Graph().as_default():
        y, inputs, xs = built("custom_vjp", "graph")
    model = sgo.to_model({"y": y}, inputs)
    own = next(f for f in model.functions if f.name == "gradient_of_CustomGradient_0")
    read = {x for node in own.node for x in node.input}
    kept = [x for x in own.input if x in read]
    assert len(kept) < len(own.input)
    own.input[:] = kept
    agree(model, y, inputs, xs)
    own.input[0] = own.node[-1].input[1] = "elsewhere"
    with pytest.raises(sg.GraphError, match="input 'elsewhere', which the call has no operand for"):
        sgo.load(model)
