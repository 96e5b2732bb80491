"""The gallery of mistakes: the guilty line is the one that is named, and nothing is said against the cure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from mistake_checks import (
    check_cuts,
    check_gallery,
    check_held,
    check_idle,
    check_leak,
    check_none_idle,
    explained,
    lines_of,
)
from mistakes import OURS, Mistake
from mistakes_in_jax import in_jax

import stopgrad as sg
from stopgrad.base.structure import flatten

jax = pytest.importorskip("jax")

BY_NAME = {mistake.name: mistake for mistake in OURS.mistakes}
EXPLAINED = [pytest.param(m, id=m.name) for m in explained(OURS)]

UNEVEN = {"stop_in_branch": 1, "straight_through_reversed": 1}
"""Programs in which an integer or a comparison ends a path as well, by right: in how many lines."""


def test_there_are_programs_for_every_symptom_and_each_marks_its_line() -> None:
    check_gallery(OURS, at_least=30)


@pytest.mark.slow
def test_the_page_is_what_the_programs_give() -> None:
    assert OURS.file.read_text() == OURS.page(), "python tests/helpers/mistakes.py writes it anew"


# ------------------------------------------------------------------------------------------------- explain


@pytest.mark.parametrize("mistake", EXPLAINED)
def test_what_was_to_learn_is_cut_at_the_marked_line(mistake: Mistake) -> None:
    check_cuts(mistake, UNEVEN.get(mistake.name, 0))


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in OURS.mistakes if m.held])
def test_what_was_to_be_held_is_held_by_the_cure(mistake: Mistake) -> None:
    check_held(mistake)


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in OURS.mistakes if m.leaks])
def test_a_gradient_that_should_not_arrive_is_shown_to_come_through_the_marked_line(mistake: Mistake) -> None:
    check_leak(mistake)


@pytest.mark.parametrize("name", ["double_stop", "idle_stop", "dropped_stop"])
def test_a_stop_that_does_nothing_is_a_finding_at_its_line(name: str) -> None:
    check_idle(BY_NAME[name])


@pytest.mark.parametrize("mistake", EXPLAINED)
def test_no_stop_of_a_cured_program_is_idle(mistake: Mistake) -> None:
    check_none_idle(mistake)


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
    for mistake in OURS.mistakes
    for which in ("broken", "cured")
    if mistake.name not in BLOCKS and (mistake.symptom, which) != ("nan", "broken")
]


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "which"), BESIDE_JAX)
def test_the_gradients_are_those_of_jax(mistake: Mistake, which: str) -> None:
    args = mistake.module.example()
    found = gradients(mistake.function(which), args)
    with jax.enable_x64(True):
        program = in_jax(mistake, which)
        numbers = tuple([k for k, arg in enumerate(args) if all(x.dtype.kind == "f" for x in leaves_of(arg))])
        expected = flatten(jax.jit(jax.grad(program, argnums=numbers))(*args))[0]
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


@pytest.mark.slow
def test_ablate_says_of_the_stops_of_cured_programs_that_they_change_the_gradient() -> None:
    for name in ("dqn_target_not_stopped", "fomaml_second_order", "simsiam_not_stopped"):
        mistake = BY_NAME[name]
        (stop,) = sg.ablate(mistake.function("cured"), *mistake.module.example(), repeats=1).stops
        assert stop.difference is not None
        assert stop.difference > 1e-3
