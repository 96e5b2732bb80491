"""Control flow with everything else: gates, transforms, custom gradients, random numbers, dtypes, threads.

Expected values are closed forms, or the same loop unrolled in Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stopgrad as sg

Run = Callable[..., Any]
X = np.array([0.5, -1.0, 2.0])


def unrolled(f: Callable[..., Any], init: Any, xs: Any = None, length: int | None = None) -> Any:
    """What ``scan`` means, as a loop in Python."""
    n = len(xs) if length is None else length
    carry, ys = init, []
    for i in range(n):
        carry, y = f(carry, None if xs is None else xs[i])
        ys.append(y)
    return carry, None if ys[0] is None else sg.stack(ys)


# ---------------------------------------------------------------------------------------------- gates

GATES: dict[str, Callable[[Any], Any]] = {
    "scale": lambda c: sg.scale_gradient(c, 0.5),
    "reverse": lambda c: sg.reverse_gradient(c, 2.0),
    "clip": lambda c: sg.clip_gradient(c, -0.2, 0.3),
    "clip the norm": lambda c: sg.clip_gradient_norm(c, 0.25),
    "zero": lambda c: sg.zero_gradient(c) + c * 0.5,
    "straight through": lambda c: sg.straight_through(sg.round(c), c),
    "stop": lambda c: sg.stop_gradient(c) * c,
    "probe": lambda c: sg.probe(c, "inside"),
}


@pytest.mark.parametrize("gate", GATES)
def test_gates_inside_a_body_act_at_every_step(gate: str, engine: str) -> None:
    def loss(loop: Callable[..., Any], x: Any) -> Any:
        end, ys = loop(lambda c, _: (sg.tanh(GATES[gate](c)) * 1.5, c * c), x, length=3)
        return sg.reduce_sum(end) + sg.reduce_sum(ys)

    want = sg.value_and_grad(lambda x: loss(unrolled, x))(X)
    got = sg.function(sg.value_and_grad(lambda x: loss(sg.scan, x)), engine=engine)(X)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_zero_gradient_inside_is_connected(run: Run, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, [3])
    end, _ = sg.scan(lambda c, _: (sg.zero_gradient(c) * 2.0, None), x, length=2)
    assert sg.explain(end, [x])[x].status == "flows"
    assert run(sg.gradients(end, [x]), {x: X})[0].tolist() == [0.0, 0.0, 0.0]


def test_a_loop_inside_a_no_gradient_block(run: Run, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, [3])
    with sg.no_gradient():
        hidden, _ = sg.scan(lambda c, _: (c * c, None), x, length=2)
        (inside,) = sg.gradients(hidden, [x])
    assert run(inside, {x: X}).tolist() == (4 * X**3).tolist()
    assert sg.gradients(hidden, [x]) == [None]
    assert sg.explain(hidden, [x])[x].status == "stopped"
    (dx,) = sg.gradients(hidden * x, [x])
    assert run(dx, {x: X}).tolist() == (X**4).tolist()


def test_a_hidden_tensor_captured_by_a_loop_stays_hidden(run: Run, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, [])
    with sg.no_gradient():
        hidden = x * x
    end, _ = sg.scan(lambda c, _: (c * hidden, None), x, length=2)
    assert run(sg.gradients(end, [x]), {x: 3.0}) == [81.0]


def test_tensors_named_in_stop_gradients(run: Run, graph: sg.Graph) -> None:
    """Results, operands and captures of loops may be named; gradients still arrive at them."""
    x, w = sg.placeholder(sg.float64, []), sg.placeholder(sg.float64, [])
    start, captured = x * 2.0, w * 3.0
    end, ys = sg.scan(lambda c, _: (c * captured, c), start, length=2)
    y = end * 5.0 + sg.reduce_sum(ys)
    feeds = {x: 1.0, w: 1.0}
    # y = 10 x (3w)² + 2x + 6xw.
    assert run(sg.gradients(y, [x, w]), feeds) == [98.0, 186.0]
    assert sg.gradients(y, [x], stop_gradients=[start]) == [None]
    assert run(sg.gradients(y, [w, start], stop_gradients=[start]), feeds) == [186.0, 49.0]
    assert sg.gradients(y, [w], stop_gradients=[captured]) == [None]
    assert run(sg.gradients(y, [end, x], stop_gradients=[end]), feeds) == [5.0, 8.0]
    assert run(sg.gradients(y, [w], stop_gradients=[ys]), feeds) == [180.0]


# ----------------------------------------------------------------------------------------- transforms


def test_a_gradient_taken_inside_a_loop(engine: str) -> None:
    """Gradient descent inside of a scan, differentiated with respect to its rate."""

    def trained(rate: Any, x: Any) -> Any:
        def inner(v: Any) -> Any:
            return sg.reduce_sum(sg.square(v - 1.0) * np.array([1.0, 2.0, 3.0]))

        end, losses = sg.scan(lambda v, _: (v - rate * sg.grad(inner)(v), inner(v)), x, length=4)
        return inner(end) + sg.reduce_sum(losses)

    def by_hand(rate: Any, x: Any) -> Any:
        def inner(v: Any) -> Any:
            return jnp.sum((v - 1.0) ** 2 * jnp.array([1.0, 2.0, 3.0]))

        total = 0.0
        for _ in range(4):
            total, x = total + inner(x), x - rate * jax.grad(inner)(x)
        return inner(x) + total

    got = sg.function(sg.value_and_grad(trained, (0, 1)), engine=engine)(np.float64(0.05), X)
    with jax.enable_x64(True):
        want = jax.value_and_grad(by_hand, (0, 1))(jnp.float64(0.05), jnp.asarray(X))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def power(x: Any) -> Any:
    """x to the eighth, in a loop."""
    return sg.fori_loop(0, 3, lambda _, c: c * c, x)


def test_jacobians_and_hessians_of_loops() -> None:
    np.testing.assert_allclose(sg.jacobian(power)(X), np.diag(8 * X**7))
    np.testing.assert_allclose(sg.hessian(lambda x: sg.reduce_sum(power(x)))(X), np.diag(56 * X**6))
    np.testing.assert_allclose(sg.hvp(lambda x: sg.reduce_sum(power(x)), (X,), (X,)), 56 * X**7)


def test_a_pullback_is_called_twice() -> None:
    value, pullback = sg.vjp(lambda x: sg.scan(lambda c, _: (c * c, c), x, length=2), X)
    np.testing.assert_allclose(value[0], X**4)
    (first,) = pullback((np.ones(3), np.zeros((2, 3))))
    (second,) = pullback((np.zeros(3), np.ones((2, 3))))
    np.testing.assert_allclose(first, 4 * X**3)
    np.testing.assert_allclose(second, 1 + 2 * X)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_every_order(order: int, engine: str) -> None:
    """Of a bounded while loop, which is a scan over branches in its gradient."""

    def f(x: Any) -> Any:
        return sg.while_loop(lambda c: c < 100.0, lambda c: c * c, x, maximum_iterations=5)

    for _ in range(order):
        f = sg.grad(f)
    want = {1: 8 * 2.0**7, 2: 56 * 2.0**6, 3: 336 * 2.0**5, 4: 1680 * 2.0**4}[order]
    assert sg.function(f, engine=engine)(np.float64(2.0)) == want


@pytest.mark.parametrize("order", [1, 2, 3])
def test_forward_derivatives_of_every_order(order: int) -> None:
    def f(x: Any) -> Any:
        return power(x)

    for _ in range(order):
        f = lambda x, g=f: sg.jvp(g, (x,), (np.float64(1.0),))[1]
    want = {1: 8 * 2.0**7, 2: 56 * 2.0**6, 3: 336 * 2.0**5}[order]
    assert f(np.float64(2.0)) == want


def test_a_compiled_function_inside_a_body() -> None:
    square = sg.function(lambda v: v * v)
    end, _ = sg.scan(lambda c, _: (square(c), None), X, length=2)
    np.testing.assert_allclose(end, X**4)


def test_a_custom_gradient_inside_a_body(engine: str) -> None:
    @sg.custom_gradient
    def doubled(x: Any) -> Any:
        return x * 2.0, lambda g: g * 7.0

    def f(x: Any) -> Any:
        return sg.reduce_sum(sg.scan(lambda c, _: (doubled(c), None), x, length=3)[0])

    value, slope = sg.function(sg.value_and_grad(f), engine=engine)(X)
    np.testing.assert_allclose(value, 8 * X.sum())
    np.testing.assert_allclose(slope, np.full(3, 343.0))


def test_a_loop_inside_a_custom_gradient(engine: str) -> None:
    @sg.custom_gradient
    def solved(a: Any) -> Any:
        """The root of x² = a by Newton's method; its gradient by the implicit function theorem."""
        x = sg.while_loop(lambda x: sg.abs(x * x - a) > 1e-12, lambda x: (x + a / x) * 0.5, a)
        return x, lambda g: g / (2.0 * x)

    value, slope = sg.function(sg.value_and_grad(solved), engine=engine)(np.float64(9.0))
    np.testing.assert_allclose([value, slope], [3.0, 1 / 6])


# ----------------------------------------------------------------------------------- dtypes and engines


def test_complex_carries_have_tensorflows_gradient(engine: str) -> None:
    """z becomes z² twice; of the real part the gradient is the conjugate of the derivative 4z³."""
    z = np.array([1.0 + 2.0j, -0.5j])

    def f(z: Any) -> Any:
        return sg.reduce_sum(sg.real(sg.scan(lambda c, _: (c * c, None), z, length=2)[0]))

    np.testing.assert_allclose(sg.function(sg.grad(f), engine=engine)(z), np.conj(4 * z**3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_floating_point_dtype(dtype: str, run: Run, graph: sg.Graph) -> None:
    kind = getattr(sg, dtype)
    x = sg.placeholder(kind, [2])
    end, ys = sg.scan(lambda c, _: (c * 2.0, c), x, length=3)
    chosen = sg.cond(sg.reduce_sum(end) > 0.0, lambda: end, lambda: -end)
    (dx,) = sg.gradients([chosen, ys], [x])
    given = np.array([1.0, 2.0]).astype(kind.numpy)
    value, slope = run([chosen, dx], {x: given})
    assert value.dtype == slope.dtype == kind.numpy
    assert value.astype(float).tolist() == [8.0, 16.0]
    assert slope.astype(float).tolist() == [15.0, 15.0]


def test_integers_and_booleans_take_part_without_gradients(run: Run, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, [4])
    order, keep = sg.placeholder(sg.int32, [4]), sg.placeholder(sg.bool, [4])

    def step(carry: Any, part: Any) -> Any:
        total, count, any_kept = carry
        position, kept = part
        value = sg.gather(x, position)
        total = sg.where(kept, total + value * value, total)
        return (total, count + sg.cast(kept, sg.int32), sg.logical_or(any_kept, kept)), position * 2

    start = (np.float32(0.0), np.int32(0), np.bool_(False))
    (total, count, any_kept), positions = sg.scan(step, start, (order, keep))
    (dx,) = sg.gradients(total, [x])
    feeds = {x: [1.0, 2.0, 3.0, 4.0], order: [3, 1, 0, 2], keep: [True, False, True, True]}
    found = run([total, count, any_kept, positions, dx], feeds)
    assert found[:3] == [26.0, 3, True]
    assert found[3].tolist() == [6, 2, 0, 4]
    assert found[4].tolist() == [2.0, 0.0, 6.0, 8.0]
    assert sg.gradients([count, any_kept, positions], [x]) == [None]


def test_random_numbers_inside_a_loop_are_the_same_on_every_engine() -> None:
    def walk(x: Any, seed: Any) -> Any:
        def step(carry: Any, i: Any) -> Any:
            position, key = carry
            noise = sg.random_normal([3], sg.random_fold_in(key, i))
            return (position * 0.9 + noise, sg.random_split(key, 2)[0]), noise

        return sg.scan(step, (x, sg.random_key(seed)), np.arange(5, dtype=np.int32))

    x = X.astype(np.float32)
    (end, _), noises = sg.function(walk, engine="numpy")(x, np.int32(7))
    (other, _), others = sg.function(walk, engine="xla")(x, np.int32(7))
    np.testing.assert_allclose(end, other, rtol=1e-5)
    np.testing.assert_allclose(noises, others, rtol=1e-5, atol=1e-6)
    assert len(np.unique(noises)) == 15


def test_dropout_in_a_recurrent_network_has_the_mask_of_the_value_in_its_gradient(engine: str) -> None:
    def f(x: Any) -> Any:
        def step(c: Any, i: Any) -> Any:
            mask = sg.random_bernoulli([3], sg.random_fold_in(sg.random_key(3), i), 0.5)
            return sg.where(mask, c * 2.0, c), None

        return sg.reduce_sum(sg.scan(step, x, np.arange(4, dtype=np.int32))[0])

    value, slope = sg.function(sg.value_and_grad(f), engine=engine)(X)
    np.testing.assert_allclose(value, (slope * X).sum())
    assert {float(s) for s in slope} <= {1.0, 2.0, 4.0, 8.0, 16.0}
    assert np.any(slope > 1.0)


def test_both_engines_give_not_a_number_alike() -> None:
    def f(x: Any) -> Any:
        return sg.scan(lambda c, _: (c * c * 1e200, c), x, length=3)

    with np.errstate(all="ignore"):
        for a, b in zip(sg.function(f, engine="numpy")(X), sg.function(f, engine="xla")(X), strict=True):
            np.testing.assert_array_equal(a, b)


# -------------------------------------------------------------------------------------- around building


def test_loops_built_by_several_threads_at_once() -> None:
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for n in range(1, 6):
                with sg.Graph().as_default() as graph, sg.name_scope(f"thread{k}"):
                    x = sg.placeholder(sg.float64, [], name="x")
                    end, _ = sg.scan(lambda c, _: (sg.multiply(c, x, name="inside"), None), x, length=n)
                    (dx,) = sg.gradients(end, [x])
                assert x.name == f"thread{k}/x:0"
                with sg.Session(graph, engine="numpy") as session:
                    assert session.run(dx, {x: 2.0}) == (n + 1) * 2.0**n
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_a_loop_differentiated_twice_from_different_results(run: Run, graph: sg.Graph) -> None:
    """Two generations share what they can and do not disturb each other."""
    x = sg.placeholder(sg.float64, [])
    end, ys = sg.scan(lambda c, _: (c * x, c), x, length=3)
    (first,) = sg.gradients(end, [x])
    (second,) = sg.gradients(ys, [x])
    (both,) = sg.gradients([end, ys], [x])
    # x⁴, and x + x² + x³.
    assert run([first, second, both], {x: 2.0}) == [32.0, 17.0, 49.0]


def test_the_gradient_with_respect_to_a_loops_result(run: Run, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, [])
    end, ys = sg.scan(lambda c, _: (c * x, c), x, length=3)
    y = end * end + ys[1] * ys[2]
    assert run(sg.gradients(y, [end]), {x: 2.0}) == [32.0]
    assert run(sg.gradients(y, [ys]), {x: 2.0})[0].tolist() == [0.0, 8.0, 4.0]


def test_a_seed_for_each_result(run: Run, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, [])
    end, ys = sg.scan(lambda c, _: (c * c, c), x, length=2)
    seeds = [np.float64(10.0), np.array([1.0, 100.0])]
    assert run(sg.gradients([end, ys], [x], grad_ys=seeds), {x: 2.0}) == [10 * 32.0 + 1.0 + 100 * 4.0]


def test_one_graph_fed_with_loops_of_many_lengths(engine: str, graph: sg.Graph) -> None:
    x, rows = sg.placeholder(sg.float64, ["d"]), sg.placeholder(sg.float64, ["n", "d"])
    end, ys = sg.scan(lambda c, row: (c * row, c + row), x, rows)
    slopes = sg.gradients([end, ys], [x, rows])
    with sg.Session(graph, engine=engine) as session:
        for n, d in ((1, 2), (3, 1), (2, 4)):
            given = np.linspace(0.5, 1.5, n * d).reshape(n, d)
            value, dx, drows = session.run([end, *slopes], {x: np.ones(d), rows: given})
            np.testing.assert_allclose(value, given.prod(0))
            np.testing.assert_allclose(dx, given.prod(0) + 1 + np.cumprod(given, 0)[:-1].sum(0))
            assert drows.shape == (n, d)
