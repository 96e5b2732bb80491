"""What stopgrad and its peers can do with stopped gradients, found out by running it.

    python benchmarks/peers_stop.py [--libraries stopgrad,tensorflow,jax,torch,pytensor] [--json out.json]

The peers are TensorFlow (graph mode), JAX, PyTorch and PyTensor. Every answer is computed: a check returns
its verdict together with the evidence. *yes*: the library does it; *partly*: by the user's own means, or for
some cases; *no*: it does something else, refuses, or has nothing for it. Where a library has no function for
something, that is checked by its signature or its names.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libraries
import numpy as np

QUESTIONS = {
    "reverse": "A stop in reverse mode: d/dx x·sg(x) = x",
    "forward": "A stop in forward mode",
    "higher": "A stop holds at every order: d²/dx² x²·sg(x) = 2x",
    "hidden": "Nothing is generated behind a stop",
    "graph": "The gradient is a graph, before any value is known",
    "absence": "No gradient: told apart why (stopped, not connected, not differentiable)",
    "explain": "The line that cut the gradient is named",
    "wrt": "A stop with respect to chosen tensors only",
    "switch": "A stop switched at run time, without building again",
    "argument": "Tensors held constant by an argument of the gradient call",
    "straight": "Straight-through with the exact forward value",
    "prevent": "A gate that makes asking for the gradient an error",
    "scale": "Gates that scale, reverse or clip a gradient",
    "nested": "A stop of a nested structure, other leaves untouched",
    "rewrite": "Gates survive rewriting before differentiating",
    "depth": "A chain of 10⁴ operations at Python's default recursion limit",
    "trace": "Compiled code holds no trace of a stop",
}
Answer = tuple[str, str]


def right(value: Any, expected: float, how: str) -> Answer:
    value = float(np.asarray(value))
    return ("yes" if value == expected else "no"), f"{how}: {value:g}"


def hidden(name: str) -> Answer:
    """How many operations the gradient of a chain of 1,000 with a stop behind the 900th takes.

    Compared with those for its live 100 alone.
    """
    library = libraries.LIBRARIES[name]()
    whole, alone = (library.measure(w(1_000), count=True) for w in (libraries.stopped, libraries.live_tenth))
    count, wanted = whole.made - whole.forward, alone.made - alone.forward
    return (
        "yes" if count <= 1.1 * wanted else "no"
    ), f"{count} operations for the gradient; the live part alone needs {wanted}"


def depth(name: str) -> Answer:
    library = libraries.LIBRARIES[name]()
    library.recursion_limit = sys.getrecursionlimit()
    library.measure(libraries.chain(10_000), count=False)
    return "yes", f"at a limit of {sys.getrecursionlimit()}"


def lacks(function: Callable[..., Any], name: str) -> Answer:
    parameters = list(inspect.signature(function).parameters)
    assert name not in parameters
    return "no", f"{function.__name__}({', '.join(parameters)})"


def inexact(common: Callable[[np.ndarray[Any, Any]], Any]) -> str:
    """How often the usual x + stop(hard(x) - x) misses the hard value, here a tenth of the sign."""
    x = np.random.default_rng(0).normal(0, 1, 10_000).astype(np.float32)
    wrong = np.mean(np.asarray(common(x)) != np.float32(0.1) * np.sign(x))
    return f"x + stop(h − x) misses h = 0.1·sign x in {wrong:.0%} of draws"


# ------------------------------------------------------------------------------------------- libraries


class Stopgrad:
    def __init__(self) -> None:
        import stopgrad as sg

        self.sg, self.version = sg, sg.__version__

    def scalars(self, count: int) -> list[Any]:
        with self.sg.Graph().as_default():
            return [self.sg.placeholder(self.sg.float32) for _ in range(count)]

    def reverse(self) -> Answer:
        return right(self.sg.grad(lambda x: x * self.sg.stop_gradient(x))(5.0), 5.0, "sg.grad at 5")

    def forward(self) -> Answer:
        return right(
            self.sg.jvp(lambda x: x * self.sg.stop_gradient(x), (5.0,), (1.0,))[1], 5.0, "sg.jvp at 5"
        )

    def higher(self) -> Answer:
        return right(self.sg.grad(self.sg.grad(lambda x: x * x * self.sg.stop_gradient(x)))(3.0), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("stopgrad")

    def graph(self) -> Answer:
        (x,) = self.scalars(1)
        y = self.sg.tanh(x)
        before = len(x.graph)
        (dx,) = self.sg.gradients(y, [x])
        return (
            "yes",
            f"sg.gradients adds {len(x.graph) - before} operations to the graph; {dx.op.type} is the last",
        )

    def absence(self) -> Answer:
        x, z = self.scalars(2)
        ys = [self.sg.stop_gradient(x) * 1.0, z * 1.0, self.sg.floor(x)]
        found = [self.sg.explain(y, [x])[x].status for y in ys]
        return ("yes" if len(set(found)) == 3 else "no"), "sg.explain: " + ", ".join(found)

    def explain(self) -> Answer:
        (x,) = self.scalars(1)
        line = inspect.currentframe().f_lineno + 1
        y = self.sg.stop_gradient(x) * 1.0
        (cut,) = self.sg.explain(y, [x])[x].cuts
        return (
            "yes" if cut.location.line == line else "no"
        ), f"cuts[0].location: {Path(cut.location.file).name}:{cut.location.line}"

    def wrt(self) -> Answer:
        a, b = self.scalars(2)
        da, db = self.sg.gradients(self.sg.stop_gradient(a * b, wrt=[a]), [a, b])
        return ("yes" if da is None and db is not None else "no"), "stop_gradient(a·b, wrt=[a])"

    def switch(self) -> Answer:
        (x,) = self.scalars(1)
        with x.graph.as_default():
            off = self.sg.placeholder(self.sg.bool)
        (dx,) = self.sg.gradients(self.sg.stop_gradient(x * x, when=off), [x])
        with self.sg.Session(x.graph) as session:
            found = [float(session.run(dx, {x: 3.0, off: value})) for value in (False, True)]
        return (
            "yes" if found == [6.0, 0.0] else "no"
        ), f"stop_gradient(x·x, when=flag): {found[0]:g} and {found[1]:g}"

    def argument(self) -> Answer:
        (x,) = self.scalars(1)
        y = x * 2.0
        (dx,) = self.sg.gradients(y * x, [x], stop_gradients=[y])
        with self.sg.Session(x.graph) as session:
            return right(session.run(dx, {x: 3.0}), 6.0, "gradients(…, stop_gradients=[2x]) of 2x·x at 3")

    def straight(self) -> Answer:
        x = np.random.default_rng(0).normal(0, 1, 10_000).astype(np.float32)
        value, pull = self.sg.vjp(lambda x: self.sg.straight_through(self.sg.sign(x), x), x)
        exact = np.array_equal(value, np.sign(x)) and np.all(pull(np.ones_like(x))[0] == 1)
        return ("yes" if exact else "no"), "straight_through(sign x, x) is sign x in all draws"

    def prevent(self) -> Answer:
        try:
            self.sg.grad(lambda x: self.sg.prevent_gradient(x, "use the other loss"))(3.0)
        except self.sg.GradientError as error:
            told = "use the other loss" in str(error) and str(error).count(Path(__file__).name)
            return (
                "yes" if told else "partly"
            ), f"GradientError with the message and {told} lines of the user's file"
        return "no", "no error"

    def scale(self) -> Answer:
        gates = [
            lambda x: self.sg.scale_gradient(x, 3.0),
            self.sg.reverse_gradient,
            lambda x: self.sg.clip_gradient(x, -0.5, 0.5),
        ]
        found = [float(self.sg.grad(gate)(3.0)) for gate in gates]
        return ("yes" if found == [3.0, -1.0, 0.5] else "no"), f"scale, reverse, clip: {found}"

    def nested(self) -> Answer:
        (x,) = self.scalars(1)
        found = self.sg.stop_gradient({"a": x, "b": [x, 7, "name"]})
        right = found["a"].op.type == "StopGradient" and found["b"][1:] == [7, "name"]
        return ("yes" if right else "no"), "a dict of a tensor and a list with a number and a string"

    def rewrite(self) -> Answer:
        from stopgrad.rewrite import fold, merge, rewrite, simplify

        gates = [
            (lambda x: self.sg.stop_gradient(x) * x, 5.0),
            (lambda x: self.sg.scale_gradient(x, 3.0) * x, 20.0),
            (lambda x: self.sg.clip_gradient(x, -1.0, 1.0) * self.sg.clip_gradient(x, -2.0, 2.0), 3.0),
        ]
        found = []
        for gate, _ in gates:
            (x,) = self.scalars(1)
            done = rewrite([gate(x)], [x], [simplify, merge, fold])
            (dx,) = self.sg.gradients(done.outputs[0], done.inputs)
            with self.sg.Session(dx.graph) as session:
                found.append(float(session.run(dx, {done.inputs[0]: 5.0})))
        return (
            "yes" if found == [v for _, v in gates] else "no"
        ), f"stop, scale, two clips at 5, after simplify, merge, fold: {found}"

    def depth(self) -> Answer:
        return depth("stopgrad")

    def trace(self) -> Answer:
        from stopgrad.rewrite import prepare

        (x,) = self.scalars(1)
        kinds = [op.type for op in prepare([x * self.sg.stop_gradient(x)], [x]).outputs[0].graph.operations]
        return ("no" if "StopGradient" in kinds else "yes"), f"what is compiled: {', '.join(kinds)}"


class TensorFlow:
    def __init__(self) -> None:
        import tensorflow as tf

        self.tf, self.version = tf, tf.__version__

    def at(self, build: Callable[[Any], Any], value: Any, shape: tuple[Any, ...] = ()) -> Any:
        """Build in a graph, and run what was built."""
        with self.tf.Graph().as_default(), self.tf.compat.v1.Session() as session:
            x = self.tf.compat.v1.placeholder(self.tf.float32, shape)
            return session.run(build(x), {x: value})

    def reverse(self) -> Answer:
        return right(
            self.at(lambda x: self.tf.gradients(x * self.tf.stop_gradient(x), [x])[0], 5.0),
            5.0,
            "tf.gradients at 5",
        )

    def forward(self) -> Answer:
        @self.tf.function
        def f(x: Any) -> Any:
            with self.tf.autodiff.ForwardAccumulator(x, self.tf.constant(1.0)) as accumulator:
                y = x * self.tf.stop_gradient(x)
            return accumulator.jvp(y)

        return right(f(self.tf.constant(5.0)), 5.0, "ForwardAccumulator in a tf.function, at 5")

    def higher(self) -> Answer:
        def build(x: Any) -> Any:
            (first,) = self.tf.gradients(x * x * self.tf.stop_gradient(x), [x])
            return self.tf.gradients(first, [x])[0]

        return right(self.at(build, 3.0), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("tensorflow")

    def graph(self) -> Answer:
        with self.tf.Graph().as_default() as graph:
            x = self.tf.compat.v1.placeholder(self.tf.float32, ())
            y = self.tf.tanh(x)
            before = len(graph.get_operations())
            self.tf.gradients(y, [x])
            return "yes", f"tf.gradients adds {len(graph.get_operations()) - before} operations to the graph"

    def absence(self) -> Answer:
        with self.tf.Graph().as_default():
            x, z = (self.tf.compat.v1.placeholder(self.tf.float32, ()) for _ in range(2))
            ys = [self.tf.stop_gradient(x) * 1.0, z * 1.0, self.tf.floor(x)]
            found = [self.tf.gradients(y, [x])[0] for y in ys]
        return ("no" if found == [None] * 3 else "partly"), f"tf.gradients: {', '.join(map(str, found))}"

    def explain(self) -> Answer:
        with self.tf.Graph().as_default():
            x = self.tf.compat.v1.placeholder(self.tf.float32, ())
            found = self.tf.gradients(self.tf.stop_gradient(x) * 1.0, [x])
        return "no", f"tf.gradients: {found[0]}, and nothing else"

    def wrt(self) -> Answer:
        return lacks(self.tf.stop_gradient, "wrt")

    def switch(self) -> Answer:
        with self.tf.Graph().as_default(), self.tf.compat.v1.Session() as session:
            x, off = (
                self.tf.compat.v1.placeholder(self.tf.float32, ()),
                self.tf.compat.v1.placeholder(self.tf.bool, ()),
            )
            (dx,) = self.tf.gradients(self.tf.where(off, self.tf.stop_gradient(x * x), x * x), [x])
            found = [float(session.run(dx, {x: 3.0, off: value})) for value in (False, True)]
        return (
            "partly" if found == [6.0, 0.0] else "no"
        ), "no gate; tf.where(flag, stop_gradient(y), y) does it, and computes a choice"

    def argument(self) -> Answer:
        def build(x: Any) -> Any:
            y = x * 2.0
            return self.tf.gradients(y * x, [x], stop_gradients=[y])[0]

        return right(self.at(build, 3.0), 6.0, "tf.gradients(…, stop_gradients=[2x]) of 2x·x at 3")

    def straight(self) -> Answer:
        x = np.random.default_rng(0).normal(0, 1, 10_000).astype(np.float32)

        def build(t: Any) -> Any:
            y = self.tf.grad_pass_through(self.tf.sign)(t)
            return [y, self.tf.gradients(y, [t])[0], t + self.tf.stop_gradient(0.1 * self.tf.sign(t) - t)]

        value, gradient, common = self.at(build, x, (None,))
        exact = np.array_equal(value, np.sign(x)) and np.all(gradient == 1)
        return ("yes" if exact else "no"), f"tf.grad_pass_through; {inexact(lambda _: common)}"

    def prevent(self) -> Answer:
        try:
            self.at(
                lambda x: self.tf.gradients(
                    self.tf.raw_ops.PreventGradient(input=x, message="use the other loss"), [x]
                ),
                3.0,
            )
        except LookupError as error:
            here = Path(__file__).name in str(error)
            return (
                ("yes" if here else "partly"),
                "raw_ops.PreventGradient: LookupError with the message, "
                f"{'with' if here else 'without'} a line",
            )
        return "no", "no error"

    def scale(self) -> Answer:
        names = [n for n in dir(self.tf) if "grad" in n.lower()]

        @self.tf.custom_gradient
        def reverse(x: Any) -> Any:
            return self.tf.identity(x), lambda g: -g

        value = float(self.at(lambda x: self.tf.gradients(reverse(x), [x])[0], 3.0))
        assert not any(part in n for n in names for part in ("scale", "reverse", "clip"))
        return (
            "partly" if value == -1.0 else "no"
        ), f"by hand, with tf.custom_gradient; built in: {', '.join(names)}"

    def nested(self) -> Answer:
        with self.tf.Graph().as_default():
            x = self.tf.compat.v1.placeholder(self.tf.float32, ())
            self.tf.stop_gradient({"a": x, "b": [x]})
        return "yes", "a dict of a tensor and a list"

    def rewrite(self) -> Answer:
        @self.tf.function
        def f(x: Any) -> Any:
            return x * self.tf.stop_gradient(x)

        x = self.tf.constant(5.0)
        with self.tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return right(tape.gradient(y, x), 5.0, "gradient of a compiled tf.function at 5")

    def depth(self) -> Answer:
        return depth("tensorflow")

    def trace(self) -> Answer:
        tf = self.tf

        def f(x: Any) -> Any:
            return x * tf.stop_gradient(x)

        text = tf.function(f, jit_compile=True).experimental_get_compiler_ir(tf.constant(5.0))(
            stage="optimized_hlo"
        )
        kinds = [
            op.type for op in tf.function(f).get_concrete_function(tf.TensorSpec(())).graph.get_operations()
        ]
        under_xla = "stop" not in text.lower().replace("peers_stop", "")
        verdict = "yes" if "StopGradient" not in kinds else "partly" if under_xla else "no"
        return (
            verdict,
            f"none under XLA: {under_xla}; the graph that runs otherwise holds a StopGradient operation: "
            f"{'StopGradient' in kinds}",
        )


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


class Torch:
    def __init__(self) -> None:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        self.torch, self.make_fx, self.version = torch, make_fx, torch.__version__

    def at(self, value: float) -> Any:
        return self.torch.tensor(value)

    def reverse(self) -> Answer:
        return right(
            self.torch.func.grad(lambda x: x * x.detach())(self.at(5.0)),
            5.0,
            "torch.func.grad at 5, with detach",
        )

    def forward(self) -> Answer:
        return right(
            self.torch.func.jvp(lambda x: x * x.detach(), (self.at(5.0),), (self.at(1.0),))[1],
            5.0,
            "torch.func.jvp at 5",
        )

    def higher(self) -> Answer:
        grad = self.torch.func.grad
        return right(grad(grad(lambda x: x * x * x.detach()))(self.at(3.0)), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("torch")

    def graph(self) -> Answer:
        module = self.make_fx(self.torch.func.grad(self.torch.tanh))(self.at(0.5))
        count = sum(n.op == "call_function" for n in module.graph.nodes)
        return "partly", f"make_fx of torch.func.grad: {count} nodes; it runs the function on an example"

    def absence(self) -> Answer:
        found = []
        for f in (lambda x, z: x.detach() * z, lambda x, z: z * 1.0, lambda x, z: self.torch.floor(x)):
            x, z = (self.torch.tensor(v, requires_grad=True) for v in (3.0, 4.0))
            (g,) = self.torch.autograd.grad(f(x, z), [x], allow_unused=True)
            found.append(None if g is None else float(g))
        return (
            "partly" if len(set(found)) > 1 else "no"
        ), f"autograd.grad: {', '.join(map(str, found))}, without a reason"

    def explain(self) -> Answer:
        x = self.torch.tensor(3.0, requires_grad=True)
        try:
            self.torch.autograd.grad(x.detach() * 1.0, [x])
        except RuntimeError as error:
            return ("yes" if Path(__file__).name in str(error) else "no"), f"RuntimeError: {error}"[:110]
        return "no", "no error"

    def wrt(self) -> Answer:
        try:
            self.torch.Tensor.detach(self.at(3.0), wrt=[self.at(1.0)])
        except TypeError as error:
            return "no", f"detach: {error}"
        return "yes", "detach(wrt=…)"

    def switch(self) -> Answer:
        f = self.torch.func.grad(lambda x, off: self.torch.where(off, (x * x).detach(), x * x))
        found = [float(f(self.at(3.0), self.torch.tensor(value))) for value in (False, True)]
        return (
            "partly" if found == [6.0, 0.0] else "no"
        ), "no gate; torch.where(flag, y.detach(), y) does it, and computes a choice"

    def argument(self) -> Answer:
        return lacks(self.torch.autograd.grad, "stop_gradients")

    def straight(self) -> Answer:
        torch = self.torch

        class Hard(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return torch.sign(x)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        x = torch.tensor(100.1, requires_grad=True)
        by_hand = float(torch.autograd.grad(Hard.apply(x), x)[0]) == 1.0 and float(Hard.apply(x)) == 1.0

        def common(values: np.ndarray[Any, Any]) -> Any:
            t = torch.from_numpy(values)
            return (t + (0.1 * torch.sign(t) - t).detach()).numpy()

        return ("partly" if by_hand else "no"), f"by hand, with autograd.Function; {inexact(common)}"

    def prevent(self) -> Answer:
        names = [
            n
            for n in dir(self.torch) + dir(self.torch.Tensor) + dir(self.torch.autograd)
            if "prevent" in n.lower()
        ]
        return ("no" if not names else "yes"), f"names with 'prevent': {names or 'none'}"

    def scale(self) -> Answer:
        found = []
        for change in (lambda g: 3.0 * g, lambda g: -g, lambda g: g.clamp(-0.5, 0.5)):
            x = self.torch.tensor(3.0, requires_grad=True)
            y = x * 1.0
            y.register_hook(change)
            found.append(float(self.torch.autograd.grad(y, x)[0]))
        return (
            "partly" if found == [3.0, -1.0, 0.5] else "no"
        ), f"by hand, with Tensor.register_hook: {found}"

    def nested(self) -> Answer:
        try:
            self.torch.detach({"a": self.at(1.0)})
        except TypeError as error:
            return "no", f"TypeError: {error}"[:110]
        return "yes", "a dict"

    def rewrite(self) -> Answer:
        module = self.make_fx(lambda x: x * x.detach())(self.at(5.0))
        module.graph.eliminate_dead_code()
        module.recompile()
        return right(
            self.torch.func.grad(module)(self.at(5.0)),
            5.0,
            "gradient of the traced, dead-code-eliminated module at 5",
        )

    def depth(self) -> Answer:
        return depth("torch")

    def trace(self) -> Answer:
        nodes = [
            str(n.target)
            for n in self.make_fx(lambda x: x * x.detach())(self.at(5.0)).graph.nodes
            if n.op == "call_function"
        ]
        return ("no" if any("detach" in n for n in nodes) else "yes"), f"the traced graph: {', '.join(nodes)}"


class PyTensor:
    def __init__(self) -> None:
        import pytensor
        import pytensor.gradient

        self.pytensor, self.pt, self.g, self.version = (
            pytensor,
            pytensor.tensor,
            pytensor.gradient,
            pytensor.__version__,
        )
        self.stop = pytensor.gradient.disconnected_grad

    def reverse(self) -> Answer:
        x = self.pt.scalar("x")
        return right(
            self.g.grad(x * self.stop(x), x).eval({x: 5.0}), 5.0, "grad at 5, with disconnected_grad"
        )

    def forward(self) -> Answer:
        x = self.pt.scalar("x")
        return right(
            self.g.pushforward(x * self.stop(x), x, self.pt.constant(1.0)).eval({x: 5.0}),
            5.0,
            "pushforward at 5",
        )

    def higher(self) -> Answer:
        x = self.pt.scalar("x")
        return right(self.g.grad(self.g.grad(x * x * self.stop(x), x), x).eval({x: 3.0}), 6.0, "at 3")

    def hidden(self) -> Answer:
        return hidden("pytensor")

    def graph(self) -> Answer:
        x = self.pt.scalar("x")
        count = libraries.PyTensor.computing([self.g.grad(self.pt.tanh(x), x)])
        return "yes", f"grad: {count} Apply nodes"

    def absence(self) -> Answer:
        x, z = self.pt.scalars("x", "z")
        ys = [self.stop(x) * 1.0, z * 1.0, self.pt.floor(x)]
        found = [
            self.g.grad(y, x, disconnected_inputs="ignore", return_disconnected="disconnected") for y in ys
        ]
        told = [
            "disconnected" if isinstance(f.type, self.g.DisconnectedType) else str(float(f.eval({x: 3.0})))
            for f in found
        ]
        return ("partly" if len(set(told)) > 1 else "no"), f"grad: {', '.join(told)}"

    def explain(self) -> Answer:
        x = self.pt.scalar("x")
        line = inspect.currentframe().f_lineno + 1
        y = self.stop(x) * 1.0
        try:
            self.g.grad(y, x)
        except self.g.DisconnectedInputError as error:
            shown = f"line {line}" in str(error)
            made = f"line {line - 2}" in str(error)
            return (
                ("yes" if shown else "no"),
                f"DisconnectedInputError, with the line that made x: {made}; with the line of the stop: "
                f"{shown}",
            )
        return "no", "no error"

    def wrt(self) -> Answer:
        return lacks(self.stop, "wrt")

    def switch(self) -> Answer:
        x, off = self.pt.scalar("x"), self.pt.scalar("off", dtype="bool")
        dx = self.g.grad(self.pt.where(off, self.stop(x * x), x * x), x)
        found = [float(dx.eval({x: 3.0, off: value})) for value in (False, True)]
        return (
            "partly" if found == [6.0, 0.0] else "no"
        ), "no gate; pt.where(flag, disconnected_grad(y), y) does it, and computes a choice"

    def argument(self) -> Answer:
        x = self.pt.scalar("x")
        y = x * 2.0
        return right(
            self.g.grad(y * x, x, consider_constant=[y]).eval({x: 3.0}),
            6.0,
            "grad(…, consider_constant=[2x]) of 2x·x at 3",
        )

    def straight(self) -> Answer:
        from pytensor.compile.builders import OpFromGraph

        t = self.pt.fvector("t")
        hard = OpFromGraph([t], [self.pt.sgn(t)], pullback=lambda inputs, outputs, gs: gs)
        y = hard(t)
        value, gradient = self.pytensor.function([t], [y, self.g.grad(y.sum(), t)])(
            np.array([100.1, -3.7], "float32")
        )
        by_hand = value.tolist() == [1.0, -1.0] and gradient.tolist() == [1.0, 1.0]
        common = self.pytensor.function(
            [t], t + self.stop(np.float32(0.1) * self.pt.sgn(t) - t), mode="FAST_COMPILE"
        )
        return ("partly" if by_hand else "no"), f"by hand, with OpFromGraph; {inexact(common)}"

    def prevent(self) -> Answer:
        x = self.pt.scalar("x")
        try:
            self.g.grad(self.g.undefined_grad(x) * 1.0, x)
        except self.g.NullTypeGradError as error:
            return (
                "partly",
                f"undefined_grad: {type(error).__name__}, with a text of its own: "
                f"{Path(__file__).name not in str(error)}",
            )
        return "no", "no error"

    def scale(self) -> Answer:
        x = self.pt.scalar("x")
        gates = [
            lambda x: self.g.grad_scale(x, 3.0),
            lambda x: self.g.grad_scale(x, -1.0),
            lambda x: self.g.grad_clip(x, -0.5, 0.5),
        ]
        found = [float(self.g.grad(gate(x), x).eval({x: 3.0})) for gate in gates]
        return ("yes" if found == [3.0, -1.0, 0.5] else "no"), f"grad_scale, grad_clip: {found}"

    def nested(self) -> Answer:
        try:
            self.stop({"a": self.pt.scalar("x")})
        except (TypeError, AttributeError) as error:
            return "no", f"{type(error).__name__}: {error}"[:110]
        return "yes", "a dict"

    def rewrite(self) -> Answer:
        from pytensor.graph.rewriting.utils import rewrite_graph

        x = self.pt.scalar("x")
        gates = [
            self.stop(x) * x,
            self.g.grad_scale(x, 3.0) * x,
            self.g.grad_clip(x, -1.0, 1.0) * self.g.grad_clip(x, -2.0, 2.0),
        ]
        wanted = [float(self.g.grad(y, x).eval({x: 5.0})) for y in gates]
        found = [
            float(self.g.grad(rewrite_graph(y, include=("canonicalize", "specialize")), x).eval({x: 5.0}))
            for y in gates
        ]
        return (
            "yes" if found == wanted else "no"
        ), f"stop, scale, two clips at 5: {wanted}; after rewriting: {found}"

    def depth(self) -> Answer:
        return depth("pytensor")

    def trace(self) -> Answer:
        x = self.pt.scalar("x")
        nodes = [
            str(n.op)
            for n in self.pytensor.function([x], x * self.stop(x), mode="FAST_RUN").maker.fgraph.toposort()
        ]
        return ("no" if any("Disconnected" in n for n in nodes) else "yes"), f"compiled: {', '.join(nodes)}"


LIBRARIES = {"stopgrad": Stopgrad, "tensorflow": TensorFlow, "jax": Jax, "torch": Torch, "pytensor": PyTensor}

# ------------------------------------------------------------------------------------------- reporting


def answer(name: str) -> dict[str, Any]:
    """All answers of one library. A check that raises has been refused: no."""
    warnings.simplefilter("ignore")
    library = LIBRARIES[name]()
    found: dict[str, Any] = {}
    for question in QUESTIONS:
        try:
            found[question] = getattr(library, question)()
        except (Exception, RecursionError) as error:
            text = " ".join(str(error).split())
            found[question] = ("no", f"{type(error).__name__}: {text}"[:110])
    return {"version": library.version, "answers": found}


def ask(name: str) -> dict[str, Any] | None:
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--answer", name], capture_output=True, text=True, env=environment
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"{name}: left out: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.answer:
        print(json.dumps(answer(options.answer)))
        return

    asked = {name: ask(name) for name in options.libraries.split(",")}
    found = {name: result for name, result in asked.items() if result is not None}
    print("| |" + "".join(f" {name} {result['version']} |" for name, result in found.items()))
    print("|---|" + "---|" * len(found))
    for question, text in QUESTIONS.items():
        print(f"| {text} |" + "".join(f" {result['answers'][question][0]} |" for result in found.values()))
    for name, result in found.items():
        print(f"\n{name} {result['version']}\n")
        for question, text in QUESTIONS.items():
            verdict, evidence = result["answers"][question]
            print(f"- {text}: **{verdict}**. {evidence}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
