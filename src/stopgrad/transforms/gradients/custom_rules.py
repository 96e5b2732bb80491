"""Derivatives of one's own in JAX's forms: ``custom_vjp`` and ``custom_jvp``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, Self

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, GradientError
from stopgrad.base.structure import flatten, unflatten
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.builder import default_graph
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.operands import is_tensor
from stopgrad.graph.public import call
from stopgrad.ops.gates.custom import custom_gradient
from stopgrad.ops.gates.scaling import scale_gradient
from stopgrad.ops.gates.stopping import prevent_gradient
from stopgrad.ops.structural.sources import zeros_like
from stopgrad.transforms.gradients.reverse import gradients
from stopgrad.transforms.gradients.signatures import P, R

__all__ = ["custom_jvp", "custom_vjp"]

Function = Callable[..., Any]

ORDERS = 4
"""How often a derivative may use the function itself: so many times it can be differentiated again."""
_RUNNING: ContextVar[tuple[_Custom[..., Any], ...]] = ContextVar("running", default=())


class _Custom(Generic[P, R]):
    """A function with a derivative of its own, which is defined after it."""

    _what = ""

    nondiff_argnums: tuple[int, ...]

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] | int = ()) -> None:
        if not callable(fun):
            raise ArgumentError(f"{self._what}: takes a function, not {fun!r:.60}")
        numbers: Any = [nondiff_argnums] if is_whole(nondiff_argnums) else nondiff_argnums
        self.fun: Any = fun
        self.nondiff_argnums = tuple([whole(n) for n in numbers])
        functools.update_wrapper(self, fun)

    def __get__(self, instance: object, owner: type | None = None) -> Self | functools.partial[R]:
        bound: Any = self
        return bound if instance is None else functools.partial(bound, instance)

    def _defined(self) -> Function | None:
        raise NotImplementedError

    def _with_gradient(
        self, fixed: Sequence[Any], args: tuple[Any, ...], join: Function
    ) -> tuple[Any, Function]:
        """The results for the differentiated arguments, and the function of their cotangents."""
        raise NotImplementedError

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        values: tuple[Any, ...] = self._positional(args, kwargs) if kwargs else args
        symbolic = any(isinstance(x, (Output, Operation)) for x in flatten(list(values))[0])
        if default_graph() is None and not symbolic:
            return self.fun(*values)
        if self._defined() is None:
            name = getattr(self.fun, "__name__", "the function")
            raise GradientError(f"{self._what}: {name} has no derivative yet; {self._cure.format(name)}")
        if _RUNNING.get().count(self) >= ORDERS:
            # In a body, the derivative is traced at once, and would be inside itself without end.
            return prevent_gradient(
                self.fun(*values), f"{self._what}: derivatives that use the function go to order {ORDERS}"
            )
        held = {n % len(values) for n in self.nondiff_argnums}
        fixed = [values[n] for n in sorted(held)]

        def join(moving: Sequence[Any]) -> list[Any]:
            remaining = iter(moving)
            return [values[i] if i in held else next(remaining) for i in range(len(values))]

        def f(*moving: object) -> Any:
            return self._with_gradient(fixed, moving, join)

        return custom_gradient(f)(*[x for i, x in enumerate(values) if i not in held])

    _cure = ""

    def _running(self, function: Function, *args: object) -> Any:
        """Call a part of the derivative."""
        token = _RUNNING.set((*_RUNNING.get(), self))
        try:
            return call(function, *args)
        finally:
            _RUNNING.reset(token)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments in order: derivatives take them by position."""
        names = argument_names(self.fun, len(args) + len(kwargs))[len(args) :]
        if set(names) != set(kwargs):
            raise ArgumentError(
                f"{self._what}: takes {', '.join(names)} by position, not {', '.join(kwargs)}"
            )
        return (*args, *[kwargs[name] for name in names])


class custom_vjp(_Custom[P, R]):  # noqa: N801 - JAX's name
    """Gives a function its own reverse-mode derivative, as ``jax.custom_vjp`` does.

    It becomes a :func:`custom_gradient`, and what is said there holds. Outside of a graph the function itself
    computes; inside, what ``fwd`` returns stands for its result.

    Args:
        fun: the function, of positional arguments.
        nondiff_argnums: positions of arguments that are no tensors; ``bwd`` gets them first.

    Examples:
        >>> @sg.custom_vjp
        ... def clipped(x, limit):
        ...     return x * x
        >>> def forward(x, limit):
        ...     return x * x, (x, limit)
        >>> def backward(kept, g):
        ...     x, limit = kept
        ...     return sg.clip_by_value(2.0 * x * g, -limit, limit), None
        >>> clipped.defvjp(forward, backward)
        >>> sg.grad(clipped)(5.0, 3.0)
        array(3., dtype=float32)
    """

    _what = "custom_vjp"
    _cure = "call {}.defvjp(forward, backward)"

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] | int = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self._fwd: Function | None = None
        self._bwd: Function | None = None

    def defvjp(self, fwd: Function, bwd: Function) -> None:
        """Define the derivative.

        Args:
            fwd: takes the arguments; returns the function's result and what *bwd* needs.
            bwd: takes the arguments of ``nondiff_argnums``, what *fwd* has kept, and the cotangent, in the
                structure of the result; returns a tuple with a cotangent for each other argument, in its
                structure; None stands for zero.
        """
        if not (callable(fwd) and callable(bwd)):
            raise ArgumentError("custom_vjp: defvjp takes two functions, the forward and the backward one")
        self._fwd, self._bwd = fwd, bwd

    def _defined(self) -> Function | None:
        return self._fwd

    def _with_gradient(
        self, fixed: Sequence[Any], args: tuple[Any, ...], join: Function
    ) -> tuple[Any, Function]:
        assert self._fwd is not None
        bwd = self._bwd
        assert bwd is not None
        pair = self._running(self._fwd, *join(args))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(
                "custom_vjp: the forward function returns a pair, the result and what the backward one needs,"
                f" not {type(pair).__name__}"
            )
        result, residuals = pair
        _, spec = flatten(result)

        def pullback(*cotangents: object) -> tuple[Any] | tuple[Any, ...]:
            returned = self._running(bwd, *fixed, residuals, unflatten(spec, cotangents))
            parts = (
                (returned,) if len(args) == 1 and not isinstance(returned, (tuple, list)) else tuple(returned)
            )
            if len(parts) != len(args):
                raise GradientError(
                    f"custom_vjp: the backward function returned {len(parts)} cotangents for {len(args)} "
                    "arguments"
                )
            return parts

        return result, pullback


class custom_jvp(_Custom[P, R]):  # noqa: N801 - JAX's name
    """Gives a function its own forward-mode derivative, as ``jax.custom_jvp`` does.

    The gradient is the transpose of that derivative, which is linear in the tangents; so it becomes a
    :func:`custom_gradient`, and what is said there holds.

    Args:
        fun: the function, of positional arguments.
        nondiff_argnums: positions of arguments that are no tensors; the rule gets them first.

    Examples:
        >>> @sg.custom_jvp
        ... def log1pexp(x):
        ...     return sg.log(1.0 + sg.exp(x))
        >>> @log1pexp.defjvp
        ... def rule(primals, tangents):
        ...     (x,), (dx,) = primals, tangents
        ...     return log1pexp(x), dx * sg.sigmoid(x)
        >>> float(sg.grad(log1pexp)(100.0))
        1.0
    """

    _what = "custom_jvp"
    _cure = "define one with @{}.defjvp"

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] | int = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self._rule: Function | None = None

    def defjvp(self, jvp: Function, symbolic_zeros: bool = False) -> Function:
        """Define the derivative; also as a decorator.

        Args:
            jvp: takes the arguments of ``nondiff_argnums``, the tuple of the others, and the tuple of their
                tangents; returns the result and its tangent.
            symbolic_zeros: False.
        """
        if not callable(jvp) or symbolic_zeros:
            raise ArgumentError(
                "custom_jvp: defjvp takes a function of primals and tangents, which are arrays"
            )
        self._rule = jvp
        return jvp

    def defjvps(self, *jvps: Function | None) -> None:
        """Define the derivative by one function for each argument.

        Args:
            jvps: each takes the argument's tangent, the result, and all arguments, and returns a tangent of
                the result; None for an argument on which the result does not depend.
        """

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            called: Any = self
            result = called(*primals)
            parts = [f(t, result, *primals) for f, t in zip(jvps, tangents, strict=True) if f is not None]
            return result, functools.reduce(lambda a, b: a + b, parts) if parts else zeros_like(result)

        self._rule = rule

    def _defined(self) -> Function | None:
        return self._rule

    def _with_gradient(
        self, fixed: Sequence[Any], args: tuple[Any, ...], join: Function
    ) -> tuple[Any, Function]:
        rule = self._rule
        assert rule is not None

        def pullback(*cotangents: object) -> Any:
            leaves, spec = flatten(args)
            places = [i for i, x in enumerate(leaves) if is_tensor(x)]
            # Gates, since equal zeros would be built once, and be one tensor.
            tangents = [scale_gradient(zeros_like(leaves[i]), 1.0) for i in places]
            filled = list(leaves)
            for i, t in zip(places, tangents, strict=True):
                filled[i] = t
            pair = self._running(rule, *fixed, args, unflatten(spec, filled))
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ArgumentError(
                    "custom_jvp: the rule returns a pair, the result and its tangent, not "
                    f"{type(pair).__name__}"
                )
            parts = gradients(flatten(pair[1])[0], tangents, list(cotangents))
            leaf_cotangents: list[Any] = [None] * len(leaves)
            for i, part in zip(places, parts, strict=True):
                leaf_cotangents[i] = part
            return unflatten(spec, leaf_cotangents)

        return call(self.fun, *join(args)), pullback
