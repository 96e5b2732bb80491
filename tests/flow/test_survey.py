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


def test_a_line_opens_what_lies_behind_it_in_an_earlier_step_of_a_loop() -> None:
    with sg.Graph().as_default():
        a, b = (sg.placeholder(sg.float32, [3], name=name) for name in "ab")

        def step(i: sg.Output, carry: tuple[sg.Output, ...]) -> tuple[sg.Output, ...]:
            return a, sg.where(carry[1] > a, a, a * 0.5)

        _, y = sg.fori_loop(0, 2, step, (a, b))
        flow = sg.explain(y, [a, b])
    (cut,) = flow[b].cuts
    assert (flow[b].status, set(cut.opens)) == ("not differentiable", {"a:0", "b:0"})


def test_what_all_branches_return_does_not_depend_on_the_choice() -> None:
    with sg.Graph().as_default():
        a, b = (sg.placeholder(sg.float32, [3], name=name) for name in "ab")
        choice = sg.reduce_any(b > 0.0)
        same, other = sg.cond(choice, lambda x: (x, x), lambda x: (x, sg.sin(x)), a)
        flows = [sg.explain(y, [a, b]) for y in (same, other)]
    assert [[flow[x].status for x in (a, b)] for flow in flows] == [
        ["flows", "disconnected"],
        ["flows", "not differentiable"],
    ]


def test_each_block_that_a_tensor_leaves_stops_it() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        with sg.no_gradient():
            twice = x * 2.0
            with sg.no_gradient():
                y = sg.sin(twice)
        flow = sg.explain(y * 2.0, [x])
    (cut,) = flow[x].cuts
    assert (cut.reason, cut.opens) == ("no_gradient", ())


def test_what_a_closed_over_tensor_is_stopped_by_itself_before_a_custom_gradient_is_told() -> None:
    with sg.Graph().as_default():
        x, a = (sg.placeholder(sg.float32, [3], name=name) for name in "xa")
        held = sg.stop_gradient(a)
        y = sg.custom_gradient(lambda t: (t * held, lambda g: g))(x)
        flow = sg.explain(y, [x, a])
    assert (flow[x].status, flow[a].status) == ("flows", "stopped")
