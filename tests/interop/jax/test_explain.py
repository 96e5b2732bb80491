"""Which line of a JAX function cuts a gradient; and what is said of functions that cannot be traced."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from installed import installed
from jax import lax

import stopgrad as sg
import stopgrad.jax as sgj

X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)
V = X[0]


def _line(f: Any, mark: str) -> int:
    """The line of a function that holds a mark."""
    source = Path(__file__).read_text().splitlines()
    first = f.__code__.co_firstlineno
    return next(n for n in range(first, len(source) + 1) if f"# {mark}" in source[n - 1])


def critic(params: Any, target: Any, x: Any) -> Any:
    value = jnp.tanh(x @ params["w"]) @ params["v"]
    wanted = jnp.tanh(x @ target["w"]) @ target["v"]
    return jnp.mean((lax.stop_gradient(value) - wanted) ** 2)  # cut


def looped(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(lax.stop_gradient(h) * w + x)  # cut
        return h, h

    last, _ = lax.scan(step, xs[0], xs)
    return last.sum()


def branched(a: Any, b: Any) -> Any:
    return lax.cond(a.sum() > 0, lambda a, b: a * b, lambda a, b: a * lax.stop_gradient(b), a, b).sum()  # cut


def counted(x: Any, y: Any) -> Any:
    hot = jnp.argmax(x, -1)  # cut
    return (jax.nn.one_hot(hot, 3) * y).sum()


def rounded(x: Any, scale: Any) -> Any:
    return (jnp.round(x) * scale).sum()  # cut


def compared(x: Any, y: Any) -> Any:
    return ((x > 0.5) * y).sum()  # cut


def cast(x: Any, y: Any) -> Any:
    return (x.astype(jnp.int32).astype(jnp.float32) * y).sum()  # cut


@jax.custom_vjp
def _no_gradient(x: Any) -> Any:
    return x * 2


_no_gradient.defvjp(lambda x: (x * 2, None), lambda _, g: (jnp.zeros_like(g),))


def refused(x: Any, y: Any) -> Any:
    return (_no_gradient(x) * y).sum()  # cut


@jax.jit
def _target(x: Any) -> Any:
    return lax.stop_gradient(x * 2)  # cut in jit


def jitted(x: Any, y: Any) -> Any:
    return (_target(x) * y).sum()


def recomputed(x: Any, y: Any) -> Any:
    return jax.checkpoint(lambda x, y: lax.stop_gradient(jnp.sin(x)) * y)(x, y).sum()  # cut


def mapped(x: Any, y: Any) -> Any:
    return jax.vmap(lambda a, b: lax.stop_gradient(a) @ b)(x, y).sum()  # cut


def unused(x: Any, y: Any) -> Any:
    return (x * 0 + y).sum() if x.shape else y.sum()


CUTS = {
    "critic": (critic, ({"w": np.ones((3, 2), "f"), "v": V[:2]}, {"w": np.ones((3, 2), "f"), "v": V[:2]}, X)),
    "argmax": (counted, (X, X)),
    "round": (rounded, (V, V)),
    "comparison": (compared, (V, V)),
    "integers": (cast, (V, V)),
    "own gradient": (refused, (V, V)),
    "remat": (recomputed, (V, V)),
    "vmap": (mapped, (X, X)),
}
STATUSES = {
    "critic": {"params.v": "stopped", "params.w": "stopped", "target.v": "flows", "target.w": "flows"},
    "argmax": {"x": "not differentiable", "y": "flows"},
    "round": {"x": "not differentiable", "scale": "flows"},
    "comparison": {"x": "not differentiable", "y": "flows"},
    "integers": {"x": "not differentiable", "y": "flows"},
    "own gradient": {"x": "stopped", "y": "flows"},
    "remat": {"x": "stopped", "y": "flows"},
    "vmap": {"x": "stopped", "y": "flows"},
}


@pytest.mark.parametrize("name", CUTS)
def test_the_line_that_cuts(name: str) -> None:
    f, args = CUTS[name]
    flow = sgj.explain(f, *args)
    for key, status in STATUSES[name].items():
        assert flow[key].status == status, f"{key}\n{flow}"
        if status != "flows":
            (cut,) = flow[key].cuts
            assert cut.location.file == __file__
            assert cut.location.line == _line(f, "cut"), flow


def test_in_a_loop() -> None:
    flow = sgj.explain(looped, V[0], X)
    assert flow["w"].status in ("flows", "partly stopped")
    assert [cut.location.line for cut in flow["xs"].cuts] == [_line(looped, "cut")]
    assert "h" in str(flow)


def test_in_a_branch() -> None:
    flow = sgj.explain(branched, V, V)
    assert flow["b"].status == "partly stopped"
    assert _line(branched, "cut") in [cut.location.line for cut in flow["b"].cuts]


def test_inside_of_a_compiled_function() -> None:
    jax.block_until_ready(_target(V))  # It is traced already, from here.
    flow = sgj.explain(jitted, V, V)
    assert flow["x"].status == "stopped"
    assert flow["x"].cuts[0].location.line == _line(_target.__wrapped__, "cut in jit")


def test_columns() -> None:
    cut = sgj.explain(critic, *CUTS["critic"][1])["params.w"].cuts[0]
    assert cut.location.source == "lax.stop_gradient(value)"


def test_what_jax_stops_itself_is_no_cut() -> None:
    def loss(x: Any) -> Any:
        parts = [
            jax.nn.softmax(x),
            jax.nn.log_softmax(x),
            jax.nn.logsumexp(x, 0),
            jax.nn.elu(x),
            jax.nn.gelu(x),
        ]
        return sum(part.sum() for part in parts)

    assert sgj.explain(loss, X)["x"].status == "flows"


def test_a_stop_that_an_argument_decides() -> None:
    def loss(x: Any, stops: bool = True) -> Any:
        return jnp.where(stops, lax.stop_gradient(x), x).sum()

    assert sgj.explain(loss, V)["x"].status == "stopped"
    assert sgj.explain(functools.partial(loss, stops=False), V)["x"].status == "flows"


def test_argnums_and_keywords() -> None:
    def loss(a: Any, b: Any, *, c: Any) -> Any:
        return (a * lax.stop_gradient(b) * c).sum()

    assert list(sgj.explain(loss, V, V, c=V).xs) == ["a", "b"]
    assert list(sgj.explain(loss, V, V, c=V, argnums=1).xs) == ["b"]
    with pytest.raises(sg.GradientError, match="argnums holds 2"):
        sgj.explain(loss, V, V, c=V, argnums=2)


def test_shapes_in_the_place_of_arrays() -> None:
    shapes = [jax.ShapeDtypeStruct((3,), np.float32)] * 2  # type: ignore[no-untyped-call]
    assert sgj.explain(rounded, *shapes)["scale"].status == "flows"


def test_assertions() -> None:
    args = CUTS["critic"][1]
    sgj.assert_flows(critic, *args, to=["target", "x"])
    sgj.assert_blocked(critic, *args, to="params", by=f"test_explain.py:{_line(critic, 'cut')}")
    with pytest.raises(sg.FlowError, match=r"do not arrive at params\.v, params\.w"):
        sgj.assert_flows(critic, *args, to="params")
    with pytest.raises(sg.FlowError, match=r"arrive at target\.v"):
        sgj.assert_blocked(critic, *args, to="target.v")
    with pytest.raises(sg.GraphError, match="there is no argument 'w'"):
        sgj.assert_flows(critic, *args, to="w")


def test_modules_are_trees() -> None:
    nn = pytest.importorskip("flax.linen")
    model = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(2)])
    params = model.init(jax.random.PRNGKey(0), X)
    flow = sgj.explain(
        lambda params, x: (lax.stop_gradient(model.apply(params, x)) * x.sum()).sum(), params, X
    )
    assert flow["params.params.layers_0.kernel"].status == "stopped"


def test_equinox_modules() -> None:
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.PRNGKey(0))  # It holds functions, too.
    flow = sgj.explain(lambda model, x: jax.vmap(model)(x).sum(), model, X)
    assert flow["model.layers.0.weight"].status == "flows"
    loaded = sgj.load(lambda model, x: jax.vmap(model)(x), model, X)
    np.testing.assert_allclose(loaded(model, X), jax.vmap(model)(X), rtol=1e-5)
    values = {"layers": [{"weight": one.weight, "bias": one.bias} for one in model.layers]}
    np.testing.assert_allclose(loaded(values, X), jax.vmap(model)(X), rtol=1e-5)


# ---------------------------------------------------------------------------------------------- bad input


def _decides(x: Any) -> Any:
    if x.sum() > 0:  # cut
        return x
    return -x


def _leaves(x: Any) -> Any:
    return x * float(x.sum())  # cut


def _numpy(x: Any) -> Any:
    return np.sin(np.asarray(x)) * x  # cut


def _masks(x: Any) -> Any:
    return x[x > 0].sum()  # cut


def _counts(n: Any, x: Any) -> Any:
    return x * sum(1 for _ in range(n))  # cut


UNTRACEABLE = {
    "if": (_decides, (jax.ShapeDtypeStruct(V.shape, V.dtype),), "lax.cond"),  # type: ignore[no-untyped-call]
    "float": (_leaves, (V,), "functools.partial"),
    "numpy": (_numpy, (V,), "jax.numpy"),
    "mask": (_masks, (jax.ShapeDtypeStruct(V.shape, V.dtype),), "jnp.where"),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_what_jax_cannot_trace(name: str) -> None:
    f, args, cure = UNTRACEABLE[name]
    with pytest.raises(sg.ArgumentError) as error:
        sgj.explain(f, *args)
    assert f"{__file__}:{_line(f, 'cut')}" in str(error.value)
    assert cure in str(error.value)
    assert f.__name__ in str(error.value)


def test_constants_by_partial() -> None:
    assert sgj.explain(functools.partial(_counts, 3), V)["x"].status == "flows"


def test_what_cannot_be_imported_is_listed_at_once() -> None:
    def loss(x: Any) -> Any:
        jax.experimental.io_callback(print, None, x)
        return lax.cond(
            x.sum() > 0, lambda x: (jax.experimental.io_callback(print, None, x), x)[1], lambda x: x, x
        )

    with pytest.raises(sg.GraphError) as error:
        sgj.load(loss, V)
    assert str(error.value).count("io_callback at ") == 2


def test_printing_is_dropped() -> None:
    def loss(x: Any) -> Any:
        jax.debug.print("{x}", x=x)
        return x * 2

    assert "Foreign" not in [op.type for op in sgj.load(loss, V).graph.operations]


def test_errors_of_the_users_own_are_handed_on() -> None:
    def loss(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sgj.explain(loss, V)


def test_wrong_arguments() -> None:
    model = sgj.load(rounded, V, V)
    with pytest.raises(sg.ArgumentError, match="structure"):
        model(V)
    with pytest.raises(sg.ArgumentError, match="takes a function"):
        sgj.load(3.0)  # type: ignore[arg-type]
    with pytest.raises(sg.GradientError, match="returned no array"):
        sgj.explain(lambda x: None, V)


def test_64_bits_are_cut_as_jax_does() -> None:
    model = sgj.load(rounded, V, V)
    assert model(V.astype("f8"), 2.0 * V).dtype == np.float32
    assert np.asarray(sg.grad(model, 1)(V, V.astype("f8"))).shape == (3,)


def test_jax_is_left_as_it_was() -> None:
    before = jax.config.values.copy() if hasattr(jax.config, "values") else None
    with pytest.raises(sg.ArgumentError):
        sgj.load(_decides, V)
    sgj.load(critic, *CUTS["critic"][1])
    assert before is None or before == jax.config.values
    assert jax.grad(lambda x: (lax.stop_gradient(x) * x).sum())(V).tolist() == V.tolist()


def test_threads() -> None:
    found: list[Any] = []

    def work(i: int) -> None:
        found.append(sgj.explain(critic, *CUTS["critic"][1])["params.w"].status)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == ["stopped"] * 4


# ---------------------------------------------------------- functions with their own gradient, and closures


def closing(own: Any, jit: bool = False) -> Any:
    """A function with a gradient of its own, for x, that closes over w."""

    def loss(w: Any, x: Any) -> Any:
        f = own(lambda t: t * w)
        if own is jax.custom_vjp:
            f.defvjp(lambda t: (t * 1.0, None), lambda _, g: (g * 2.0,))
        else:
            f.defjvp(lambda primals, tangents: (primals[0], tangents[0] * 2.0))
        return f(x).sum()  # cut

    return jax.jit(loss) if jit else loss


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("own", [jax.custom_vjp, jax.custom_jvp])
def test_what_a_function_with_its_own_gradient_closes_over_is_stopped(own: Any, jit: bool) -> None:
    flow = sgj.explain(closing(own, jit), V, V)
    assert {key: str(found.status) for key, found in flow.items()} == {"w": "stopped", "x": "flows"}
    assert flow.cuts[0].reason.startswith("custom_gradient's function closes over w,")
    assert flow.cuts[0].reason.endswith("pass it as an argument")
    assert flow.cuts[0].location.source.strip() == "f(x)"
    # JAX's own gradient is 0 for w, without a word; where jit traces w, some of these are an error.
    dw, dx = jax.grad(closing(own), argnums=(0, 1))(V, V)
    assert (dw.tolist(), dx.tolist()) == ([0.0] * len(V), [2.0] * len(V))


def test_a_rule_that_closes_over_what_is_traced_is_refused_as_by_jax() -> None:
    def loss(w: Any, x: Any) -> Any:
        f = jax.custom_vjp(lambda t: t * w)
        f.defvjp(lambda t: (t * w, None), lambda _, g: (g * 2.0,))
        return f(x).sum()  # cut

    flow = sgj.explain(loss, V, V)
    assert {key: str(found.status) for key, found in flow.items()} == {"w": "undefined", "x": "flows"}
    assert "closes over a value that JAX traces" in flow.cuts[0].reason
    assert jax.grad(loss, argnums=1)(V, V).tolist() == [2.0] * len(V)
    for asked in (0, (0, 1)):
        with pytest.raises(jax.errors.UnexpectedTracerError):
            jax.grad(loss, argnums=asked)(V, V)


def test_of_a_loop_of_any_length_the_way_out_is_named() -> None:
    def f(x: Any) -> Any:
        return jax.lax.while_loop(lambda y: y.sum() < 30.0, lambda y: y + x, x).sum()

    (cut,) = sgj.explain(f, np.ones(3, np.float32))["x"].cuts
    assert cut.reason.startswith("a loop without maximum_iterations may take any number of steps")
    assert "in JAX use lax.scan" in cut.reason
    assert "stop_gradient what it returns" in cut.reason


LIBRARY = """
import jax


@jax.custom_vjp
def solved(w, x):
    return w * jax.lax.stop_gradient(x)


def forward(w, x):
    return jax.vjp(lambda w, x: w * jax.lax.stop_gradient(x) + x, w, x)


solved.defvjp(forward, lambda pull, g: pull(g))
"""


@pytest.mark.parametrize(("folder", "idle"), [("site-packages", 0), ("project", 1)])
def test_a_librarys_stop_in_a_function_with_a_gradient_of_its_own_is_not_called_idle(
    folder: str, idle: int
) -> None:
    """Its gradient was made of the same function, with that stop; of a user's own function, it is said."""
    names: dict[str, Any] = {}
    exec(compile(LIBRARY, f"/home/me/{folder}/solver.py", "exec"), names)
    flow = sgj.explain(names["solved"], 1.0, 2.0)
    assert {key: flow[key].status for key in flow} == {"w": "flows", "x": "flows"}
    assert len([one for one in flow.findings if one.kind == "idle"]) == idle


# ------------------------------------------------------------------------------------- other people's code


@pytest.fixture
def helper(tmp_path: Path) -> Any:
    """A library of functions that cut."""
    return installed(
        tmp_path,
        "helper/losses.py",
        """
        import jax
        import jax.numpy as jnp

        def target(x):
            return _cut(jnp.tanh(x))

        def _cut(x):
            return jax.lax.stop_gradient(x)

        @jax.jit
        def compiled(x):
            return jax.lax.stop_gradient(x) * 2.0

        def loss(w, x):
            return (target(w) * x).sum()
        """,
    )


def _shown(flow: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(Path(__file__).parent)
    text: str = flow.to_text(width=120)
    return text


@pytest.mark.parametrize(("function", "at"), [("target", 8), ("compiled", 12)])
def test_the_line_that_called_a_librarys_helper_comes_first(
    helper: Any, function: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = getattr(helper, function)

    def loss(w: Any, v: Any) -> Any:
        goal = call(w * 2.0)  # called
        return ((v - goal) ** 2).sum()

    flow = sgj.explain(loss, V, V)
    own = f"test_explain.py:{_line(loss, 'called')}"
    assert f"stopped: w\n  {own}  stop_gradient, in helper/losses.py:{at}\n" in _shown(flow, monkeypatch)
    location = flow["w"].cuts[0].location
    assert (location.file, location.line) == (helper.__file__, at)
    sgj.assert_blocked(loss, V, V, to="w", by=own)


def test_a_librarys_loss_that_is_asked_about_itself_is_named_by_its_line(
    helper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _shown(sgj.explain(helper.loss, V, V), monkeypatch)
    assert "stopped: w\n  helper/losses.py:8  stop_gradient\n" in text
    assert "test_explain.py" not in text


def test_comparisons_and_positions_are_one_line_after_the_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(w: Any, x: Any) -> Any:
        h = x * w
        best = jnp.argmax(h, -1)  # first
        low = h < 0.0
        high = h > 1.0
        return (h * low * high * best + lax.stop_gradient(h)).sum()  # cut

    lines = _shown(sgj.explain(loss, V, V), monkeypatch).splitlines()
    first, cut = _line(loss, "first"), _line(loss, "cut")
    assert lines[2] == "partly stopped: w, x"
    assert lines[4] == f"  test_explain.py:{cut}  stop_gradient"
    assert lines[7:] == [
        f"  no derivative: 3 comparisons, indices and masks, at test_explain.py:{first}, :{first + 1} "
        f"and :{first + 2}"
    ]
