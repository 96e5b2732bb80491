"""``custom_vjp`` and ``custom_jvp`` take what JAX's take, and give the same derivatives."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stopgrad as sg


def reverse(lib: Any, xp: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, p: Any) -> Any:
        return {"y": xp.sin(x) * p["a"], "z": x}

    def forward(x: Any, p: Any) -> Any:
        return f(x, p), (x, p)

    def backward(kept: Any, g: Any) -> Any:
        x, _ = kept
        return 3.0 * g["y"] * x + g["z"], {"a": g["y"] * 7.0}

    f.defvjp(forward, backward)
    return lib.grad(lambda x, p: f(x, p)["y"] * 2.0 + f(p=p, x=x)["z"], argnums=(0, 1))


def forward(lib: Any, xp: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return xp.exp(x) * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        result = f(x, y)
        return result, 2.0 * result * dx + xp.exp(x) * dy

    return f


def by_argument(lib: Any, xp: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defjvps(lambda t, result, x, y: 5.0 * t * result, None)
    return f


def with_function(lib: Any, xp: Any) -> Any:
    @partial(lib.custom_vjp, nondiff_argnums=(0,))
    def apply(function: Any, x: Any) -> Any:
        return function(x)

    apply.defvjp(lambda g, x: (g(x), x), lambda g, x, cotangent: (cotangent * g(x) * 10.0,))
    return lib.grad(lambda x: apply(xp.exp, x))


X = np.array([0.5, 1.5], np.float32)
CASES = {
    "vjp": lambda lib, xp: reverse(lib, xp)(2.0, {"a": 3.0}),
    "vjp of batches": lambda lib, xp: lib.vmap(lambda x: reverse(lib, xp)(x, {"a": 3.0}))(X),
    "jvp, reverse": lambda lib, xp: lib.grad(forward(lib, xp), argnums=(0, 1))(0.5, 3.0),
    "jvp, forward": lambda lib, xp: lib.jvp(forward(lib, xp), (0.5, 3.0), (1.0, 0.25)),
    "jvp, twice": lambda lib, xp: lib.grad(lib.grad(forward(lib, xp)))(0.5, 3.0),
    "jvp, thrice": lambda lib, xp: lib.grad(lib.grad(lib.grad(forward(lib, xp))))(0.5, 3.0),
    "jvp, mixed": lambda lib, xp: lib.grad(lib.grad(forward(lib, xp)), argnums=1)(0.5, 3.0),
    "jvp of batches": lambda lib, xp: lib.vmap(lib.grad(forward(lib, xp)))(X, X),
    "jvps": lambda lib, xp: lib.grad(by_argument(lib, xp), argnums=(0, 1))(2.0, 3.0),
    "not differentiated": lambda lib, xp: by_argument(lib, xp)(2.0, 3.0),
    "an argument that is a function": lambda lib, xp: with_function(lib, xp)(1.0),
    "in a loop": lambda lib, xp: lib.grad(
        lambda x: (lib.lax if lib is jax else lib).fori_loop(0, 3, lambda i, c: forward(lib, xp)(c, x), 0.1)
    )(0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_jax(name: str) -> None:
    ours, theirs = CASES[name](sg, sg), CASES[name](jax, jnp)
    assert sg.tree_structure(ours) == sg.tree_structure(theirs)
    for one, other in zip(sg.tree_leaves(ours), sg.tree_leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_method_and_a_compiled_function_have_it() -> None:
    class Layer:
        rate = 2.0

        @partial(sg.custom_vjp, nondiff_argnums=(0,))
        def __call__(self, x: Any) -> Any:
            return x * self.rate

    Layer.__call__.defvjp(
        lambda self, x: (x * self.rate, x),
        lambda self, x, g: (g * 100.0,),
    )
    assert sg.function(sg.grad(Layer().__call__), engine="numpy")(3.0) == 100.0


def test_derivatives_that_use_the_function_end_with_an_error() -> None:
    slope = forward(sg, sg)
    for _ in range(8):
        slope = sg.grad(slope)
    with pytest.raises(sg.GradientError, match="custom_jvp: derivatives that use the function go to order 4"):
        slope(0.5, 3.0)


BAD = {
    "no function": (lambda: sg.custom_vjp(3), "custom_vjp: takes a function"),  # type: ignore[arg-type]
    "no derivative": (
        lambda: sg.grad(sg.custom_vjp(plain))(1.0),
        "plain has no derivative yet; call plain.defvjp",
    ),
    "no rule": (lambda: sg.grad(sg.custom_jvp(plain))(1.0), "define one with @plain.defjvp"),
    "no pair": (lambda: with_rules(lambda x: x, lambda kept, g: (g,)), "the forward function returns a pair"),
    "too many": (
        lambda: with_rules(lambda x: (x, x), lambda kept, g: (g, g)),
        "2 cotangents for 1 arguments",
    ),
    "an unknown name": (lambda: sg.custom_vjp(plain)(y=1.0), "takes x by position, not y"),
}


def plain(x: Any) -> Any:
    return x * x


def with_rules(forward: Any, backward: Any) -> Any:
    f = sg.custom_vjp(plain)
    f.defvjp(forward, backward)
    return sg.grad(f)(1.0)


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told(name: str) -> None:
    wrong, says = BAD[name]
    with pytest.raises(sg.StopgradError, match=says):
        wrong()
