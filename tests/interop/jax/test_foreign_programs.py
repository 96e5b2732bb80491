"""Primitives of JAX's that are none of our operations: run by JAX, differentiated by it, known to reports."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

import stopgrad as sg
import stopgrad.jax as sgj
from stopgrad.graph.graph import Graph
from stopgrad.interop.jax.foreign import foreign_of
from stopgrad.ops.structural.foreign_programs import Step, steps_of, written

pytestmark = pytest.mark.slow

pytest.importorskip("flatbuffers", reason="JAX writes programs with it")

A = np.array([1.0, 2.0, 3.0], np.float32)
X = np.array([0.5, 1.0, 2.0], np.float32)


def primitive_of(function: Callable[..., Any], *arrays: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """The primitive of this name that a function of JAX's uses, and its parameters."""
    stack = [jax.make_jaxpr(function)(*arrays).jaxpr]
    while stack:
        for eqn in stack.pop().eqns:
            if eqn.primitive.name == name:
                return eqn.primitive, eqn.params
            stack += [inner.jaxpr for inner in eqn.params.values() if hasattr(inner, "jaxpr")]
    raise AssertionError(f"{function} does not use {name}")


IGAMMA = primitive_of(jax.scipy.special.gammainc, A, X, name="igamma")
POLYGAMMA = primitive_of(jax.lax.polygamma, A, X, name="polygamma")
BESSEL = primitive_of(jax.lax.bessel_i0e, X, name="bessel_i0e")


def _mixed(x: Any, n: Any) -> list[Any]:
    return [jnp.sin(x) * n.astype(x.dtype), jnp.floor(x), n + 1]


def _mixed_jvp(primals: Any, tangents: Any) -> Any:
    x, n = primals
    ys = MIXED.bind(x, n)
    moved = jnp.cos(x) * n.astype(x.dtype) * ad.instantiate_zeros(tangents[0])
    return ys, [moved, *(ad.Zero(jax.typeof(y).to_tangent_aval()) for y in ys[1:])]


MIXED = Primitive("mixed")
MIXED.multiple_results = True
MIXED.def_impl(_mixed)
MIXED.def_abstract_eval(lambda x, n: jax.make_jaxpr(_mixed)(x, n).out_avals)
mlir.register_lowering(MIXED, mlir.lower_fun(_mixed, multiple_results=True))
ad.primitive_jvps[MIXED] = _mixed_jvp

FORWARD = Primitive("forward_only")  # Its tangent goes through something that cannot be transposed.
FORWARD.def_impl(jnp.sin)
FORWARD.def_abstract_eval(lambda x: x)
mlir.register_lowering(FORWARD, mlir.lower_fun(jnp.sin, multiple_results=False))
ad.primitive_jvps[FORWARD] = lambda primals, tangents: (FORWARD.bind(*primals), FORWARD.bind(*tangents))


@pytest.fixture
def graph() -> Iterator[Graph]:
    graph = sg.Graph()
    with graph.as_default():
        sg.placeholder(sg.float32, [3], name="a")
        sg.placeholder(sg.float32, [3], name="x")
        sg.placeholder(sg.int32, [3], name="n")
        yield graph


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


def test_values_and_derivatives_of_the_first_and_second_order_are_those_of_jax(graph: Graph) -> None:
    a, x = graph.output("a"), graph.output("x")

    def total(igamma: Any, polygamma: Any, bessel: Any, a: Any, x: Any) -> Any:
        return igamma(a, x) * bessel(x) * polygamma(a, x)

    ours = [lambda *xs, p=p: foreign_of(*p, xs)[0] for p in (IGAMMA, POLYGAMMA, BESSEL)]
    theirs = [lambda *xs, p=p: p[0].bind(*xs, **p[1]) for p in (IGAMMA, POLYGAMMA, BESSEL)]
    loss = sg.reduce_sum(total(*ours, a, x))
    (dx,) = sg.gradients(loss, [x])
    (d2x,) = sg.gradients(sg.reduce_sum(dx * dx), [x])
    with sg.Session(graph) as session:
        assert session.engine == "xla"
        found = session.run([loss, dx, d2x], {a: A, x: X})

    def f(x: Any) -> Any:
        return jnp.sum(total(*theirs, A, x))

    close(found[0], f(X))
    close(found[1], jax.grad(f)(X))
    close(found[2], jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2))(X))


def test_a_gradient_towards_two_operands(graph: Graph) -> None:
    a, x = graph.output("a"), graph.output("x")
    (y,) = foreign_of(*IGAMMA, [a, x])
    found = sg.Session(graph).run(sg.gradients(y, [a, x]), {a: A, x: X})
    wanted = jax.grad(lambda a, x: jnp.sum(jax.scipy.special.gammainc(a, x)), (0, 1))(A, X)
    for g, w in zip(found, wanted, strict=True):
        close(g, w)


def test_complex_gradients_are_ours(graph: Graph) -> None:
    z = sg.placeholder(sg.complex64, [3], name="z")
    (theirs,) = foreign_of(*primitive_of(jnp.sin, np.ones(3, np.complex64), name="sin"), [z])
    found = []
    for y in (theirs, sg.sin(z)):
        (g,) = sg.gradients(sg.reduce_sum(2.0 * sg.real(y) + sg.imag(y)), [z])
        found += [g, *sg.gradients(sg.reduce_sum(sg.square(sg.abs(g))), [z])]
    g, g2, wanted, wanted2 = sg.Session(graph).run(found, {z: np.array([1 + 1j, 2.0, 0.3j], np.complex64)})
    close(g, wanted)
    close(g2, wanted2)


def test_double_precision() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, [3], name="x")
        (y,) = foreign_of(*BESSEL, [x])
        (dx,) = sg.gradients(y, [x])
    found = sg.Session(graph).run([y, dx], {x: X.astype(np.float64)})
    with jax.enable_x64(True):
        wanted = jax.value_and_grad(lambda x: jnp.sum(jax.lax.bessel_i0e(x)))(X.astype(np.float64))
    np.testing.assert_allclose(found[0].sum(), wanted[0], rtol=1e-14)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-13)


# --------------------------------------------------------------------------------------- what reports say


def status(y: Any, x: Any) -> tuple[str, list[str]]:
    flow = sg.explain(y, [x])[x]
    return str(flow.status), [cut.reason for cut in flow.cuts]


def test_reports_ask_jax_which_results_a_gradient_reaches(graph: Graph) -> None:
    x, n = graph.output("x"), graph.output("n")
    moved, floor, count = foreign_of(MIXED, {}, [x, n])
    assert status(moved, x) == ("flows", [])
    assert status(floor, x) == ("not differentiable", ["its gradient is zero everywhere"])
    assert status(count, x)[0] == "disconnected"
    assert status(moved, n)[0] == "not differentiable"
    (dx,) = sg.gradients(moved + floor, [x])
    assert sg.gradients(floor, [x]) == [None]
    found = sg.Session(graph).run([moved, floor, count, dx], {x: X, n: np.array([1, 2, 3], np.int32)})
    for y, wanted in zip(found, [*_mixed(X, jnp.arange(1, 4)), jnp.cos(X) * A], strict=True):
        close(y, wanted)


def test_an_operand_towards_which_jax_has_no_derivative(graph: Graph) -> None:
    a, x = graph.output("a"), graph.output("x")
    (y,) = foreign_of(*POLYGAMMA, [a, x])
    assert status(y, x) == ("flows", [])
    reason = "JAX: polygamma gradient with respect to m is not supported"
    assert status(y, a) == ("undefined", [reason])
    with pytest.raises(sg.GradientError, match=reason) as caught:
        sg.gradients(y, [a])
    assert "foreign_of(*POLYGAMMA, [a, x])" in str(caught.value)


def test_a_derivative_that_cannot_be_transposed_is_undefined(graph: Graph) -> None:
    x = graph.output("x")
    (y,) = foreign_of(FORWARD, {}, [x])
    assert status(y, x)[0] == "undefined"
    close(sg.Session(graph).run(y, {x: X}), np.sin(X))
    with pytest.raises(sg.GradientError, match="forward_only"):
        sg.gradients(y, [x])


def test_derivatives_end_where_they_were_not_exported(graph: Graph) -> None:
    x = graph.output("x")
    (y,) = foreign_of(*BESSEL, [x])
    (dx,) = sg.gradients(y, [x])
    (d2x,) = sg.gradients(dx, [x])
    with pytest.raises(sg.GradientError, match=r"JAX exported 2 derivatives of lax.bessel_i0e, and no more"):
        sg.gradients(d2x, [x])
    (y,) = foreign_of(*BESSEL, [x], order=0)
    assert status(y, x)[0] == "flows"
    with pytest.raises(sg.GradientError, match=r"JAX exported no derivative of lax.bessel_i0e"):
        sg.gradients(y, [x])


# ------------------------------------------------------------------------------------- where it goes on


def test_text_and_files_keep_programs(graph: Graph, tmp_path: Path) -> None:
    x = graph.output("x")
    (y,) = foreign_of(*BESSEL, [x])
    (dx,) = sg.gradients(y, [x])
    wanted = sg.Session(graph).run([y, dx], {x: X})
    graph.save(tmp_path / "graph.sg")
    for again in (Graph.load(tmp_path / "graph.sg"), Graph.from_text(graph.to_text())):
        z = again.output(y.name)
        found = sg.Session(again).run([z, again.output(dx.name)], {"x:0": X})
        np.testing.assert_array_equal(found, wanted)
        with again.as_default():
            (gradient,) = sg.gradients(z, [again.output("x")])
        np.testing.assert_array_equal(sg.Session(again).run(gradient, {"x:0": X}), wanted[1])


def changed(code: bytes, generator: random.Random) -> bytes:
    """The code of a program with some bytes changed, left out or added."""
    made = bytearray(code)
    for _ in range(generator.choice((1, 1, 2, 4))):
        i = generator.randrange(len(made))
        made[i : i + generator.choice((0, 1, 3))] = generator.randbytes(generator.choice((0, 1, 3)))
    return bytes(made) if made != code else changed(code, generator)


def in_text(graph: Graph, steps: Sequence[Step], changing: Callable[[bytes], bytes]) -> str:
    """The text of a graph, with other code in one of its programs."""
    others = [step._replace(code=changing(step.code)) if step.code else step for step in steps]
    return graph.to_text().replace(written(steps), written(others))


def test_code_from_elsewhere_runs_only_if_it_is_trusted(graph: Graph, tmp_path: Path) -> None:
    x = graph.output("x")
    (y,) = foreign_of(*BESSEL, [x])
    wanted = sg.Session(graph).run(y, {x: X})
    strange = Graph.from_text(in_text(graph, steps_of(y.op.program, 1), lambda code: code + b"\0"))
    strange.save(tmp_path / "graph.sg")
    for found in (strange, Graph.load(tmp_path / "graph.sg")):  # Saving and loading makes it no safer.
        with pytest.raises(sg.EngineError, match=r"If you trust where it comes from, load .* trusted=True"):
            sg.Session(found).run(found.output(y.name), {"x:0": X})
    trusted = Graph.load(tmp_path / "graph.sg", trusted=True)
    np.testing.assert_array_equal(sg.Session(trusted).run(trusted.output(y.name), {"x:0": X}), wanted)


def test_damaged_code_never_reaches_jax(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x, generator, read = graph.output("x"), random.Random(0), []
    (y,) = foreign_of(*BESSEL, [x])
    monkeypatch.setattr(jax.export, "deserialize", lambda code: read.append(code))
    for _ in range(100):
        found = Graph.from_text(
            in_text(graph, steps_of(y.op.program, 1), lambda code: changed(code, generator))
        )
        with pytest.raises(sg.EngineError, match="If you trust where it comes from"):
            sg.Session(found).run(found.output(y.name), {"x:0": X})
    assert not read


def test_trusted_code_that_does_not_fit_is_an_error_of_ours(graph: Graph) -> None:
    x = graph.output("x")
    (y,) = foreign_of(*BESSEL, [x])
    (wide,) = foreign_of(*BESSEL, [sg.placeholder(sg.float32, [4])])
    other = steps_of(wide.op.program, 1)[0].code
    for code, says in ((other, "takes other arrays"), (b"nothing", "JAX cannot read the program")):
        text = in_text(graph, steps_of(y.op.program, 1), lambda _, code=code: code)
        found = Graph.from_text(text, trusted=True)
        with pytest.raises(sg.EngineError, match=says):
            sg.Session(found).run(found.output(y.name), {"x:0": X})


def test_in_a_function_of_ours_that_jax_traces() -> None:
    f = sgj.callable(lambda a, x: foreign_of(*IGAMMA, [a, sg.stop_gradient(x) * x])[0])

    def g(a: Any, x: Any) -> Any:
        return jax.scipy.special.gammainc(a, jax.lax.stop_gradient(x) * x)

    many = np.stack([X, 2.0 * X])
    close(jax.jit(jax.vmap(f, (None, 0)))(A, many), jax.vmap(g, (None, 0))(A, many))
    for transform in (jax.jacrev, jax.jacfwd):
        close(jax.jit(transform(f, 1))(A, X), transform(g, 1)(A, X))


def test_in_loops_and_batches_of_ours() -> None:
    def bessel(x: Any) -> Any:
        return foreign_of(*BESSEL, [x])[0]

    def looped(x: Any) -> Any:
        return sg.reduce_sum(sg.scan(lambda c, t: (bessel(c * t), c), x, np.ones(2, np.float32))[0])

    close(
        sg.function(sg.grad(looped))(X),
        jax.grad(lambda x: jnp.sum(jax.lax.bessel_i0e(jax.lax.bessel_i0e(x))))(X),
    )
    many = np.stack([X, 2.0 * X])
    close(sg.function(sg.vmap(bessel))(many), jax.lax.bessel_i0e(many))


def test_without_xla_there_is_a_clear_error(graph: Graph) -> None:
    x = graph.output("x")
    (y,) = foreign_of(*BESSEL, [x])
    with pytest.raises(
        sg.EngineError, match=r"numpy engine cannot compute .*bessel_i0e.* run by the xla engine"
    ):
        sg.Session(graph, engine="numpy").run(y, {x: X})


def test_a_call_back_to_python_stays_with_what_is_known_of_it(graph: Graph) -> None:
    x = graph.output("x")

    def called(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), np.float32), x)

    (y,) = foreign_of(*primitive_of(called, X, name="pure_callback"), [x])
    assert status(y, x)[0] == "undefined"
    with pytest.raises(
        sg.EngineError, match=r"nothing that computes pure_callback: JAX cannot export it.*EQX_ON_ERROR"
    ):
        sg.Session(graph).run(y, {x: X})
    with pytest.raises(sg.GradientError, match="Pure callbacks do not support JVP"):
        sg.gradients(y, [x])


def test_what_was_exported_is_used_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x, calls = graph.output("x"), []
    export = jax.export.export
    monkeypatch.setattr(
        jax.export, "export", lambda *args, **kwargs: calls.append(1) or export(*args, **kwargs)
    )
    primitive = Primitive("doubled")
    primitive.def_abstract_eval(lambda x, **_: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x, by: x * by, multiple_results=False))
    ys = [foreign_of(primitive, {"by": by}, [x])[0] for by in (2.0, 2.0, 2)]
    assert len(calls) == 2
    close(sg.Session(graph).run(ys[0] + ys[1], {x: X}), 4.0 * X)
    assert status(ys[0], x)[0] == "undefined"


def test_without_what_jax_writes_programs_with(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = graph.output("x")
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    monkeypatch.delitem(sys.modules, "jax._src.export.serialization", raising=False)
    (y,) = foreign_of(*BESSEL, [x], order=1)
    assert status(y, x)[0] == "flows"
    with pytest.raises(
        sg.GradientError, match=r"cannot write it .*flatbuffers.* pip install 'stopgrad\[jax\]'"
    ):
        sg.gradients(y, [x])


def test_open_sizes_are_refused() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["n"], name="x")
        with pytest.raises(sg.ShapeError, match="known sizes"):
            foreign_of(*BESSEL, [x])
