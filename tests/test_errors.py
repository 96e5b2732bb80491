"""Errors: whose mistake it was, and that an error is a value which can be copied and sent."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.op import Joint, Op

HERE = __file__
KINDS = [
    sg.ArgumentError,
    sg.ShapeError,
    sg.DTypeError,
    sg.GraphError,
    sg.FeedError,
    sg.GradientError,
    sg.EngineError,
    sg.DefinitionError,
    sg.InternalError,
]


@pytest.fixture
def x() -> Any:
    with sg.Graph().as_default():
        yield sg.placeholder(sg.float32, [3], name="x")


# -------------------------------------------------------------------------------------- sent elsewhere


def fail(rows: int) -> Any:
    return sg.matmul(np.ones((2, 3)), np.ones((rows, 2)))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_copied_and_pickled_with_its_text_and_line(kind: Any, again: Any) -> None:
    error = kind("the rule that was broken")
    error.name_after("Exp")
    error.add_note("noted")
    other = again(error)
    assert type(other) is kind
    assert str(other) == str(error)
    assert HERE in str(other)
    assert other.message == error.message
    assert other.args == error.args
    assert other.__notes__ == ["noted"]
    assert repr(other) == repr(error)
    assert str(again(other)) == str(error)


def test_an_error_comes_back_from_a_pool_of_processes() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(sg.ShapeError, match=r"MatMul: .*3.*4") as caught:
            pool.submit(fail, 4).result()
        assert pool.submit(fail, 3).result().shape == (2, 2)
    assert f"{HERE}:" in str(caught.value)


# ------------------------------------------------------------------------------------- whose mistake

DEFECTS: list[Any] = [AttributeError, TypeError, KeyError, ValueError, IndexError, NameError, AssertionError]


def defect(error: Any) -> Callable[..., Any]:
    """A function of ours with a mistake in it."""

    def mistaken(*_: Any, **__: Any) -> Any:
        raise error("oops")

    return mistaken


def check_internal(work: Callable[[], Any], graph: sg.Graph | None = None) -> None:
    before = None if graph is None else graph.to_text()
    with pytest.raises(sg.InternalError, match=r"(?s)oops.*a defect of stopgrad, please report") as caught:
        work()
    assert "help(" not in str(caught.value)
    assert not isinstance(caught.value, (TypeError, ValueError))
    assert f"{HERE}:" in str(caught.value)
    assert before is None or graph is None or graph.to_text() == before


@pytest.mark.parametrize("error", DEFECTS)
def test_a_defect_in_inference_is_ours(error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sg.ops.Sum, "infer", staticmethod(defect(error)))
    monkeypatch.setattr(sg.ops.Sum, "_inferred", {})
    check_internal(lambda: sg.reduce_sum(x), x.graph)
    check_internal(lambda: sg.reduce_sum(np.ones(3)))
    check_internal(lambda: sg.grad(lambda a: sg.reduce_sum(a))(np.ones(3)))
    check_internal(lambda: sg.scan(lambda c, a: (c + sg.reduce_sum(a), a), 0.0, x), x.graph)


@pytest.mark.parametrize("error", DEFECTS)
def test_a_defect_in_a_gradient_rule_is_ours(
    error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = sg.tan(x)
    monkeypatch.setattr(sg.ops.Tan, "rules", (defect(error),))
    check_internal(lambda: sg.gradients(y, x), x.graph)
    check_internal(lambda: sg.grad(lambda a: sg.reduce_sum(sg.tan(a)))(x), x.graph)
    check_internal(lambda: sg.jvp(sg.tan, (np.ones(3),), (np.ones(3),)))
    check_internal(lambda: sg.hessian(lambda a: sg.reduce_sum(sg.tan(a)))(np.ones(3)))
    check_internal(lambda: sg.gradients(sg.map_fn(sg.tan, x), x), None)


@pytest.mark.parametrize("error", DEFECTS)
def test_a_defect_in_a_joint_pullback_is_ours(
    error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = sg.map_fn(sg.tan, x)
    monkeypatch.setattr(sg.ops.Scan, "joint", Joint(defect(error)))
    check_internal(lambda: sg.gradients(y, x), x.graph)


def test_a_gradient_rule_that_calls_a_function_wrongly_is_ours(
    x: sg.Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = sg.tan(x)
    for wrong in ("sg.reshape(g, object())", "sg.transpose(g, 1.5)", "sg.reduce_sum(g, no_such_argument=1)"):
        code = compile(f"lambda g, op: {wrong}", f"{sg.__path__[0]}/ops/mistaken.py", "eval")
        monkeypatch.setattr(sg.ops.Tan, "rules", (eval(code, {"sg": sg}),))
        with pytest.raises(sg.InternalError, match="defect of stopgrad"):
            sg.gradients(y, x)


@pytest.mark.parametrize("error", DEFECTS)
def test_a_defect_in_the_generator_is_ours(error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch) -> None:
    y = sg.tan(x)
    monkeypatch.setattr("stopgrad.autodiff.reverse.pull_back", defect(error))
    check_internal(lambda: sg.gradients(y, x), x.graph)
    check_internal(lambda: sg.value_and_grad(lambda a: sg.reduce_sum(a))(x), x.graph)
    check_internal(lambda: x.graph.add_gradients(y, x), x.graph)


@pytest.mark.parametrize("error", DEFECTS)
def test_a_defect_in_a_lowering_is_ours(error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sg.ops.Tan, "lower", staticmethod(defect(error)))
    check_internal(lambda: sg.tan(np.ones(3)))


@pytest.mark.parametrize("error", [AttributeError, KeyError, IndexError, NameError, AssertionError])
def test_a_defect_in_a_lowering_is_ours_when_it_runs(
    error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = sg.tan(x)
    monkeypatch.setattr(sg.ops.Tan, "lower", staticmethod(defect(error)))
    with sg.Session(x.graph, engine="numpy") as session:
        check_internal(lambda: session.run(y, {x: [1.0, 2.0, 3.0]}), x.graph)


@pytest.mark.parametrize("error", [*DEFECTS, RuntimeError, KeyboardInterrupt, ZeroDivisionError])
def test_what_a_users_own_function_raises_comes_out_as_it_is(error: Any, x: sg.Output) -> None:
    mine = error("mine")

    def fails(*_: Any) -> Any:
        sg.exp(x)
        raise mine

    def pulls(a: Any) -> Any:
        return sg.exp(a), fails

    before = x.graph.to_text()
    works: list[Callable[[], Any]] = [
        lambda: sg.grad(fails)(x),
        lambda: sg.grad(fails)(1.0),
        lambda: sg.jvp(fails, (x,), (x,)),
        lambda: sg.vjp(fails, x),
        lambda: sg.hessian(fails)(x),
        lambda: sg.vmap(fails)(x),
        lambda: sg.scan(fails, x, x),
        lambda: sg.map_fn(fails, x),
        lambda: sg.cond(True, fails, fails, x),
        lambda: sg.while_loop(fails, fails, [x]),
        lambda: sg.fori_loop(0, 3, fails, x),
        lambda: sg.checkpoint(fails)(x),
        lambda: sg.custom_gradient(fails)(x),
        lambda: sg.explain(fails, x),
        lambda: sg.grad(lambda a: sg.reduce_sum(sg.custom_gradient(pulls)(a)))(x),
    ]
    for work in works:
        with pytest.raises(error) as caught:
            work()
        assert caught.value is mine
        assert x.graph.to_text() == before


def test_a_builtin_given_as_a_function_raises_its_own_error(x: sg.Output) -> None:
    with pytest.raises(TypeError) as caught:
        sg.grad(iter)(1.0)
    assert not isinstance(caught.value, sg.InternalError)


class Misbehaving:
    """What raises something of its own when it is read."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise LookupError("mine")


def test_what_an_object_raises_when_it_is_read_is_no_defect_of_ours(x: sg.Output) -> None:
    with pytest.raises(LookupError, match="mine") as caught:
        sg.exp(Misbehaving())
    assert not isinstance(caught.value, sg.InternalError)


@pytest.mark.parametrize("definition", [sg.ops.Sum, sg.ops.Reshape, sg.ops.ConcatV2])
def test_a_call_with_the_wrong_arguments_is_a_mistake_of_the_user(definition: type[Op], x: sg.Output) -> None:
    with pytest.raises(sg.ArgumentError, match=r"argument.*help\(sg\."):
        definition.function(x, x, x, x, x, x, x)
    with pytest.raises(sg.ArgumentError, match=r"argument.*help\(sg\."):
        definition.function()
