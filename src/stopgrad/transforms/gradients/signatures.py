"""The types of what :func:`stopgrad.grad` and its like return, for type checkers and editors.

A gradient has the type of the argument: of an array an array, of a structure the same structure. The argument
is given by its position, and the other parameters are the function's. Of a function whose parameters are not
known, or of an argument that is named, the gradient may be anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
ValueT = TypeVar("ValueT", covariant=True)
AuxT = TypeVar("AuxT", covariant=True)

Function: TypeAlias = Callable[..., Any]


class Gradient(Protocol[P]):
    """Returns the gradient with respect to the first argument."""

    @overload
    def __call__(
        self: Gradient[Concatenate[A, Q]], argument: A, /, *args: Q.args, **kwargs: Q.kwargs
    ) -> A: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class GradientAndAux(Protocol[P, AuxT]):
    """Returns the gradient with respect to the first argument, and what the function returns besides."""

    @overload
    def __call__(
        self: GradientAndAux[Concatenate[A, Q], AuxT], argument: A, /, *args: Q.args, **kwargs: Q.kwargs
    ) -> tuple[A, AuxT]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tuple[Any, AuxT]: ...


class ValueAndGradient(Protocol[P, ValueT]):
    """Returns the value, and the gradient with respect to the first argument."""

    @overload
    def __call__(
        self: ValueAndGradient[Concatenate[A, Q], ValueT], argument: A, /, *args: Q.args, **kwargs: Q.kwargs
    ) -> tuple[ValueT, A]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tuple[ValueT, Any]: ...


class GradientOfTwo(Protocol[P]):
    """Returns the gradients with respect to the first two arguments."""

    @overload
    def __call__(
        self: GradientOfTwo[Concatenate[A, B, Q]], first: A, second: B, /, *args: Q.args, **kwargs: Q.kwargs
    ) -> tuple[A, B]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]: ...


class ValueAndGradientOfTwo(Protocol[P, ValueT]):
    """Returns the value, and the gradients with respect to the first two arguments."""

    @overload
    def __call__(
        self: ValueAndGradientOfTwo[Concatenate[A, B, Q], ValueT],
        first: A,
        second: B,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> tuple[ValueT, tuple[A, B]]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tuple[ValueT, tuple[Any, Any]]: ...
