"""The gallery of mistakes in PyTorch: the guilty line is named, the cure is sound, autograd agrees."""

from __future__ import annotations

import pytest
from mistake_checks import (
    check_cuts,
    check_gallery,
    check_held,
    check_leak,
    check_none_idle,
    explained,
    lines_of,
)
from mistakes import Mistake
from torch_mistakes import TORCH, arrives

pytestmark = pytest.mark.slow

BY_NAME = {mistake.name: mistake for mistake in TORCH.mistakes}
EXPLAINED = [pytest.param(m, id=m.name) for m in explained(TORCH)]
STRAYS = ("layers_in_a_list", "optimizer_of_the_old_head")
"""Programs in which a gradient arrives, at leaves that nobody asks about."""

CUT = [pytest.param(m, id=m.name) for m in explained(TORCH) if m.name not in STRAYS]
UNEVEN: dict[str, int] = {}
"""Programs in which an integer or a comparison ends a path as well, by right: in how many lines."""


def test_there_are_programs_for_every_symptom_and_each_marks_its_line() -> None:
    check_gallery(TORCH, at_least=30)


def test_the_page_is_what_the_programs_give() -> None:
    assert TORCH.file.read_text() == TORCH.page(), "python tests/helpers/torch_mistakes.py writes it anew"


@pytest.mark.parametrize("mistake", CUT)
def test_what_was_to_learn_is_cut_at_the_marked_line(mistake: Mistake) -> None:
    check_cuts(mistake, UNEVEN.get(mistake.name, 0))


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in TORCH.mistakes if m.held])
def test_what_was_to_be_held_is_held_by_the_cure(mistake: Mistake) -> None:
    check_held(mistake)


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in TORCH.mistakes if m.leaks])
def test_a_gradient_that_should_not_arrive_is_shown_to_come_through_the_marked_line(mistake: Mistake) -> None:
    check_leak(mistake)


@pytest.mark.parametrize("mistake", EXPLAINED)
def test_no_stop_of_a_cured_program_is_idle(mistake: Mistake) -> None:
    check_none_idle(mistake)


@pytest.mark.parametrize("which", ["broken", "cured"])
@pytest.mark.parametrize("mistake", EXPLAINED)
def test_a_gradient_arrives_where_backward_puts_one(mistake: Mistake, which: str) -> None:
    flow = mistake.flow(which)
    expected = arrives(mistake.function(which), mistake.module.example())
    assert {key: flow[key].arrives for key in flow} == expected


@pytest.mark.parametrize("name", STRAYS)
def test_leaves_that_get_a_gradient_and_that_nobody_asks_about_are_found(name: str) -> None:
    mistake = BY_NAME[name]
    strays = [f for f in mistake.flow("broken").findings if f.kind == "stray"]
    assert lines_of([f.location for f in strays], mistake) == set(mistake.lines)
    assert not [f for f in mistake.flow("cured").findings if f.kind == "stray"]


@pytest.mark.parametrize(
    ("name", "status", "expression"),
    [
        ("simsiam_both_sides", "stopped", "encoder(view1).detach()"),
        ("vq_vae_without_straight_through", "not differentiable", ".argmin(dim=-1)"),
        ("state_by_data", "partly stopped", "state.data"),
        ("item_in_the_loss", "stopped", "log[action].item()"),
        ("rounding_in_the_way", "not differentiable", "torch.round(model.weight / 0.1)"),
        ("cast_to_long", "not differentiable", ".long()"),
        ("comparison_as_loss", "not differentiable", "model(x).norm(dim=-1) > 0.5"),
        ("sample_without_gradient", "stopped", "Normal(encoder(x), 1.0).sample()"),
        ("parameter_of_a_value", "stopped", "nn.Parameter(generator(code).view(1, 3))"),
        ("truncated_at_every_step", "partly stopped", "state.detach()"),
        ("frozen_after_the_head", "stopped", "p.requires_grad"),
        ("function_returns_none", "not differentiable", "Forgetful.apply(model(x), model.slope)"),
    ],
)
def test_the_status_and_the_very_expression(name: str, status: str, expression: str) -> None:
    mistake = BY_NAME[name]
    flow = mistake.flow("broken")
    assert flow[mistake.learns[0]].status == status
    sources = {cut.location.source for cut in flow[mistake.learns[0]].cuts if cut.location}
    assert any(expression in source for source in sources), sources


def test_the_first_nan_of_the_loaded_program_is_traced_to_the_marked_line() -> None:
    mistake = BY_NAME["nan_behind_where"]
    site = mistake.report("broken").first
    assert (site.where, site.kind) == ("gradient", "nan")
    assert lines_of([site.origin_location], mistake) == set(mistake.lines)
    assert not mistake.report("cured")
