"""Programs as JAX's documentation has them, with ``sg``: they run, or the error names the cure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import stopgrad as sg


def test_quickstart_selu_compiled() -> None:
    @sg.function
    def selu(x: Any, alpha: float = 1.67, lmbda: float = 1.05) -> Any:
        return lmbda * sg.where(x > 0, x, alpha * sg.exp(x) - alpha)

    x = np.arange(-2.0, 3.0)
    np.testing.assert_allclose(selu(x), 1.05 * np.where(x > 0, x, 1.67 * np.exp(x) - 1.67))


def test_quickstart_grad_of_sum_logistic() -> None:
    def sum_logistic(x: Any) -> Any:
        return sg.reduce_sum(1.0 / (1.0 + sg.exp(-x)))

    x = np.arange(3.0)
    s = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(sg.grad(sum_logistic)(x), s * (1 - s))


def test_quickstart_vmap_of_a_product() -> None:
    key1, key2 = sg.random.split(sg.random.key(1701))
    mat = sg.random.normal(key1, (150, 100))
    batched = sg.random.normal(key2, (10, 100))
    found = sg.vmap(lambda x: mat @ x)(batched)
    np.testing.assert_allclose(found, batched @ mat.T, rtol=1e-4, atol=1e-4)


def test_random_numbers_with_keys_in_a_training_step() -> None:
    def loss(w: Any, x: Any, key: Any) -> Any:
        noise = sg.random.normal(key, x.shape)
        kept = sg.random.bernoulli(sg.random.fold_in(key, 1), 0.9, x.shape)
        return sg.reduce_sum((x + noise) * sg.cast(kept, sg.float32) * w)

    x, key = np.ones((4, 3), np.float32), sg.random.key(0)
    slope = sg.function(sg.grad(loss))(np.ones(3, np.float32), x, key)
    kept = sg.random.bernoulli(sg.random.fold_in(key, 1), 0.9, x.shape)
    np.testing.assert_allclose(slope, ((x + sg.random.normal(key, x.shape)) * kept).sum(0), rtol=1e-5)


def test_control_flow_of_lax() -> None:
    assert sg.cond(True, lambda x: x + 1.0, lambda x: x - 1.0, 2.0) == 3.0
    assert sg.fori_loop(0, 5, lambda i, x: x + i, 0) == 10
    assert sg.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 2), (0, 1)) == (4, 16)
    carry, ys = sg.scan(lambda c, x: (c + x, c * x), 0.0, np.arange(4.0))
    assert carry == 6
    np.testing.assert_array_equal(ys, [0, 0, 2, 9])
    assert sg.switch(1, [lambda x: x, lambda x: -x], 3.0) == -3


def test_updates_with_at() -> None:
    update = sg.function(lambda x: x.at[1, :].set(1.0).at[0, 0].add(5.0))
    np.testing.assert_array_equal(update(np.zeros((2, 2))), [[5, 0], [1, 1]])


def test_training_a_pytree_of_parameters() -> None:
    rng = np.random.default_rng(0)
    params = [
        {"w": rng.normal(size=(1, 8)), "b": np.zeros(8)},
        {"w": rng.normal(size=(8, 1)), "b": np.zeros(1)},
    ]
    x = np.linspace(-1, 1, 32)[:, None]

    def predict(params: Any, x: Any) -> Any:
        *hidden, last = params
        for layer in hidden:
            x = sg.nn.relu(x @ layer["w"] + layer["b"])
        return x @ last["w"] + last["b"]

    def loss(params: Any) -> Any:
        error = predict(params, x) - x**2
        return sg.reduce_mean(error**2), {"worst": sg.reduce_max(sg.abs(error))}

    @sg.function
    def update(params: Any) -> Any:
        (value, _), grads = sg.value_and_grad(loss, has_aux=True)(params)
        return value, sg.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    first, params = update(params)
    for _ in range(50):
        last, params = update(params)
    assert last < first / 4


def test_custom_vjp_that_clips() -> None:
    @partial(sg.custom_vjp, nondiff_argnums=(0,))
    def clip_gradient(limit: float, x: Any) -> Any:
        return x

    clip_gradient.defvjp(
        lambda limit, x: (x, None), lambda limit, _, g: (sg.clip_by_value(g, -limit, limit),)
    )
    np.testing.assert_allclose(sg.grad(lambda x: clip_gradient(0.75, sg.sin(x)) * 10.0)(0.0), 0.75)


def test_custom_jvp_of_log1pexp() -> None:
    @sg.custom_jvp
    def log1pexp(x: Any) -> Any:
        return sg.log(1.0 + sg.exp(x))

    @log1pexp.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents
        return log1pexp(x), (1.0 - 1.0 / (1.0 + sg.exp(x))) * dx

    assert sg.function(sg.grad(log1pexp))(100.0) == 1.0


def test_debug_print_inside_jit(capsys: pytest.CaptureFixture[str]) -> None:
    @sg.function
    def f(x: Any) -> Any:
        sg.print("x = {x}", x=x)
        return sg.sin(x)

    f(2.0)
    assert capsys.readouterr().out == "x = 2.0\n"


def test_td_learning_with_stop_gradient() -> None:
    def td_loss(theta: Any, s: Any, r: Any, s1: Any) -> Any:
        return -0.5 * sg.square(sg.stop_gradient(r + theta @ s1) - theta @ s)

    theta, s, s1 = np.array([0.1, -0.1, 0.0]), np.array([1.0, 2.0, -1.0]), np.array([2.0, 1.0, 0.0])
    np.testing.assert_allclose(sg.grad(td_loss)(theta, s, 1.0, s1), (1.0 + theta @ s1 - theta @ s) * s)


def test_per_example_gradients() -> None:
    w, x = np.array([1.0, 2.0]), np.arange(6.0).reshape(3, 2)
    found = sg.function(sg.vmap(sg.grad(lambda w, x: sg.sin(w @ x)), in_axes=(None, 0)))(w, x)
    np.testing.assert_allclose(found, np.cos(x @ w)[:, None] * x)


def test_functions_of_jax_nn() -> None:
    x = np.array([-1.0, 0.5, 2.0])
    np.testing.assert_array_equal(sg.nn.one_hot([0, 2], 3), [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(sg.nn.softmax(x), np.exp(x) / np.exp(x).sum())
    np.testing.assert_allclose(sg.nn.silu(x), x / (1 + np.exp(-x)))


def test_a_static_argument() -> None:
    power = sg.function(lambda x, n: x**n if n > 1 else x, static_argnums=1)
    assert power(3.0, 2) == 9.0


def test_saving_the_parameters(tmp_path: Any) -> None:
    params = {"layers": [{"w": np.ones((2, 3))}]}
    sg.save(tmp_path / "params.safetensors", params)
    np.testing.assert_array_equal(sg.load(tmp_path / "params.safetensors")["layers"][0]["w"], np.ones((2, 3)))


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "if on a traced value": (lambda: sg.function(branch)(1.0), r"In branch, line \d+, 'if' .* use sg.cond"),
    "a print of a traced value": (lambda: sg.function(lambda x: f"{x:.2f}")(1.0), "use sg.print"),
    "assignment to an index": (lambda: sg.function(assign)(np.ones(3)), r"x.at\[index\].set\(value\)"),
    "grad of an integer": (lambda: sg.grad(lambda x: x * x)(3), "pass a float"),
    "grad of a vector": (lambda: sg.grad(lambda x: x * 2.0)(np.ones(3)), "sg.reduce_sum|jacobian"),
    "jacfwd": (lambda: sg.jacfwd, "it is sg.jacobian"),
    "jit": (lambda: sg.jit, "it is sg.function"),
    "remat": (lambda: sg.remat, "it is sg.checkpoint"),
    "lax": (lambda: sg.lax.scan, r"functions stand in sg itself"),
    "numpy": (lambda: sg.numpy.exp, r"functions stand in sg itself, as in sg.exp"),
    "a seed instead of a key": (lambda: sg.random.normal(0, (3,)), r"made by sg.random_key\(seed\)"),
    "a carry that changes": (lambda: sg.scan(lambda c, x: (c[None], x), 0.0, np.ones(3)), "carry"),
    "logsumexp": (lambda: sg.nn.logsumexp, "it is sg.reduce_logsumexp"),
    "device_put": (lambda: sg.device_put, "engine="),
}


def branch(x: Any) -> Any:
    if x > 0:
        return x
    return -x


def assign(x: Any) -> Any:
    x[0] = 1.0
    return x


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_work_names_the_cure(name: str) -> None:
    wrong, says = WRONG[name]
    with pytest.raises((sg.StopgradError, AttributeError), match=says):
        wrong()
