"""What transforms return, as type checkers see it; the tests run it, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import stopgrad as sg

Array = np.ndarray[Any, Any]
Floats = npt.NDArray[np.float64]
Parameters = dict[str, Floats]


def loss(params: Parameters, x: Floats, scale: float = 1.0, *, shift: float = 0.0) -> Array:
    return sg.reduce_sum(sg.square(sg.matmul(x, params["w"]) + params["b"] - shift)) * scale


def loss_and_aux(w: Floats, x: Floats) -> tuple[Array, str]:
    return sg.reduce_sum(w * x), "aux"


def energy(w: Floats) -> Array:
    return sg.reduce_sum(sg.square(w))


def doubled(w: Floats) -> Floats:
    return w * 2.0


def gradients(params: Parameters, w: Floats, x: Floats) -> None:
    assert_type(sg.grad(loss)(params, x), Parameters)
    assert_type(sg.grad(loss)(params, x, 2.0, shift=1.0), Parameters)
    assert_type(sg.value_and_grad(loss)(params, x), tuple[Array, Parameters])
    assert_type(sg.grad(loss, argnums=(0, 1))(params, x), tuple[Parameters, Floats])
    assert_type(sg.value_and_grad(loss, (0, 1))(params, x), tuple[Array, tuple[Parameters, Floats]])
    assert_type(sg.grad(loss_and_aux, has_aux=True)(w, w), tuple[Floats, str])
    assert_type(sg.value_and_grad(loss_and_aux, has_aux=True)(w, w), tuple[tuple[Array, str], Floats])
    assert_type(sg.grad(energy)(w), Floats)
    assert_type(sg.grad(loss, 1)(params, x), Any)
    assert_type(sg.value_and_grad(loss, [0])(params, x), tuple[Array, Any])
    value, pullback = sg.vjp(doubled, w)
    assert_type(value, Floats)
    assert_type(pullback(w), tuple[Floats])
    assert_type(sg.jvp(doubled, (w,), (w,)), tuple[Floats, Floats])
    assert_type(sg.hvp(energy, (w,), (w,)), Floats)
    assert_type(sg.jacobian(doubled)(w), Any)
    assert_type(sg.hessian(energy)(w), Any)


def of_lambdas(w: Floats) -> None:
    sg.grad(lambda v: sg.reduce_sum(v**3.0))(w)
    sg.grad(sg.grad(lambda v: v**3.0))(2.0)
    sg.vmap(sg.grad(lambda v: v**3.0))(w[0])
    sg.function(sg.grad(lambda v: sg.reduce_sum(v * v)))(w)


def of_any(f: Callable[..., Array], w: Floats) -> None:
    sg.grad(f)(w)
    sg.value_and_grad(f)(w)
    assert_type(sg.vmap(f)(w), Array)


def same_signature(w: Floats, x: Floats, params: Parameters) -> None:
    compiled = sg.function(loss, engine="numpy")
    assert_type(compiled(params, x, shift=1.0), Array)
    assert_type(compiled.traces, int)
    assert_type(sg.vmap(doubled)(w), Floats)
    assert_type(sg.checkpoint(energy)(w), Array)
    assert_type(clipped(w), Floats)
    assert_type(damped(w, 2.0), Floats)
    assert_type(step(w), Floats)
    assert_type(Model(w).predict(x), Array)
    assert_type(sg.function(energy, engine="numpy", with_probes=True)(w), tuple[Array, dict[str, Any]])


@sg.custom_gradient
def clipped(w: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    return w, lambda g: g


@sg.custom_vjp
def damped(w: Floats, rate: float) -> Floats:
    return w * rate


@sg.function(engine="numpy")
def step(w: Floats) -> Floats:
    return w - 0.1 * sg.grad(energy)(w)


class Model:
    def __init__(self, w: Floats) -> None:
        self.w = w

    @sg.function(engine="numpy")
    def predict(self, x: Floats) -> Array:
        return sg.matmul(x, self.w)
