"""Operations like others, and the walk that copies them."""

from __future__ import annotations

from typing import Any

import pytest

import stopgrad as sg
from stopgrad.graph.copying import copy_operations
from stopgrad.graph.graph import Graph, Operation, Output, needed


def copied_to(graph: Graph) -> Any:
    """What builds an operation as it is in another graph."""
    return lambda op, inputs: Operation.like(op, graph, inputs, tuple([y.type for y in op.outputs])).outputs


def test_an_operation_like_another_has_its_name_line_origin_and_block() -> None:
    graph, new = Graph(), Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        with sg.no_gradient():
            y = sg.exp(x, name="hidden")
        (dx,) = sg.gradients(sg.sin(x), [x])
    made: dict[Output, Output] = {}
    copy_operations(needed([y, dx]), made, copied_to(new))
    assert [op.name for op in new.operations] == [op.name for op in needed([y, dx])]
    for old in needed([y, dx]):
        copy = made[old.outputs[0]].op
        assert copy.definition is old.definition
        assert copy.values == old.values
        assert repr(copy.location) == repr(old.location)
        assert copy.origin is old.origin
    assert dx.op.origin is not None
    with new.as_default():  # What the block hid is stopped outside of it here, too.
        assert sg.flow.explain(sg.sin(made[y]), [made[x]])[made[x]].status == "stopped"


def test_what_is_not_the_old_operations_is_said() -> None:
    graph = Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [2, 3])
        y = sg.reduce_sum(x, axis=0, name="total")
    like = Operation.like(y.op, graph, (x,), (x.type,), (), sg.graph.op.REGISTRY["Exp"], "risen")
    assert (like.type, like.name, like.values, like.inputs) == ("Exp", "risen", (), (x,))
    assert repr(like.location) == repr(y.op.location)


def test_what_is_given_stays_and_what_is_behind_it_is_not_copied() -> None:
    graph, new = Graph(), Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [4], name="x")
        first, second = sg.split(sg.exp(x), 2, 0)
        y = sg.add(first, second)
    with new.as_default():
        z = sg.placeholder(sg.float32, [2], name="z")
    made: dict[Output, Output] = {first: z}
    copy_operations(needed([y], made), made, copied_to(new))
    assert made[first] is z
    assert made[y].op.inputs == (z, made[second])
    made = {first: z, second: z}
    assert needed([y], made) == [y.op]
    copy_operations(needed([y], made), made, copied_to(new))
    assert made[y].op.inputs == (z, z)
    assert x not in made


def test_as_much_is_built_as_there_was() -> None:
    with Graph().as_default():
        x = sg.placeholder(sg.float32, [4])
        parts = sg.split(x, 2, 0)
    for y, built in ((x, (x, x)), (parts[0], parts[:1])):
        with pytest.raises(ValueError, match=r"values to unpack|shorter"):
            copy_operations([y.op], {x: x}, lambda op, inputs, built=built: built)
    # Nothing takes the place of what nobody uses.
    made = {x: x}
    copy_operations([parts[0].op], made, lambda op, inputs: (None, x))
    assert made == {x: x, parts[1]: x}
