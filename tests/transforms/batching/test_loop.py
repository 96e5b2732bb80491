"""The last resort: what has no rule for many examples runs in a loop, and ``stopgrad ops`` says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine
from tiers import some

import stopgrad as sg
from stopgrad.base.samples import floats, sample
from stopgrad.base.types import TensorType
from stopgrad.graph.build import apply
from stopgrad.graph.op import REGISTRY, Op
from stopgrad.tools.cli import main

X = np.random.default_rng(0).normal(size=(4, 3))
S = np.array([1.0, 2.0, 3.0, 4.0])


@pytest.fixture
def weighted_cumsum() -> Iterator[Any]:
    """An operation without a rule, with two operands and two results."""

    class WeightedCumsum(Op):
        """Running sums of x times w, and their last.

        Args:
            x, w: a vector and a number.

        Returns:
            The sums and the last.
        """

        @staticmethod
        def infer(x: TensorType, w: TensorType) -> tuple[TensorType, TensorType]:
            return x, w

        gradient = {
            "x": lambda g, op: (sg.cumsum(g[0], reverse=True) + g[1]) * op.w,
            "w": lambda g, op: sg.reduce_sum(g[0] * sg.cumsum(op.x)) + g[1] * sg.reduce_sum(op.x),
        }
        lower = lambda xp, x, w: (xp.cumsum(x) * w, xp.sum(x) * w)
        samples = [sample(floats(3), floats())]

    try:
        yield lambda x, w: apply(WeightedCumsum, (x, w), ())
    finally:
        del REGISTRY["WeightedCumsum"]


@each_engine
@pytest.mark.parametrize("axes", some([(0, 0), (0, None), (None, 0)], 3))
def test_without_a_rule_it_runs_in_a_loop(weighted_cumsum: Any, engine: str, axes: Any) -> None:
    x, s = X if axes[0] == 0 else X[0], S if axes[1] == 0 else S[1]

    def f(x: Any, s: Any) -> Any:
        return sg.reduce_sum(weighted_cumsum(x, s)[0] * 2.0) + weighted_cumsum(x, s)[1]

    def one(i: int) -> Any:
        return (x[i] if axes[0] == 0 else x), (s[i] if axes[1] == 0 else s)

    values = sg.function(sg.vmap(f, axes), engine=engine)(x, s)
    np.testing.assert_allclose(values, [sg.function(f)(*one(i)) for i in range(4)], rtol=1e-12)
    for k, g in enumerate(sg.function(sg.vmap(sg.grad(f, (0, 1)), axes), engine=engine)(x, s)):
        expected = np.stack([sg.function(sg.grad(f, (0, 1)))(*one(i))[k] for i in range(4)])
        np.testing.assert_allclose(g, expected, rtol=1e-12)
        outer = sg.grad(lambda x, s: sg.reduce_sum(sg.vmap(f, axes)(x, s)), k)
        total = expected if axes[k] == 0 else expected.sum(0)
        np.testing.assert_allclose(sg.function(outer, engine=engine)(x, s), total, rtol=1e-12)


def test_the_loop_is_one_operation_whatever_the_number_of_examples(weighted_cumsum: Any) -> None:
    for n in (4, 4000, None):
        graph = sg.Graph()
        with graph.as_default():
            y = sg.vmap(weighted_cumsum)(sg.placeholder(sg.float64, [n, 3]), sg.placeholder(sg.float64, [n]))[
                0
            ]
        assert [op.type for op in graph.subgraph_to([y])].count("Scan") == 1
        assert len(graph) < 8


def test_a_symbolic_number_of_examples_cannot_join_the_channels() -> None:
    """The groups of a convolution are a number; with a symbolic one it runs in a loop."""
    graph = sg.Graph()
    filters = np.random.default_rng(1).normal(size=(4, 2, 3, 5))
    x = np.random.default_rng(2).normal(size=(4, 1, 6, 3))
    with graph.as_default():
        a, b = sg.placeholder(sg.float64, ["n", 1, 6, 3]), sg.placeholder(sg.float64, ["n", 2, 3, 5])
        y = sg.vmap(lambda x, f: sg.conv1d(x, f, 1, "VALID"))(a, b)
    assert "Scan" in [op.type for op in graph.subgraph_to([y])]
    with sg.Session(graph) as session:
        found = session.run(y, {a: x, b: filters})
    np.testing.assert_allclose(
        found, np.stack([sg.conv1d(p, f, 1, "VALID") for p, f in zip(x, filters, strict=True)])
    )


def test_the_list_of_operations_says_which_run_in_a_loop(
    weighted_cumsum: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ops", "WeightedCumsum", "Exp", "Const"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert " loop " in rows["WeightedCumsum"]
    assert " rule " in rows["Exp"]
    assert not {"loop", "rule"} & set(rows["Const"].split())


def test_every_operation_of_the_package_has_a_rule() -> None:
    without = [d.type for d in REGISTRY.values() if (d.operands or d.variadic) and d.batch is None]
    # Not allowed in a function of one example; and what only its own framework knows.
    assert without == ["Assign", "Foreign"]
