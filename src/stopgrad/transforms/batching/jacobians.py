"""All partial derivatives: one pullback, traced once and batched over the elements of the value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.base.coercion import is_whole
from stopgrad.base.errors import DTypeError, ShapeError
from stopgrad.base.garbage import without_gc
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import product
from stopgrad.graph.batch_rules import repeated
from stopgrad.graph.batched_bodies import replay
from stopgrad.graph.body import Body
from stopgrad.graph.build import as_output, close, local, parameter_of, tracing, visible
from stopgrad.graph.builder import current
from stopgrad.graph.graph import Output
from stopgrad.graph.public import call, guarded
from stopgrad.graph.scope import Scope
from stopgrad.ops.indexing.gather import one_hot
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import full
from stopgrad.transforms.gradients.reach import routes
from stopgrad.transforms.gradients.reverse import backpropagate
from stopgrad.transforms.gradients.signatures import P
from stopgrad.transforms.gradients.transform_arguments import Tracing
from stopgrad.transforms.gradients.transforms import (
    argument_positions,
    check_function,
    enter_arguments,
    grad,
    like_targets,
    with_aux,
)


def jacobian(
    f: Callable[P, object], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[P, Any]:
    """A function that returns all partial derivatives of f.

    Args:
        f: a function that returns a nested structure of tensors of fixed shape; with has_aux, a pair of that
            and anything else.
        argnums: with respect to which positional arguments.
        has_aux: whether f returns a pair.

    Returns:
        A function that returns, in the structure of the value, for each of its tensors the structure of the
        argument with tensors of shape ``value.shape + argument.shape``. One pullback is built for each
        tensor of the value, for all its elements. For holomorphic f it is the conjugate of the derivative, as
        complex gradients are.

    Raises:
        DTypeError: a complex value depends on a real argument, whose real gradient would lose the imaginary
            part.

    Examples:
        >>> sg.jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
    """
    check_function(f, "jacobian")

    @functools.wraps(f)
    @guarded("jacobian")
    def with_jacobian(*args: Any, **kwargs: Any) -> Any:
        outside = Tracing(args, kwargs)
        positions = argument_positions(argnums, args, "jacobian")
        with outside.building():
            entered, targets = enter_arguments(outside, args, positions, "jacobian", f)
            value, aux = with_aux(call(f, *entered, **outside.enter(kwargs)), has_aux, "jacobian")
            leaves, spec = flatten(value)
            blocks = []
            for leaf in leaves:
                rows = _rows(as_output(leaf, outside.graph), targets)
                parts = tuple(like_targets(entered[i], targets, rows) for i in positions)
                blocks.append(parts[0] if is_whole(argnums) else parts)
            jacobians = unflatten(spec, blocks)
            return outside.results((jacobians, aux) if has_aux else jacobians)

    return with_jacobian


def _rows(y: Output, targets: Sequence[Output]) -> list[Output]:
    """For each target the derivatives of every element of y, with y's axes first."""
    count = product(y.shape)
    if not isinstance(count, int):
        raise ShapeError(
            f"jacobian: the value {y.type!r} has a symbolic size; its elements must be known when it is built"
        )
    return without_gc(_built_rows, visible(local(y)), targets, count)


def _built_rows(y: Output, targets: Sequence[Output], count: int) -> list[Output]:
    graph = current().graph
    with Scope(graph, current().prefix).with_sub_scope("jacobian"):
        body, captured = _pullback(y, targets)
        rows: list[Output | None] = [None] * len(targets)
        for g, x in zip(body.outputs, targets, strict=True):
            if y.dtype.is_complex and x.dtype.is_floating and g is not None:
                raise DTypeError(
                    f"jacobian: of a complex value, {y.type!r}, with respect to a real {x.type!r} a "
                    "gradient is the real part only; take the Jacobians of sg.real and sg.imag of the value"
                )
        if any(g is not None for g in body.outputs):
            basis = reshape(one_hot(numbers(count), count, dtype=y.dtype), (count, *y.shape))
            flags = [True] + [False] * len(captured)
            rows, batched = replay(body, [basis, *captured], flags, count, graph)
            rows = [g if g is None or b else repeated(g, count) for g, b in zip(rows, batched, strict=True)]
        return [
            full((*y.shape, *x.shape), 0, x.dtype) if g is None else reshape(g, (*y.shape, *x.shape))
            for g, x in zip(rows, targets, strict=True)
        ]


def _pullback(y: Output, targets: Sequence[Output]) -> tuple[Body, list[Output]]:
    """The pullback from a cotangent of y to those of the targets, as a body, and the captured tensors."""
    with tracing("jacobian", y.op.graph, origin=y.op) as trace:
        seed = parameter_of(trace.graph, y.type, y.op)
        cotangents: dict[Output, Output | None] = {}
        for acting, group, path in routes([y], targets, ()):
            cotangents.update(zip(group, backpropagate([y], group, [seed], path, acting), strict=True))
        body = close(trace, [seed], [cotangents[x] for x in targets])
        return body, list(trace.captures)


def hessian(f: Callable[P, object], argnums: int | Sequence[int] = 0) -> Callable[P, Any]:
    """A function that returns all second partial derivatives of f, a function with a scalar value.

    Args:
        f: a function that returns a real scalar.
        argnums: with respect to which positional arguments.

    Returns:
        A function that returns, in the structure of the argument, for each of its tensors the structure of
        the argument with tensors of shape ``argument.shape + argument.shape``.

    Examples:
        >>> sg.hessian(lambda x: sg.reduce_sum(x * x * x))(np.array([1.0, 2.0]))
        array([[ 6.,  0.],
               [ 0., 12.]])
    """
    return jacobian(grad(f, argnums), argnums)
