"""Assertions about gradients: what passes, what fails, and what a reader of the failure sees."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def line_of(text: str) -> int:
    """The first line of this file that holds a text."""
    return next(i for i, line in enumerate(LINES, 1) if text in line)


def loss(params: Any, x: Any, tokens: Any) -> Any:
    h = sg.tanh(x @ params["W"] + params["b"])
    with sg.name_scope("target"):
        t = sg.stop_gradient(h @ params["V"], name="frozen")
    k = sg.cast(sg.argmax(h, axis=-1), sg.float64)
    every = (h.sum() - t.sum()) ** 2 + k.sum()
    return every * sg.reduce_sum(sg.stop_gradient(params["q"])) + sg.gather(x, tokens).sum()


ARGS = (
    {"W": np.ones((3, 3)), "b": np.ones(3), "V": np.ones((3, 3)), "q": np.ones(2), "unused": np.ones(2)},
    np.ones((2, 3)),
    np.array([0, 1]),
)


def failure(check: Callable[..., None], *args: Any, **kwargs: Any) -> str:
    """The message of an assertion that fails."""
    with pytest.raises(sg.FlowError) as caught:
        check(*args, **kwargs)
    return caught.value.message


# ----------------------------------------------------------------------------------------- of functions


def test_what_holds_of_a_function() -> None:
    sg.assert_flows(loss, *ARGS, to="params.W")
    sg.assert_flows(loss, *ARGS, to=["params.W", "params.b", "x"])
    sg.assert_flows(lambda params, x: (params["a"] * x).sum(), {"a": np.ones(2)}, np.ones(2))
    sg.assert_blocked(loss, *ARGS, to=["params.V", "params.q", "params.unused", "tokens"])
    sg.assert_only_flows(loss, *ARGS, to=["params.W", "params.b", "x"])
    sg.assert_only_flows(loss, *ARGS, to=["params.W", "params.b"], among="params")
    sg.assert_only_flows(loss, *ARGS, to=["params.W", "params.b"], argnums=0)
    sg.assert_flows(lambda x, *, scale: x * scale, np.ones(2), scale=2.0)


def test_all_that_carries_gradients_unless_told() -> None:
    text = failure(sg.assert_flows, loss, *ARGS)
    assert text.startswith(
        "assert_flows: gradients do not arrive at params.V, params.q, params.unused, and should"
    )
    assert "tokens" not in text


def test_below_a_name_is_all_of_it() -> None:
    deep = {"net": {"a": np.ones(2), "b": np.ones(2)}, "net2": np.ones(2)}
    sg.assert_only_flows(lambda p: (p["net"]["a"] * p["net"]["b"]).sum(), deep, to="p.net")
    text = failure(sg.assert_flows, lambda p: p["net"]["a"].sum(), deep, to="p.net")
    assert "do not arrive at p.net.b, and should" in text


def test_a_missing_gradient_shows_its_story_alone() -> None:
    text = failure(sg.assert_flows, loss, *ARGS, to=["params.V", "params.W"])
    line = line_of('name="frozen")')
    assert text.splitlines()[:6] == [
        "assert_flows: gradients do not arrive at params.V, and should",
        "",
        "stopped: params.V",
        f"  tests/flow/test_assertions.py:{line}  stop_gradient",
        f'{line:6} | t = sg.stop_gradient(h @ params["V"], name="frozen")',
        "       |     " + "^" * 48,
    ]
    assert "params.q" not in text
    assert "params.W" not in text


def test_an_open_path_is_shown_where_none_should_be() -> None:
    text = failure(sg.assert_blocked, loss, *ARGS, to="params.W")
    first, _, path, file, *steps = text.splitlines()
    assert first == "assert_blocked: gradients arrive at params.W, and should not"
    assert path == "an open path to params.W, backwards:"
    assert file == "  tests/flow/test_assertions.py"
    numbers = [line_of(part) for part in ("return every *", "every = (h", "h = sg.tanh(x @")]
    assert [int(step.split("|")[0]) for step in steps[:3]] == numbers
    assert not steps[3]
    assert "partly stopped: params.W" in text


def test_a_long_open_path_is_shown_by_its_ends(tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    file.write_text("def f(x):\n" + "".join(f"    x = x * {i}.0\n" for i in range(50)) + "    return x\n")
    known: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), known)
    text = failure(sg.assert_blocked, known["f"], 1.0)
    steps = text.split("\n\n")[1].splitlines()
    assert [step.split("|")[-1].strip() for step in steps[2:5]] == [f"x = x * {i}.0" for i in (49, 48, 47)]
    assert steps[5] == "  ... 44 more lines ..."
    assert [step.split("|")[-1].strip() for step in steps[7:]] == [f"x = x * {i}.0" for i in (2, 1, 0)]


def test_gradients_elsewhere_and_not_there() -> None:
    text = failure(sg.assert_only_flows, loss, *ARGS, to=["params.W", "params.q"])
    assert text.startswith(
        "assert_only_flows: gradients should arrive at params.W, params.q only; "
        "they arrive at params.b, x too and do not arrive at params.q\n\nan open path to params.b, backwards:"
    )
    assert "stopped: params.q\n" in text
    assert "partly stopped: params.b, x\n" in text
    text = failure(sg.assert_only_flows, loss, *ARGS, to=["params.W", "params.b", "x", "params.q"])
    assert "only; they do not arrive at params.q\n\nstopped: params.q" in text


def test_an_assertion_leaves_the_users_graph_as_it_was() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2], name="x")
        y = sg.stop_gradient(x)
        before = graph.to_text()
        failure(sg.assert_flows, y, [x])
        sg.assert_blocked(y, [x])
        assert graph.to_text() == before


# --------------------------------------------------------------------------------------------- by what


@pytest.mark.parametrize(
    "by",
    [
        "target",
        "target/frozen",
        "target/frozen:0",
        f"test_assertions.py:{line_of('frozen')}",
        f"./tests/flow/test_assertions.py:{line_of('frozen')}",
        f"{__file__}:{line_of('frozen')}",
        ["target"],
    ],
)
def test_by_a_name_a_scope_or_a_line(by: Any) -> None:
    sg.assert_blocked(loss, *ARGS, to="params.V", by=by)
    text = failure(sg.assert_blocked, loss, *ARGS, to=["params.q", "params.V"], by=by)
    name = by if isinstance(by, str) else by[0]
    assert text.startswith(f"assert_blocked: params.q is not cut by {name!r}\n\nstopped: params.q\n")


def test_by_what_does_nothing() -> None:
    def f(w: Any, x: Any) -> Any:
        return sg.stop_gradient(w) * sg.stop_gradient(sg.ones([2]), name="idle") + x

    text = failure(sg.assert_blocked, f, np.ones(2), np.ones(2), to="w", by="idle")
    assert "w is not cut by 'idle', which does nothing: nothing behind it depends on what was asked" in text


def test_by_operations_of_a_graph() -> None:
    with sg.Graph().as_default():
        w = sg.parameter(np.ones(3), name="net/w")
        x = sg.placeholder(sg.float64, [3], name="x")
        gates = sg.stop_gradient({"w": w, "x": x})
        y = sg.reduce_sum(gates["w"] * gates["x"])
        elsewhere = sg.stop_gradient(w)
    for by in (gates["w"], gates["w"].op, gates, [gates["w"], elsewhere]):
        sg.assert_blocked(y, w, by=by)
    line = line_of('gates = sg.stop_gradient({"w"')
    sg.assert_blocked(y, [w, x], by=f"test_assertions.py:{line}")
    text = failure(sg.assert_blocked, y, [w, x], by=gates["w"])
    assert "x is not cut by StopGradient 'StopGradient' at tests/flow/test_assertions.py:" in text
    assert "not cut by" in failure(sg.assert_blocked, y, [w], by=elsewhere)


def test_by_a_stop_inside_the_body_of_a_loop() -> None:
    def f(h: Any, w: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            return sg.stop_gradient(h, name="inner") * w, None

        return sg.scan(step, h, length=3)[0]

    sg.assert_blocked(f, 1.0, 2.0, to="h", by="inner")
    sg.assert_flows(f, 1.0, 2.0, to="w")


# -------------------------------------------------------------------------------------------- of graphs


@pytest.fixture
def made() -> dict[str, Any]:
    with sg.Graph().as_default():
        w, v = (sg.parameter(np.ones(3), name=f"net/{name}") for name in "wv")
        x = sg.placeholder(sg.float64, [3], name="x")
        i = sg.placeholder(sg.int32, [3], name="i")
        unused = sg.parameter(np.ones(3), name="net/unused")
        y = sg.reduce_sum(w * x * sg.stop_gradient(v) * sg.cast(i, sg.float64), name="loss")
    return {"w": w, "v": v, "x": x, "i": i, "unused": unused, "y": y}


def test_what_holds_of_a_graph(made: dict[str, Any]) -> None:
    y, w, v, x = (made[name] for name in ("y", "w", "v", "x"))
    for xs in ([w, x], {"w": w, "x": x}, w, w.op, "net/w", "net/w:0"):
        sg.assert_flows(y, xs)
        sg.assert_flows(y, to=xs)
    for xs in (v, [v, made["i"]], "net/v", made["unused"]):
        sg.assert_blocked(y, xs)
    sg.assert_only_flows(y, [w, x])
    sg.assert_only_flows(y, to=["net/w", x])
    sg.assert_only_flows([y, y], to="net/w", among="net")
    sg.assert_only_flows(y, to=w, among=[v])
    sg.assert_only_flows(made["y"].op, to=[w, x])


def test_what_fails_of_a_graph(made: dict[str, Any]) -> None:
    y, w, v = made["y"], made["w"], made["v"]
    assert failure(sg.assert_flows, y, [v]).startswith(
        "assert_flows: gradients of loss do not arrive at net/v, and should\n\nstopped: net/v\n"
    )
    assert failure(sg.assert_blocked, y, w).startswith(
        "assert_blocked: gradients of loss arrive at net/w, and should not\n"
    )
    assert failure(sg.assert_only_flows, y, w).startswith(
        "assert_only_flows: gradients of loss should arrive at net/w only; they arrive at x too\n"
    )
    assert "do not arrive at net/unused" in failure(sg.assert_only_flows, y, to="net/unused", among=w)


# ------------------------------------------------------------------------------------ errors, and pytest


def test_the_error_is_a_failed_assertion_and_one_of_ours() -> None:
    with pytest.raises(sg.FlowError) as caught:
        sg.assert_flows(loss, *ARGS, to="params.V")
    error = caught.value
    assert isinstance(error, AssertionError)
    assert isinstance(error, sg.GradientError)
    assert isinstance(error, sg.StopgradError)
    assert str(error).endswith('sg.assert_flows(loss, *ARGS, to="params.V")')
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (sg.FlowError, str(error))


@pytest.mark.slow
def test_pytest_shows_the_test_and_the_report_and_none_of_our_frames(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            import stopgrad as sg

            def loss(w, x):
                return sg.stop_gradient(w * x).sum()

            def test_it():
                sg.assert_flows(loss, np.ones(2), np.ones(2), to="w")
            """
        )
    )
    source = str(Path(sg.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_user.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": source, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    told = [line.rstrip() for line in done.stdout.splitlines()]
    (at,) = [i for i, line in enumerate(told) if "6 | return sg.stop_gradient(w * x).sum()" in line]
    assert told[at].index("sg.") == told[at + 1].index("^")
    assert told[at + 1].count("^") == len("sg.stop_gradient(w * x)")
    assert '>       sg.assert_flows(loss, np.ones(2), np.ones(2), to="w")' in told
    assert "stopgrad/" not in done.stdout.replace("stopgrad.errors", "")
    assert "def public" not in done.stdout


def in_another_graph() -> sg.Output:
    with sg.Graph().as_default():
        return sg.placeholder(sg.float32, name="elsewhere")


X = np.ones(2)
BAD: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no ys": (lambda m: sg.assert_flows([], m["w"]), "ys is empty"),
    "no xs": (lambda m: sg.assert_flows(m["y"], []), "nothing is asked about"),
    "no xs at all": (lambda m: sg.assert_blocked(m["y"]), "takes ys and xs"),
    "xs twice": (lambda m: sg.assert_flows(m["y"], m["w"], to=m["x"]), "takes ys and xs"),
    "numbers for ys": (lambda m: sg.assert_flows(3.0, m["w"]), "takes outputs of a graph, not 3.0"),
    "a close name": (lambda m: sg.assert_flows(m["y"], "net/W"), "no tensor 'net/W'; did you mean 'net/w'"),
    "a close output": (
        lambda m: sg.assert_flows(m["y"], "net/w:7"),
        "no tensor 'net/w:7'; did you mean 'net/w'",
    ),
    "a far name": (
        lambda m: sg.assert_flows(m["y"], to=["zzz"]),
        "no tensor 'zzz'; there are net/w, net/v, x",
    ),
    "a name among": (lambda m: sg.assert_only_flows(m["y"], to="x", among="nett"), "no tensor 'nett'"),
    "another graph": (
        lambda m: sg.assert_flows(m["y"], in_another_graph()),
        "two graphs",
    ),
    "by an empty list": (lambda m: sg.assert_blocked(m["y"], m["v"], by=[]), "by is empty"),
    "by a number": (
        lambda m: sg.assert_blocked(m["y"], m["v"], by=3),
        "by is an operation, an output, a name",
    ),
    "by a close name": (
        lambda m: sg.assert_blocked(m["y"], m["v"], by="StopGradien"),
        "did you mean 'StopGradient'",
    ),
    "by an empty line": (
        lambda m: sg.assert_blocked(m["y"], m["v"], by="test_assertions.py:1"),
        "nothing that gradients could pass was built at test_assertions.py:1; gates stand at tests/",
    ),
    "an argument": (
        lambda m: sg.assert_flows(loss, *ARGS, to="params.w"),
        "no argument 'params.w'; did you mean 'params.W'",
    ),
    "an output of a function": (
        lambda m: sg.assert_flows(lambda x: x, X, to=m["w"]),
        "the arguments of a function are named",
    ),
    "a function without arguments": (lambda m: sg.assert_flows(lambda: 1.0), "nothing is asked about"),
    "only integers": (lambda m: sg.assert_flows(lambda i: i, np.arange(2)), "nothing is asked about"),
    "only flows to nothing": (lambda m: sg.assert_only_flows(lambda x: x, X), "say with to="),
    "by an operation of another graph": (
        lambda m: sg.assert_blocked(lambda x: sg.stop_gradient(x), X, by=m["v"]),
        "belongs to another graph",
    ),
    "no result": (lambda m: sg.assert_flows(lambda x: None, X), "returned no tensor"),
    "a position": (lambda m: sg.assert_flows(lambda x: x, X, argnums=3), "argnums=3"),
    "positions of a graph": (
        lambda m: sg.assert_flows(m["y"], m["w"], argnums=0),
        "argnums is for functions",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_question_is_no_failed_assertion(made: dict[str, Any], name: str) -> None:
    wrong, says = BAD[name]
    with pytest.raises(sg.StopgradError) as caught:
        wrong(made)
    assert says in caught.value.message
    assert caught.value.message.startswith("assert_")
    assert not isinstance(caught.value, AssertionError)


UNTRACEABLE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "float()": (lambda x: float(x[0]) * x, "float() asks for it now: use x itself"),
    "if": (lambda x: x if x.sum() > 0 else -x, "'if-else' asks for it now: use sg.where"),
    "numpy": (lambda x: np.linalg.norm(np.asarray(x)), "np.asarray() asks for it now"),
    "a function that there is not": (lambda x: np.interp(x, [0, 1], [0, 1]), "np.interp is not there"),
    "in place": (lambda x: x.__setitem__(0, 1.0), "x.at[index].set(value)"),
}


@pytest.mark.parametrize("check", [sg.assert_flows, sg.assert_blocked, sg.explain])
@pytest.mark.parametrize("name", UNTRACEABLE)
def test_a_function_that_cannot_be_traced_is_told_with_its_line(check: Any, name: str) -> None:
    f, says = UNTRACEABLE[name]
    with pytest.raises(sg.StopgradError) as caught:
        check(f, X)
    assert says in str(caught.value)
    assert f"{__file__}:{f.__code__.co_firstlineno}" in str(caught.value)
