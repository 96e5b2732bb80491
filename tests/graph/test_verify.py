"""The invariants of a graph are checked, and a broken one is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base.types import float64, tensor_type
from stopgrad.graph.verify import verify
from stopgrad.rewrite import prepare


def graph_to_break() -> sg.Graph:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        sg.gradients(sg.reduce_sum(sg.exp(x)), [x])
    return graph


def test_a_built_graph_is_whole() -> None:
    verify(graph_to_break())


def misplace(graph: sg.Graph) -> None:
    graph._operations.reverse()


def use_what_comes_later(graph: sg.Graph) -> None:
    graph.operation_or_raise("Exp").inputs = (graph.operations[-1].outputs[0],)


def borrow_from_another_graph(graph: sg.Graph) -> None:
    graph.operation_or_raise("Exp").inputs = (graph_to_break().output("x"),)


def mistype(graph: sg.Graph) -> None:
    graph.operation_or_raise("Exp").outputs[0].type = tensor_type(float64, (3,))


def lose_an_attribute(graph: sg.Graph) -> None:
    graph.operation_or_raise("Sum").values = ()


def be_made_for_oneself(graph: sg.Graph) -> None:
    graph.operations[-1].origin = graph.operations[-1]


@pytest.mark.parametrize(
    "damage",
    [
        misplace,
        use_what_comes_later,
        borrow_from_another_graph,
        mistype,
        lose_an_attribute,
        be_made_for_oneself,
    ],
)
def test_damage_is_found(damage: Callable[[sg.Graph], None]) -> None:
    graph = graph_to_break()
    damage(graph)
    with pytest.raises(sg.GraphError, match="broken graph"):
        verify(graph)


def test_the_environment_switches_it_on_for_every_pass() -> None:
    program = (
        "import stopgrad as sg, stopgrad.graph.verify as v, stopgrad.ops.elementwise.powers as e\n"
        "assert v.ENABLED\n"
        "from stopgrad.base.types import float64, tensor_type\n"
        "g = sg.Graph()\n"
        "with g.as_default():\n"
        "    x = sg.placeholder(sg.float32, [3], name='x')\n"
        "    y = sg.exp(x)\n"
        "    def damage(g, op):\n"
        "        out = e.exp(op.x)\n"
        "        out.type = tensor_type(float64, (3,))\n"
        "        return g * e.exp(op.x, name='z')\n"
        "    e.Exp.rules = (damage,)\n"
        "    try:\n"
        "        sg.gradients(y, [x])\n"
        "    except sg.StopgradError as error:\n"
        "        print('found', len(g))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "STOPGRAD_VERIFY": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "found 2"


def test_rewritten_graphs_are_whole() -> None:

    graph = graph_to_break()
    verify(prepare([graph.operations[-1].outputs[0]], [graph.output("x")]).graph)
    assert np.isfinite(sg.Session(graph).run(graph.operations[-1].outputs[0], {"x": [1.0, 2.0, 3.0]})).all()
