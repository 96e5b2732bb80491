"""Keeps the ``backward`` of users' ``autograd.Function``s, which ``torch.export`` drops.

While a program is exported, the forward of such a function is followed by its ``backward``, for cotangents
that stand in the program as operators of their own, :data:`COTANGENT`. One more operator, :data:`OWNED`,
takes all results; the translation makes a custom gradient of it.

PyTorch asks the class of a function for its ``forward`` each time that it applies it, and is given another.
To replace ``apply`` would not do: users keep ``f = Function.apply``, which since 2.14 leads to C alone.
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
from stopgrad.interop.shared.lifetimes import Lifetime
from stopgrad.interop.torch import internals

Tensor = torch.Tensor
_Function: Any = torch.autograd.Function
_Meta: Any = type(_Function)
_ASK = "__getattribute__"
_ask: Callable[[Any, str], Any] = _Meta.__getattribute__
_LOCK = threading.RLock()
_COPIED = frozenset(["non_differentiable"])
"""What the ``ctx`` that PyTorch made is told of the one that the forward has got."""


@torch.library.custom_op("stopgrad::cotangent", mutates_args=())
def _cotangent(y: Tensor) -> Tensor:
    return torch.zeros_like(y)


_cotangent.register_fake(lambda y: torch.empty_like(y))


@torch.library.custom_op(
    "stopgrad::owned",
    mutates_args=(),
    schema="(Tensor[] ys, Tensor[] xs, Tensor[] cotangents, Tensor[] gradients, int[] positions) -> Tensor[]",
)
def _own(
    ys: Sequence[Tensor],
    xs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    gradients: Sequence[Tensor],
    positions: Sequence[int],
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


class _Token:
    """What the change of PyTorch lasts as long as."""


@contextlib.contextmanager
def kept_gradients() -> Iterator[None]:
    """While this is entered, the functions that this thread applies are traced with their ``backward``."""
    with _LOCK:
        token = _Token()
        lifetime = Lifetime(token)
        ask = _Asking().ask
        lifetime.do(functools.partial(setattr, _Meta, _ASK, ask), functools.partial(delattr, _Meta, _ASK))
        try:
            yield
        finally:
            lifetime.end()


class _Asking:
    """How the classes of functions are asked for their attributes while a program is exported.

    PyTorch asks a class that it applies for its ``_backward_cls``, then switches gradients off, and asks for
    its ``forward``. Nothing of the user's runs in between, and nobody else asks for both.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._applied: Any = None
        self._with_gradients = True
        self._inside = False

        def ask(cls: Any, name: str) -> Any:
            attribute = _ask(cls, name)
            if name == "_backward_cls" and threading.get_ident() == self._thread:
                self._applied, self._with_gradients = cls, torch.is_grad_enabled()
            elif name == "forward" and cls is self._applied and threading.get_ident() == self._thread:
                self._applied = None
                if not (self._inside or _ask(cls, "__module__").startswith("torch.")):
                    return self._traced(cls, attribute)
            return attribute

        self.ask = ask

    def _traced(self, cls: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The forward of a function that is being applied, with its backward behind it."""
        with_gradients = self._with_gradients
        context_apart = cls.setup_context is not _Function.setup_context

        @functools.wraps(forward)
        def traced(*args: Any) -> Any:
            outer_ctx, *xs = (None, *args) if context_apart else args
            ctx = _Context([_has_gradient(x) for x in xs])
            with _unseen_mode(with_gradients):
                self._inside = True  # The gradients of functions inside of this one's forward play no part.
                try:
                    result = forward(*xs) if context_apart else forward(ctx, *xs)
                    if context_apart:
                        cls.setup_context(ctx, tuple(xs), result)
                finally:
                    self._inside = False
                if ctx.dirty_tensors:
                    reason = "writes into its arguments; let it return new tensors"
                    raise GraphError(f"{cls.__qualname__}.forward {reason}")
                results = _owned(cls, ctx, xs, result)
            for name in _COPIED & vars(ctx).keys() if outer_ctx is not None else ():
                setattr(outer_ctx, name, getattr(ctx, name))
            return results

        return traced


@contextlib.contextmanager
def _unseen_mode(with_gradients: bool) -> Iterator[None]:
    """Gradients on or off, as they are around the application of a function, unseen by the exporter."""
    before = torch.is_grad_enabled()
    _switch(with_gradients)
    try:
        yield
    finally:
        _switch(before)


def _switch(on: bool) -> None:
    with internals.DisableTorchFunction():
        torch.set_grad_enabled(on)


def _owned(cls: Any, ctx: _Context, args: Sequence[Any], result: Any) -> Any:
    """What a function made, as results of the operator that has its gradient."""
    listed = list(result) if isinstance(result, (tuple, list)) else [result]
    fixed = {id(x) for x in ctx.non_differentiable}
    positions = [i for i, y in enumerate(listed) if _has_gradient(y) and id(y) not in fixed]
    differentiable = [i for i, x in enumerate(args) if _has_gradient(x)]
    if not positions or not differentiable:
        return result
    cotangents = [torch.ops.stopgrad.cotangent(listed[i]) for i in positions]
    gradients = _backward(cls, ctx, listed, dict(zip(positions, cotangents, strict=True)))
    present = [k for k, i in enumerate(differentiable) if i < len(gradients) and gradients[i] is not None]
    results = torch.ops.stopgrad.owned(
        [listed[i] for i in positions],
        [args[i] for i in differentiable],
        cotangents,
        [gradients[differentiable[k]] for k in present],
        present,
    )
    for i, y in zip(positions, results, strict=True):
        listed[i] = y
    return type(result)(listed) if isinstance(result, (tuple, list)) else listed[0]


def _backward(
    cls: Any, ctx: _Context, results: Sequence[Any], cotangents: dict[int, Tensor]
) -> Sequence[Any]:
    """What a function's ``backward`` makes of cotangents of its results."""
    function = cls.backward if cls.vjp is _Function.vjp else cls.vjp
    gs: list[Any] = [
        cotangents.get(i, torch.zeros_like(y) if isinstance(y, Tensor) else None)
        for i, y in enumerate(results)
    ]
    try:
        # Those that say so take the list, to free gradients early: since 2.13.
        gradients = function(ctx, gs) if getattr(cls, "boxed_grads_call", False) else function(ctx, *gs)
    except Exception as error:
        raise GraphError(
            f"{cls.__qualname__}.backward cannot be traced ({type(error).__name__}: {error}); compute the "
            f"gradient from ctx and the cotangents with operations of tensors"
        ) from error
    return gradients if isinstance(gradients, tuple) else (gradients,)


def _has_gradient(x: object) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
