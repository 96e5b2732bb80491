"""What JAX answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stops.questions import Answer, depth, hidden, inexact, lacks, right


class Jax:
    def __init__(self) -> None:
        import jax

        self.jax, self.jnp, self.stop, self.version = jax, jax.numpy, jax.lax.stop_gradient, jax.__version__

    def reverse(self) -> Answer:
        return right(self.jax.grad(lambda x: x * self.stop(x))(5.0), 5.0, "jax.grad at 5")

    def forward(self) -> Answer:
        return right(self.jax.jvp(lambda x: x * self.stop(x), (5.0,), (1.0,))[1], 5.0, "jax.jvp at 5")

    def higher(self) -> Answer:
        return right(self.jax.grad(self.jax.grad(lambda x: x * x * self.stop(x)))(3.0), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("jax")

    def graph(self) -> Answer:
        equations = self.jax.make_jaxpr(self.jax.grad(self.jnp.tanh))(
            self.jax.ShapeDtypeStruct((), "float32")
        ).eqns
        return "yes", f"make_jaxpr of jax.grad, from a shape: {len(equations)} equations"

    def absence(self) -> Answer:
        functions = [lambda x, z: self.stop(x) * 1.0, lambda x, z: z * 1.0, lambda x, z: self.jnp.floor(x)]
        found = [float(self.jax.grad(f)(3.0, 4.0)) for f in functions]
        return ("no" if found == [0.0] * 3 else "partly"), f"jax.grad: {found}"

    def explain(self) -> Answer:
        return "no", f"jax.grad: {float(self.jax.grad(lambda x: self.stop(x) * 1.0)(3.0))}, and nothing else"

    def wrt(self) -> Answer:
        return lacks(self.stop, "wrt")

    def switch(self) -> Answer:
        f = self.jax.jit(self.jax.grad(lambda x, off: self.jnp.where(off, self.stop(x * x), x * x)))
        found = [float(f(3.0, value)) for value in (False, True)]
        return (
            "partly" if found == [6.0, 0.0] else "no"
        ), "no gate; jnp.where(flag, stop_gradient(y), y) does it, and computes a choice"

    def argument(self) -> Answer:
        return lacks(self.jax.grad, "stop_gradients")

    def straight(self) -> Answer:
        @self.jax.custom_jvp
        def hard(x: Any) -> Any:
            return self.jnp.sign(x)

        hard.defjvp(lambda primals, tangents: (hard(*primals), tangents[0]))
        by_hand = float(self.jax.grad(hard)(100.1)) == 1.0 and float(hard(100.1)) == 1.0
        return (
            "partly" if by_hand else "no"
        ), f"by hand, with custom_jvp; {inexact(lambda x: x + self.stop(0.1 * self.jnp.sign(x) - x))}"

    def prevent(self) -> Answer:
        names = [
            n
            for m in (self.jax, self.jax.lax)
            for n in dir(m)
            if "prevent" in n.lower() or "grad" in n.lower()
        ]
        assert not any("prevent" in n for n in names)
        return "no", f"built in: {', '.join(names)}"

    def scale(self) -> Answer:
        names = [n for m in (self.jax, self.jax.lax) for n in dir(m) if "grad" in n.lower()]

        @self.jax.custom_vjp
        def reverse(x: Any) -> Any:
            return x

        reverse.defvjp(lambda x: (x, None), lambda _, g: (-g,))
        assert not any(part in n for n in names for part in ("scale", "reverse", "clip"))
        return (
            "partly" if float(self.jax.grad(reverse)(3.0)) == -1.0 else "no"
        ), f"by hand, with custom_vjp; built in: {', '.join(names)}"

    def nested(self) -> Answer:
        self.stop({"a": 1.0, "b": [2.0, 7]})
        try:
            self.stop({"a": 1.0, "b": [2.0, "name"]})
        except TypeError as error:
            return "partly", f"a dict, a list, numbers; of a string: TypeError: {error}"[:120]
        return "yes", "a dict of a tensor and a list with a number and a string"

    def rewrite(self) -> Answer:
        return right(
            self.jax.grad(self.jax.jit(lambda x: x * self.stop(x)))(5.0),
            5.0,
            "gradient of a jitted function at 5",
        )

    def depth(self) -> Answer:
        return depth("jax")

    def trace(self) -> Answer:
        def hlo(f: Callable[[Any], Any]) -> str:
            return self.jax.jit(f).lower(1.0).as_text()

        same = hlo(lambda x: x * self.stop(x)) == hlo(lambda x: x * x)
        return (
            "yes" if same else "no"
        ), "the lowered text is that of the function without the stop" if same else "the lowered text differs"
