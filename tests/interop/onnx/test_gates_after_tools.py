"""Every gate after tools that erase functions: it is put back when the model is loaded, or warned of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx_gates import GATES, X, built
from together import together

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx.erased import LISTED, restored

runtime = pytest.importorskip("onnxruntime")

BODIES = ("graph", "cond", "while", "scan", "loop in cond")


def optimised(level: str) -> Callable[[Path, Path], None]:
    def run(source: Path, target: Path) -> None:
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 4
        runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return run


def inlined(source: Path, target: Path) -> None:
    onnx.save(onnx.inliner.inline_local_functions(onnx.load(source)), target)


def converted(source: Path, target: Path) -> None:
    onnx.save(onnx.version_converter.convert_version(onnx.load(source), 20), target)


def scripted(source: Path, target: Path) -> None:
    ir = pytest.importorskip("onnx_ir")
    model = ir.load(source)
    pytest.importorskip("onnxscript.optimizer").optimize(model)
    ir.save(model, target)


def simplified(source: Path, target: Path) -> None:
    made, _ = pytest.importorskip("onnxsim").simplify(onnx.load(source))
    onnx.save(made, target)


TOOLS = {
    "onnx.inliner": inlined,
    "onnx.version_converter": converted,
    "onnxruntime, basic": optimised("ORT_ENABLE_BASIC"),
    "onnxruntime, all": optimised("ORT_ENABLE_ALL"),
    "onnxscript.optimizer": scripted,
    "onnxsim": simplified,
}

GONE = {"stop when not", "scale by a tensor", "straight through", "custom_vjp"}
"""Gates with an operand that is computed for them alone: onnxscript's optimizer drops it, and it is lost."""


def gradients(y: Any, inputs: Any, fed: dict[str, Any]) -> Any:
    """The value and the first derivatives; what an error says."""
    xs = [inputs[name] for name in ("x", "w", "v")]
    graph = y.op.graph
    with graph.as_default():
        try:
            found = [g for g in sg.gradients(y, xs) if g is not None]
        except sg.GradientError as error:
            return error.message.splitlines()[0]
    with sg.Session(graph, engine="numpy") as session:
        return session.run([y, *found], {inputs[name]: fed[name] for name in inputs})


def check(gate: str, body: str, tool: str, folder: Path) -> None:
    with sg.Graph().as_default():
        y, inputs, xs = built(gate, body)
    places = {**inputs, "w": xs["w"], "v": xs["v"]}
    fed = {"x": X, "on": np.array(True), **{name: xs[name].op.value.array for name in "wv"}}
    sgo.save(folder / "saved.onnx", {"y": y}, places)
    TOOLS[tool](folder / "saved.onnx", folder / "changed.onnx")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        back = sgo.load(folder / "changed.onnx")
    lost = any("erased" in str(one.message) for one in told)
    assert lost == (tool == "onnxscript.optimizer" and gate in GONE)
    if lost:
        return
    wanted = gradients(y, places, fed)
    found = gradients(back.outputs["y"], back.inputs, fed)
    if isinstance(wanted, str):
        assert "never here" in wanted
        assert "never here" in found
        return
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


CASES = [pytest.param(gate, tool, id=f"{gate}, {tool}") for tool in TOOLS for gate in GATES]


@pytest.mark.slow
@together(("gate", "tool"), CASES, parts=3)
def test_gates_after_tools(gate: str, tool: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(gate, "graph", tool, tmp_path_factory.mktemp("tools"))


@pytest.mark.nightly
@pytest.mark.parametrize("body", BODIES[1:])
@together(("gate", "tool"), CASES, parts=3)
def test_gates_in_bodies_after_tools(
    gate: str, tool: str, body: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if body in ("while", "loop in cond") and tool == "onnx.inliner" and gate in ("scale", "reverse"):
        pytest.skip("onnx 1.23 writes two nodes with a result of one name")
    check(gate, body, tool, tmp_path_factory.mktemp("tools"))


# ------------------------------------------------------------------------------------ what must not be done


def merged(build: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A model, and the same as a tool leaves it that erases gates and makes equal nodes one."""
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        model = sgo.to_model({"y": build(x)}, {"x": x})
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    names: dict[str, str] = {}
    known: dict[Any, str] = {}
    kept = []
    for node in changed.graph.node:
        node.input[:] = [names.get(x, x) for x in node.input]
        key = (node.op_type, tuple(node.input), node.attribute[0].t.raw_data if node.attribute else b"")
        if node.domain == "stopgrad":
            names[node.output[0]] = node.input[0]
        elif key in known:
            names[node.output[0]] = known[key]
        else:
            known[key] = node.output[0]
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
    for y in changed.graph.output:  # What makes an output has its name.
        for node in kept if y.name in names else ():
            for part in (node.input, node.output):
                part[:] = [y.name if x == names[y.name] else x for x in part]
    del changed.graph.node[:], changed.functions[:]
    changed.graph.node.extend(kept)
    return model, changed


MERGERS: dict[str, Callable[[Any], Any]] = {
    "readers of the operand and the result": lambda x: sg.tanh(sg.stop_gradient(x)) + sg.tanh(x),
    "the other way round": lambda x: sg.tanh(x) * 2.0 + sg.tanh(sg.stop_gradient(x)),
    "behind two gates": lambda x: (
        sg.tanh(sg.stop_gradient(sg.sin(sg.stop_gradient(x)))) + sg.tanh(sg.sin(x)) * 2.0
    ),
    "two gates on one tensor": lambda x: (
        sg.tanh(sg.stop_gradient(x)) + sg.tanh(sg.scale_gradient(x, 0.5)) * 2.0
    ),
}


@pytest.mark.parametrize("name", MERGERS)
def test_nothing_is_put_back_where_a_tool_may_have_made_one_node_of_two(name: str) -> None:
    model, changed = merged(MERGERS[name])
    found = restored(changed)
    assert found.back == []
    assert found.lost
    with pytest.warns(UserWarning, match=r"that an optimiser or inliner has erased, so gradients flow"):
        back = sgo.load(changed)
    assert not [op for op in back.graph.operations if op.definition.gate]
    x = np.array([0.5, -1.0, 2.0], np.float32)
    np.testing.assert_allclose(back(x), sgo.load(model)(x), rtol=1e-6)


def chain(x: Any) -> Any:
    """Gates behind one another, two at one place, and one as the result."""
    h = sg.stop_gradient(sg.scale_gradient(sg.sin(x), 0.5), wrt=[x])
    return sg.reverse_gradient(sg.exp(h) * h + sg.cos(sg.scale_gradient(x, 3.0)))


def test_gates_behind_one_another_are_put_back() -> None:
    model, changed = merged(chain)
    found = restored(changed)
    assert found.lost == []
    assert len(found.back) == 4
    first, second = sgo.load(model), sgo.load(changed)
    x = np.array([0.5, -1.0, 2.0], np.float32)
    kinds = [sorted(op.type for op in m.graph.operations if op.definition.gate) for m in (first, second)]
    assert kinds[0] == kinds[1]
    loss = [sg.grad(lambda x, m=m: sg.reduce_sum(m(x)))(x) for m in (first, second)]
    np.testing.assert_allclose(*loss, rtol=1e-6)


def test_a_model_from_which_nothing_is_gone_is_as_it_was() -> None:
    model, _ = merged(chain)
    assert restored(model).model is model


@pytest.mark.parametrize("said", ["", "[]", "{}", '{"gates": [1]}', '{"gates": [{"node": "!"}]}', "\x00"])
def test_a_damaged_list_says_nothing(said: str) -> None:
    _, changed = merged(chain)
    entry = next(e for e in changed.metadata_props if e.key == LISTED)
    entry.value = said
    assert restored(changed).model is changed
    assert sgo.load(changed)(np.ones(3, np.float32)).shape == (3,)
