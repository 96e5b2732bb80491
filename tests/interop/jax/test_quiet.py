"""Correct programs of JAX, of which nothing amiss is said; what JAX keeps as numbers; names; bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stopgrad.jax")

import jax
import jax.numpy as jnp
from installed import installed
from jax_quiet import arrives, programs

import stopgrad as sg
import stopgrad.jax as sgj

X = np.linspace(0.2, 0.8, 4, dtype=np.float32)
PROGRAMS = programs()


def stops_of(flow: sg.Flow) -> list[str]:
    """What a report tells of stops."""
    cuts = [str(cut) for cut in flow.cuts if cut.status == sg.Status.STOPPED]
    return cuts + [finding.message for finding in flow.findings if finding.kind == "idle"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_of_a_function_of_jax_no_stop_is_told(name: str) -> None:
    f, args = PROGRAMS[name]
    try:
        reached = arrives(f, args)
    except TypeError as error:
        pytest.skip(str(error))
    flow = sgj.explain(f, *args)
    assert not stops_of(flow), flow
    assert [reach.arrives for reach in flow.values()] == reached, flow


def test_a_stop_of_jax_in_a_batched_branch_is_not_told() -> None:
    def f(x: Any) -> Any:
        return jax.vmap(lambda v: jax.lax.cond(v > 0, jnp.sin, jnp.cos, v))(x).sum()

    flow = sgj.explain(f, X)
    assert flow["x"].arrives
    assert not stops_of(flow), flow
    assert not stops_of(sgj.explain(lambda x: jax.vmap(f)(x).sum(), np.stack([X, X])))


@pytest.mark.parametrize("through", [jax.tree.map, lambda f, x: f(x), lambda f, x: jax.jit(f)(x)])
def test_a_users_own_stop_is_told_also_through_others(through: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return (through(jax.lax.stop_gradient, x) * x * y).sum()

    flow = sgj.explain(f, X, X)
    assert flow["x"].status == "partly stopped"
    assert stops_of(flow)


def test_a_librarys_stop_is_told_only_where_nothing_arrives(tmp_path: Any) -> None:
    helper = installed(
        tmp_path,
        "quietly/losses.py",
        """
        import jax

        def distance(x, target):
            return ((x - jax.lax.stop_gradient(target)) ** 2).sum()
        """,
    )
    flow = sgj.explain(lambda w, v: helper.distance(w * v, w), X, X)
    assert [flow[name].status for name in ("w", "v")] == ["flows", "flows"]
    assert flow["w"].cut_paths == 0
    flow = sgj.explain(lambda w, v: helper.distance(w, v), X, X)
    assert [flow[name].status for name in ("w", "v")] == ["flows", "stopped"]
    assert flow["v"].cuts[0].location.cause.file == __file__


def test_of_a_stop_under_a_rule_the_rule_is_named() -> None:
    @jax.custom_vjp
    def f(x: Any, t: Any) -> Any:
        return x * jax.lax.stop_gradient(t)

    f.defvjp(lambda x, t: (x * t, (x, t)), lambda r, g: (g * r[1], g * r[0]))
    (told,) = stops_of(sgj.explain(f, 2.0, 3.0))
    assert "a function with a gradient of its own, whose rule decides" in told


def test_statistics_that_a_layer_updates_are_no_finding() -> None:
    nnx = pytest.importorskip("flax.nnx")
    layer = nnx.BatchNorm(4, rngs=nnx.Rngs(0))
    for wrap in (lambda f: f, nnx.jit):
        flow = sgj.explain(wrap(lambda layer, x: (layer(x) ** 2).mean()), layer, X[None], argnums=0)
        assert not flow.findings
        assert "2 that the function updates" in str(flow)


# ------------------------------------------------------------------------------------------------- numbers


def looped(x: Any, n: Any) -> Any:
    return jax.lax.fori_loop(0, n, lambda i, x: jnp.sin(x), x).sum()


@pytest.mark.parametrize("n", [3, np.int32(3), np.asarray(3), jnp.asarray(3)])
def test_a_bound_that_jax_keeps_is_kept(n: Any) -> None:
    assert sgj.explain(looped, X, n, argnums=0)["x"].status == "flows"


def decides(x: Any, y: Any, n: int, training: bool) -> Any:
    if training and y.sum() * 2 > 0:
        x = x * 2
    return (x.reshape(n, -1) * (n if isinstance(n, int) else 0)).sum()


def test_what_is_not_differentiated_keeps_its_value() -> None:
    args = X, X, 2, True
    assert np.all(jax.grad(decides)(*args) == 4)
    assert list(sgj.explain(decides, *args, argnums=0)) == ["x"]
    assert sgj.explain(decides, *args, argnums=0)["x"].status == "flows"
    assert sgj.explain(decides, X, -X, 2, training=False, argnums=0)["x"].status == "flows"
    assert [reach.status for reach in sgj.explain(decides, *args).values()] == ["flows", "disconnected"]
    shape = jax.ShapeDtypeStruct((4,), np.float32)  # type: ignore[no-untyped-call]
    with pytest.raises(
        sg.ArgumentError, match=r"decides by a traced value.*What is not in argnums keeps its value"
    ):
        sgj.explain(decides, X, shape, 2, True, argnums=0)


def test_load_keeps_numbers_where_jax_must() -> None:
    assert list(sgj.load(lambda x, n: x * n, X, 3).inputs) == ["x", "n"]
    assert list(sgj.load(lambda x, n: x.reshape(n, -1), X, 2).inputs) == ["x"]


def test_a_loop_of_a_batch_goes_on_while_any_does() -> None:
    def f(x: Any) -> Any:
        def count(a: Any) -> Any:
            start = (0.0, jnp.ones(2))
            return jax.lax.while_loop(lambda s: s[0] < a, lambda s: (s[0] + 0.3, s[1] * 2), start)[1]

        return jax.vmap(count)(x)

    np.testing.assert_allclose(sgj.load(f, X)(X), f(X))


def newton(a: Any) -> Any:
    x = a
    while jnp.abs(x * x - a) > 1e-3:
        x = 0.5 * (x + a / x)
    return x


DECIDED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "one branch": (lambda x, y: x * 2 if x > 0 else x * y, (1.0, 2.0)),
    "the other branch": (lambda x, y: x * 2 if x > 0 else x * y, (-1.0, 2.0)),
    "a loop": (newton, (7.0,)),
    "a whole number": (lambda x, y: x * int(y), (1.5, 2.5)),
    "a number of times": (lambda x: sum(x * i for i in range(int(x))), (3.5,)),
    "an item": (lambda x: x * x.item(), (2.5,)),
    "the larger of two": (lambda x, y: max(x, y) * 3, (1.5, 2.5)),
    "inside of grad": (lambda x: jax.grad(lambda y: y**3 if y > 0 else y)(x), (1.5,)),
    "beside a vmap": (lambda x, y: jax.vmap(lambda v: v * y)(X * x).sum() if x > 0 else x, (1.5, 2.0)),
    "the value of an array": (lambda x: (x**2).sum() if (x > 0.5).any() else x.sum(), (X,)),
    "an index of booleans": (lambda x, y: (x[x > 0.5] * y).sum(), (X, 2.0)),
    "an index of booleans that NumPy made": (lambda x: (x[np.asarray(x > 0.5)] ** 2).sum(), (X,)),
    "as many as are above": (lambda x: (x[:, None] * np.ones(np.array(x > 0.5).sum())).sum(), (X,)),
    "no index at all": (lambda x: (x[x > 100] ** 2).sum() + x[0], (X,)),
    "two in a row": (lambda x, y: (x if x > 1 else y) * (y if x * y > 1 else 1.0), (2.0, 3.0)),
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_is_differentiated_may_decide_as_outside_of_jit(name: str) -> None:
    f, args = DECIDED[name]
    gradients = jax.grad(f, tuple(range(len(args))))(*args)
    flow = sgj.explain(f, *args, magnitudes=True)
    assert [reach.arrives for reach in flow.values()] == [bool((g != 0).any()) for g in gradients]
    for reach, g in zip(flow.values(), gradients, strict=True):
        size = 0.0 if reach.magnitude is None else reach.magnitude.norm
        np.testing.assert_allclose(size, np.linalg.norm(g), rtol=1e-5)
    assert sgj.check_gradients(f, *args).passed
    assert not sgj.trace_nan(f, *args)


def test_a_decision_by_values_is_found_in_the_gradient_that_is_nan() -> None:
    trace = sgj.trace_nan(lambda x: jnp.sqrt(x) if x >= 0 else x, 0.0)
    assert trace.first.origin_name == "jax.lax.sqrt"


def test_what_jax_refuses_outside_of_jit_is_refused() -> None:
    draws = iter(range(1000))
    for f in (
        lambda x: x * float(x[0]),
        lambda x: (x * np.asarray(x)).sum(),
        jax.jit(lambda x: x if x[0] > 0 else -x),
        jax.jit(lambda x: x[x > 0].sum()),
        lambda x: jax.lax.scan(lambda c, v: (c + (v if v > 0 else 0), None), 0.0, x)[0],
        lambda x: jax.vmap(lambda v: v if v > 0 else -v)(x).sum(),
        lambda x: x if (x * (next(draws) % 2) > 0.5).any() else -x,  # Each call decides by another value.
    ):
        with pytest.raises(sg.ArgumentError, match="JAX cannot trace"):
            sgj.explain(f, X)


# --------------------------------------------------------------------------------------- names, bad input

ODD: dict[str, Any] = {"mlp/~/linear 0": {"w": 1.0, "b": 2.0}, "a.b": {"c[0]": 2.0}, "layer[1]": 1.0}


@pytest.mark.parametrize(
    ("to", "count"),
    [
        ("p", 4), ("p.mlp", 2), ("p.mlp/*.w", 1), ("p.mlp/~/linear 0", 2), ("p.a.b.c[0]", 1), ("p.a", 1),
        ("p.layer[1]", 1), ("*.w", 1), ("p.l*[1]", 1),
    ],
)  # fmt: skip
def test_names_with_any_separator(to: str, count: int) -> None:
    def f(p: Any) -> Any:
        return sum(jax.tree.leaves(p))

    sgj.assert_flows(f, ODD, to=to)
    found = sgj.explain(f, ODD)[to]
    assert len(found) == count if isinstance(found, sg.Flow) else count == 1


def test_a_deleted_array_is_named() -> None:
    gone = jnp.ones(3)
    gone.delete()
    for ask in (sgj.explain, sgj.assert_flows, sgj.load):
        with pytest.raises(sg.ArgumentError, match=r"p\.w is deleted: it was donated"):
            ask(lambda p: p["w"].sum(), {"w": gone})
    with pytest.raises(sg.ArgumentError, match="p is deleted"):
        sgj.explain(lambda p: p.sum(), gone, magnitudes=True)


# ------------------------------------------------------------------------------------- auxiliary results


def with_aux(w: Any, v: Any) -> Any:
    return (w**2).sum(), {"n": v * 2, "w": w}


def two_scalars(w: Any, v: Any) -> Any:
    return (w**2).sum(), (v**2).sum()


@pytest.mark.parametrize(
    ("f", "has_aux", "reached"),
    [
        (with_aux, None, False),
        (with_aux, True, False),
        (with_aux, False, True),
        (two_scalars, None, True),
        (two_scalars, True, False),
        (lambda w, v: {"loss": (w**2).sum(), "norm": v.sum()}, None, False),
        (lambda w, v: (w * 2, v * 2), None, True),
        (lambda w, v: (jnp.argmax(v), w * v), None, True),
    ],
)
def test_what_is_returned_besides_is_not_differentiated(f: Any, has_aux: Any, reached: bool) -> None:
    flow = sgj.explain(f, X, X, has_aux=has_aux, magnitudes=True)
    assert [flow[name].arrives for name in ("w", "v")] == [True, reached]
    if f is with_aux and not reached:
        gradient, _ = jax.grad(f, has_aux=True)(X, X)
        np.testing.assert_allclose(flow["w"].magnitude.norm, np.linalg.norm(gradient), rtol=1e-6)


def test_nans_of_gradients_that_nobody_takes_are_not_told() -> None:
    def loss(w: Any) -> Any:
        return (w**2).sum(), {"norm": jnp.sqrt(w * 0)}

    assert np.isfinite(jax.grad(loss, has_aux=True)(X)[0]).all()
    assert not sgj.trace_nan(loss, X)
    assert not sgj.trace_nan(loss, X, has_aux=True)
    assert sgj.trace_nan(loss, X, has_aux=False).first.origin_name == "jax.lax.sqrt"
    assert sgj.trace_nan(lambda w: (jnp.sqrt(w * 0).sum(), w), X, has_aux=True)
    with pytest.raises(sg.ArgumentError, match="returns a pair"):
        sgj.trace_nan(lambda w: w.sum(), X, has_aux=True)


def test_a_pair_is_asked_for() -> None:
    with pytest.raises(sg.ArgumentError, match="returns a pair"):
        sgj.explain(lambda w: w.sum(), X, has_aux=True)


def test_of_a_pair_several_arguments_may_be_trained() -> None:
    def step(params: Any, gradients: Any) -> Any:
        return jax.tree.map(jnp.subtract, params, gradients)

    flow = sgj.explain(two_scalars, X, X, argnums=(0, 1), optimizer=step)
    assert [flow[name].moves for name in ("w", "v")] == [True, False]
