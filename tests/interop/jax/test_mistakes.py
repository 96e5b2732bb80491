"""The gallery of mistakes in JAX: the guilty line is named, and nothing is said against the cure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402 - JAX may be absent
from jax_mistakes import JAX  # noqa: E402
from mistake_checks import (  # noqa: E402
    check_cuts,
    check_gallery,
    check_held,
    check_idle,
    check_leak,
    check_none_idle,
    explained,
    lines_of,
)
from mistakes import MARK, Mistake  # noqa: E402

import stopgrad.jax as sgj  # noqa: E402

pytestmark = pytest.mark.slow

BY_NAME = {mistake.name: mistake for mistake in JAX.mistakes}

DISCONNECTED = ("model_of_outside", "update_dropped")
"""Programs that do not use what is to learn: no line cuts, and a finding names one."""
UNEVEN = {"stop_in_branch": 1, "straight_through_turned_round": 1}
"""Programs in which a comparison or a rounding ends a path as well, by right: in how many lines."""


def cases(*symptoms: str, held: bool = False, but: tuple[str, ...] = ()) -> list[Any]:
    return [
        pytest.param(mistake, id=mistake.name)
        for mistake in explained(JAX)
        if mistake.symptom in (symptoms or JAX.symptoms)
        and (mistake.held or not held)
        and mistake.name not in but
    ]


def test_there_are_programs_for_every_symptom_and_each_marks_its_line() -> None:
    check_gallery(JAX, at_least=17)


def test_the_page_is_what_the_programs_give() -> None:
    assert JAX.file.read_text() == JAX.page(), "python tests/helpers/jax_mistakes.py writes it anew"


# ------------------------------------------------------------------------------------------------- explain


@pytest.mark.parametrize("mistake", cases(but=DISCONNECTED))
def test_what_was_to_learn_is_cut_at_the_marked_line(mistake: Mistake) -> None:
    check_cuts(mistake, UNEVEN.get(mistake.name, 0))


@pytest.mark.parametrize("mistake", cases(held=True))
def test_what_was_to_be_held_is_held_by_the_cure(mistake: Mistake) -> None:
    check_held(mistake)


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in JAX.mistakes if m.leaks])
def test_a_gradient_that_should_not_arrive_is_shown_to_come_through_the_marked_line(mistake: Mistake) -> None:
    check_leak(mistake)


@pytest.mark.parametrize("mistake", cases("idle"))
def test_a_stop_that_does_nothing_is_a_finding_at_its_line(mistake: Mistake) -> None:
    check_idle(mistake)


@pytest.mark.parametrize("mistake", cases())
def test_no_stop_of_a_cured_program_is_idle(mistake: Mistake) -> None:
    check_none_idle(mistake)


@pytest.mark.parametrize(
    ("name", "status", "expression"),
    [
        ("argmax_in_the_way", "not differentiable", "jnp.argmax(logits, axis=-1)"),
        ("coordinates_cast", "not differentiable", "at.astype(jnp.int32)"),
        ("spike_is_a_comparison", "not differentiable", "v > 1.0"),
        ("sampled_action", "not differentiable", "jax.random.categorical(key, logits, shape=(16,))"),
        ("straight_through_turned_round", "stopped", "lax.stop_gradient(z - q)"),
        ("vq_vae_commitment", "stopped", "lax.stop_gradient(e - z)"),
        ("value_loss_detached", "stopped", "lax.stop_gradient(returns - values)"),
        ("stop_in_scan", "partly stopped", "lax.stop_gradient(state)"),
        ("batch_statistics_stopped", "partly stopped", "lax.stop_gradient((h.mean(0), h.var(0)))"),
        ("custom_vjp_without_argument", "stopped", "product(second, h)"),
        ("custom_jvp_without_tangent", "stopped", "swish(x, slope)"),
    ],
)
def test_the_status_and_the_very_expression(name: str, status: str, expression: str) -> None:
    mistake = BY_NAME[name]
    flow = mistake.flow("broken")
    assert flow[mistake.learns[0]].status == status
    cuts = [cut for key in mistake.learns for cut in flow[key].cuts]
    assert expression in {cut.location.source.removesuffix(MARK) for cut in cuts if cut.location}


# -------------------------------------------------------------------------------------------- beside JAX


def drawn(args: Any, draw: int) -> Any:
    """The arguments with other numbers; the first draw is the arguments themselves."""
    rng = np.random.default_rng(draw)

    def other(x: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jnp.asarray(x + (rng.normal(size=x.shape).astype(x.dtype) if draw else 0.0))

    return jax.tree.map(other, args)


def arriving(program: Callable[..., Any], args: Any) -> dict[str, bool]:
    """By the paths of arguments, whether ``jax.grad`` is not zero, for one of several draws."""
    names = list(inspect.signature(program).parameters)
    numbers = [
        k
        for k, arg in enumerate(args)
        if all(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(arg))
    ]
    gradient = jax.jit(jax.grad(program, argnums=tuple(numbers)))
    found: dict[str, bool] = {}
    for draw in range(12):
        for k, tree in zip(numbers, gradient(*drawn(args, draw)), strict=True):
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
                key = ".".join(
                    [names[k], *[str(getattr(step, "key", getattr(step, "idx", None))) for step in path]]
                )
                found[key] = found.get(key, False) or bool(np.any(leaf))
    return found


@pytest.mark.parametrize(
    ("mistake", "which"),
    [
        pytest.param(mistake, which, id=f"{mistake.name}-{which}")
        for mistake in JAX.mistakes
        for which in ("broken", "cured")
        if (mistake.symptom, which) not in [("nan", "broken"), ("error", "broken")]
    ],
)
def test_a_gradient_arrives_where_that_of_jax_is_not_zero(mistake: Mistake, which: str) -> None:
    args, program = mistake.module.example(), mistake.function(which)
    flow = sgj.explain(program, *args)
    assert {key: flow[key].arrives for key in flow if flow.xs[key].type.differentiable} == arriving(
        program, args
    )


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in JAX.mistakes])
def test_the_loaded_program_has_jax_s_gradients(mistake: Mistake) -> None:
    args, program = mistake.module.example(), mistake.function("cured")
    model = sgj.load(program, *args)
    expected = jax.jit(jax.value_and_grad(program))(*drawn(args, 0))
    found = sg.value_and_grad(lambda first: model(first, *args[1:]))(args[0])
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------------ other symptoms


@pytest.mark.parametrize("name", DISCONNECTED)
def test_what_is_not_used_is_disconnected_and_the_line_is_told(name: str) -> None:
    mistake = BY_NAME[name]
    broken, cured = mistake.flow("broken"), mistake.flow("cured")
    for key in mistake.learns:
        assert broken[key].status == "disconnected"
        assert cured[key].arrives
        (finding,) = [one for one in broken.findings if one.kind == "unused" and key in one.keys]
        assert lines_of([finding.location], mistake) == set(mistake.lines)
    assert not [one for one in cured.findings if one.kind == "unused"]


@pytest.mark.parametrize(
    ("name", "cure"),
    [("number_under_trace", "keep it in JAX"), ("numpy_under_trace", "use jax.numpy there")],
)
def test_what_cannot_be_traced_is_named_with_its_line_and_the_cure(name: str, cure: str) -> None:
    mistake = BY_NAME[name]
    told = mistake.refusal("broken")
    (line,) = mistake.lines
    assert f"{mistake.path.name}:{line}" in told
    assert cure in told
    assert mistake.flow("cured")["w"].arrives


@pytest.mark.parametrize("name", ["where_nan", "overwritten_root", "norm_of_a_difference"])
def test_the_first_nan_is_traced_to_the_marked_line(name: str) -> None:
    mistake = BY_NAME[name]
    gradient = jax.grad(mistake.function("broken"))(*drawn(mistake.module.example(), 0))
    assert np.isnan(gradient).any()
    site = mistake.report("broken").first
    assert site.where == "gradient"
    assert lines_of([site.origin_location], mistake) == set(mistake.lines)
    assert site.cure
    cured = mistake.report("cured")
    assert not cured
    assert cured.first is None


def test_every_report_says_where_it_was_seen() -> None:
    for mistake in JAX.mistakes:
        assert re.search(r"[\w.-]+/[\w.-]+ (PR )?#\d+", mistake.seen), mistake.name
