"""Operations defined here, outside of the package, and everything run on them: a class is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg
from stopgrad.base.errors import DefinitionError
from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, Op, Tensor, TensorType
from stopgrad.graph.op import REGISTRY
from stopgrad.rewrite.passes import prepare

X = np.array([-2.0, 0.5, 3.0])


class OutsideSquash(Op):
    """Elementwise x / (x² + ε), which has no value at 0 where ε is 0.

    Args:
        x: any numbers.
        epsilon: how far it stays from its pole.

    Returns:
        x / (x² + ε).

    Constraints:
        (C1) x is floating-point.
        (C2) epsilon is not negative.

    Examples:
        >>> squash(np.array([1.0, 2.0]), epsilon=1.0)
        array([0.5, 0.4])
    """

    @staticmethod
    def infer(x: TensorType, *, epsilon: float) -> TensorType:
        d.check_dtype(x, d.is_floating, "a floating-point tensor")
        if epsilon < 0:
            raise ArgumentError(f"(C2) epsilon must not be negative, not {epsilon}")
        return x

    gradient = {
        "x": lambda g, op: g * (op.epsilon - op.x * op.x) / sg.square(op.x * op.x + op.epsilon),
    }
    batch = d.ELEMENTWISE
    rounds_once = True
    lower = lambda xp, x, epsilon: x / (x * x + epsilon)
    samples = d.singles(0.5, 2.0)
    flops = lambda op: 3 * op.result.size
    cures = (d.Cure("squash of 0", lambda x: x == 0, "give sg.squash an epsilon above 0"),)


@d.builds(OutsideSquash)
def squash(x: Any, epsilon: float = 1.0, name: str | None = None) -> Tensor:
    return d.apply(OutsideSquash, (x,), (d.real(epsilon),), name)


class OutsideSwap(Op):
    """The elements of a tensor in reverse along its last axis, and nothing computed.

    Args:
        x: any tensor.

    Returns:
        The tensor reversed.
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": lambda g, op: swap(g)}
    batch = d.ALONG
    moves = ("x",)
    lower = lambda xp, x: xp.flip(x, -1)
    samples = d.singles()


swap = d.unary(OutsideSwap, "swap")


class OutsideStop(Op):
    """A gate that lets no gradient pass.

    Args:
        x: any tensor.

    Returns:
        The operand.
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": d.stopped("the test's own stop")}
    batch = d.ALONG
    passes = 0
    merged = False
    stops = True
    lower = lambda xp, x: x
    samples = d.singles()


own_stop = d.unary(OutsideStop, "own_stop")


class OutsideHalf(Op):
    """A gate that halves the gradient.

    Args:
        x: any tensor.

    Returns:
        The operand.
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": lambda g, op: 0.5 * g}
    held = lambda now, base, acts: base[0] + 0.5 * (now[0] - base[0])
    batch = d.ALONG
    passes = 0
    merged = False
    lower = lambda xp, x: x
    samples = d.singles()


half = d.unary(OutsideHalf, "half")


def by_hand(x: Any, epsilon: float = 1.0) -> Any:
    return x / (x * x + epsilon)


def slope(x: Any, epsilon: float = 1.0) -> Any:
    return (epsilon - x * x) / (x * x + epsilon) ** 2


def curvature(x: Any, epsilon: float = 1.0) -> Any:
    return 2 * x * (x * x - 3 * epsilon) / (x * x + epsilon) ** 3


OURS = (OutsideSquash, OutsideSwap, OutsideStop, OutsideHalf)
for _one in OURS:  # The tests that go over all operations are not about these.
    del REGISTRY[_one.type]


@pytest.fixture(autouse=True)
def _known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in OURS:
        monkeypatch.setitem(REGISTRY, one.type, one)


def total(x: Any) -> Any:
    return sg.reduce_sum(squash(swap(x)))


@each_engine
def test_engines_compute_it_and_its_gradients(engine: str) -> None:
    f = sg.function(
        lambda x: (squash(swap(x)), sg.grad(total)(x), sg.jvp(sg.grad(total), [x], [x])[1]), engine=engine
    )
    value, first, second = sg.function(f, engine=engine)(X.astype(np.float32))
    np.testing.assert_allclose(value, by_hand(X)[::-1], rtol=1e-5)
    np.testing.assert_allclose(first, slope(X), rtol=1e-5)
    np.testing.assert_allclose(second, curvature(X) * X, rtol=1e-4)


def test_numpy_computes_it_at_once_and_wrong_calls_are_told() -> None:
    np.testing.assert_allclose(squash(swap(X)), by_hand(X)[::-1])
    np.testing.assert_allclose(sg.hessian(total)(X), np.diag(curvature(X)), atol=1e-12)
    with pytest.raises(sg.ArgumentError, match=r"\(C2\) epsilon"):
        squash(X, -1.0)
    assert sg.check_gradients(total, X)


def test_its_gradients_are_checked_as_those_of_the_function_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def loss(x: Any) -> Any:
        return sg.reduce_sum(half(x) * own_stop(x) * squash(x))

    assert sg.check_gradients(loss, X)
    monkeypatch.setattr(OutsideHalf, "held", None)
    with pytest.raises(sg.GradientError):
        sg.check_gradients(loss, X)


def a_graph() -> sg.Graph:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, ["n"], name="x")
        squash(own_stop(swap(x)) + x, 2.0, name="y")
    return graph


def test_text_and_files(tmp_path: Path) -> None:
    graph = a_graph()
    again = sg.Graph.from_text(graph.to_text())
    assert again.to_text() == graph.to_text()
    assert "OutsideSquash(" in graph.to_text()
    graph.save(tmp_path / "graph.safetensors")
    loaded = sg.Graph.load(tmp_path / "graph.safetensors")
    assert loaded.to_text() == graph.to_text()
    for one in (graph, loaded):
        found = sg.Session(one).run("y:0", {"x:0": X})
        np.testing.assert_allclose(found, by_hand(X[::-1] + X, 2.0))


def test_vmap() -> None:
    rows = np.arange(1.0, 7.0).reshape(2, 3)
    np.testing.assert_allclose(sg.vmap(lambda x: squash(swap(x)))(rows), by_hand(rows)[:, ::-1])
    np.testing.assert_allclose(sg.vmap(sg.grad(total))(rows), slope(rows))


def test_explain_and_ablate() -> None:
    def loss(x: Any) -> Any:
        return sg.reduce_sum(squash(own_stop(x)) * x)

    told = sg.explain(loss, X).to_text()
    assert "partly stopped: x" in told
    assert "the test's own stop" in told
    cut, whole = by_hand(X), by_hand(X) + X * slope(X)
    cosine = cut @ whole / np.linalg.norm(cut) / np.linalg.norm(whole)
    assert f"{cosine:.4f}" in sg.ablate(loss, X).to_text()


def test_trace_nan_follows_it_and_tells_its_own_cure() -> None:
    bad = np.array([1.0, 0.0, 2.0])
    site = sg.trace_nan(lambda x: sg.reduce_sum(swap(squash(x, 0.0))), bad).first
    assert site is not None
    assert site.operation.type == "OutsideSquash"
    assert site.index == (1,)
    assert site.pattern == "squash of 0"
    # Marks go with the elements that are moved: the last of two events is what the first element shows.
    site = sg.trace_nan(lambda x: swap(sg.log(x))[0], np.array([1.0, -1.0, 0.0])).first
    assert site is not None
    assert site.operation.type == "Log"
    assert site.kind == "inf"


def test_equal_ones_are_merged_and_gates_erased() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        y = squash(own_stop(x)) + squash(x)
    types = [op.type for op in prepare([y], [x]).graph.operations]
    assert types.count("OutsideSquash") == 1
    assert "OutsideStop" not in types


def test_costs() -> None:
    cost = sg.function(lambda x: squash(swap(x))).lower(X).cost_analysis()
    assert cost.by_type == {"OutsideSquash": 9}
    assert cost.operations == {"OutsideSquash": 1, "OutsideSwap": 1}


def test_onnx_saves_and_loads_it(tmp_path: Path) -> None:
    sgo = pytest.importorskip("stopgrad.onnx")
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n"], name="x")
        y = squash(own_stop(swap(x)), 2.0)
    sgo.save(tmp_path / "model.onnx", {"y": y}, {"x": x})
    found = sgo.load(tmp_path / "model.onnx")(X.astype(np.float32))
    np.testing.assert_allclose(found, by_hand(X, 2.0)[::-1], rtol=1e-5)


def test_documentation() -> None:
    assert "x / (x² + ε)" in (squash.__doc__ or "")
    assert OutsideSquash.operands == ("x",)
    assert OutsideSquash.elementwise
    assert OutsideStop.moves == ("x",)


@pytest.mark.parametrize(
    ("trait", "value", "says"),
    [
        ("moves", ("z",), "'moves' must be a tuple of names out of x"),
        ("moves", "x", "'moves' must be a tuple"),
        ("pads", 1, "'pads' must be True or False"),
        ("cures", ("a",), "'cures' must be a tuple of Cure"),
        ("magnitudes", "same", "'magnitudes' must be a Magnitudes"),
        ("not_holomorphic", True, "'not_holomorphic' must be a str"),
    ],
)
def test_wrong_traits_are_refused(trait: str, value: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        type("OutsideWrong", (OutsideSwap,), {"__doc__": "A wrong one.", trait: value})
    assert "OutsideWrong" not in REGISTRY
