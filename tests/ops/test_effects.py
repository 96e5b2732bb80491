"""``sg.print`` and ``sg.debug_callback`` show values when they are there, in order, wherever they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from all_engines import each_engine
from stopgrad.errors import EngineError

import stopgrad as sg
import stopgrad.onnx as sgo

STEPS = np.array([1.0, 2.0, 3.0], np.float32)
Show = Any


def program(sg_print: Show, cond: Any, loop: Any, times: Any) -> Any:
    """A function with prints in branches and loops, in terms of one library or another."""

    def f(x: Any) -> Any:
        sg_print("x is {x:.2f}", x=x)
        y = loop(0, 3, lambda i, c: (sg_print("step {}: {}", i, c), c + x)[1], x)
        cond(x > 1, lambda: (sg_print("big"), x)[1], lambda: (sg_print("small"), -x)[1])
        loop(0, 1, lambda i, c: (sg_print("for nobody {}", i), c)[1], x)
        sg_print("pair {0} {1} {0}", y, x)
        return times(y)

    return f


OURS = program(sg.print, sg.cond, sg.fori_loop, lambda y: y * 2.0)


def in_jax(fmt: str, *args: Any, **kwargs: Any) -> None:
    jax.debug.print(fmt, *args, ordered=True, **kwargs)


@pytest.mark.parametrize("engine", ["numpy", "xla"])
def test_what_is_printed_and_in_which_order_is_as_in_jax(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = jax.jit(program(in_jax, jax.lax.cond, jax.lax.fori_loop, lambda y: y * 2.0))
    ours = sg.function(OURS, engine=engine)
    for x in (np.float32(2.0), np.float32(0.5), np.float32(2.0)):
        theirs(x)
        jax.effects_barrier()
        expected = capsys.readouterr().out
        ours(x)
        assert capsys.readouterr().out == expected
    assert expected.startswith("x is 2.00\nstep 0: 2.0\nstep 1: 4.0\nstep 2: 6.0\nbig\nfor nobody 0\n")


def test_outside_of_a_graph_it_prints_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    sg.print("loss", np.float32(0.5), [1, 2])
    sg.print("{:.1f} {name}", np.array([1.0, 2.25]), name="w")
    sg.print()
    sg.scan(lambda c, x: (c + x, sg.print("{}", x)), 0.0, STEPS)
    assert capsys.readouterr().out == "loss 0.5 [1, 2]\n[1.0 2.2] w\n\n1.0\n2.0\n3.0\n"


@pytest.mark.parametrize("engine", ["numpy", "xla"])
def test_each_example_of_vmap_prints_and_a_gradient_prints_once(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(x: Any, y: Any) -> Any:
        sg.print("{} {}", x, y)
        return sg.scan(lambda c, step: (c * step, (sg.print("at {}", step), c)[1]), x, STEPS)[0]

    sg.function(lambda xs: sg.vmap(f, in_axes=(0, None))(xs, 7.0), engine=engine)(np.array([5.0, 6.0]))
    assert capsys.readouterr().out == "5.0 7.0\n6.0 7.0\n" + "".join(f"at {s}\n" for s in STEPS)
    slope = sg.function(sg.grad(lambda x: f(x, 1.0)), engine=engine)(2.0)
    assert (slope, capsys.readouterr().out) == (6.0, "2.0 1.0\nat 1.0\nat 2.0\nat 3.0\n")
    sg.vjp(lambda x: f(x, 1.0) * x, 2.0)[1](1.0)
    assert capsys.readouterr().out.count("2.0 1.0") == 1


@each_engine
def test_a_session_prints_what_is_fed_all_that_it_needs(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with sg.Graph().as_default() as graph:
        x, other = sg.placeholder(sg.float32, ["n"]), sg.placeholder(sg.float32, [])
        w = sg.parameter(np.float32(3.0), name="w")
        sg.print("sum {:.1f}", sg.reduce_sum(x) * w)
        sg.print("other {}", other)
        y = x * 2.0
        step = sg.assign(w, w + 1.0)
        sg.print("next {}", step)
    with sg.Session(graph, engine=engine) as session:
        session.run(y, {x: [1.0, 2.0]})
        assert capsys.readouterr().out == "sum 9.0\n"
        session.run([y, step], {x: [1.0], other: 5.0})
        assert capsys.readouterr().out == "sum 3.0\nother 5.0\nnext 4.0\n"
        assert session.value(w) == 4.0
        session.run(y, {x: [1.0]})
        assert capsys.readouterr().out == "sum 4.0\n"
        assert session.value(w) == 4.0


@each_engine
def test_a_callback_gets_arrays_of_every_dtype_in_their_structure(engine: str) -> None:
    given = {
        "wide": np.array([1 / 3, 2.0]),
        "whole": np.array([2**40, -1]),
        "complex": np.array([1 / 3 + 2j]),
        "small": np.array([1 / 3 + 2j], np.complex64),
        "flags": np.array([[True], [False]]),
        "half": np.array(0.5, np.float16),
    }
    if engine == "onnxruntime":
        given = {name: x for name, x in given.items() if x.dtype.kind != "c"}
    seen: list[Any] = []

    def f(tree: Any) -> Any:
        sg.debug_callback(
            lambda *args, **kwargs: seen.append((args, kwargs)), "word", [tree], again=tree["half"]
        )
        return tree["wide"]

    sg.function(f, engine=engine)(given)
    (((word, (tree,)), kwargs),) = seen
    assert word == "word"
    assert kwargs == {"again": 0.5}
    assert tree.keys() == given.keys()
    for name, x in given.items():
        assert tree[name].dtype == x.dtype
        np.testing.assert_array_equal(tree[name], x)


@each_engine
def test_an_exception_of_a_callback_ends_the_run_with_its_cause(engine: str) -> None:
    def check(x: Any) -> None:
        assert x > 0, "x is negative"

    def f(x: Any) -> Any:
        sg.debug_callback(check, x)
        return x * 2.0

    checked = sg.function(f, engine=engine)
    assert checked(1.0) == 2.0
    with pytest.raises(
        sg.EngineError, match="the callback check raised AssertionError: x is negative"
    ) as caught:
        checked(-1.0)
    error: BaseException | None = caught.value
    while isinstance(error, sg.StopgradError):
        error = error.__cause__
    assert isinstance(error, AssertionError)
    assert checked(3.0) == 6.0


def test_a_function_may_only_print_and_the_gradient_function_may_print(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sg.function(lambda x: sg.print("x", x), engine="numpy")(1.0) is None

    @sg.custom_gradient
    def square(x: Any) -> Any:
        return x * x, lambda g: (sg.print("back", g), g * 2.0 * x)[1]

    assert sg.function(sg.grad(square), engine="numpy")(3.0) == 6.0
    assert capsys.readouterr().out == "x 1.0\nback 1.0\n"


def test_equal_prints_and_loops_print_each(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        for _ in range(2):
            sg.print("twice", x)
            sg.fori_loop(0, 1, lambda i, c: (sg.print("loop", c), c)[1], x)
        return x

    sg.function(f, engine="xla")(1.0)
    assert capsys.readouterr().out == "twice 1.0\nloop 1.0\n" * 2


def test_a_bounded_while_loop_prints_nothing_in_steps_that_do_not_happen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def f(x: Any) -> Any:
        return sg.while_loop(
            lambda c: c < 7.0, lambda c: (sg.print("{}", c), c * x)[1], x, maximum_iterations=9
        )

    assert sg.grad(f)(2.0) == 12.0
    assert {*capsys.readouterr().out.split()} == {"2.0", "4.0"}


BAD = {
    "a field without a value": (lambda x: sg.print("{} {}", x), r"field \{1\} of '\{\} \{\}' has no value"),
    "a named field": (lambda x: sg.print("{y}", x), r"field \{y\} of '\{y\}' has no value"),
    "a value without a field": (lambda x: sg.print("{}", x, x), "argument 1 has no field"),
    "a name without a field": (lambda x: sg.print("text", y=x), r"no field \{y\} in 'text'"),
    "a brace": (lambda x: sg.print("{", x), r"is no format: .*write \{\{ for a brace"),
    "no function": (lambda x: sg.debug_callback(x), "takes a function"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_call_is_told_and_leaves_nothing(name: str) -> None:
    wrong, says = BAD[name]
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [])
        with pytest.raises(sg.ArgumentError, match=says):
            wrong(x)
    assert len(graph) == 1


def test_a_graph_that_prints_is_not_written() -> None:
    with sg.Graph().as_default() as graph:
        sg.print("x", sg.placeholder(sg.float32, []))
    with pytest.raises(sg.GraphError, match=r"calls Python \(sg.print\); leave it out"):
        graph.to_text()


def _prints_in_a_loop(x: Any) -> Any:
    return sg.fori_loop(0, 2, lambda i, c: (sg.print("step {}", i), c * 2.0)[1], x)


CURE = r"DebugCallback.* cannot call Python in a loop or branch: print what comes out of it, or take engine="


def test_onnxruntime_says_what_to_do_about_prints_in_loops(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineError, match=CURE):
        sg.function(_prints_in_a_loop, engine="onnxruntime")(STEPS)
    assert capsys.readouterr().out == ""


def test_a_model_is_saved_without_its_prints_or_with_their_cure(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        with pytest.raises(EngineError, match=CURE):
            sgo.save(path, {"y": _prints_in_a_loop(x)}, {"x": x})
        assert not path.exists()
        sg.print("x is {}", x)
        sgo.save(path, {"y": x * 2.0}, {"x": x})
    assert [node.op_type for node in onnx.load(path).graph.node] == ["Constant", "Mul"]
