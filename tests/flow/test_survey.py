"""What a survey knows of single operations, and what one reach says by itself."""

from __future__ import annotations

import stopgrad as sg
from stopgrad.flow.survey import Mark, surveys

NOTHING = Mark(False, False, False, False, False, False)


def test_operations_made_after_the_results_have_no_part_in_the_gradient() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2], name="x")
        aside = sg.cos(x)
        loss = sg.reduce_sum(sg.exp(x))
        (survey,) = surveys(graph, [loss], [x])
        later = [sg.sin(x), sg.exp(loss), sg.tanh(loss)]
    assert [survey.mark(y.op) for y in (aside, *later)] == [NOTHING] * 4
    assert survey.mark(loss.op) == Mark(True, True, True, True, True, True)


def test_a_reach_of_which_no_paths_are_told_has_none() -> None:
    reach = sg.Reach("disconnected")
    assert (reach.cuts, reach.paths, reach.cut_paths) == ((), 0, 0)
