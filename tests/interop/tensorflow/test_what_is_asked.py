"""Results, parameters and custom gradients are those of the program, as TensorFlow's own gradients are.

The graphs are in ``graphs``; their values and gradients are compared by ``test_load``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
import stopgrad.tensorflow as sgtf
from stopgrad.interop.tensorflow.messages import GraphDef

GRAPHS = Path(__file__).parent / "graphs"


def loaded(name: str, **settings: Any) -> Any:
    path = GRAPHS / name
    return sgtf.load(path if path.is_dir() else path.with_suffix(".pb"), **settings)


def named(model: Any, file: str) -> dict[str, str]:
    """The names of the parameters by those of TensorFlow's variables, which hold the same values."""
    with np.load(GRAPHS / f"{file}.npz") as held:
        variables = {key.partition("/")[2]: held[key] for key in held.files if key.startswith("variable/")}
    return {
        name: key
        for name, value in variables.items()
        for key, x in model.values().items()
        if np.array_equal(x, value)
    }


def statuses(name: str) -> dict[str, str]:
    """What a report says of each variable."""
    model = loaded(name)
    fed = [np.ones(x.shape, np.float32) for x in model.inputs.values()]
    report = sg.explain(lambda p: model.apply(p, *fed), model.values())
    return {name: report[f"p.{key}"].status for name, key in named(model, name).items()}


# --------------------------------------------------------------------------------------------- results


def test_a_layer_whose_result_is_dropped_is_no_result() -> None:
    model = loaded("dropped_layer")
    assert list(model.outputs) == ["Identity_1"]
    assert list(named(model, "dropped_layer")) == ["w"]
    assert len(model.parameters) == 1


def test_all_that_a_function_returns_are_results() -> None:
    model = loaded("two_results")
    assert list(model.outputs) == ["Identity", "Identity_1"]
    assert sorted(named(model, "two_results")) == ["extra", "w"]


def written(*nodes: tuple[str, str, list[str]]) -> Any:
    """A graph of an input ``x``, a stored ``w``, and these nodes: operation, name and what they read."""
    graph = GraphDef()
    for op, name, inputs in [("Placeholder", "x", []), ("Const", "w", []), *nodes]:
        node = graph.node.add(op=op, name=name)
        node.input.extend(inputs)
        node.attr["dtype"].type = 1
        if op == "Placeholder":
            node.attr["shape"].shape.dim.add(size=2)
    tensor = graph.node[1].attr["value"].tensor
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=2)
    tensor.float_val.append(1.0)
    return graph.SerializeToString()


def test_a_stored_variable_that_nothing_reads_is_no_result() -> None:
    assert list(sgtf.load(written(("Identity", "w/read", ["w"]), ("Exp", "y", ["x"]))).outputs) == ["y"]


def test_what_a_result_waits_for_is_none() -> None:
    waited = written(("Exp", "first", ["x"]), ("Log", "y", ["x", "^first"]))
    assert list(sgtf.load(waited).outputs) == ["y"]


def test_without_an_end_of_a_function_all_that_nothing_reads_are_results() -> None:
    assert list(sgtf.load(written(("Exp", "y", ["x"]), ("Log", "z", ["x"]))).outputs) == ["y", "z"]


def test_of_a_function_with_effects_what_runs_after_them_are_results() -> None:
    nodes = [("Exp", "a", ["x"]), ("Identity", "Identity", ["a"]), ("NoOp", "NoOp", ["^a"])]
    graph = written(*nodes, ("Identity", "Identity_1", ["a", "^NoOp"]))
    assert list(sgtf.load(graph).outputs) == ["Identity_1"]


# ------------------------------------------------------------------------------------------ parameters


def test_data_and_tables_that_a_loss_closes_over_are_no_parameters() -> None:
    model = loaded("data_and_weight")
    assert sorted(named(model, "data_and_weight")) == ["emb", "w"]
    assert len(model.parameters) == 2


def test_data_are_parameters_where_they_are_asked_for() -> None:
    model = loaded("data_and_weight", parameters=["*/a"])
    assert [x.shape for x in model.parameters.values()] == [(8, 2)]


def test_a_parameter_that_is_not_there_is_an_error_with_those_that_are() -> None:
    with pytest.raises(sg.ArgumentError, match=r"names 'dat\?'.* there are \[.*'matmul/a'"):
        loaded("data_and_weight", parameters="dat?")


def test_variables_of_a_saved_model_can_be_named() -> None:
    assert list(loaded("two_signatures", parameters="w").parameters) == ["w"]


def test_the_variables_of_a_keras_layer_in_a_module_have_their_values() -> None:
    model = loaded("module_holding_keras")
    assert sorted(named(model, "module_holding_keras")) == ["bias", "kernel", "w"]


# ------------------------------------------------------------------------------------ custom gradients


def test_a_straight_through_gradient_flows() -> None:
    assert statuses("straight_through") == {"w": "flows"}


def test_an_argument_for_which_a_gradient_function_returns_none_is_stopped() -> None:
    assert statuses("straight_through_for_one") == {"w": "stopped", "v": "flows"}


def test_what_a_custom_function_closes_over_is_stopped() -> None:
    assert statuses("custom_gradient_closing_over") == {"w": "flows", "v": "stopped"}


@pytest.mark.parametrize("name", ["custom_gradient_of_variables", "recomputed"])
def test_gradients_of_variables_in_a_custom_function_flow(name: str) -> None:
    assert statuses(name) == {"w": "flows", "v": "flows"}


# --------------------------------------------------------------------------------------- what is in memory


def test_a_function_is_nothing_to_load_as_long_as_tensorflow_is_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))  # As while it is being imported.
    with pytest.raises(sg.ArgumentError, match=r"takes the path of a graph.*, not <function"):
        sgtf.load(lambda: None)
