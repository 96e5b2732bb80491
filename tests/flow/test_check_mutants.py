"""``check_gradients`` sees every wrong rule, and passes the right one in its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from check_mutants import BOTH, MUTANTS, Mutant, seeded

import stopgrad as sg
from stopgrad.base.types import dtype_of
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Graph
from stopgrad.graph.op import REGISTRY, Joint
from stopgrad.ops.structural.sources import Placeholder


def checked(mutant: Mutant, order: int, modes: Sequence[str] = BOTH) -> sg.GradientCheck:
    """The operation of a mutant, alone in a graph, checked."""
    graph, arrays = Graph(), mutant.arrays()
    xs = [emit(Placeholder, (), (dtype_of(a.dtype), a.shape, ()), "", graph).outputs[0] for a in arrays]
    outputs = emit(mutant.checked, tuple(xs), mutant.values(), None, graph).outputs
    ys = [y for y in outputs if y.type.differentiable]
    feeds = dict(zip(xs, arrays, strict=True))
    return sg.check_gradients(ys, xs, feed_dict=feeds, order=order, modes=modes, raises=False)


def test_there_are_many_kinds_of_mistakes() -> None:
    assert len(MUTANTS) >= 50
    assert sum(mutant.order == 2 or mutant.only is not None for mutant in MUTANTS) >= 10
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_wrong_rule_is_seen(mutant: Mutant) -> None:
    right = checked(mutant, mutant.order)
    assert right.passed, right.to_text()
    with seeded(mutant):
        wrong = checked(mutant, mutant.order)
        assert not wrong.passed
        # It is told which operation it is, but for one that is only in the gradient of the other.
        assert {op.type for held in wrong.wrong for op in held.operations} == {mutant.checked.type}
        failed = [found for found in wrong.values() if not found.passed]
        assert failed
        for found in failed:
            assert found.worst is not None
            assert found.worst.order == mutant.order
            assert abs(found.worst.generated - found.worst.numeric) > found.worst.allowed
        if mutant.order == 2:
            assert checked(mutant, 1).passed, "this mistake is one of the second derivative alone"
        if mutant.only is not None:
            assert checked(mutant, mutant.order, [mode for mode in BOTH if mode != mutant.only]).passed
            assert not checked(mutant, mutant.order, mutant.only).passed
    assert checked(mutant, mutant.order).passed


# ------------------------------------------------------------------------------------- inside of programs

X = np.array([0.3, -0.8, 1.4])


def _scanned(x: sg.Output) -> sg.Output:
    return sg.scan(lambda c, _: (sg.tanh(c) + sg.stop_gradient(c) * x, None), x, length=4)[0]


def _branch(x: sg.Output) -> sg.Output:
    return sg.cond(sg.reduce_sum(x) > 0.0, lambda: sg.tanh(x) * sg.stop_gradient(x), lambda: x)


def _looped(x: sg.Output) -> sg.Output:
    return sg.while_loop(
        lambda i, c: i < 3, lambda i, c: (i + 1, sg.tanh(c) * x), (0, x), maximum_iterations=5
    )[1]


def _kept(x: sg.Output) -> sg.Output:
    return sg.checkpoint(lambda x: sg.tanh(x) * sg.stop_gradient(x))(x)


def _beside_a_stop(x: sg.Output) -> sg.Output:
    return sg.tanh(x) * sg.stop_gradient(sg.exp(x))


@pytest.mark.parametrize("program", [_scanned, _branch, _looped, _kept, _beside_a_stop])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_wrong_rule_is_seen_in_programs_with_stops(program: object, dtype: type) -> None:
    x = X.astype(dtype)
    assert sg.check_gradients(program, x).passed
    mutant = next(m for m in MUTANTS if m.type == "Tanh")
    with seeded(mutant):
        assert not sg.check_gradients(program, x, raises=False).passed


@pytest.mark.parametrize(
    ("kind", "program"),
    [("Scan", _scanned), ("Case", _branch), ("Checkpoint", _kept)],
)
def test_a_wrong_rule_of_what_runs_bodies_is_seen(
    kind: str, program: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what should come back, as when one of two ways is forgotten."""
    joint = REGISTRY[kind].joint
    assert joint is not None
    wrong = Joint(lambda *args: [None if g is None else 0.5 * g for g in joint.pull(*args)], joint.walls)
    monkeypatch.setattr(REGISTRY[kind], "joint", wrong)
    check = sg.check_gradients(program, X, raises=False)
    assert not check.passed
    monkeypatch.undo()
    assert sg.check_gradients(program, X).passed


def test_one_wrong_element_among_many_is_found() -> None:
    @sg.custom_gradient
    def almost(x: sg.Output) -> object:
        mask = np.ones(5000)
        mask[4321] = 1.5
        return sg.sin(x), lambda g: g * sg.cos(x) * mask

    x = np.random.default_rng(0).normal(size=5000)
    check = sg.check_gradients(almost, x, raises=False)
    assert not check.passed
    assert check["x"].method == "directional"
    worst = check["x"].worst
    assert worst is not None
    assert worst.index == (4321,)
    assert worst.numeric == pytest.approx(np.cos(x[4321]), rel=1e-6)
    assert worst.generated == pytest.approx(1.5 * np.cos(x[4321]), rel=1e-6)
