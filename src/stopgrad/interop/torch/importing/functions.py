"""Keeps the ``backward`` of users' ``autograd.Function``s, which ``torch.export`` drops.

While a program is exported, such a function is run by :func:`_owned`: its forward, and then its ``backward``
for cotangents that stand in the program as operators of their own, :data:`COTANGENT`. One more operator,
:data:`OWNED`, takes all results; the translation makes a custom gradient of it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from stopgrad.base.errors import GraphError
from stopgrad.interop.torch import internals

Tensor = torch.Tensor
_Function: Any = torch.autograd.Function
_Meta: Any = type(_Function)


@torch.library.custom_op("stopgrad::cotangent", mutates_args=())
def _cotangent(y: Tensor) -> Tensor:
    return torch.zeros_like(y)


_cotangent.register_fake(lambda y: torch.empty_like(y))


_OWNED = "(Tensor[] ys, Tensor[] xs, Tensor[] cotangents, Tensor[] gradients, int[] given) -> Tensor[]"
"""Its types, which releases before 2.7 cannot read off the annotations."""


@torch.library.custom_op("stopgrad::owned", mutates_args=(), schema=_OWNED)
def _own(
    ys: Sequence[Tensor],
    xs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    gradients: Sequence[Tensor],
    given: Sequence[int],
) -> list[Tensor]:
    return [y.clone() for y in ys]


_own.register_fake(lambda ys, *_: [torch.empty_like(y) for y in ys])


COTANGENT = torch.ops.stopgrad.cotangent.default
"""The operator that stands for the cotangent of a function's result in the function's ``backward``."""
OWNED = torch.ops.stopgrad.owned.default
"""The operator that has a function's results, arguments, cotangents, the gradients that its ``backward``
made of these, and the positions of the arguments that the gradients belong to. It returns the results."""


class _Context(FunctionCtx):
    """The ``ctx`` of a function, without autograd."""

    to_save: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()

    def __init__(self, needs: Sequence[bool]) -> None:
        self.needs_input_grad = tuple(needs)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return self.to_save


@contextlib.contextmanager
def kept_gradients() -> Iterator[None]:
    """While this is entered, users' functions are traced in this thread with their ``backward``.

    ``apply`` looks for a function's ``forward``, and is given one that also calls ``backward``. People keep
    ``apply`` in variables, and in some releases it is implemented in C: it is not replaced itself.
    """
    here, inside, grad = threading.get_ident(), False, True

    def traced(cls: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def traced_forward(*given: Any) -> Any:
            nonlocal inside
            args = given if _has_context_apart(cls) else given[1:]
            inside = True  # The gradients of functions inside of this one's forward play no part.
            try:
                with _gradients(grad):
                    ctx = _Context([_has_gradient(x) for x in args])
                    made = _forward(cls, ctx, args)
                    inside = False
                    return _owned(cls, ctx, args, made)
            finally:
                inside = False

        return traced_forward

    def __getattribute__(cls: Any, name: str) -> Any:  # noqa: N807
        nonlocal grad
        found = type.__getattribute__(cls, name)
        if (name != "forward" and name != "setup_context") or threading.get_ident() != here:
            return found
        if internals.is_outside_of_apply():
            grad = torch.is_grad_enabled()  # Which apply looks at before it switches gradients off.
            return found
        if name != "forward" or inside or type.__getattribute__(cls, "__module__").startswith("torch."):
            return found
        return traced(cls, found)

    _Meta.__getattribute__ = __getattribute__
    try:
        yield
    finally:
        del _Meta.__getattribute__


@contextlib.contextmanager
def _gradients(on: bool) -> Iterator[None]:
    """Gradients on or off, as around a function whose ``apply`` switched them off, unseen by what traces."""
    with internals.DisableTorchFunction():
        internals.set_grad_enabled(on)
    try:
        yield
    finally:
        with internals.DisableTorchFunction():
            internals.set_grad_enabled(False)


def _has_context_apart(cls: Any) -> bool:
    """Whether a function's ``forward`` takes no context, which ``setup_context`` takes instead."""
    return cls.setup_context is not _Function.setup_context


def _forward(cls: Any, ctx: Any, args: Sequence[Any]) -> Any:
    if not _has_context_apart(cls):
        made = cls.forward(ctx, *args)
    else:
        made = cls.forward(*args)
        cls.setup_context(ctx, args, made)
    if ctx.dirty_tensors:
        raise GraphError(f"{cls.__qualname__}.forward writes into its arguments; let it return new tensors")
    return made


def _owned(cls: Any, ctx: Any, args: Sequence[Any], made: Any) -> Any:
    """What a function made, as results of the operator that has its gradient."""
    listed = list(made) if isinstance(made, (tuple, list)) else [made]
    fixed = {id(x) for x in ctx.non_differentiable}
    positions = [i for i, y in enumerate(listed) if _has_gradient(y) and id(y) not in fixed]
    wanted = [i for i, x in enumerate(args) if _has_gradient(x)]
    if not positions or not wanted:
        return made
    cotangents = [torch.ops.stopgrad.cotangent(listed[i]) for i in positions]
    found = _backward(cls, ctx, listed, dict(zip(positions, cotangents, strict=True)))
    given = [k for k, i in enumerate(wanted) if i < len(found) and found[i] is not None]
    results = torch.ops.stopgrad.owned(
        [listed[i] for i in positions],
        [args[i] for i in wanted],
        cotangents,
        [found[wanted[k]] for k in given],
        given,
    )
    for i, y in zip(positions, results, strict=True):
        listed[i] = y
    return type(made)(listed) if isinstance(made, (tuple, list)) else listed[0]


def _backward(cls: Any, ctx: Any, results: Sequence[Any], cotangents: dict[int, Tensor]) -> Sequence[Any]:
    """What a function's ``backward`` makes of cotangents of its results."""
    function = cls.backward if cls.vjp is _Function.vjp else cls.vjp
    gs = [
        cotangents.get(i, torch.zeros_like(y) if isinstance(y, Tensor) else None)
        for i, y in enumerate(results)
    ]
    try:
        found = function(ctx, *gs)
    except Exception as error:
        raise GraphError(
            f"{cls.__qualname__}.backward cannot be traced ({type(error).__name__}: {error}); compute the "
            f"gradient from ctx and the cotangents with operations of tensors"
        ) from error
    return found if isinstance(found, tuple) else (found,)


def _has_gradient(x: object) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
