"""Transforms of Python functions over nested structures of arrays: grad, value_and_grad, vjp, jvp, hvp.

Called on outputs of a graph, they build there, so they nest in any order; called on arrays, they build a
graph of their own and compute it at once with NumPy. ``sg.function`` around them compiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVarTuple, overload

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.coercion import flag, is_whole, whole
from stopgrad.base.errors import ArgumentError, DTypeError, GradientError, ShapeError
from stopgrad.base.structure import flatten, unflatten
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.build import as_output, graph_for
from stopgrad.graph.graph import Graph, Output
from stopgrad.graph.operands import as_array, is_tensor, type_of
from stopgrad.graph.public import call, guarded, reads_arguments
from stopgrad.ops.structural.sources import zeros_like
from stopgrad.transforms.gradients.forward import push_forward
from stopgrad.transforms.gradients.reverse import gradients
from stopgrad.transforms.gradients.signatures import (
    A,
    AuxT,
    Function,
    Gradient,
    GradientAndAux,
    GradientOfTwo,
    P,
    R,
    ValueAndGradient,
    ValueAndGradientOfTwo,
)
from stopgrad.transforms.gradients.transform_arguments import Tracing

Arguments = TypeVarTuple("Arguments")


@reads_arguments
def argument_positions(argnums: int | Sequence[int], args: Sequence[Any], what: str) -> tuple[int, ...]:
    """The positions that argnums name, counted from the front; raises unless *args* has them."""
    alone = is_whole(argnums) or not isinstance(argnums, Iterable)
    entries: Any = (argnums,) if alone else argnums
    positions = tuple(entries)
    if not all(map(is_whole, positions)):
        raise ArgumentError(
            f"{what}: argnums={argnums!r} is no position, nor several; take 0 for the first argument"
        )
    for i in positions:
        if not -len(args) <= i < len(args):
            raise GradientError(
                f"{what}: argnums={argnums!r}, but the function was given {len(args)} positional arguments"
            )
    return tuple(whole(i) % len(args) for i in positions)


def _differentiated(tracing: Tracing, tree: Any, what: str, first: str) -> tuple[Any, list[Output]]:
    """*tree* with stand-ins, and its floating-point leaves, with respect to which to differentiate."""
    leaves, spec = flatten(tree)
    entered, targets = [], []
    for leaf, name in zip(leaves, tracing.names(tree, first), strict=True):
        if isinstance(leaf, (float, complex)) or (is_tensor(leaf) and type_of(leaf).differentiable):
            leaf = tracing.stand_in(leaf, name)
            targets.append(leaf)
        elif len(leaves) == 1:
            shown = repr(type_of(leaf)) if is_tensor(leaf) or isinstance(leaf, (int, bool)) else repr(leaf)
            raise DTypeError(
                f"{what}: differentiates with respect to floating-point or complex arguments, not {shown} "
                f"({first}); {_cure(leaf)}"
            )
        elif is_tensor(leaf):
            leaf = tracing.stand_in(leaf, name)
        entered.append(leaf)
    return unflatten(spec, entered), targets


def _cure(leaf: object) -> str:
    """What to pass instead of something that holds tensors and is none."""
    if callable(getattr(leaf, "values", None)):
        return "pass its values(), which are arrays by name"
    if hasattr(getattr(leaf, "__self__", leaf), "named_parameters"):
        return "load the module with stopgrad.torch.load, and pass the values() of what that returns"
    return "pass a float, or convert with sg.cast"


def like_targets(tree: Any, targets: Sequence[Output], values: Sequence[Any]) -> Any:
    """The structure of *tree* with the values in the places of the targets, and None elsewhere."""
    leaves, spec = flatten(tree)
    by_target = {id(t): v for t, v in zip(targets, values, strict=True)}
    return unflatten(spec, [by_target.get(id(leaf)) for leaf in leaves])


def _zero_or_none(g: Output | None, x: Output, unconnected: str) -> Output | None:
    return zeros_like(x) if g is None and unconnected == "zero" else g


@overload
def value_and_grad(
    f: Callable[P, R],
    argnums: Literal[0] = 0,
    *,
    has_aux: bool = False,
    unconnected: Literal["zero"] = "zero",
) -> ValueAndGradient[P, R]: ...
@overload
def value_and_grad(
    f: Callable[P, R],
    argnums: tuple[Literal[0], Literal[1]],
    *,
    has_aux: bool = False,
    unconnected: Literal["zero"] = "zero",
) -> ValueAndGradientOfTwo[P, R]: ...
@overload
def value_and_grad(
    f: Callable[P, R], argnums: int | Sequence[int] = 0, *, has_aux: bool = False, unconnected: str = "zero"
) -> Callable[P, tuple[R, Any]]: ...
def value_and_grad(
    f: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, unconnected: str = "zero"
) -> Function:
    """A function that returns f's value and its gradient.

    Args:
        f: a function that returns a real scalar; or, with has_aux, a pair of that and anything else.
        argnums: with respect to which positional arguments: nested structures of floating-point arrays.
            Leaves of other kinds get None.
        has_aux: whether f returns such a pair.
        unconnected: ``"zero"`` or ``"none"``: what to return for arguments that no gradient reaches.

    Returns:
        A function with f's arguments that returns (value, gradient), or ((value, aux), gradient). The
        gradient has the structure of the argument, or is a tuple for several.

    Raises:
        GradientError: the value is no scalar, or argnums do not exist.
        DTypeError: an argument is no float.

    Examples:
        >>> sg.value_and_grad(lambda x: sg.reduce_sum(x * x))(np.array([1.0, 2.0]))
        (array(5.), array([2., 4.]))
    """
    check_function(f, "grad")
    if not isinstance(unconnected, str) or unconnected not in ("zero", "none"):
        raise GradientError(f"grad: unconnected is 'zero' or 'none', not {unconnected!r}")

    @functools.wraps(f)
    @guarded("grad")
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        tracing = Tracing(args, kwargs)
        positions = argument_positions(argnums, args, "grad")
        with tracing.building():
            entered, targets = enter_arguments(tracing, args, positions, "grad", f)
            value, aux = with_aux(call(f, *entered, **tracing.enter(kwargs)), has_aux, "grad")
            y = _scalar(value, tracing.graph)
            partials = [
                _zero_or_none(g, x, unconnected) for g, x in zip(gradients(y, targets), targets, strict=True)
            ]
            parts = tuple(like_targets(entered[i], targets, partials) for i in positions)
            gradient = parts[0] if is_whole(argnums) else parts
            return tracing.results((((y, aux) if has_aux else y), gradient))

    return with_gradient


def enter_arguments(
    tracing: Tracing, args: Sequence[Any], positions: Sequence[int], what: str, f: Function
) -> tuple[list[Any], list[Output]]:
    """The arguments of f with stand-ins for their tensors, and those to differentiate with respect to."""
    entered: list[Any] = []
    targets: list[Output] = []
    names = argument_names(f, len(args))
    for i, arg in enumerate(args):
        if i in positions:
            arg, some = _differentiated(tracing, arg, what, names[i])
            targets += some
        else:
            arg = tracing.enter(arg, names[i])
        entered.append(arg)
    return entered, targets


def check_function(f: object, what: str) -> None:
    """Raise unless *f* is callable; errors name the transform, *what*."""
    if not callable(f):
        raise ArgumentError(f"{what}: takes a function, not {f!r}")


@reads_arguments
def with_aux(result: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    """A function's result, split into value and aux with *has_aux*; otherwise aux is None."""
    if not flag(has_aux, f"{what}: has_aux"):
        return result, None
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise GradientError(
            f"{what}: with has_aux=True the function must return a pair (value, aux), not "
            f"{type(result).__name__}"
        )
    return result[0], result[1]


def _scalar(value: object, graph: Graph) -> Output:
    try:
        y = as_output(value, graph)
    except DTypeError:
        raise GradientError(
            f"grad: the function must return a scalar, not {type(value).__name__}; with a second result, "
            "pass has_aux=True"
        ) from None
    if y.ndim:
        raise GradientError(
            f"grad: the function must return a scalar, not {y.type!r}; sum it, or take sg.vjp or sg.jacobian"
        )
    if not y.dtype.is_floating:
        raise GradientError(
            f"grad: the function must return a real floating-point number, not {y.dtype}; of a complex "
            "number take sg.real or sg.abs"
        )
    return y


@overload
def grad(
    f: Callable[P, object],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    unconnected: Literal["zero"] = "zero",
) -> Gradient[P]: ...
@overload
def grad(
    f: Callable[P, tuple[object, AuxT]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    unconnected: Literal["zero"] = "zero",
) -> GradientAndAux[P, AuxT]: ...
@overload
def grad(
    f: Callable[P, object],
    argnums: tuple[Literal[0], Literal[1]],
    *,
    has_aux: Literal[False] = False,
    unconnected: Literal["zero"] = "zero",
) -> GradientOfTwo[P]: ...
@overload
def grad(
    f: Callable[P, object],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    unconnected: str = "zero",
) -> Callable[P, Any]: ...
def grad(
    f: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, unconnected: str = "zero"
) -> Function:
    """A function that returns the gradient of f, a function with a scalar value.

    The arguments are those of :func:`value_and_grad`; with has_aux it returns (gradient, aux).

    Examples:
        >>> sg.grad(lambda x: x ** 3.0)(2.0)
        array(12., dtype=float32)
        >>> float(sg.grad(sg.grad(lambda x: x ** 3.0))(2.0))
        12.0
    """
    both = value_and_grad(f, argnums, has_aux=has_aux, unconnected=unconnected)

    @functools.wraps(f)
    @reads_arguments
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, partials = both(*args, **kwargs)
        return (partials, value[1]) if has_aux else partials

    return gradient


@overload
def vjp(
    f: Callable[[*Arguments], R], *primals: *Arguments, has_aux: Literal[False] = False
) -> tuple[R, Callable[[R], tuple[*Arguments]]]: ...
@overload
def vjp(
    f: Callable[[*Arguments], tuple[R, AuxT]], *primals: *Arguments, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[*Arguments]], AuxT]: ...
@overload
def vjp(f: Function, *primals: Any, has_aux: bool = False) -> Any: ...
@guarded("vjp")  # type: ignore[misc] # mypy cannot compare it with what *Arguments stands for.
def vjp(f: Any, *primals: Any, has_aux: bool = False) -> Any:
    """The value of f, and its pullback.

    Args:
        f: a function that returns a nested structure of tensors; with has_aux, a pair of that and anything
            else.
        primals: its arguments.
        has_aux: whether f returns such a pair.

    Returns:
        (value, pullback), with has_aux (value, pullback, aux). The pullback takes cotangents in the
        structure of the value and returns a tuple with the cotangents of the primals, which are zero where
        the value does not depend on them.

    Examples:
        >>> value, pullback = sg.vjp(lambda x: x * x, np.array([1.0, 2.0]))
        >>> pullback(np.array([1.0, 10.0]))
        (array([ 2., 40.]),)
    """
    check_function(f, "vjp")
    tracing = Tracing(primals)
    with tracing.building():
        entered, targets = enter_arguments(tracing, primals, range(len(primals)), "vjp", f)
        value, aux = with_aux(call(f, *entered), has_aux, "vjp")
        leaves, spec = flatten(value)
        ys = [as_output(y, tracing.graph) for y in leaves]

    @guarded("vjp")
    def pullback(cotangents: Any) -> tuple[Any, ...]:
        gs = flatten(cotangents)[0]
        if len(gs) != len(ys):
            raise GradientError(
                f"vjp: {len(gs)} cotangents for {len(ys)} results; give them in the structure of the value"
            )
        symbolic = next((g.graph for g in gs if isinstance(g, Output)), tracing.graph)
        if tracing.computes and symbolic is not tracing.graph:
            # The primals were arrays and the cotangents are outputs: build anew in the graph of these.
            with symbolic.as_default():
                return vjp(f, *primals, has_aux=has_aux)[1](cotangents)
        call = Tracing()
        # In the body of a loop or branch, the pullback is built there, and captures the function's values.
        call.graph = tracing.graph if tracing.computes or not ys else graph_for(ys[0])
        call.computes, call.feeds = tracing.computes, dict(tracing.feeds)
        call.acted = tracing.acted
        with call.building():
            seeds = [
                call.stand_in(as_array(g, y.dtype) if isinstance(g, (int, float, complex)) else g)
                for g, y in zip(gs, ys, strict=True)
            ]
            partials = [
                _zero_or_none(g, x, "zero")
                for g, x in zip(gradients(ys, targets, seeds), targets, strict=True)
            ]
            return call.results(tuple(like_targets(arg, targets, partials) for arg in entered))

    values = tracing.results(unflatten(spec, ys))
    return (values, pullback, tracing.results(aux)) if has_aux else (values, pullback)


@guarded("jvp")
def jvp(f: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[R, R]:
    """The value of f, and its derivative along tangents.

    Args:
        f: a function that returns a nested structure of tensors.
        primals: its arguments.
        tangents: directions in the same structure.

    Returns:
        (value, tangent), both in the structure of the value; the tangent is zero where no primal moves the
        value.

    Examples:
        >>> sg.jvp(lambda x: x * x, (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
        (array([1., 4.]), array([ 2., 40.]))
    """
    check_function(f, "jvp")
    if (
        not isinstance(primals, (tuple, list))
        or not isinstance(tangents, (tuple, list))
        or len(primals) != len(tangents)
    ):
        raise GradientError(
            "jvp: primals and tangents are tuples of one length, with a tangent for each argument"
        )
    tracing = Tracing(primals, tangents)
    with tracing.building():
        entered, targets = enter_arguments(tracing, primals, range(len(primals)), "jvp", f)
        directions = [
            t for t in flatten(list(tangents))[0] if not (is_tensor(t) and not type_of(t).differentiable)
        ]
        if len(directions) != len(targets):
            raise GradientError(
                f"jvp: {len(directions)} tangents for {len(targets)} arguments; give them in one structure"
            )
        moved = [_direction(tracing, t, x) for t, x in zip(directions, targets, strict=True)]
        leaves, spec = flatten(call(f, *entered))
        ys = [as_output(y, tracing.graph) for y in leaves]
        pushed = [
            _zero_or_none(t, y, "zero") for t, y in zip(push_forward(ys, targets, moved), ys, strict=True)
        ]
        return tracing.results((unflatten(spec, ys), unflatten(spec, pushed)))


def _direction(tracing: Tracing, tangent: ArrayLike, x: Output) -> Output:
    t: Output = tracing.stand_in(
        as_array(tangent, x.dtype) if isinstance(tangent, (int, float, complex)) else tangent
    )
    if t.dtype is not x.dtype:
        raise DTypeError(
            f"jvp: the tangent of {x.type!r} must be {x.dtype}, not {t.dtype}; convert with sg.cast"
        )
    if t.shape != x.shape:
        raise ShapeError(f"jvp: the tangent of {x.type!r} must have its shape, not {t.type!r}")
    return t


@overload
def hvp(f: Callable[[A], object], primals: tuple[A], tangents: tuple[A]) -> A: ...
@overload
def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any: ...
@guarded("hvp")
def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of f, a function with a scalar value, times a direction, without building the Hessian.

    Args:
        f: a function that returns a real scalar.
        primals: its arguments.
        tangents: directions in the same structure.

    Returns:
        The product, in the structure of the first argument, or a tuple for several.

    References:
        Pearlmutter 1994, "Fast exact multiplication by the Hessian".

    Examples:
        >>> sg.hvp(lambda x: sg.reduce_sum(x * x * x), (np.array([1.0, 2.0]),), (np.array([1.0, 1.0]),))
        array([ 6., 12.])
    """
    if not isinstance(primals, (tuple, list)):
        raise GradientError(
            "hvp: primals and tangents are tuples of one length, with a tangent for each argument"
        )
    argnums = tuple(range(len(primals)))
    product_of = jvp(grad(f, argnums), primals, tangents)[1]
    return product_of[0] if len(primals) == 1 else product_of
