"""Errors: whose mistake it was, and that an error is a value which can be copied and sent."""

from __future__ import annotations

import contextvars
import copy
import multiprocessing
import pickle
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pooled
import pytest
from junk import JUNK
from together import together

import stopgrad as sg
from stopgrad.graph.op import Joint, Op
from stopgrad.graph.public import call

HERE = __file__
KINDS = [kind for kind in vars(sg).values() if isinstance(kind, type) and issubclass(kind, sg.StopgradError)]


@pytest.fixture
def x() -> Any:
    with sg.Graph().as_default():
        yield sg.placeholder(sg.float32, [3], name="x")


# -------------------------------------------------------------------------------------- sent elsewhere


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
            pool.submit(pooled.multiply, 4).result()
        assert pool.submit(pooled.multiply, 3).result().shape == (2, 2)
    assert f"{pooled.__file__}:" in str(caught.value)


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
def test_a_defect_in_inference_of_one_operation_from_outputs_is_ours(
    error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    for definition in (sg.ops.Tanh, sg.ops.AddV2):
        monkeypatch.setattr(definition, "infer", staticmethod(defect(error)))
        monkeypatch.setattr(definition, "_inferred", {})
    check_internal(lambda: sg.tanh(x), x.graph)
    check_internal(lambda: sg.add(x, x), x.graph)
    check_internal(lambda: x + x, x.graph)
    check_internal(lambda: sg.grad(lambda a: sg.reduce_sum(sg.tanh(a)))(np.ones(3)))


def test_a_defect_met_while_reading_a_text_is_ours(x: sg.Output, monkeypatch: pytest.MonkeyPatch) -> None:
    sg.tanh(x)
    text = x.graph.to_text()
    monkeypatch.setattr(sg.ops.Tanh, "infer", staticmethod(defect(AttributeError)))
    monkeypatch.setattr(sg.ops.Tanh, "_inferred", {})
    with pytest.raises(sg.GraphError, match=r"line 2 .*Tanh: AttributeError: .*a defect of stopgrad"):
        sg.Graph.from_text(text)


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
    for wrong in ("sg.transpose(g, 1.5)", "sg.reduce_sum(g, no_such_argument=1)"):
        code = compile(f"lambda g, op: {wrong}", f"{sg.__path__[0]}/ops/mistaken.py", "eval")
        monkeypatch.setattr(sg.ops.Tan, "rules", (eval(code, {"sg": sg}),))
        with pytest.raises(sg.InternalError, match="defect of stopgrad"):
            sg.gradients(y, x)


@pytest.mark.parametrize("error", DEFECTS)
def test_a_defect_in_the_generator_is_ours(error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch) -> None:
    y = sg.tan(x)
    monkeypatch.setattr("stopgrad.transforms.gradients.reverse.pull_back", defect(error))
    check_internal(lambda: sg.gradients(y, x), x.graph)
    check_internal(lambda: sg.value_and_grad(lambda a: sg.reduce_sum(a))(x), x.graph)
    check_internal(lambda: x.graph.add_gradients(y, x), x.graph)


@pytest.mark.parametrize("error", [e for e in DEFECTS if e is not ValueError])
def test_a_defect_in_a_lowering_is_ours(error: Any, x: sg.Output, monkeypatch: pytest.MonkeyPatch) -> None:
    y = sg.tan(x)
    for remembered in ("_PLANS", "_CALLS"):  # Other tests may have called it.
        monkeypatch.setattr(f"stopgrad.graph.immediate.{remembered}", {})
    monkeypatch.setattr(sg.ops.Tan, "lower", staticmethod(defect(error)))
    check_internal(lambda: contextvars.Context().run(sg.tan, np.ones(3)))  # outside of the graph
    with sg.Session(x.graph, engine="numpy") as session:
        check_internal(lambda: session.run(y, {x: [1.0, 2.0, 3.0]}), x.graph)


def test_what_an_engine_cannot_hold_is_no_defect() -> None:
    with pytest.raises(sg.EngineError, match=r"Fill: .*too large"):
        sg.zeros([2**60, 2**60])


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


# ------------------------------------------------------------------------------------ any junk at all

GRAPH = sg.Graph()
with GRAPH.as_default():
    X = sg.placeholder(sg.float32, [3], name="x")
    S = sg.placeholder(sg.float32, name="s")
    Y = sg.exp(X)
    P = sg.placeholder(sg.bool, name="p")
    I = sg.placeholder(sg.int32, name="i")


def f(a: Any) -> Any:
    return sg.reduce_sum(a * a)


def step(carry: Any, a: Any) -> Any:
    return carry + sg.reduce_sum(a), a


CALLS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda j: sg.grad(j)(X),
    "grad.X": lambda j: sg.grad(f)(j),
    "grad.argnums": lambda j: sg.grad(f, j)(X),
    "grad.argnums2": lambda j: sg.grad(f, [j])(X),
    "grad.ret": lambda j: sg.grad(lambda a: j)(X),
    "grad.aux": lambda j: sg.grad(f, has_aux=j)(X),
    "grad.unc": lambda j: sg.grad(f, unconnected=j)(X),
    "vag": lambda j: sg.value_and_grad(f, j)(X),
    "vjp": lambda j: sg.vjp(j, X),
    "vjp.X": lambda j: sg.vjp(f, j),
    "vjp.ret": lambda j: sg.vjp(lambda a: j, X),
    "vjp.ct": lambda j: sg.vjp(f, X)[1](j),
    "jvp": lambda j: sg.jvp(j, (X,), (X,)),
    "jvp.p": lambda j: sg.jvp(f, j, (X,)),
    "jvp.p1": lambda j: sg.jvp(f, (j,), (X,)),
    "jvp.t": lambda j: sg.jvp(f, (X,), j),
    "jvp.t1": lambda j: sg.jvp(f, (X,), (j,)),
    "jvp.ret": lambda j: sg.jvp(lambda a: j, (X,), (X,)),
    "hvp": lambda j: sg.hvp(j, (X,), (X,)),
    "hvp.p": lambda j: sg.hvp(f, j, (X,)),
    "hvp.t": lambda j: sg.hvp(f, (X,), j),
    "jac": lambda j: sg.jacobian(j)(X),
    "jac.X": lambda j: sg.jacobian(f)(j),
    "jac.n": lambda j: sg.jacobian(f, j)(X),
    "jac.ret": lambda j: sg.jacobian(lambda a: j)(X),
    "hes": lambda j: sg.hessian(f, j)(X),
    "hes.X": lambda j: sg.hessian(f)(j),
    "vmap": lambda j: sg.vmap(j)(X),
    "vmap.X": lambda j: sg.vmap(f)(j),
    "vmap.in": lambda j: sg.vmap(sg.exp, j)(X),
    "vmap.in1": lambda j: sg.vmap(sg.exp, (j,))(X),
    "vmap.out": lambda j: sg.vmap(sg.exp, 0, j)(X),
    "vmap.ret": lambda j: sg.vmap(lambda a: j)(X),
    "scan": lambda j: sg.scan(j, S, X),
    "scan.i": lambda j: sg.scan(step, j, X),
    "scan.xs": lambda j: sg.scan(step, S, j),
    "scan.len": lambda j: sg.scan(step, S, X, length=j),
    "scan.len2": lambda j: sg.scan(lambda c, _: (c, None), S, None, length=j),
    "scan.rev": lambda j: sg.scan(step, S, X, reverse=j),
    "scan.unr": lambda j: sg.scan(step, S, X, unroll=j),
    "scan.ret": lambda j: sg.scan(lambda c, a: j, S, X),
    "scan.ret1": lambda j: sg.scan(lambda c, a: (j, a), S, X),
    "scan.ret2": lambda j: sg.scan(lambda c, a: (c, j), S, X),
    "scan.name": lambda j: sg.scan(step, S, X, name=j),
    "map": lambda j: sg.map_fn(j, X),
    "map.X": lambda j: sg.map_fn(sg.exp, j),
    "map.ret": lambda j: sg.map_fn(lambda a: j, X),
    "cond.p": lambda j: sg.cond(j, lambda: S, lambda: S),
    "cond.f": lambda j: sg.cond(P, j, lambda: S),
    "cond.ret": lambda j: sg.cond(P, lambda: j, lambda: S),
    "cond.X": lambda j: sg.cond(P, lambda a: S, lambda a: S, j),
    "switch.i": lambda j: sg.switch(j, [lambda: S]),
    "switch.b": lambda j: sg.switch(I, j),
    "switch.b1": lambda j: sg.switch(I, [j]),
    "while.c": lambda j: sg.while_loop(j, lambda a: a, [S]),
    "while.cr": lambda j: sg.while_loop(lambda a: j, lambda a: a, [S]),
    "while.b": lambda j: sg.while_loop(lambda a: a < 1.0, j, [S]),
    "while.br": lambda j: sg.while_loop(lambda a: a < 1.0, lambda a: j, [S]),
    "while.v": lambda j: sg.while_loop(lambda *a: P, lambda *a: a, j),
    "while.m": lambda j: sg.while_loop(lambda a: a < 1.0, lambda a: a, [S], j),
    "fori.l": lambda j: sg.fori_loop(j, 3, lambda i, c: c, S),
    "fori.u": lambda j: sg.fori_loop(0, j, lambda i, c: c, S),
    "fori.b": lambda j: sg.fori_loop(0, 3, j, S),
    "fori.i": lambda j: sg.fori_loop(0, 3, lambda i, c: c, j),
    "ckpt": lambda j: sg.checkpoint(j)(X),
    "ckpt.X": lambda j: sg.checkpoint(sg.exp)(j),
    "ckpt.ret": lambda j: sg.checkpoint(lambda a: j)(X),
    "ckpt.n": lambda j: sg.checkpoint(sg.exp, j)(X),
    "cg": lambda j: sg.custom_gradient(j)(X),
    "cg.ret": lambda j: sg.custom_gradient(lambda a: j)(X),
    "cg.ret1": lambda j: sg.custom_gradient(lambda a: (j, lambda g: g))(X),
    "cg.pull": lambda j: sg.gradients(sg.custom_gradient(lambda a: (a * 2.0, j))(X), X),
    "cg.pullret": lambda j: sg.gradients(sg.custom_gradient(lambda a: (a * 2.0, lambda g: j))(X), X),
    "gradients.Y": lambda j: sg.gradients(j, X),
    "gradients.X": lambda j: sg.gradients(Y, j),
    "gradients.x1": lambda j: sg.gradients(Y, [j]),
    "gradients.g": lambda j: sg.gradients(Y, X, j),
    "gradients.g1": lambda j: sg.gradients(Y, X, [j]),
    "gradients.s": lambda j: sg.gradients(Y, X, stop_gradients=j),
    "gradients.u": lambda j: sg.gradients(Y, X, unconnected_gradients=j),
    "gradients.n": lambda j: sg.gradients(Y, X, name=j),
    "explain.f": lambda j: sg.explain(j, X),
    "explain.X": lambda j: sg.explain(Y, j),
    "explain.a": lambda j: sg.explain(f, X, argnums=j),
    "explain.s": lambda j: sg.explain(Y, X, stop_gradients=j),
    "flows": lambda j: sg.assert_flows(j, X),
    "blocked": lambda j: sg.assert_blocked(Y, X, by=j),
    "name_scope": lambda j: sg.name_scope(j),
    "sub_scope": lambda j: sg.Scope(GRAPH).with_sub_scope(j),
    "create": lambda j: sg.ops.Exp.create(j, X),
    "create.X": lambda j: sg.ops.Exp.create(GRAPH, j),
    "create.name": lambda j: sg.ops.Exp.create(GRAPH, X, name=j),
    "Gradients": lambda j: sg.Gradients.create(GRAPH, Y, X, j),
    "add_gradients": lambda j: GRAPH.add_gradients(Y, X, prefix=j),
    "output": lambda j: GRAPH.output(j),
    "operation": lambda j: GRAPH.operation_or_raise(j),
    "sub_to": lambda j: GRAPH.subgraph_to([j]),
    "sub_to2": lambda j: GRAPH.subgraph_to(j),
    "sub_from": lambda j: GRAPH.subgraph_from([j]),
    "getitem": lambda j: X[j],
    "op+": lambda j: X + j,
    "op@": lambda j: X @ j,
    "op**": lambda j: X**j,
}


SEVERAL = {"vjp.ct", "cg.pull", "cg.pullret"}
"""Several calls, of which the last may fail."""


@together("name", CALLS)
def test_whatever_an_argument_is_it_is_no_defect_of_ours(name: str) -> None:
    length = len(GRAPH)
    for junk in JUNK:
        try:
            with GRAPH.as_default():
                CALLS[name](junk)
        except sg.StopgradError as error:
            assert not isinstance(error, sg.InternalError)  # noqa: PT017 - of many, any may raise
            assert f"{HERE}:" in str(error)  # noqa: PT017
            assert len(GRAPH) == length or name in SEVERAL
        except TypeError as error:
            # The user's own function failed: called with too many arguments, or on what it cannot take.
            frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
            assert call.__code__ in frames
            assert len(GRAPH) == length or name in SEVERAL
        GRAPH.truncate(length)
