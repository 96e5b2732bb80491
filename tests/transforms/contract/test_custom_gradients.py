"""custom_gradient: a function with a gradient given by another."""

from __future__ import annotations

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.rewrite import merge, rewrite


@sg.custom_gradient
def log1pexp(x):
    e = sg.exp(x)
    return sg.log(1.0 + e), lambda g: g * (1.0 - 1.0 / (1.0 + e))


def test_tensorflow_s_example():
    """At 100 the plain gradient is NaN, since exp overflows; the given one is 1."""
    plain = lambda x: sg.log(1.0 + sg.exp(x))
    assert np.isnan(sg.grad(plain)(100.0))
    assert sg.grad(log1pexp)(100.0) == 1.0
    assert np.isclose(sg.grad(log1pexp)(0.0), 0.5)
    assert np.isclose(log1pexp(np.float64(0.0)), np.log(2.0))


def test_tensorflow_s_example_in_a_graph(graph, run_everywhere):
    x = sg.placeholder(sg.float32, [2])
    y = log1pexp(x)
    (dx,) = sg.gradients(y, [x])
    found = run_everywhere([y, dx], {x: [0.0, 100.0]})
    assert np.allclose(found[0], [np.log(2.0), np.inf])
    assert np.allclose(found[1], [0.5, 1.0])


def test_the_second_order_differentiates_the_given_gradient():
    """1 - 1/(1+eˣ) is the logistic function s; s' = s(1-s), s'' = s(1-s)(1-2s)."""
    x = np.float64(0.7)
    s = 1 / (1 + np.exp(-x))
    assert np.isclose(sg.grad(sg.grad(log1pexp))(x), s * (1 - s), rtol=1e-12)
    assert np.isclose(sg.grad(sg.grad(sg.grad(log1pexp)))(x), s * (1 - s) * (1 - 2 * s), rtol=1e-12)


def test_forward_mode_uses_the_given_gradient():
    f = sg.custom_gradient(lambda x: (x * x, lambda g: g * 10.0))
    assert sg.jvp(f, (3.0,), (2.0,)) == (9.0, 20.0)


def test_nested_in_itself(graph, run):
    """TensorFlow: an identity with gradient 3g, twice: 9."""
    f = sg.custom_gradient(lambda x: (sg.identity(x), lambda g: 3.0 * g))
    x = sg.placeholder(sg.float32)
    assert run(sg.gradients(f(f(x)), [x])[0], {x: 1.0}) == 9.0


def test_two_arguments(graph, run):
    """TensorFlow: a product whose gradients are swapped: 3 towards the 3, 5 towards the 5."""
    f = sg.custom_gradient(lambda a, b: (a * b, lambda g: [g * a, g * b]))
    a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    y = f(a, b)
    assert run([y, *sg.gradients(y, [a, b])], {a: 3.0, b: 5.0}) == [15.0, 3.0, 5.0]
    assert run(sg.gradients(f(a, a), [a])[0], {a: 3.0}) == 6.0


def test_the_gradient_function_is_called_once_however_many_ask(graph):
    calls = []

    @sg.custom_gradient
    def f(a, b):
        def pullback(g):
            calls.append(g)
            return g * b, g * a

        return a * b, pullback

    a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    sg.gradients(f(a, b), [a, b])
    assert len(calls) == 1


def test_structures_of_arguments_and_results(graph, run):
    @sg.custom_gradient
    def f(p, scale=2.0):
        return {"sum": p["a"] + p["b"][0], "difference": p["a"] - p["b"][0]}, lambda d, s: (
            10.0 * s,
            100.0 * d * scale,
        )

    a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    y = f({"a": a, "b": [b], "note": "text"}, scale=3.0)
    found = run([y, sg.gradients([y["sum"], y["difference"]], [a, b])], {a: 3.0, b: 5.0})
    assert found == [{"sum": 8.0, "difference": -2.0}, [10.0, 300.0]]


def test_an_unused_result_has_a_cotangent_of_zero(graph, run):
    f = sg.custom_gradient(lambda x: ((x * 2.0, x * 3.0), lambda g, h: g + 10.0 * h + 1.0))
    x = sg.placeholder(sg.float32)
    first, second = f(x)
    assert run(sg.gradients(first, [x])[0], {x: 1.0}) == 2.0
    assert run(sg.gradients(second, [x])[0], {x: 1.0}) == 11.0


def test_none_for_an_argument_without_gradient(graph, run):
    f = sg.custom_gradient(lambda a, b: (a * b, lambda g: (g * b, None)))
    a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    da, db = sg.gradients(f(a, b), [a, b])
    assert db is None
    assert run(da, {a: 3.0, b: 5.0}) == 5.0


def test_none_becomes_zero_in_the_function_style():
    f = sg.custom_gradient(lambda a, b: (a * b, lambda g: (g * b, None)))
    assert sg.grad(f, (0, 1))(3.0, 5.0) == (5.0, 0.0)
    assert sg.grad(f, (0, 1), unconnected="none")(3.0, 5.0) == (5.0, None)
    assert sg.grad(lambda b: f(3.0, b))(5.0) == 0.0


@pytest.mark.parametrize(
    "given", [lambda g: 7.0, lambda g: 7, lambda g: np.float32(7.0), lambda g: np.array(7.0, np.float32)]
)
def test_gradients_may_be_numbers_and_arrays(given, graph, run):
    x = sg.placeholder(sg.float32)
    (dx,) = sg.gradients(sg.custom_gradient(lambda x: (x * 1.0, given))(x), [x])
    assert dx.type is x.type
    assert run(dx, {x: 1.0}) == 7.0


@pytest.mark.parametrize(
    "wrong",
    [lambda g: sg.concat([g, g], 0), sg.reduce_sum, lambda g: 7.0, lambda g: g[:2]],
    ids=["longer", "sum", "number", "shorter"],
)
def test_a_gradient_of_a_wrong_shape_is_an_error(wrong, graph, here):
    x = sg.placeholder(sg.float32, [3])
    y, line = sg.custom_gradient(lambda x: (x * 1.0, wrong))(x), here()
    size = len(graph)
    with pytest.raises(sg.ShapeError, match="returned") as caught:
        sg.gradients(y, [x])
    assert f"{__file__}:{line}" in str(caught.value)
    assert len(graph) == size


def test_broadcasting_is_undone(graph, run):
    f = sg.custom_gradient(lambda x, b: (x + b, lambda g: (g, 10.0 * g)))
    x, b = sg.placeholder(sg.float32, [2, 3]), sg.placeholder(sg.float32, [3])
    dx, db = sg.gradients(f(x, b), [x, b])
    assert (dx.type, db.type) == (x.type, b.type)
    assert run(db, {x: np.zeros((2, 3)), b: np.zeros(3)}).tolist() == [20.0, 20.0, 20.0]


@pytest.mark.parametrize("counted", [True, False])
def test_python_floats_among_the_arguments_may_be_counted_or_not(counted):
    """So that a function written for tensors can also be given a number."""

    @sg.custom_gradient
    def clipped(x, limit, scale=1.0):
        pullback = lambda g: sg.clip_by_value(g * scale, -limit, limit)
        return x * 1.0, (lambda g: (pullback(g), None)) if counted else pullback

    assert sg.grad(lambda x: clipped(x, 2.0) * 5.0)(1.0) == 2.0
    assert sg.grad(lambda x: clipped(x, 2.0, scale=0.1) * 5.0)(1.0) == 0.5


def test_what_a_failed_call_built_is_not_used_again(graph, run):
    """The gradient function ran, the call failed and took its operations back; the next call runs it anew."""
    x = sg.placeholder(sg.float32)
    h = sg.prevent_gradient(x * 1.0, "no")
    y = sg.custom_gradient(lambda h: (h * 1.0, lambda g: g * 7.0))(h)
    with pytest.raises(sg.GradientError):
        sg.gradients(y, [x])
    (dh,) = sg.gradients(y, [h])
    assert graph.operations[dh.op.id] is dh.op
    assert run(dh, {x: 3.0}) == 7.0


def test_what_was_built_in_a_no_gradient_block_is_not_used_outside(graph, run):
    x = sg.placeholder(sg.float32)
    y = sg.custom_gradient(lambda x: (x * x * 1.0, lambda g: g * x * x))(x)
    with sg.no_gradient():
        sg.gradients(y, [x])
    (dx,) = sg.gradients(y, [x])
    assert run(sg.gradients(dx, [x])[0], {x: 3.0}) == 6.0


def test_a_wrong_number_of_gradients_is_an_error(graph, here):
    x = sg.placeholder(sg.float32)
    y, line = sg.custom_gradient(lambda x: (x * 1.0, lambda g: (g, g)))(x), here()
    with pytest.raises(sg.GradientError, match="2 gradients for 1") as caught:
        sg.gradients(y, [x])
    assert f"{__file__}:{line}" in str(caught.value)


@pytest.mark.parametrize("made", [lambda x: x * 1.0, lambda x: (x, x, x), lambda x: (x, 3)])
def test_the_function_must_return_results_and_gradient(made):
    with pytest.raises(sg.StopgradError, match="pair"):
        sg.custom_gradient(made)(3.0)
    with pytest.raises(sg.StopgradError, match="pair"):
        sg.grad(sg.custom_gradient(made))(3.0)


def test_the_gradient_function_survives_rewriting_and_text(graph, run):
    """What it closes over belongs to the operation: a copy differentiates as the original does."""
    x = sg.placeholder(sg.float32, name="x")
    y = sg.custom_gradient(lambda x: (x * 1.0, lambda g: g * x))(x)
    made = rewrite([y], [x], (merge,))
    with made.graph.as_default():
        (dx,) = sg.gradients(made.outputs, made.inputs)
    with sg.Session(made.graph) as session:
        assert session.run(dx, {made.inputs[0]: 3.0}) == 3.0
    read = sg.Graph.from_text(graph.to_text())
    (dx,) = sg.gradients(read.output("CustomGradient"), [read.output("x")])
    with sg.Session(read) as session:
        assert session.run(dx, {"x": 3.0}) == 3.0


def test_integers_pass_as_they_are(graph, run):
    f = sg.custom_gradient(lambda x, n: (x * sg.cast(n, sg.float32), lambda g: g * 100.0))
    x, n = sg.placeholder(sg.float32), sg.placeholder(sg.int32)
    dx, dn = sg.gradients(f(x, n), [x, n])
    assert dn is None
    assert run(dx, {x: 1.0, n: 3}) == 100.0


def test_a_function_and_its_differential_are_explained_as_one_step(graph):
    x, w = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    y = sg.custom_gradient(lambda x: (sg.floor(x) * sg.stop_gradient(x), lambda g: g))(x)
    assert sg.explain(y * 2.0, [x])[x] == sg.Reach("flows", ())
    assert statuses(sg.custom_gradient(lambda x: (x * w, lambda g: g))(x) * 2.0, [w]) == ["stopped"]


def test_what_the_function_itself_would_pass_back_is_not_used(graph):
    """The gradient given is the only way: the operations inside are not differentiated."""
    x = sg.placeholder(sg.float32)
    y = sg.custom_gradient(lambda x: (sg.prevent_gradient(sg.exp(x), "not asked"), lambda g: g))(x)
    assert sg.gradients(y, [x])[0] is not None
    assert sg.explain(y, [x])[x] == sg.Reach("flows", ())


def test_what_it_closes_over_gets_no_gradient(graph):
    """As in TensorFlow, only the arguments do."""
    x, w = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    y = sg.custom_gradient(lambda x: (x * w, lambda g: g * w))(x)
    dx, dw = sg.gradients(y, [x, w])
    assert dx is not None
    assert dw is None
    (dxw,) = sg.gradients(dx, [w])
    assert dxw is not None


def statuses(y, xs):
    return [str(found.status) for found in sg.explain(y, xs).values()]


def closing(graph):
    """x through a function that closes over w and tanh(v), whose gradient function closes over u, too."""
    x, w, v, u = (sg.placeholder(sg.float64, [2], name=name) for name in "xwvu")
    h = sg.tanh(v)
    f = sg.custom_gradient(lambda t: (t * w + h, lambda g: g * w * u))
    return sg.reduce_sum(f(x)), x, w, v, u


def test_what_it_closes_over_is_stopped_by_it_and_named(graph):
    y, x, w, v, u = closing(graph)
    flow = sg.explain(y, [x, w, v, u])
    assert [str(found.status) for found in flow.values()] == ["flows", "stopped", "stopped", "disconnected"]
    (cut,) = flow.cuts
    assert cut.behind == cut.opens == ("w:0", "v:0")
    assert cut.reason == (
        "custom_gradient's function closes over w and sg.tanh(v), for which its gradient function returns "
        "nothing; pass them as arguments"
    )
    assert cut.location.source == "f(x)"
    assert sg.gradients(y, [w, v, u]) == [None, None, None]


def test_what_it_closes_over_is_stopped_in_what_is_read_copied_and_batched(graph):
    y, *xs = closing(graph)
    expected = ["flows", "stopped", "stopped", "disconnected"]
    read = sg.Graph.from_text(graph.to_text())
    assert statuses(read.output(y.name), [read.output(x.name) for x in xs]) == expected
    copied = rewrite([y, *xs]).outputs
    assert statuses(copied[0], copied[1:]) == expected
    rows = sg.placeholder(sg.float64, [3, 2], name="rows")
    w = xs[1]
    many = sg.vmap(sg.custom_gradient(lambda t: (t * w, lambda g: g)))(rows)
    flow = sg.explain(many, [rows, w])
    assert [str(found.status) for found in flow.values()] == ["flows", "stopped"]
    assert "closes over w," in flow.cuts[0].reason


def test_a_text_that_does_not_say_what_a_function_closes_over_is_read(graph):
    """As it was written before: what is closed over is not told."""
    y, *xs = closing(graph)
    sg.gradients(y, xs)
    text = graph.to_text()
    for now, before in (
        ("(AddV2, Identity, w, Tanh, w, u,", "(AddV2, Identity, w, u,"),
        ("('Mul_1', None, None)", "('Mul_1',)"),
        ("kept=(0, 1, 2)", "kept=(0,)"),
    ):
        assert text.count(now) == 1
        text = text.replace(now, before)
    read = sg.Graph.from_text(text)
    assert (
        statuses(read.output(y.name), [read.output(x.name) for x in xs]) == ["flows"] + ["disconnected"] * 3
    )
    assert read.to_text() == text


def test_each_result_is_stopped_by_what_it_is_computed_from(graph):
    x, w, v = (sg.placeholder(sg.float64, [2], name=name) for name in "xwv")
    a, b = sg.custom_gradient(lambda t: ((t * w, t * v), lambda g, h: g + h))(x)
    assert statuses(a, [x, w, v]) == ["flows", "stopped", "disconnected"]
    assert statuses(b, [x, w, v]) == ["flows", "disconnected", "stopped"]
    # The same of an argument for which there is None.
    a, b = sg.custom_gradient(lambda t, s: ((t * 2.0, t * s), lambda g, h: (g + h, None)))(x, w)
    assert statuses(a, [x, w]) == ["flows", "disconnected"]
    assert statuses(b, [x, w]) == ["flows", "stopped"]


def test_integers_that_it_takes_or_closes_over_have_no_gradient(graph):
    x, w, v = (sg.placeholder(sg.float64, [2], name=name) for name in "xwv")
    k = sg.cast(v, sg.int32)
    f = sg.custom_gradient(lambda t, i: (t * sg.cast(i + k, t.dtype), lambda g: g))
    flow = sg.explain(f(x, sg.cast(w, sg.int32)), [x, w, v])
    assert [str(found.status) for found in flow.values()] == ["flows"] + ["not differentiable"] * 2
    assert {cut.operation.type for cut in flow.cuts} == {"Cast"}


def test_what_it_closes_over_in_a_loop_is_stopped(graph):
    x, w = (sg.placeholder(sg.float64, [2], name=name) for name in "xw")
    f = sg.custom_gradient(lambda t: (t * sg.tanh(w), lambda g: g * 2.0))
    y = sg.fori_loop(0, 3, lambda i, c: f(c), x)
    flow = sg.explain(y, [x, w])
    assert [str(found.status) for found in flow.values()] == ["flows", "stopped"]
    assert flow.cuts[0].reason.startswith("custom_gradient's function closes over")


def test_a_check_still_finds_the_gradient_that_a_closure_lacks():
    def f(x, w):
        return sg.reduce_sum(sg.custom_gradient(lambda t: (t * w, lambda g: g * w))(x))

    check = sg.check_gradients(f, np.ones(2), np.full(2, 3.0), raises=False)
    assert check["x"].passed
    assert not check["w"].passed
    assert "custom_gradient" in str(check)


def test_a_gate_of_ones_own(run):
    """Gradient noise, clipping, reversal: any gate can be written, and composes with the others."""
    negate = sg.custom_gradient(lambda x: (x, lambda g: -g))
    assert sg.grad(lambda x: negate(x * x))(3.0) == -6.0
    assert sg.grad(lambda x: sg.reverse_gradient(negate(x * x)))(3.0) == 6.0
    assert sg.grad(lambda x: sg.stop_gradient(negate(x * x)))(3.0) == 0.0


def test_in_compiled_functions(engine):
    f = sg.function(sg.value_and_grad(log1pexp), engine=engine)
    assert [float(v) for v in f(np.float32(100.0))] == [np.inf, 1.0]


@pytest.mark.parametrize(
    "given",
    [
        lambda da, db, dx: ({"a": da, "b": db}, dx, None),
        lambda da, db, dx: [[da, db], dx, None],
        lambda da, db, dx: (da, db, dx),
    ],
    ids=["like the arguments", "lists in the place of dicts", "flat"],
)
def test_the_gradient_function_may_return_the_structure_of_the_arguments(given):
    """What vjp's pullback returns can be returned as it is."""

    @sg.custom_gradient
    def f(params, x, times):
        y = params["a"] * x + params["b"]
        return y, lambda g: given(2.0 * g * x, 3.0 * g, 5.0 * g * params["a"])

    a, b, x, times = np.float64(3.0), np.float64(4.0), np.float64(7.0), np.int32(1)
    params, dx = sg.grad(f, argnums=(0, 1))({"a": a, "b": b}, x, times)
    assert (params["a"], params["b"], dx) == (14.0, 3.0, 15.0)


def test_none_stands_for_a_whole_argument_or_a_part_of_it(graph):
    @sg.custom_gradient
    def f(params, x):
        return params["a"] * params["b"] * x, lambda g: ({"a": None, "b": 2.0 * g}, None)

    a, b, x = (sg.placeholder(sg.float32) for _ in range(3))
    da, db, dx = sg.gradients(f({"a": a, "b": b}, x), [a, b, x])
    assert da is None
    assert db is not None
    assert dx is None


def test_a_structure_that_is_not_the_arguments_is_an_error(graph, here):
    f = sg.custom_gradient(lambda p, x: (p["a"] * x, lambda g: ({"a": g, "b": g}, g)))
    a, x = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    with pytest.raises(sg.StopgradError, match=r"custom|CustomGradient"):
        sg.gradients(f({"a": a}, x), [a, x])
