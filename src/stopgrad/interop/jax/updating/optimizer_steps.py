"""One update of the user's optimizer in JAX, of any form that it has, on copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from stopgrad.base.errors import ArgumentError
from stopgrad.graph.operands import shorten
from stopgrad.interop.jax.tracing import path_of
from stopgrad.interop.jax.updating.modules import is_optimizer, modules_in, nnx
from stopgrad.interop.jax.updating.user_gradients import Differentiated

FORMS = (
    "an optax transformation, a pair of one and its state, a TrainState of Flax, an optimizer of nnx, or a "
    "function of parameters and gradients that returns new parameters"
)


class Stepping(Protocol):
    """Does updates, one after the other."""

    raw: set[str]

    def step(self) -> Sequence[Any]:
        """Do one; the differentiated arguments as they are then."""


class _Recording(NamedTuple):
    """An optax transformation that notes which leaves its update passes on as they are."""

    init: Callable[..., Any]
    update: Callable[..., Any]


def _recording(tx: Any, raw: list[tuple[Any, ...]]) -> _Recording:
    """A transformation that does what another does, and notes the paths at which it hands on what it got."""

    def update(gradients: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        updates, state = tx.update(gradients, state, params, **more)
        received = jax.tree_util.tree_flatten_with_path(gradients)[0]
        passed = dict(jax.tree_util.tree_flatten_with_path(updates)[0])
        same = [path for path, leaf in received if passed.get(path) is leaf]
        if len(same) < len(received):  # Else the optimizer is one that treats nothing, as identity().
            raw.extend(same)
        return updates, state

    return _Recording(tx.init, update)


def is_transformation(x: object) -> bool:
    """Whether something is a transformation of optax, or made like one."""
    return callable(getattr(x, "init", None)) and callable(getattr(x, "update", None))


def _is_train_state(x: object) -> bool:
    needed = ("params", "tx", "opt_state", "apply_gradients", "replace")
    return all(hasattr(x, name) for name in needed)


def stepping(
    what: str, optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any], derivative: Differentiated
) -> Stepping:
    """What does updates of the differentiated arguments.

    Raises:
        ArgumentError: the optimizer has none of the known forms.
    """
    if is_optimizer(optimizer):
        return _OfModule(optimizer, args, derivative)
    if _is_train_state(optimizer):
        return _OfTrainState(optimizer, args, derivative)
    if is_transformation(optimizer):
        if any(modules_in(args[n]) for n in derivative.argnums):
            flax = nnx()
            model = args[derivative.argnums[0]]
            return _OfModule(flax.Optimizer(model, optimizer, wrt=flax.Param), args, derivative)
        return _OfTransformation(optimizer, None, args, kwargs, derivative)
    if isinstance(optimizer, (tuple, list)) and len(optimizer) == 2 and is_transformation(optimizer[0]):
        return _OfTransformation(optimizer[0], (optimizer[1],), args, kwargs, derivative)
    if callable(optimizer):
        return _OfFunction(optimizer, args, derivative)
    raise ArgumentError(f"{what}: optimizer is {FORMS}; not {shorten(optimizer)}")


def _paths(raw: Sequence[tuple[Any, ...]], derivative: Differentiated) -> set[str]:
    """The paths in gradients as paths of arguments."""
    if derivative.is_single:
        return {path_of(derivative.names[derivative.argnums[0]], path) for path in raw}
    return {path_of(derivative.names[derivative.argnums[path[0].idx]], path[1:]) for path in raw}


class _OfTransformation:
    """An optax transformation, whose updates are added to the parameters."""

    def __init__(
        self,
        tx: Any,
        state: tuple[Any] | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        derivative: Differentiated,
    ) -> None:
        self._raw: list[tuple[Any, ...]] = []
        self._tx, self._derivative, self._args, self._kwargs = (
            _recording(tx, self._raw),
            derivative,
            args,
            kwargs,
        )
        self._whole = [args[n] for n in derivative.argnums]
        self._has_extra = type(tx).__name__ == "GradientTransformationExtraArgs"
        self._state = tx.init(self._params(self._whole)) if state is None else copied(state[0])
        self.raw: set[str] = set()

    def _params(self, trees: Sequence[Any]) -> Any:
        """The parameters in the structure of the gradient: without the leaves that it leaves out."""
        derivative = self._derivative
        parts = []
        for n, tree in zip(derivative.argnums, trees, strict=True):

            def part(path: Any, leaf: Any, name: str = derivative.names[n]) -> Any:
                return leaf if path_of(name, path) in derivative.handed else None

            parts.append(jax.tree_util.tree_map_with_path(part, tree))
        return parts[0] if derivative.is_single else tuple(parts)

    def _extra(self, params: Any) -> dict[str, Any]:
        """What line searches and the like are given besides."""
        if not self._has_extra:
            return {}

        def value(params: Any) -> Any:
            arguments = list(self._args)
            trees = self._merged([params] if self._derivative.is_single else params)
            for n, tree in zip(self._derivative.argnums, trees, strict=True):
                arguments[n] = tree
            return self._derivative.loss(*arguments, **self._kwargs)

        return {"value": value(params), "grad": self._derivative.gradient, "value_fn": value}

    def _merged(self, parts: Sequence[Any]) -> list[Any]:
        """The arguments, with these parameters in their places."""

        def is_none(x: object) -> bool:
            return x is None

        return [
            jax.tree_util.tree_map(lambda x, p: x if p is None else p, tree, part, is_leaf=is_none)
            for tree, part in zip(self._whole, parts, strict=True)
        ]

    def step(self) -> Sequence[Any]:
        params = self._params(self._whole)
        updates, self._state = self._tx.update(
            self._derivative.gradient, self._state, params, **self._extra(params)
        )
        moved = jax.tree_util.tree_map(
            lambda p, u: p if u is None or p is None else _added(p, u),
            params,
            updates,
            is_leaf=lambda x: x is None,
        )
        self._whole = self._merged([moved] if self._derivative.is_single else moved)
        self.raw = _paths(self._raw, self._derivative)
        return self._whole


def _added(p: Any, u: Any) -> jax.Array:
    """A parameter with its update, in its own dtype, as ``optax.apply_updates`` has it."""
    return jnp.asarray(p + u).astype(jnp.asarray(p).dtype)


class _OfTrainState:
    """A ``TrainState`` of Flax: its parameters are those of the argument."""

    def __init__(self, state: Any, args: Sequence[Any], derivative: Differentiated) -> None:
        self._raw: list[tuple[Any, ...]] = []
        self._derivative, self._args = derivative, args
        tx = _recording(state.tx, self._raw)
        self._state = state.replace(
            params=args[derivative.argnums[0]], opt_state=copied(state.opt_state), tx=tx
        )
        self.raw: set[str] = set()

    def step(self) -> Sequence[Any]:
        self._state = self._state.apply_gradients(grads=self._derivative.gradient)
        self.raw = _paths(self._raw, self._derivative)
        return [self._state.params, *[self._args[n] for n in self._derivative.argnums[1:]]]


class _OfModule:
    """An optimizer of nnx, which changes a module in place; who calls this keeps module and optimizer."""

    def __init__(self, optimizer: Any, args: Sequence[Any], derivative: Differentiated) -> None:
        self._raw: list[tuple[Any, ...]] = []
        self._optimizer, self._derivative, self._args = optimizer, derivative, args
        self._holds_model = hasattr(optimizer, "model")
        optimizer.tx = _recording(optimizer.tx, self._raw)
        self.raw: set[str] = set()

    def step(self) -> Sequence[Any]:
        trees = [self._args[n] for n in self._derivative.argnums]
        gradient = self._derivative.gradient
        if self._holds_model:
            self._optimizer.update(gradient)
        else:
            self._optimizer.update(trees[0] if self._derivative.is_single else tuple(trees), gradient)
        self.raw = _paths(self._raw, self._derivative)
        return trees


class _OfFunction:
    """A function of parameters and gradients that returns new parameters."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], derivative: Differentiated) -> None:
        self._function, self._derivative = function, derivative
        trees = [args[n] for n in derivative.argnums]
        self._params: Any = trees[0] if derivative.is_single else tuple(trees)
        self.raw: set[str] = set()

    def step(self) -> Sequence[Any]:
        self._params = self._function(copied(self._params), copied(self._derivative.gradient))
        return [self._params] if self._derivative.is_single else list(self._params)


def copied(tree: Any) -> Any:
    """A structure with copies of its arrays, which may be donated or written into."""

    def copy(x: Any) -> Any:
        if hasattr(x, "copy") and not isinstance(x, jax.Array) and hasattr(x, "dtype"):
            return x.copy()
        if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer) or x.is_deleted():
            return x
        if jnp.issubdtype(x.dtype, jax.dtypes.extended) or not x.is_fully_addressable:
            return x
        return jnp.array(x, copy=True)

    return jax.tree_util.tree_map(copy, tree)
