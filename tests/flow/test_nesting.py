"""How the operations of a page are nested: by scopes and by the calls that led to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import page_tools

import stopgrad as sg
from stopgrad.flow.page.page_data import page_data


def nested(flow: Any) -> list[Any]:
    """The groups of a page as lists: the label, then the groups inside."""
    groups = page_data(flow)["groups"]
    found: list[list[Any]] = [[label] for label in groups["label"]]
    for group, parent in zip(found, groups["parent"], strict=True):
        if parent >= 0:
            found[parent].append(group)
    return [group for group, parent in zip(found, groups["parent"], strict=True) if parent < 0]


def of_function(f: Callable[..., Any]) -> list[Any]:
    return nested(sg.explain(f, np.ones(3)))


def double(x: Any) -> Any:
    return sg.sin(x) + sg.cos(x)


def twice(x: Any) -> Any:
    return double(double(x) * 2.0) * 3.0


def once(x: Any) -> Any:
    return sg.tanh(x)


def test_each_call_of_a_function_is_a_group_named_after_it() -> None:
    block = ["Block.forward", ["attention"], ["mlp"]]
    assert nested(page_tools.network()) == [block] * 4
    assert of_function(lambda x: twice(x) + twice(x + 1.0)) == [["twice", ["double"], ["double"]]] * 2


def test_calls_in_a_loop_are_told_apart_also_where_nothing_is_between_them() -> None:
    def program(x: Any) -> Any:
        for _ in range(3):
            x = double(x)
        return sg.exp(x)

    assert of_function(program) == [["double"]] * 3


def test_a_loop_inside_a_function_is_one_call() -> None:
    def layers(x: Any) -> Any:
        for _ in range(3):
            x = sg.sin(sg.exp(x) + x)
        return x

    assert of_function(lambda x: layers(x) * 2.0) == [["layers"]]


def test_functions_without_a_name_and_calls_of_one_operation_are_no_groups() -> None:
    def program(x: Any) -> Any:
        both = [sg.sin(once(x)) for _ in range(2)]
        return (lambda y: sg.exp(y) * once(y))(both[0] + both[1])

    assert of_function(program) == []


def test_of_a_graph_the_calls_follow_from_what_is_made_before_and_after() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        y = x * 2.0
        for _ in range(2):
            y = twice(y)
        flow = sg.explain(double(y) * 2.0, [x])
    # The first call in "twice" is before anything that "twice" makes itself.
    assert nested(flow) == [["double"], ["twice", ["double"]], ["double"], ["twice", ["double"]], ["double"]]


def test_a_scope_that_is_entered_again_is_one_group() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        y = x
        for name in ("block8", "block9", "block8", "block9"):
            with sg.name_scope(name):
                y = sg.exp(sg.sin(y))
        other = x
        for _ in range(2):
            with sg.name_scope("layer"):
                other = sg.exp(sg.sin(other))
        with sg.name_scope("alone9"):
            first, second = sg.exp(sg.sin(x)), sg.cos(x)
        with sg.name_scope("alone9"):
            third = sg.exp(sg.sin(second)) + first
        flow = sg.explain(sg.add_n([y, other, third]), [x])
    # What would be before and behind itself stays apart; different layers of one name do, too.
    labels = sorted(label for (label,) in nested(flow))
    assert labels == ["alone9", "block8", "block8", "block9", "block9", "layer", "layer_1"]


def test_a_parameter_is_in_the_group_that_uses_it() -> None:
    data = page_data(page_tools.network())
    labels, columns = data["groups"]["label"], data["operations"]
    at = {tensor["label"]: columns["group"][tensor["op"]] for tensor in data["tensors"]}
    assert labels[at["params.blocks.2.q"]] == "attention"
    assert labels[at["params.blocks.2.down"]] == "mlp"
    assert at["params.blocks.1.up"] != at["params.blocks.2.up"]
    assert at["params.head"] == at["tokens"] == -1


def test_what_is_in_a_body_is_named_by_the_calls_in_it() -> None:
    def program(x: Any) -> Any:
        return sg.scan(lambda carry, _: (double(carry) * 2.0, None), x, length=3)[0]

    assert of_function(program) == [["", ["double"]]]
