"""The gallery of mistakes: the guilty line is the one that is named, and nothing is said against the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from mistakes import MARK, PAGE, SYMPTOMS, Mistake, mistakes, page
from mistakes_in_jax import in_jax
from stopgrad.source import Location
from stopgrad.structure import flatten

jax = pytest.importorskip("jax")

BY_NAME = {mistake.name: mistake for mistake in mistakes()}
ALL = [pytest.param(mistake, id=mistake.name) for mistake in mistakes()]
EXPLAINED = [pytest.param(m, id=m.name) for m in mistakes() if m.learns or m.held]

UNEVEN = {"stop_in_branch": 1, "straight_through_reversed": 1}
"""Programs in which an integer or a comparison ends a path as well, by right: in how many lines."""


def lines_of(places: list[Location | None], mistake: Mistake) -> set[int]:
    """The lines of places, all of them in the program."""
    found = [place for place in places if place is not None]
    assert len(found) == len(places)
    assert {place.file for place in found} <= {str(mistake.path)}
    return {place.line for place in found}


def test_there_are_programs_for_every_symptom_and_each_marks_its_line() -> None:
    assert len(mistakes()) >= 30
    assert {mistake.symptom for mistake in mistakes()} == set(SYMPTOMS)
    for mistake in mistakes():
        assert mistake.lines, mistake.name
        assert mistake.seen
        assert mistake.story
        assert len(mistake.text.split('"""')[2].strip().splitlines()) <= 48, mistake.name


def test_the_page_is_what_the_programs_give() -> None:
    assert PAGE.read_text() == page(), "python tests/mistakes.py writes it anew"


# ------------------------------------------------------------------------------------------------- explain


@pytest.mark.parametrize("mistake", EXPLAINED)
def test_what_was_to_learn_is_cut_at_the_marked_line(mistake: Mistake) -> None:
    flow, cured = mistake.flow("broken"), mistake.flow("cured")
    cut = mistake.symptom in ("none", "inert") or (mistake.symptom == "large" and not mistake.held)
    named: set[int] = set()
    for key in mistake.learns:
        reach = flow[key]
        guilty = sg.Status.STOPPED if reach.arrives else reach.status
        cuts = [cut for cut in reach.cuts if cut.status is guilty]
        if cut:
            named |= lines_of([cut.location for cut in cuts], mistake)
            assert len(reach.cuts) - len(cuts) == (UNEVEN.get(mistake.name, 0) if cuts else 0)
            assert all(key in cut.behind for cut in cuts)
        assert cured[key].arrives, key
    assert named == (set(mistake.lines) if cut else set())


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in mistakes() if m.held])
def test_what_was_to_be_held_is_held_by_the_cure(mistake: Mistake) -> None:
    assert not mistake.complaint("cured")
    cured = mistake.flow("cured")
    assert not any(cured[key].arrives for key in mistake.held)


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in mistakes() if m.leaks])
def test_a_gradient_that_should_not_arrive_is_shown_to_come_through_the_marked_line(mistake: Mistake) -> None:
    flow = mistake.flow("broken")
    text = mistake.complaint("broken")
    assert mistake.path.name in text
    for line in mistake.lines:
        assert re.search(rf"^ *{line} \| .*{MARK}$", text, re.M), text
    arrives = [key for key in mistake.held if flow[key].arrives]
    assert lines_of([op.location for op in flow.open_path(arrives[0])[:-1]], mistake) >= set(mistake.lines)
    # A stop at that line, and nowhere else, would block it.
    guilty = [op for op in flow.marks() if op.location is not None and op.location.line in mistake.lines]
    there = [y for op in guilty for y in op.outputs]
    stopped = sg.explain(list(flow.ys), list(flow.xs.values()), stop_gradients=there)
    for key in mistake.held:
        assert not stopped[flow.xs[key]].arrives


@pytest.mark.parametrize("name", ["double_stop", "idle_stop", "dropped_stop"])
def test_a_stop_that_does_nothing_is_a_finding_at_its_line(name: str) -> None:
    mistake = BY_NAME[name]
    idle = [f for f in mistake.flow("broken").findings if f.kind == "idle"]
    assert lines_of([f.location for f in idle], mistake) == set(mistake.lines)


@pytest.mark.parametrize("mistake", EXPLAINED)
def test_no_stop_of_a_cured_program_is_idle(mistake: Mistake) -> None:
    assert not [f for f in mistake.flow("cured").findings if f.kind == "idle"]


@pytest.mark.parametrize(
    ("name", "status", "expression"),
    [
        (
            "vq_vae_lookup",
            "not differentiable",
            "((z[:, None, :] - codebook) ** 2).sum(axis=-1).argmin(axis=-1)",
        ),
        ("vq_vae_terms_swapped", "stopped", "sg.stop_gradient(e)"),
        ("sac_temperature_frozen", "stopped", "sg.stop_gradient(sg.exp(log_alpha))"),
        ("cast_in_the_way", "not differentiable", "sg.cast(x @ w, sg.int32)"),
        ("argmax_in_the_way", "not differentiable", "(x @ w).argmax(axis=-1)"),
        ("rounding_in_the_way", "not differentiable", "sg.round(w / step)"),
        ("accuracy_as_loss", "not differentiable", "x @ w > 0.0"),
        ("embedding_of_a_prediction", "not differentiable", "sg.cast(3.0 * sg.sigmoid(x @ w), sg.int32)"),
        ("rebound_parameter", "stopped", "sg.stop_gradient(sg.scan(step, (x, theta), length=5))"),
        ("stop_in_scan", "partly stopped", "sg.stop_gradient(state)"),
        ("stop_in_branch", "partly stopped", "sg.stop_gradient(e)"),
        ("stop_in_while", "partly stopped", "sg.stop_gradient(z)"),
        ("logits_detached", "stopped", "sg.stop_gradient(states @ policy)"),
        ("forces_stopped", "stopped", "sg.stop_gradient(sg.grad(energy, argnums=1)(weights, positions))"),
        ("custom_gradient_without_operand", "flows", "forgetful(x @ w, scale)"),
        ("straight_through_reversed", "partly stopped", "sg.stop_gradient(soft)"),
    ],
)
def test_the_status_and_the_very_expression(name: str, status: str, expression: str) -> None:
    mistake = BY_NAME[name]
    flow = mistake.flow("broken")
    assert flow[mistake.learns[0]].status == status
    cuts = [cut for key in mistake.learns for cut in flow[key].cuts]
    assert expression in {cut.location.source.removesuffix("  # <- here") for cut in cuts if cut.location}


def test_of_a_block_its_head_is_underlined_on_every_python() -> None:
    text = BY_NAME["sac_policy_inert"].report("broken").to_text()
    assert "| with sg.no_gradient():  # <- here\n       |      ^^^^^^^^^^^^^^^^\n" in text


def test_the_unused_target_network_is_disconnected() -> None:
    assert BY_NAME["dqn_target_unused"].report("broken")["target"].status == "disconnected"


# ------------------------------------------------------------------------------------------------- numbers


BLOCKS = ("block_too_wide", "sac_policy_inert")
"""JAX has no blocks without gradient."""


def gradients(program: Callable[..., Any], args: Sequence[Any]) -> dict[str, Any]:
    """The gradients by the paths of arguments; None where there is none."""
    numbers = [k for k, arg in enumerate(args) if all(leaf.dtype.kind == "f" for leaf in leaves_of(arg))]
    names = list(sg.explain(program, *args, argnums=numbers))
    found = sg.grad(program, argnums=numbers, unconnected="none")(*args)
    return dict(zip(names, flatten(found, none_is_leaf=True)[0], strict=True))


def leaves_of(arg: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in flatten(arg)[0]]


BESIDE_JAX = [
    pytest.param(mistake, which, id=f"{mistake.name}-{which}")
    for mistake in mistakes()
    for which in ("broken", "cured")
    if mistake.name not in BLOCKS and (mistake.symptom, which) != ("nan", "broken")
]


@pytest.mark.parametrize(("mistake", "which"), BESIDE_JAX)
def test_the_gradients_are_those_of_jax(mistake: Mistake, which: str) -> None:
    args = mistake.module.example()
    found = gradients(mistake.function(which), args)
    with jax.enable_x64(True):
        program = in_jax(mistake, which)
        numbers = tuple([k for k, arg in enumerate(args) if all(x.dtype.kind == "f" for x in leaves_of(arg))])
        expected = flatten(jax.grad(program, argnums=numbers)(*args))[0]
    for (name, gradient), reference in zip(found.items(), expected, strict=True):
        if gradient is None:
            assert not np.any(reference), name
        else:
            np.testing.assert_allclose(gradient, reference, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("mistake", EXPLAINED)
def test_the_mistake_changes_a_gradient_that_is_meant(mistake: Mistake) -> None:
    args = mistake.module.example()
    broken, cured = gradients(mistake.function("broken"), args), gradients(mistake.function("cured"), args)
    changed = []
    for key in mistake.learns + mistake.held:
        one, other = broken[key], cured[key]
        changed.append((one is None) != (other is None) or (one is not None and not np.allclose(one, other)))
    assert any(changed) == (mistake.name != "double_stop")


@pytest.mark.parametrize("mistake", EXPLAINED)
def test_the_gradients_of_a_cured_program_agree_with_differences(mistake: Mistake) -> None:
    """With what is stopped held."""
    assert sg.check_gradients(mistake.function("cured"), *mistake.module.example())


def test_a_stopped_mean_is_no_constant() -> None:
    mistake = BY_NAME["batch_mean_stopped"]
    check = sg.check_gradients(
        mistake.function("broken"), *mistake.module.example(), stops="ignore", raises=False
    )
    assert not check["w"].passed
    assert {held.location.line for held in check.held if held.location} == set(mistake.lines)
    assert sg.check_gradients(mistake.function("cured"), *mistake.module.example(), stops="ignore")


def test_a_reversed_gradient_has_the_other_sign() -> None:
    mistake = BY_NAME["gradient_reversal_sign"]
    signs = []
    for which in ("broken", "cured"):
        worst = mistake.report(which)["features"].worst
        signs.append(worst.generated * worst.numeric > 0.0)
    assert signs == [True, False]
    held = mistake.report("broken").held
    assert lines_of([one.location for one in held], mistake) == set(mistake.lines)


# --------------------------------------------------------------------------------- check, trace_nan, ablate


def test_a_wrong_custom_gradient_is_found_and_named() -> None:
    mistake = BY_NAME["custom_gradient_formula"]
    check = mistake.report("broken")
    assert not check
    assert [key for key in check if not check[key].passed] == ["w", "x"]
    assert lines_of([one.location for one in check.custom], mistake) == set(mistake.lines)
    assert mistake.report("cured")


@pytest.mark.parametrize(
    ("name", "where", "kind"),
    [
        ("nan_behind_where", "gradient", "nan"),
        ("nan_log_of_softmax", "forward", "inf"),
        ("nan_norm_at_zero", "gradient", "nan"),
        ("nan_mean_of_nothing", "forward", "nan"),
    ],
)
def test_the_first_nan_is_traced_to_the_marked_line(name: str, where: str, kind: str) -> None:
    mistake = BY_NAME[name]
    site = mistake.report("broken").first
    assert (site.where, site.kind) == (where, kind)
    place = site.location if where == "forward" else site.origin_location
    assert lines_of([place], mistake) == set(mistake.lines)
    assert site.cure
    cured = mistake.report("cured")
    assert not cured
    assert cured.first is None


def test_the_place_where_a_stop_would_save_work_is_the_marked_line() -> None:
    mistake = BY_NAME["softmax_maximum"]
    broken, cured = mistake.report("broken"), mistake.report("cured")
    assert lines_of([one.location for one in broken.suggestions], mistake) == set(mistake.lines)
    assert all(one.operations_saved > 0 for one in broken.suggestions)
    assert not cured.suggestions
    (stop,) = cured.stops
    assert stop.difference is not None
    assert stop.difference < 1e-12
    args = mistake.module.example()
    one, other = (gradients(mistake.function(which), args) for which in ("broken", "cured"))
    for key in one:
        np.testing.assert_allclose(one[key], other[key], atol=1e-14)


@pytest.mark.parametrize(("name", "zero"), [("dead_relu", ("w", "b")), ("sign_in_the_way", ("w",))])
def test_the_place_behind_which_every_gradient_is_zero_is_the_marked_line(
    name: str, zero: tuple[str, ...]
) -> None:
    mistake = BY_NAME[name]
    assert all(sg.explain(mistake.function("broken"), *mistake.module.example())[key].arrives for key in zero)
    broken = mistake.report("broken")
    assert lines_of([one.location for one in broken.zeros], mistake) == set(mistake.lines)
    assert {key for one in broken.zeros for key in one.disconnects} == set(zero)
    assert not mistake.report("cured").zeros
    found, cured = (gradients(mistake.function(f), mistake.module.example()) for f in ("broken", "cured"))
    for key in zero:
        assert not found[key].any()
        assert cured[key].any()


def test_a_weight_that_is_multiplied_by_zero_is_told_apart() -> None:
    mistake = BY_NAME["dead_relu"]
    every = sg.ablate(mistake.function("broken"), *mistake.module.example(), argnums=(0, 1, 2), repeats=1)
    (line,) = mistake.lines
    assert {(one.location.line, one.disconnects) for one in every.zeros} == {
        (line, ("w", "b")),
        (line + 1, ("v",)),
    }


def test_ablate_says_of_the_stops_of_cured_programs_that_they_change_the_gradient() -> None:
    for name in ("dqn_target_not_stopped", "fomaml_second_order", "simsiam_not_stopped"):
        mistake = BY_NAME[name]
        (stop,) = sg.ablate(mistake.function("cured"), *mistake.module.example(), repeats=1).stops
        assert stop.difference is not None
        assert stop.difference > 1e-3
