"""The gradient that the user's own gradient function hands on, by the paths of the arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from stopgrad.base.errors import ArgumentError
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.operands import shorten
from stopgrad.graph.public import call
from stopgrad.interop.jax.tracing import path_of
from stopgrad.interop.jax.training.traced_values import has_slope
from stopgrad.interop.jax.updating.modules import is_module, is_optimizer, modules_in, nnx, tied

Loss = Callable[..., Any]


class Training(NamedTuple):
    """What the user trains with.

    Attributes:
        grad: makes the gradient function of a loss, as ``jax.grad`` does; None for the usual one.
        wrt: a filter of what is differentiated; None for none.
        optimizer: what updates parameters; None if only gradients are asked about.
    """

    grad: Any
    wrt: Any
    optimizer: Any

    @property
    def is_given(self) -> bool:
        return any(x is not None for x in self)


class Differentiated(NamedTuple):
    """A gradient as the user's gradient function hands it on.

    Attributes:
        loss: the function, without its auxiliary results.
        names: of its arguments.
        argnums: the positions of the arguments that are differentiated.
        is_single: whether the gradient is that of one argument, and no tuple.
        gradient: in the structure in which it is handed on.
        handed: the same by paths, such as ``"params.w"``.
    """

    loss: Loss
    names: list[str]
    argnums: list[int]
    is_single: bool
    gradient: Any
    handed: dict[str, Any]

    def values(self, trees: Sequence[Any]) -> dict[str, Any]:
        """The values of the differentiated arguments, given in *trees*, by paths."""
        return {
            k: v for n, tree in zip(self.argnums, trees, strict=True) for k, v in leaves(self.names[n], tree)
        }


def leaves(first: str, tree: Any) -> list[tuple[str, Any]]:
    """The leaves that can have a gradient, with their paths."""
    located, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(path_of(first, path), leaf) for path, leaf in located if has_slope(leaf)]


class _Observed:
    """A loss that notes whether it returns auxiliary results."""

    def __init__(self, f: Loss) -> None:
        self.structure: Any = None
        self.has_aux = False

        @functools.wraps(f, updated=())
        def observed(*args: Any, **kwargs: Any) -> Any:
            result = f(*args, **kwargs)
            self.has_aux = isinstance(result, (tuple, list)) and len(result) > 0
            self.structure = jax.tree_util.tree_structure(result)
            return result

        @functools.wraps(f, updated=())
        def first(*args: Any, **kwargs: Any) -> Any:
            result = observed(*args, **kwargs)
            return result[0] if self.has_aux else result

        self.whole, self.first = observed, first


def differentiated(
    what: str,
    f: Loss,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    argnums: int | Sequence[int] | None,
    training: Training,
) -> Differentiated:
    """Call the user's gradient function on these arguments.

    Raises:
        ArgumentError: it cannot be made from what is given, or what it returns is no gradient of the
            arguments.
    """
    for leaf in jax.tree_util.tree_leaves((args, dict(kwargs))):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise ArgumentError(
                f"{what}: an argument is only a shape; what an update does, and what a gradient function "
                "hands on, is found out on values: give arrays"
            )
    observed = _Observed(f)
    numbers = _numbers(what, training.grad, argnums, len(args))
    chosen: Any = getattr(training.grad, "keywords", {}).get("argnums", 0 if argnums is None else argnums)
    is_single = not isinstance(chosen, (list, tuple))
    gradient_function = _gradient_function(what, observed, args, numbers, is_single, training)
    returned = call(gradient_function, *args, **kwargs)
    names = argument_names(f, len(args))
    trees = [(names[n], args[n]) for n in numbers]
    candidates = [returned] if training.grad is None else _candidates(returned, observed)
    gradient = next(
        (candidate for candidate in candidates if _by_path(candidate, trees, is_single) is not None), None
    )
    if gradient is None:
        raise ArgumentError(
            f"{what}: grad makes a function that returns {shorten(returned)}, in which there is no gradient "
            f"of {', '.join(name for name, _ in trees)}; say with argnums= what it differentiates"
        )
    handed = _by_path(gradient, trees, is_single) or {}
    for name, tree in trees:
        handed |= {other: handed[first] for other, first in tied(name, tree).items() if first in handed}
    loss = _first_of(f) if observed.has_aux else f
    return Differentiated(loss, names, numbers, is_single, gradient, handed)


def _first_of(f: Loss) -> Loss:
    @functools.wraps(f, updated=())
    def first(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)[0]

    return first


def _numbers(what: str, grad: Any, argnums: int | Sequence[int] | None, count: int) -> list[int]:
    """The positions that are differentiated: those in a ``functools.partial``, those given, or the first."""
    own = getattr(grad, "keywords", {}).get("argnums")
    chosen: Any = own if own is not None else 0 if argnums is None else argnums
    every = list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]
    positions = [getattr(n, "argnum", n) for n in every]  # nnx names some with a filter.
    for n in positions:
        if not isinstance(n, (int, np.integer)) or not -count <= n < count:
            raise ArgumentError(f"{what}: argnums holds {n!r}, and the function was given {count} arguments")
    return [int(n) % count for n in positions]


def _gradient_function(
    what: str, observed: _Observed, args: Sequence[Any], numbers: list[int], single: bool, training: Training
) -> Callable[..., Any]:
    """The gradient function of a loss, as the user makes it."""
    argnums: Any = numbers[0] if single else tuple(numbers)
    if training.grad is not None:
        if training.wrt is not None:
            raise ArgumentError(f"{what}: give grad, or the filter wrt, but not both")
        if not callable(training.grad):
            role = "makes the gradient function of a loss, as jax.grad or eqx.filter_grad does"
            raise ArgumentError(f"{what}: grad {role}; {shorten(training.grad)} cannot be called")
        is_said = "argnums" in getattr(training.grad, "keywords", {}) or argnums == 0
        return _from_grad(training.grad, observed, {} if is_said else {"argnums": argnums})
    if any(modules_in(args[n]) for n in numbers):
        flax, wrt = nnx(), training.wrt
        if wrt is None:
            wrt = training.optimizer.wrt if is_optimizer(training.optimizer) else flax.Param
        states = tuple([flax.DiffState(n, wrt) if modules_in(args[n]) else n for n in numbers])
        gradient = flax.grad(observed.first, argnums=states[0] if single else states)
        return _refusing(what, gradient)
    if training.wrt is not None:
        return _filtered(what, observed.first, training.wrt, numbers, single)
    return _refusing(what, jax.grad(observed.first, argnums=argnums))


def _from_grad(
    grad: Callable[..., Any], observed: _Observed, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """What *grad* makes of a loss; or *grad* itself, where it is a gradient function already."""
    try:
        returned = grad(observed.whole, **options)
    except Exception:  # It takes the arguments, and no loss.
        returned = None
    if callable(returned):
        gradient_function: Callable[..., Any] = returned
        return gradient_function

    def ready(*args: Any, **kwargs: Any) -> Any:
        observed.whole(*args, **kwargs)
        return grad(*args, **kwargs)

    return ready


def _refusing(what: str, gradient: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient function that says what helps if JAX does not take the arguments."""

    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return gradient(*args, **kwargs)
        except TypeError as error:
            if "grad" not in str(error).lower():  # The error is the user's own.
                raise
            reason = " ".join(str(error).split())[:300]
            raise ArgumentError(
                f"{what}: {reason}; say with grad= how gradients are taken, such as grad=eqx.filter_grad, or "
                "with wrt= or argnums= of what"
            ) from error

    return called


def _filtered(what: str, f: Loss, wrt: Any, numbers: Sequence[int], single: bool) -> Callable[..., Any]:
    """The gradient with respect to the leaves for which a filter is true: a function, or a tree."""

    def gradient(*args: Any, **kwargs: Any) -> Any:
        masks = [
            _mask(what, wrt if single or callable(wrt) else wrt[i], args[n]) for i, n in enumerate(numbers)
        ]
        split = [jax.tree_util.tree_flatten(args[n], is_leaf=lambda x: x is None) for n in numbers]

        def loss_of(chosen: list[list[Any]]) -> Any:
            arguments = list(args)
            for n, (every, structure), mask, some in zip(numbers, split, masks, chosen, strict=True):
                rest = iter(some)
                merged = [next(rest) if is_asked else x for x, is_asked in zip(every, mask, strict=True)]
                arguments[n] = jax.tree_util.tree_unflatten(structure, merged)
            return f(*arguments, **kwargs)

        chosen = [
            [x for x, is_asked in zip(every, mask, strict=True) if is_asked]
            for (every, _), mask in zip(split, masks, strict=True)
        ]
        gradients = []
        for (_, structure), mask, some in zip(split, masks, jax.grad(loss_of)(chosen), strict=True):
            rest = iter(some)
            merged = [next(rest) if is_asked else None for is_asked in mask]
            gradients.append(jax.tree_util.tree_unflatten(structure, merged))
        return gradients[0] if single else tuple(gradients)

    return gradient


def _mask(what: str, wrt: Any, tree: Any) -> list[bool]:
    """Whether a filter is true, for each leaf; one of booleans may be the beginning of the structure."""

    def is_none(x: object) -> bool:
        return x is None

    if callable(wrt) and not is_module(wrt):
        return [x is not None and bool(wrt(x)) for x in jax.tree_util.tree_leaves(tree, is_leaf=is_none)]
    try:
        spread = jax.tree_util.tree_map(
            lambda flag, part: jax.tree_util.tree_map(lambda _: bool(flag), part, is_leaf=is_none), wrt, tree
        )
    except ValueError as error:
        raise ArgumentError(
            f"{what}: wrt is a filter of nnx, a function of a leaf, or a tree of booleans like the argument: "
            f"{' '.join(str(error).split())[:200]}"
        ) from error
    return list(jax.tree_util.tree_leaves(spread))


# -------------------------------------------------------------------------------------- what it returned


def _candidates(returned: Any, observed: _Observed) -> list[Any]:
    """The parts of what a gradient function returned that may be the gradient, the likeliest first."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        return [returned]
    if observed.has_aux:  # (value, aux), gradient; or gradient, aux.
        is_value = jax.tree_util.tree_structure(returned[0]) == observed.structure
        return [returned[1], returned[0]] if is_value else [returned[0], returned[1], returned]
    return [returned, returned[1]]


def _by_path(gradient: Any, trees: Sequence[tuple[str, Any]], is_single: bool) -> dict[str, Any] | None:
    """The leaves of a gradient by the paths of the arguments; None if it is none of these."""
    parts = [gradient] if is_single else gradient
    if not isinstance(parts, (list, tuple)) or len(parts) != len(trees):
        return None
    by_path = {}
    for (name, tree), part in zip(trees, parts, strict=True):
        located, _ = jax.tree_util.tree_flatten_with_path(tree)
        shapes = {
            path_of(name, path): np.shape(x) for path, x in located if hasattr(x, "shape") or has_slope(x)
        }
        for path, leaf in jax.tree_util.tree_flatten_with_path(part)[0]:
            leaf_path = path_of(name, path)
            if leaf_path not in shapes or np.shape(leaf) != shapes[leaf_path]:
                return None
            if has_slope(leaf):
                by_path[leaf_path] = leaf
    return by_path
