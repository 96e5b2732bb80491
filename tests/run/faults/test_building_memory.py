"""What is built goes with its graph: no cache keeps arrays, functions or graphs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.graph.op import REGISTRY

pytestmark = pytest.mark.slow


class Big:
    """Stands for what a user's function closes over."""


def custom(x: Any, big: Big, array: Any) -> Any:
    def f(a: Any) -> Any:
        def pull(g: Any) -> Any:
            assert big is not None
            return g * array

        return a * array, pull

    return sg.custom_gradient(f)(x)


def in_a_graph(big: Big, array: Any) -> list[Any]:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [3])
        y = custom(x, big, array)
        unasked = custom(y, big, array)
        (g,) = sg.gradients(y, x)
        sg.vmap(lambda a: custom(a, big, 2.0))(x)
        sg.scan(lambda c, a: (custom(c, big, 2.0), a), sg.reduce_sum(g), unasked)
    return [graph]


def at_once(big: Big, array: Any) -> list[Any]:
    return [sg.grad(lambda a: sg.reduce_sum(custom(a, big, array)))(np.ones(3, np.float32))]


def compiled(big: Big, array: Any) -> list[Any]:
    f = sg.function(sg.grad(lambda a: sg.reduce_sum(custom(a, big, array))), engine="numpy")
    f(np.ones(3, np.float32))
    return [f]


def transformed(big: Big, array: Any) -> list[Any]:
    sg.hessian(lambda a: sg.reduce_sum(custom(a, big, array)))(np.ones(3, np.float32))
    sg.jvp(lambda a: custom(a, big, array), (np.ones(3, np.float32),), (np.ones(3, np.float32),))
    sg.map_fn(lambda a: custom(a, big, 2.0), np.ones(3, np.float32))
    return []


@pytest.mark.parametrize("use", [in_a_graph, at_once, compiled, transformed])
def test_a_custom_gradient_goes_with_its_graph(use: Callable[..., list[Any]]) -> None:
    gone = []
    for _ in range(3):
        big = Big()
        array = np.full(3, 2.0, np.float32)
        held = use(big, array)
        gone += [weakref.ref(big), weakref.ref(array), *map(weakref.ref, held)]
    del big, array, held
    gc.collect()
    assert [one() for one in gone if one() is not None] == []


def test_constants_and_bodies_go_with_their_graph() -> None:
    graph = sg.Graph()
    with graph.as_default():
        constant = sg.constant(np.arange(12345.0))
        looped = sg.map_fn(lambda a: a * 2.0, constant)
        sg.vmap(lambda a: sg.cond(a > 0.0, lambda: a, lambda: -a))(looped)
        sg.gradients(looped, constant)
    gone = [weakref.ref(graph), weakref.ref(constant.op.value.array), weakref.ref(looped.op.body.graph)]
    del graph, constant, looped
    gc.collect()
    assert [one() for one in gone if one() is not None] == []


def test_no_cache_of_inferred_types_grows_with_arrays_or_bodies() -> None:
    before = {name: len(definition._inferred) for name, definition in REGISTRY.items()}
    for i in range(50):
        in_a_graph(Big(), np.full(3, float(i), np.float32))
    held = {"Const", "Parameter", "CustomGradient", "Scan", "Case", "While", "Checkpoint"}
    assert all(len(REGISTRY[name]._inferred) == 0 for name in held)
    assert all(len(definition._inferred) <= before[name] + 20 for name, definition in REGISTRY.items())
