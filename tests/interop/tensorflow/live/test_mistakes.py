"""The gallery of mistakes in TensorFlow: the guilty line is named, the cure is sound, TensorFlow agrees."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from mistake_checks import (  # noqa: E402 - TensorFlow may be absent
    check_cuts,
    check_gallery,
    check_held,
    check_leak,
    check_none_idle,
    explained,
    lines_of,
)
from mistakes import Mistake  # noqa: E402
from tensorflow_mistakes import TENSORFLOW, asked  # noqa: E402

import stopgrad.tensorflow as sgtf  # noqa: E402

pytestmark = pytest.mark.slow

BY_NAME = {mistake.name: mistake for mistake in TENSORFLOW.mistakes}

FOUND = {
    "constant_of_tensors": "left",
    "gan_through_numpy": "left",
    "layer_not_in_the_loss": "unused",
    "numpy_function": "unused",
    "numpy_function_on_a_tensor": "unused",
    "numpy_in_the_loss": "left",
    "predict_in_the_tape": "left",
    "scale_as_a_float": "left",
    "vae_samples_with_numpy": "left",
}
"""Programs whose loss does not depend on what is to learn: no line cuts, and a finding names one."""
SAID = {
    "head_without_a_loss_in_fit": "disconnected: box/kernel, box/bias",
    "integer_variable": "not differentiable: degree (int32 carries no gradient)",
    "integer_watched": "not differentiable: x (int32 carries no gradient)",
    "layer_frozen": "backbone/kernel, backbone/bias: frozen, trainable is False",
    "variable_not_trainable": "temperature: frozen, trainable is False",
    "weights_of_another_model": "disconnected: average/kernel, average/bias",
}
"""Programs in which no line between the loss and what is to learn is guilty, and what is said of them."""
UNEVEN = {"straight_through_turned_round": 1}
"""Programs in which a rounding ends a path as well, by right: in how many lines."""
ON_PURPOSE = {
    "floor_of_coordinates": {"where": "partly stopped"},
    "indices_of_top_k": {"router/kernel": "partly stopped", "router/bias": "partly stopped"},
    "rounding_in_the_way": {"w": "partly stopped"},
    "sign_of_the_weights": {"w": "partly stopped"},
    "straight_through_turned_round": {"w": "partly stopped"},
    "dqn_target_learns": {"target/kernel": "stopped", "target/bias": "stopped"},
    "distillation_moves_the_teacher": {"teacher/kernel": "stopped", "teacher/bias": "stopped"},
}
"""What a cured program cuts by intent: a straight-through, which expert is chosen, a target."""
ZEROS = {"sign_of_the_weights"}
"""Programs for which TensorFlow gives a gradient that is zero everywhere."""


def cases(mistakes: list[Mistake]) -> list[object]:
    return [pytest.param(mistake, id=mistake.name) for mistake in mistakes]


def test_there_are_programs_for_every_symptom_and_each_marks_its_line() -> None:
    check_gallery(TENSORFLOW, at_least=50)


def test_the_page_is_what_the_programs_give() -> None:
    told = "python tests/helpers/tensorflow_mistakes.py writes it anew"
    assert TENSORFLOW.file.read_text() == TENSORFLOW.page(), told


@pytest.mark.parametrize(
    "mistake", cases([m for m in explained(TENSORFLOW) if m.name not in {*FOUND, *SAID}])
)
def test_what_was_to_learn_is_cut_at_the_marked_line(mistake: Mistake) -> None:
    check_cuts(mistake, UNEVEN.get(mistake.name, 0))


@pytest.mark.parametrize(("name", "kind"), FOUND.items())
def test_a_path_that_leaves_tensorflow_is_a_finding_at_the_marked_line(name: str, kind: str) -> None:
    mistake = BY_NAME[name]
    flow = mistake.flow("broken")
    assert {flow[key].status for key in mistake.learns} == {"disconnected"}
    found = [f for f in flow.findings if f.kind == kind and set(f.keys) & set(mistake.learns)]
    assert lines_of([f.location for f in found], mistake) == set(mistake.lines)
    assert {key for f in found for key in f.keys} == set(mistake.learns)


@pytest.mark.parametrize(("name", "text"), SAID.items())
def test_what_is_no_line_s_fault_is_said(name: str, text: str) -> None:
    mistake = BY_NAME[name]
    assert text in mistake.flow("broken").to_text()
    assert not any(mistake.flow("broken")[key].arrives for key in mistake.learns)


@pytest.mark.parametrize("mistake", cases(list(TENSORFLOW.mistakes)))
def test_nothing_is_said_against_the_cured_program(mistake: Mistake) -> None:
    flow = mistake.flow("cured")
    assert all(flow[key].arrives for key in mistake.learns)
    partly = {key: flow[key].status for key in flow if flow[key].status != "flows"}
    assert partly == ON_PURPOSE.get(mistake.name, {})
    assert not [f for f in flow.findings if set(f.keys) - set(mistake.held)]
    check_none_idle(mistake)


@pytest.mark.parametrize("mistake", cases([m for m in TENSORFLOW.mistakes if m.held]))
def test_what_was_to_be_held_is_held_by_the_cure(mistake: Mistake) -> None:
    check_held(mistake)


@pytest.mark.parametrize("mistake", cases([m for m in TENSORFLOW.mistakes if m.leaks]))
def test_a_gradient_that_should_not_arrive_is_shown_to_come_through_the_marked_line(mistake: Mistake) -> None:
    check_leak(mistake)


@pytest.mark.parametrize("which", ["broken", "cured"])
@pytest.mark.parametrize("mistake", cases(list(TENSORFLOW.mistakes)))
def test_a_gradient_arrives_where_tensorflow_gives_one(mistake: Mistake, which: str) -> None:
    seen = asked(mistake.function(which), mistake.module.example())
    assert seen.given
    for given, report in zip(seen.given, seen.reports, strict=True):
        arrives = {key: report[key].arrives for key in report}
        if which == "broken" and mistake.name in ZEROS:
            assert set(given.values()) == {True}
            assert set(arrives.values()) == {False}
        else:
            assert arrives == given


@pytest.mark.parametrize(
    ("name", "status", "told", "expression"),
    [
        ("stop_gradient_left_in", "stopped", "tf.stop_gradient", "tf.stop_gradient(encoder(x))"),
        ("recording_stopped", "stopped", "tape.stop_recording()", "encoder(x)"),
        (
            "loss_after_the_tape",
            "stopped",
            "after the tape was closed",
            "tf.reduce_mean((prediction - y) ** 2)",
        ),
        ("features_before_the_tape", "stopped", "before the tape was opened", "backbone(x)"),
        ("tensor_not_watched", "stopped", "no tape watched it", "tf.GradientTape() as tape"),
        ("variables_not_watched", "stopped", "does not watch variables", "watch_accessed_variables=False"),
        ("argmax_as_prediction", "not differentiable", "no gradient", "tf.argmax(model(x), axis=-1)"),
        ("sign_of_the_weights", "not differentiable", "zero everywhere", "tf.sign(w)"),
        ("assigned_and_read", "stopped", "what is assigned to it", "w.assign("),
        ("variable_of_a_tensor", "stopped", "what is assigned to it", "tf.Variable(encoder(x))"),
        (
            "custom_gradient_returns_none",
            "not differentiable",
            "returns None",
            "forgetful(w * x, tf.exp(slope))",
        ),
        ("numpy_function_in_a_graph", "not differentiable", "no gradient", "tf.numpy_function("),
        ("stop_in_a_loop", "partly stopped", "tf.stop_gradient", "tf.stop_gradient(state)"),
        ("stop_in_a_layer", "stopped", "memory", "tf.stop_gradient(x)"),
        ("keras_stop_in_the_model", "stopped", "model", "model(x)"),
    ],
)
def test_the_status_the_reason_and_the_very_expression(
    name: str, status: str, told: str, expression: str
) -> None:
    flow = BY_NAME[name].flow("broken")
    reach = flow[BY_NAME[name].learns[0]]
    assert reach.status == status
    assert any(told in cut.reason for cut in reach.cuts), [cut.reason for cut in reach.cuts]
    sources = {cut.location.cause.source for cut in reach.cuts if cut.location}
    assert any(expression in source for source in sources), sources


# ------------------------------------------------------------------ errors of TensorFlow's own, which pass on


def test_a_tape_that_is_used_twice_raises_as_it_does_without_a_watch() -> None:
    w = tf.Variable(2.0, name="w")
    with sgtf.watch() as seen:
        with tf.GradientTape() as tape:
            loss = w * w
        tape.gradient(loss, w)
        with pytest.raises(RuntimeError, match="non-persistent GradientTape can only be used"):
            tape.gradient(loss, w)
    (call,) = seen.gradient_calls
    assert call.given == {"w": True}
    with sgtf.watch() as seen:
        with tf.GradientTape(persistent=True) as tape:
            loss = w * w
        tape.gradient(loss, w)
        tape.gradient(loss, w)
    assert [call.explain()["w"].status for call in seen.gradient_calls] == ["flows", "flows"]


def test_an_operation_without_a_gradient_function_raises_and_is_named_all_the_same() -> None:
    w = tf.Variable([0.1, 0.2, 0.3], name="w")
    with sgtf.watch() as seen, tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.raw_ops.AdjustHue(images=tf.reshape(w, [1, 1, 3]), delta=0.1))
    with pytest.raises(LookupError), seen:
        tape.gradient(loss, w)
    assert not seen.explain(loss, w)["w"].arrives


def test_a_wrong_shape_raises_tensorflow_s_own_error() -> None:
    with sgtf.watch(), tf.GradientTape(), pytest.raises(tf.errors.InvalidArgumentError):
        tf.linalg.matmul(tf.ones([2, 3]), tf.ones([2, 3]))


# ------------------------------------------------------------------------------------- what is right as it is


def test_the_rows_of_an_embedding_get_a_sparse_gradient() -> None:
    table = tf.Variable(tf.ones([5, 2]), name="table")
    with sgtf.watch() as seen:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([1, 3])) ** 2)
        gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices)
    flow = seen.gradient_calls[0].explain()
    assert flow["table"].status == "flows"
    assert not flow.findings


@tf.custom_gradient
def numb(x):
    return x * 2.0, tf.zeros_like


def test_zeros_of_a_custom_gradient_are_a_gradient_and_have_no_size() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    with sgtf.watch() as seen:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(numb(w))
        tape.gradient(loss, w)
    (call,) = seen.gradient_calls
    assert call.given == {"w": True}
    assert call.explain()["w"].status == "flows"
    flow = sgtf.explain(lambda: tf.reduce_sum(numb(w)), magnitudes=True)
    (found,) = [f for f in flow.findings if "w" in f.keys]
    assert found.kind == "zero"


def test_variables_that_tensorflow_fills_with_zeros_are_not_given() -> None:
    w, other = tf.Variable(2.0, name="w"), tf.Variable(3.0, name="other")
    with sgtf.watch() as seen:
        with tf.GradientTape() as tape:
            loss = w * w
        tape.gradient(loss, [w, other], unconnected_gradients=tf.UnconnectedGradients.ZERO)
    (call,) = seen.gradient_calls
    assert call.given == {"w": None, "other": None}
    assert [str(call.explain()[key].status) for key in ("w", "other")] == ["flows", "disconnected"]
