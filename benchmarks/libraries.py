"""The libraries that the benchmarks compare, each behind the same small face, and the workloads they all run.

A workload is one plain function over a namespace with ``tanh``, ``sin``, ``matmul``, ``sum`` and ``stop``;
products and sums are Python's operators. A library takes a workload and answers with a :class:`Measured`: the
processor seconds for building the graph and for generating its gradient, and how many operations there are
then.

What is counted are operations that compute: inputs, parameters and constants are not. *live* are those from
which the results (the value, or the n-th derivative; and all gradients) are computed, *made* are all that the
graph holds.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

WIDTH, BATCH = 8, 4

# ------------------------------------------------------------------------------------------- workloads


@dataclass(frozen=True)
class Workload:
    """A scalar function of a list of tensors, and what is asked of it.

    *wrt* says with respect to which of the tensors it is differentiated, *order* how often.
    """

    shapes: Sequence[tuple[int, ...]]
    wrt: Sequence[int]
    function: Callable[[Any, Sequence[Any]], Any]
    order: int = 1


def links(xp: Any, x: Any, w: Any, b: Any, count: int) -> Any:
    """*count* elementwise operations, one after the other."""
    for i in range(count):
        kind = i % 4
        if kind == 0:
            x = xp.tanh(x)
        elif kind == 1:
            x = x * w
        elif kind == 2:
            x = xp.sin(x)
        else:
            x = x + b
    return x


def chain(n: int) -> Workload:
    """n elementwise operations, summed; gradient with respect to x."""
    return Workload([(WIDTH,)] * 3, [0], lambda xp, t: xp.sum(links(xp, *t, n)))


def mlp(layers: int) -> Workload:
    """tanh(x @ w + b), layer after layer, summed; gradients with respect to all weights and biases."""

    def function(xp: Any, tensors: Sequence[Any]) -> Any:
        x = tensors[0]
        for i in range(1, len(tensors), 2):
            x = xp.tanh(xp.matmul(x, tensors[i]) + tensors[i + 1])
        return xp.sum(x)

    return Workload(
        [(BATCH, WIDTH), *[(WIDTH, WIDTH), (WIDTH,)] * layers], range(1, 2 * layers + 1), function
    )


def fan_out(k: int) -> Workload:
    """The sum of k terms that all use x; gradient with respect to x."""

    def function(xp: Any, tensors: Sequence[Any]) -> Any:
        x, w = tensors
        total = x
        for _ in range(k):
            total = total + xp.sin(x * w)
        return xp.sum(total)

    return Workload([(WIDTH,)] * 2, [0], function)


def stopped(n: int) -> Workload:
    """A chain of n operations, nine tenths behind a stop; gradient with respect to w, used by both parts."""

    def function(xp: Any, tensors: Sequence[Any]) -> Any:
        x, w, b = tensors
        hidden = xp.stop(links(xp, x, w, b, n - n // 10))
        return xp.sum(links(xp, hidden, w, b, n // 10))

    return Workload([(WIDTH,)] * 3, [1], function)


def live_tenth(n: int) -> Workload:
    """What is live of :func:`stopped`, alone."""
    return Workload([(WIDTH,)] * 3, [1], lambda xp, t: xp.sum(links(xp, *t, n // 10)))


def derivative(order: int) -> Workload:
    """The derivative of this order of a chain of 20 scalar operations."""
    return Workload([()] * 3, [0], lambda xp, t: links(xp, *t, 20), order)


WORKLOADS = {
    "chain": chain,
    "mlp": mlp,
    "fan_out": fan_out,
    "stopped": stopped,
    "live_tenth": live_tenth,
    "derivative": derivative,
}

# ------------------------------------------------------------------------------------------- measuring


@dataclass
class Measured:
    """Processor seconds of this thread, and numbers of operations."""

    build: float
    gradient: float
    forward: int | None = None
    live: int | None = None
    made: int | None = None


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.thread_time()
    result = function()
    return time.thread_time() - start, result


def reached(roots: Iterable[Any], sources: Callable[[Any], Iterable[Any]]) -> list[Any]:
    """All nodes from which the roots are computed, themselves included."""
    found = {id(node): node for node in roots}
    stack = list(found.values())
    while stack:
        for source in sources(stack.pop()):
            if id(source) not in found:
                found[id(source)] = source
                stack.append(source)
    return list(found.values())


# ------------------------------------------------------------------------------------------- libraries


class Stopgrad:
    """``sg.gradients`` in a graph, at a recursion limit of 200."""

    recursion_limit = 200

    def __init__(self) -> None:
        import stopgrad as sg

        self.version = sg.__version__
        self.sg = sg
        self.xp = SimpleNamespace(
            tanh=sg.tanh, sin=sg.sin, matmul=sg.matmul, sum=sg.reduce_sum, stop=sg.stop_gradient
        )

    def inputs(self, work: Workload) -> tuple[Any, list[Any]]:
        graph = self.sg.Graph()
        with graph.as_default():
            return graph, [self.sg.placeholder(self.sg.float32, shape) for shape in work.shapes]

    def measure(self, work: Workload, count: bool) -> Measured:
        graph, inputs = self.inputs(work)
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(self.recursion_limit)
        try:
            build, y = timed(lambda: work.function(self.xp, inputs))
            forward = len(graph) - len(inputs)
            gradient, results = timed(lambda: self.differentiate(work, y, inputs))
        finally:
            sys.setrecursionlimit(before)
        measured = Measured(build, gradient, forward)
        if count:
            measured.live = self.computing(graph.subgraph_to(results))
            measured.made = self.computing(graph.operations)
        return measured

    def differentiate(self, work: Workload, y: Any, inputs: Sequence[Any]) -> list[Any]:
        xs = [inputs[i] for i in work.wrt]
        found = self.sg.gradients(y, xs)
        for _ in range(work.order - 1):
            found = self.sg.gradients(found[0], xs)
        return [y, *found] if work.order == 1 else found

    @staticmethod
    def computing(operations: Iterable[Any]) -> int:
        return sum(op.type not in ("Placeholder", "Parameter", "Const") for op in operations)

    def memory(self, work: Workload) -> dict[str, float]:
        """Bytes per operation, its output, operands, location and place in the graph included."""
        import tracemalloc

        gc.collect()
        tracemalloc.start()
        graph, inputs = self.inputs(work)
        start = tracemalloc.get_traced_memory()[0]
        y = work.function(self.xp, inputs)
        gc.collect()
        built = tracemalloc.get_traced_memory()[0]
        forward = len(graph) - len(inputs)
        results = self.differentiate(work, y, inputs)
        gc.collect()
        differentiated, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        made = len(graph) - len(inputs)
        del results
        return {
            "forward": (built - start) / forward,
            "both": (differentiated - start) / made,
            "peak": (peak - start) / made,
        }


class TensorFlow:
    """``tf.gradients`` in a ``tf.Graph``."""

    def __init__(self) -> None:
        import tensorflow as tf

        self.version = tf.__version__
        self.tf = tf
        self.xp = SimpleNamespace(
            tanh=tf.tanh, sin=tf.sin, matmul=tf.matmul, sum=tf.reduce_sum, stop=tf.stop_gradient
        )

    def measure(self, work: Workload, count: bool) -> Measured:
        graph = self.tf.Graph()
        with graph.as_default():
            inputs = [self.tf.compat.v1.placeholder(self.tf.float32, shape) for shape in work.shapes]
            build, y = timed(lambda: work.function(self.xp, inputs))
            forward = self.computing(graph.get_operations())
            gradient, results = timed(lambda: self.differentiate(work, y, inputs))
        measured = Measured(build, gradient, forward)
        if count:
            measured.live = self.computing(
                reached([r.op for r in results], lambda op: [*(x.op for x in op.inputs), *op.control_inputs])
            )
            measured.made = self.computing(graph.get_operations())
        return measured

    def differentiate(self, work: Workload, y: Any, inputs: Sequence[Any]) -> list[Any]:
        xs = [inputs[i] for i in work.wrt]
        found = self.tf.gradients(y, xs)
        for _ in range(work.order - 1):
            found = self.tf.gradients(found[0], xs)
        return [y, *found] if work.order == 1 else found

    @staticmethod
    def computing(operations: Iterable[Any]) -> int:
        return sum(op.type not in ("Placeholder", "Const") for op in operations)


class Functional:
    """For libraries that trace functions.

    The gradient's cost is that of tracing value and gradient, less that of tracing the value.
    """

    def measure(self, work: Workload, count: bool) -> Measured:
        inputs = [self.given(shape) for shape in work.shapes]
        build, forward = timed(lambda: self.trace(lambda *t: work.function(self.xp, t), inputs))
        both, result = timed(lambda: self.trace(self.differentiated(work), inputs))
        measured = Measured(build, both - build)
        if count:
            measured.forward = self.count(forward)[0]
            measured.live, measured.made = self.count(result)
        return measured

    def differentiated(self, work: Workload) -> Callable[..., Any]:
        def function(*tensors: Any) -> Any:
            return work.function(self.xp, tensors)

        if work.order == 1:
            return self.with_gradient(function, tuple(work.wrt))
        for _ in range(work.order):
            function = self.grad(function)
        return function

    xp: Any
    given: Callable[[tuple[int, ...]], Any]
    trace: Callable[[Callable[..., Any], Sequence[Any]], Any]
    count: Callable[[Any], tuple[int | None, int | None]]
    grad: Callable[..., Any]
    with_gradient: Callable[..., Any]


class Jax(Functional):
    """``jax.make_jaxpr``; equations, those inside others counted in place of the others."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp

        self.version = jax.__version__
        self.jax = jax
        self.xp = SimpleNamespace(
            tanh=jnp.tanh, sin=jnp.sin, matmul=jnp.matmul, sum=jnp.sum, stop=jax.lax.stop_gradient
        )
        self.grad = jax.grad
        self.with_gradient = jax.value_and_grad

    def given(self, shape: tuple[int, ...]) -> Any:
        return self.jax.ShapeDtypeStruct(shape, "float32")

    def trace(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        return self.jax.make_jaxpr(function)(*inputs).jaxpr

    def count(self, jaxpr: Any) -> tuple[int, int]:
        needed = {id(v) for v in jaxpr.outvars}
        live = made = 0
        for equation in reversed(jaxpr.eqns):
            inner = [
                getattr(p, "jaxpr", p)
                for p in equation.params.values()
                if hasattr(getattr(p, "jaxpr", p), "eqns")
            ]
            size = sum(self.count(j)[1] for j in inner) or 1
            made += size
            if any(id(v) in needed for v in equation.outvars):
                live += size
                needed.update(id(v) for v in equation.invars)
        return live, made


class Torch(Functional):
    """``make_fx`` of ``torch.func``'s transforms, which also computes; nodes that call a function."""

    def __init__(self) -> None:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        torch.set_num_threads(1)
        self.version = torch.__version__
        self.torch, self.make_fx = torch, make_fx
        self.xp = SimpleNamespace(
            tanh=torch.tanh, sin=torch.sin, matmul=torch.matmul, sum=torch.sum, stop=lambda x: x.detach()
        )
        self.grad = torch.func.grad

    def with_gradient(self, function: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
        return self.torch.func.grad_and_value(function, argnums=argnums)

    def given(self, shape: tuple[int, ...]) -> Any:
        return self.torch.full(shape, 0.5)

    def trace(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        return self.make_fx(function)(*inputs)

    def count(self, module: Any) -> tuple[int, int]:
        nodes = list(module.graph.nodes)
        live = reached([n for n in nodes if n.op == "output"], lambda n: n.all_input_nodes)
        return sum(n.op == "call_function" for n in live), sum(n.op == "call_function" for n in nodes)


class Mlx(Functional):
    """MLX, whose core is native; nodes of its dot export, which holds what is live."""

    def __init__(self) -> None:
        import mlx.core as mx

        mx.set_default_device(mx.cpu)
        self.version = mx.__version__
        self.mx = mx
        self.xp = SimpleNamespace(
            tanh=mx.tanh, sin=mx.sin, matmul=mx.matmul, sum=mx.sum, stop=mx.stop_gradient
        )
        self.grad = mx.grad

    def with_gradient(self, function: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
        return self.mx.value_and_grad(function, argnums=argnums)

    def given(self, shape: tuple[int, ...]) -> Any:
        array = self.mx.zeros(shape)
        self.mx.eval(array)
        return array

    def trace(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        return function(*inputs)

    def count(self, results: Any) -> tuple[int | None, int | None]:
        import io

        value, found = results if isinstance(results, tuple) else (results, ())
        text = io.StringIO()
        self.mx.export_to_dot(text, *[value, *(found if isinstance(found, (tuple, list)) else [found])])
        live = text.getvalue().count("shape=rectangle") or None
        return live, live


class PyTensor:
    """``pytensor.grad``, with Python's recursion limit raised far above its default; counts Apply nodes."""

    recursion_limit = 1_000_000

    def __init__(self) -> None:
        import pytensor
        import pytensor.tensor as pt
        from pytensor.gradient import disconnected_grad

        self.version = pytensor.__version__
        self.pytensor, self.pt = pytensor, pt
        self.xp = SimpleNamespace(
            tanh=pt.tanh, sin=pt.sin, matmul=pt.matmul, sum=pt.sum, stop=disconnected_grad
        )

    def measure(self, work: Workload, count: bool) -> Measured:
        inputs = [self.pt.tensor(dtype="float32", shape=shape) for shape in work.shapes]
        build, y = timed(lambda: work.function(self.xp, inputs))
        gradient, results = timed(lambda: self.differentiate(work, y, inputs))
        measured = Measured(build, gradient)
        if count:
            measured.forward = self.computing([y])
            measured.live = measured.made = self.computing(results)
        return measured

    def differentiate(self, work: Workload, y: Any, inputs: Sequence[Any]) -> list[Any]:
        xs = [inputs[i] for i in work.wrt]
        found = self.pytensor.grad(y, xs)
        for _ in range(work.order - 1):
            found = self.pytensor.grad(found[0], xs)
        return [y, *found] if work.order == 1 else found

    @staticmethod
    def computing(outputs: Sequence[Any]) -> int:
        applied = reached(
            [y.owner for y in outputs if y.owner], lambda node: [x.owner for x in node.inputs if x.owner]
        )
        return len(applied)


LIBRARIES = {
    "stopgrad": Stopgrad,
    "tensorflow": TensorFlow,
    "jax": Jax,
    "pytensor": PyTensor,
    "torch": Torch,
    "mlx": Mlx,
}
