"""A graph as a function of JAX arrays, whose derivatives for JAX come from our generator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero, zero_from_primal

from stopgrad.base.locks import holding
from stopgrad.engines.xla import jax_namespace
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import program
from stopgrad.interop.jax.callable.linear import Linear, apply_linear
from stopgrad.interop.jax.callable.narrow import narrowed
from stopgrad.interop.jax.callable.partitioning import Parted, placeholder_like
from stopgrad.rewrite import formed, prepare, rewrite
from stopgrad.rewrite.forms import FORMS
from stopgrad.rewrite.rolling import roll
from stopgrad.transforms.gradients.reach import body_masks
from stopgrad.transforms.gradients.reverse import gradients

Flags = tuple[bool, ...]


class _Backend:
    """The backend of JAX's NumPy, for arrays and tracers alike."""

    name = "xla"
    namespace = jax_namespace()

    def array(self, value: jax.Array, dtype: np.dtype[Any]) -> jax.Array:
        if isinstance(value, jax.Array) and value.dtype == dtype and not value.weak_type:
            return value
        return jnp.asarray(value, dtype)


_BACKEND = _Backend()


class Computation:
    """A graph as a function of JAX arrays: ``computation(*arrays)`` is a tuple of arrays.

    Its derivatives, of every order, are graphs that our generator makes, and again computations. They are
    made when JAX asks for them.

    Args:
        name: its name in JAX.
        inputs: of a graph.
        outputs: what is computed from them; at least one.
    """

    inputs: tuple[Output, ...]
    outputs: tuple[Output, ...]

    def __init__(self, name: str, inputs: Sequence[Output], outputs: Sequence[Output]) -> None:
        self.name = name
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._compiled: Callable[..., Any] | None = None
        self._derivatives: dict[Flags, Derivative | None] = {}
        self._lock = threading.RLock()
        self._function = jax.custom_jvp(_named(self._computed, name))
        self._function.defjvp(self._moved, symbolic_zeros=True)

    def __call__(self, *arrays: jax.Array) -> tuple[Any, ...]:
        results: tuple[Any, ...] = self._function(*arrays)
        return results

    def _computed(self, *arrays: jax.Array) -> tuple[Any, ...]:
        run = self._compiled
        if run is None:
            run = self._compiled = jax.jit(_named(_interpreted(self.inputs, self.outputs), self.name))
        results: tuple[Any, ...] = run(*arrays)
        return results

    def _moved(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """JAX's JVP rule: the values, and their tangents by a linear map that JAX can also transpose."""
        live = tuple(
            [x.type.differentiable and _moves(t) for x, t in zip(self.inputs, tangents, strict=True)]
        )
        derivative = holding(self._lock, self._derivative, live)
        if derivative is None:
            values = self(*primals)
            return values, tuple(map(_zero, values))
        computed = derivative.forward(*primals)
        values = computed[: len(self.outputs)]
        residuals = (*compress(primals, derivative.used), *[computed[i] for i in derivative.saved])
        moving = [t for t, is_live in zip(tangents, live, strict=True) if is_live]
        pushed = iter(apply_linear(derivative.linear, residuals, moving))
        return values, tuple(
            [next(pushed) if moves else _zero(y) for y, moves in zip(values, derivative.moves, strict=True)]
        )

    def _derivative(self, live: Flags) -> Derivative | None:
        if live not in self._derivatives:
            self._derivatives[live] = _derived(self, live)
        return self._derivatives[live]


class Derivative:
    """The derivative of a computation with respect to some of its inputs.

    Attributes:
        forward: computes the results, and what else the gradient uses.
        used: the inputs that the gradient uses.
        saved: the results of *forward* that the gradient uses.
        moves: the results of the computation that depend on those inputs, as far as gates let them.
        linear: the map from the inputs' tangents to those of these results.
    """

    forward: Computation
    used: Sequence[bool]
    saved: Sequence[int]
    moves: Sequence[bool]
    linear: Linear

    def __init__(
        self,
        forward: Computation,
        used: Sequence[bool],
        saved: Sequence[int],
        moves: Sequence[bool],
        linear: Linear,
    ) -> None:
        self.forward, self.used, self.saved = forward, used, saved
        self.moves, self.linear = moves, linear


def _derived(computation: Computation, live: Flags) -> Derivative | None:
    """The derivative with respect to live inputs; None if no result depends on these."""
    inputs, outputs = computation.inputs, computation.outputs
    live_mask = sum(1 << k for k, is_live in enumerate(live) if is_live)
    moves = [bool(mask & live_mask) for mask in body_masks(Body(outputs[0].op.graph, inputs, outputs))]
    if not any(moves):
        return None
    parted = Parted(inputs, outputs, live, moves)
    places = {y: i for i, y in enumerate(parted.outputs)}
    computed = list(parted.outputs)
    for x in parted.saved:
        if x not in places:
            places[x] = len(computed)
            computed.append(x)
    forward = computation
    if len(computed) > len(outputs):
        forward = Computation(computation.name, parted.inputs, computed)
    positions = [places[x] for x in parted.saved]
    return Derivative(forward, parted.used, positions, moves, _Differential(computation.name, parted))


class _Differential(Linear):
    """The derivative of a graph as a linear map; its transpose is the generated gradient."""

    def __init__(self, name: str, parted: Parted) -> None:
        super().__init__([(y.shape, y.dtype.numpy) for y in parted.ys])
        self._name, self._parted = f"{name}_gradient", parted
        self._pullbacks: dict[Flags, _Pullback] = {}
        self._pushforward: _Pushforward | None = None
        self._lock = threading.RLock()

    def pull(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        asked = tuple([g is not None for g in cotangents])
        return holding(self._lock, self._pullback, asked)(residuals, cotangents)

    def push(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        return holding(self._lock, self._forward)(residuals, tangents)

    def _pullback(self, asked: Flags) -> _Pullback:
        pullback = self._pullbacks.get(asked)
        if pullback is None:
            pullback = self._pullbacks[asked] = _Pullback(self._name, self._parted, asked)
        return pullback

    def _forward(self) -> _Pushforward:
        if self._pushforward is None:
            everything = self._pullback((True,) * len(self.results))
            self._pushforward = _Pushforward(self._name, everything)
        return self._pushforward


class _Pullback:
    """The map from cotangents of the results that are *asked* for to those of the live inputs.

    Raises:
        GradientError: this gradient is an error.
    """

    def __init__(self, name: str, parted: Parted, asked: Flags) -> None:
        seeds, cotangents = parted.pulled(asked)
        residuals = parted.residuals
        inputs = [*residuals, *[seed for seed in seeds if seed is not None]]
        copied = rewrite([g for g in cotangents if g is not None], inputs)
        self.residuals, self.seeds = copied.inputs[: len(residuals)], copied.inputs[len(residuals) :]
        self.gradients = copied.outputs
        self.arrives = [g is not None for g in cotangents]
        self._seeded = [seed is not None for seed in seeds]
        self._computation = Computation(name, copied.inputs, copied.outputs)

    def __call__(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of the live inputs, None for those without."""
        if not any(self.arrives):
            return [None for _ in self.arrives]
        seeded = [g for g, is_seeded in zip(cotangents, self._seeded, strict=True) if is_seeded]
        filled = [_zeros(x) if g is None else _conjugate(g) for g, x in zip(seeded, self.seeds, strict=True)]
        pulled = iter(self._computation(*residuals, *filled))
        return [_conjugate(next(pulled)) if arrives else None for arrives in self.arrives]


class _Pushforward:
    """The map from tangents of the live inputs to those of all results: the transpose of the pullback.

    As in :mod:`stopgrad.transforms.gradients.forward`, the pullback is differentiated at cotangents of zero,
    which makes a difference only if it is not linear.
    """

    def __init__(self, name: str, pullback: _Pullback) -> None:
        inputs = [*pullback.residuals, *pullback.seeds]
        copied = rewrite(pullback.gradients, inputs)
        seeds, graph = copied.inputs[len(pullback.residuals) :], copied.graph
        moved = [placeholder_like(g, graph) for g in copied.outputs]
        with graph.as_default():
            pushed = gradients(copied.outputs, seeds, moved) if moved else [None] * len(seeds)
        self._arrives = pullback.arrives
        self._seeds = seeds
        self._pushed = [t is not None for t in pushed]
        arriving = [t for t in pushed if t is not None]
        self._computation = Computation(name, [*copied.inputs, *moved], arriving)

    def __call__(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        if not any(self._pushed):
            return [_zeros(x) for x in self._seeds]
        moving = [t for t, arrives in zip(tangents, self._arrives, strict=True) if arrives]
        computed = iter(self._computation(*residuals, *map(_zeros, self._seeds), *moving))
        return [
            next(computed) if moves else _zeros(x) for x, moves in zip(self._seeds, self._pushed, strict=True)
        ]


def _interpreted(inputs: Sequence[Output], outputs: Sequence[Output]) -> Callable[..., tuple[Any, ...]]:
    """A graph, without its gates, as a function of JAX arrays that JAX compiles."""
    form = formed(prepare(*narrowed(inputs, outputs)[::-1], {}), FORMS, (roll,))
    interpret = program(form.inputs, form.outputs, _BACKEND)

    def run(*arrays: jax.Array) -> tuple[Any, ...]:
        # JAX's settings for users must not affect how operations are computed.
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return tuple(interpret(arrays))

    return run


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function with a name, for JAX's programs and profiles."""

    def called(*arrays: jax.Array) -> Any:
        return function(*arrays)

    called.__name__ = called.__qualname__ = name
    return called


def _moves(tangent: Any) -> bool:
    return not isinstance(tangent, SymbolicZero) and tangent.dtype != jax.dtypes.float0


def _zero(y: jax.Array) -> Any:
    """The zero tangent of a result."""
    return zero_from_primal(y, symbolic_zeros=True)


def _zeros(x: Output) -> jax.Array:
    return jnp.zeros(x.shape, x.dtype.numpy)


def _conjugate(g: jax.Array) -> jax.Array:
    """A cotangent of JAX as one of ours, or the reverse: complex ones are conjugates of each other."""
    return jnp.conj(g) if jnp.iscomplexobj(g) else g
