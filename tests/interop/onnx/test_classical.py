"""Models of scikit-learn, XGBoost and LightGBM: onnxruntime's values, and gradients where they exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import stopgrad.onnx as sgo  # noqa: E402

# Made by tests/helpers/onnx_exports_classical.py.
FILE = Path(__file__).parent / "exported" / "classical.npz"
STORED = dict(np.load(FILE))
NAMES = [key.removesuffix("/model") for key in STORED if key.endswith("/model")]


def loaded(name: str) -> Any:
    return sgo.load(STORED[f"{name}/model"].tobytes())


def test_as_many_are_kept_as_the_script_makes() -> None:
    assert len(NAMES) == 39
    nodes = {
        node.op_type
        for name in NAMES
        for node in onnx.load_model_from_string(STORED[f"{name}/model"].tobytes()).graph.node
    }
    assert nodes >= {
        *("LinearRegressor", "LinearClassifier", "SVMRegressor", "SVMClassifier", "Scaler", "Normalizer"),
        *("Imputer", "OneHotEncoder", "LabelEncoder", "ArrayFeatureExtractor", "Binarizer", "ZipMap"),
        *("TreeEnsembleRegressor", "TreeEnsembleClassifier"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_values_are_onnxruntimes(name: str) -> None:
    model = loaded(name)
    ((given, x),) = model.inputs.items()
    assert given
    with sg.Session(model.graph, engine="numpy") as session:
        found = session.run(dict(model.outputs), {x: STORED[f"{name}/input"]})
    for key, value in found.items():
        expected = STORED[f"{name}/output/{key}"]
        assert np.asarray(value).dtype == expected.dtype
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("xla", marks=pytest.mark.nightly)])
def test_values_are_the_same_on_other_engines(engine: str) -> None:
    for name in NAMES:
        model = loaded(name)
        (x,) = model.inputs.values()
        with sg.Session(model.graph, engine=engine) as session:
            found = session.run(dict(model.outputs), {x: STORED[f"{name}/input"]})
        for key, value in found.items():
            expected = STORED[f"{name}/output/{key}"]
            np.testing.assert_allclose(value, expected, rtol=5e-5, atol=5e-6, err_msg=f"{name}: {key}")


def gradient(name: str) -> Any:
    """Of the sum of the last result, by the input."""
    model = loaded(name)
    (x,) = model.inputs.values()
    with model.graph.as_default():
        (g,) = sg.gradients(sg.reduce_sum(list(model.outputs.values())[-1][:, -1]), [x])
    with sg.Session(model.graph, engine="numpy") as session:
        return session.run(g, {x: STORED[f"{name}/input"]})


def numbers(name: str, op_type: str, attribute: str) -> Any:
    graph = onnx.load_model_from_string(STORED[f"{name}/model"].tobytes()).graph
    (node,) = (one for one in graph.node if one.op_type == op_type)
    return next(np.float64(helper.get_attribute_value(a)) for a in node.attribute if a.name == attribute)


def test_a_scaler_has_its_scale_as_gradient() -> None:
    scale = numbers("scaler", "Scaler", "scale")
    found = gradient("scaler")
    np.testing.assert_allclose(found[:, -1], scale[-1], rtol=1e-6)
    assert not found[:, :-1].any()


def test_a_logistic_regression_has_the_gradient_of_its_closed_form() -> None:
    x, w = np.float64(STORED["logistic/input"]), numbers("logistic", "LinearClassifier", "coefficients")[4:]
    p = 1 / (1 + np.exp(-(x @ w + numbers("logistic", "LinearClassifier", "intercepts")[1])))
    np.testing.assert_allclose(gradient("logistic"), (p * (1 - p))[:, None] * w, rtol=1e-4, atol=1e-6)


def test_a_support_vector_machine_has_the_gradient_of_its_closed_form() -> None:
    name, op_type = "machine, rbf", "SVMRegressor"
    x, gamma = np.float64(STORED[f"{name}/input"]), numbers(name, op_type, "kernel_params")[0]
    vectors, weights = (
        numbers(name, op_type, "support_vectors").reshape(-1, 4),
        numbers(name, op_type, "coefficients"),
    )
    apart = x[:, None] - vectors
    kernel = np.exp(-gamma * (apart**2).sum(-1))
    expected = (weights[:, None] * kernel[..., None] * -2 * gamma * apart).sum(1)
    np.testing.assert_allclose(gradient(name), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["tree", "forest of two", "xgboost of three", "lightgbm"])
def test_trees_are_not_differentiable_and_say_why(name: str) -> None:
    model = loaded(name)
    (x,) = model.inputs.values()
    flow = sg.explain(list(model.outputs.values())[-1], [x])
    assert flow[x].status == "not differentiable"
    assert any(re.search("comparison", cut.reason) for cut in flow[x].cuts)
    assert any(re.search("TreeEnsemble", cut.location.source) for cut in flow[x].cuts)


def of(op_type: str, x: Any, outputs: dict[str, int], version: int = 1, **attributes: Any) -> Any:
    """A model of one operator of ai.onnx.ml."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(op_type, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    made = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, [None, *x.shape[1:]])], made
    )
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


X = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
K = np.array([[1, 2], [5, 9]])
TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.1, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "nodes_hitrates": [1.0, 1.0, 1.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
}
LEAVES = {
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, -2.0],
}
LACKING = X.copy()
LACKING[2, 1], LACKING[3, 1] = np.nan, 0.1
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CLASSES = {"label": INT64, "scores": FLOAT}
FORMS: dict[str, Any] = {
    **{
        f"two classes of one score, {kind}": (
            "LinearClassifier",
            X,
            CLASSES,
            {
                "coefficients": [0.3, -0.2, 0.1],
                "intercepts": [0.4],
                "classlabels_ints": [3, 7],
                "post_transform": kind,
            },
        )
        for kind in ("NONE", "LOGISTIC")
    },
    **{
        f"targets, {kind}": (
            "LinearRegressor",
            X,
            {"y": FLOAT},
            {
                "coefficients": [0.3, -0.2, 0.1, 0.1, 0.2, 0.0],
                "intercepts": [0.4, 0.5],
                "targets": 2,
                "post_transform": kind,
            },
        )
        for kind in ("SOFTMAX", "SOFTMAX_ZERO", "LOGISTIC")
    },
    **{
        f"{mode}, a NaN {'tracks true' if tracks else 'goes on'}": (
            "TreeEnsembleRegressor",
            LACKING,
            {"y": FLOAT},
            {
                **TREE,
                **LEAVES,
                "n_targets": 1,
                "nodes_modes": [mode, "LEAF", "LEAF"],
                "nodes_missing_value_tracks_true": [tracks, 0, 0],
            },
        )
        for mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
        for tracks in (0, 1)
    },
    "a label encoder of floats": (
        "LabelEncoder",
        K,
        {"y": FLOAT},
        {"keys_int64s": [1, 2], "values_floats": [0.1, 0.2]},
    ),
    "an imputer of integers": (
        "Imputer",
        K,
        {"y": INT64},
        {"imputed_value_int64s": [4, 5], "replaced_value_int64": 5},
    ),
    "features put together": ("FeatureVectorizer", X, {"y": FLOAT}, {"inputdimensions": [2]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_that_no_exporter_here_writes_are_onnxruntimes(form: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    op_type, x, outputs, attributes = FORMS[form]
    source = of(op_type, x, outputs, 2 if op_type == "LabelEncoder" else 1, **attributes)
    expected = onnxruntime.InferenceSession(source.SerializeToString()).run(None, {"x": x})
    model = sgo.load(source)
    with sg.Session(model.graph, engine="numpy") as session:
        found = session.run(list(model.outputs.values()), {model.inputs["x"]: x})
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, Any] = {
    "labels are strings": (
        "LinearClassifier",
        {"coefficients": [1.0, 2, 3], "intercepts": [0.0], "classlabels_strings": ["a"]},
    ),
    "tree 0 has no node 9": ("TreeEnsembleRegressor", {**TREE, **LEAVES, "nodes_truenodeids": [9, 0, 0]}),
    "compares column 5 of 3": ("TreeEnsembleRegressor", {**TREE, **LEAVES, "nodes_featureids": [5, 0, 0]}),
    "not all of one length": ("TreeEnsembleRegressor", {**TREE, **LEAVES, "nodes_values": [1.0]}),
    "names target 3 of 1": ("TreeEnsembleRegressor", {**TREE, **LEAVES, "target_ids": [0, 3]}),
    "leads back to a node above": (
        "TreeEnsembleRegressor",
        {**TREE, **LEAVES, "nodes_truenodeids": [0, 0, 0], "nodes_falsenodeids": [2, 0, 0]},
    ),
    "7 coefficients are not those of 2 rows": ("LinearRegressor", {"coefficients": [1.0] * 7, "targets": 2}),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_read_is_refused(said: str) -> None:
    op_type, attributes = REFUSED[said]
    outputs = CLASSES if op_type == "LinearClassifier" else {"y": FLOAT}
    with pytest.raises(sg.GraphError, match=said):
        sgo.load(of(op_type, X, outputs, **attributes))
