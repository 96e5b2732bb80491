"""``vmap``: a function of one example, applied to a batch.

The function is traced once, for one example. Then each traced operation is built again for the batch by its
batching rule (:mod:`stopgrad.graph.batch_rules`). The result consists of ordinary operations, which can be
differentiated, batched again and compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import optree

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, ShapeError
from stopgrad.base.structure import NAMESPACE, flatten, paths, unflatten
from stopgrad.base.types import Dim, Size, TensorType, same_size, tensor_type
from stopgrad.graph.batch_rules import moved, repeated
from stopgrad.graph.batched_bodies import replay
from stopgrad.graph.build import as_output, close, local, parameter_of, tracing
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import is_tensor, shorten, type_of
from stopgrad.graph.public import call, guarded
from stopgrad.transforms.gradients.signatures import P, R
from stopgrad.transforms.gradients.transform_arguments import Tracing
from stopgrad.transforms.gradients.transforms import check_function

Axis = int | None


def vmap(f: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0) -> Callable[P, R]:
    """A function that applies f to all examples along an axis of its arguments at once.

    Each operation of f is built once, for all examples; one without a batching rule, which ``stopgrad ops``
    marks, is run in a loop.

    Args:
        f: a function of nested structures of tensors, for one example. Tensors that it closes over are the
            same for all examples.
        in_axes: the batch axis of each argument: its position, which may count from the end; None for an
            argument that is the same for all examples; or a tuple with an entry for each positional argument,
            each of these or a structure of them like the argument. Keyword arguments have the batch axis
            first.
        out_axes: the batch axis of the results: a position, a structure of them like the result, or None for
            a result that is the same for all examples.

    Returns:
        A function with f's arguments.

    Raises:
        ArgumentError: in_axes or out_axes do not fit the arguments or results, no argument is mapped, or
            out_axes is None for a result that differs between examples.
        ShapeError: the arguments have different numbers of examples.

    Examples:
        >>> weighted = sg.vmap(lambda x, w: sg.reduce_sum(x * w), in_axes=(0, None))
        >>> weighted(np.ones((3, 2)), np.array([1.0, 2.0]))
        array([3., 3., 3.])
        >>> sg.vmap(sg.grad(lambda x: x ** 3.0))(np.array([1.0, 2.0]))
        array([ 3., 12.])
    """
    check_function(f, "vmap")

    @functools.wraps(f)
    @guarded("vmap")
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = _argument_axes(in_axes, args, kwargs)
        outside = Tracing(args, kwargs)
        with outside.building():
            return outside.results(_Call(f, args, kwargs, axes, out_axes, outside).results())

    return mapped


class _Call:
    """One call of a mapped function, in the graph that *outside* builds in."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        axes: Sequence[Axis],
        out_axes: Any,
        outside: Tracing,
    ) -> None:
        self.f = f
        self.out_axes = out_axes
        self.outside = outside
        self.leaves, self.spec = flatten((args, kwargs))
        self.names = _names(args, kwargs)
        self.axes = [
            _normal(axis, leaf, name) for axis, leaf, name in zip(axes, self.leaves, self.names, strict=True)
        ]
        self.size = self._size()

    def _size(self) -> Size:
        """The number of examples, which must be the same in all mapped arguments."""
        common: tuple[Size, str] | None = None
        for leaf, axis, name in zip(self.leaves, self.axes, self.names, strict=True):
            if axis is None:
                continue
            size = type_of(leaf).shape[axis]
            if common is None or (isinstance(common[0], Dim) and same_size(size, common[0])):
                common = (size, name)
            elif not same_size(size, common[0]):
                raise ShapeError(
                    f"vmap: {common[1]} has {common[0]} examples and {name} has {size}, along the axes that "
                    "in_axes names; give all the same number, or None in in_axes for what is the same for all"
                )
        if common is None:
            raise ArgumentError(
                "vmap: no argument is mapped, so the number of examples is not known; name an axis of at "
                "least one argument in in_axes"
            )
        return common[0]

    def results(self) -> Any:
        """The function's result for the whole batch."""
        entered = [self.outside.stand_in(x) if is_tensor(x) else x for x in self.leaves]
        mapped = [i for i, axis in enumerate(self.axes) if axis is not None]
        graph = self.outside.graph
        with tracing("vmap", graph) as trace:
            inside = list(entered)
            for i in mapped:
                inside[i] = parameter_of(trace.graph, _of_one(entered[i].type, self.axes[i]), entered[i].op)
            args, kwargs = unflatten(self.spec, inside)
            result = call(self.f, *args, **kwargs)
            values, spec = flatten(result)
            tensors = [
                i for i, y in enumerate(values) if is_tensor(y) or isinstance(y, (int, float, complex))
            ]
            outputs = [local(as_output(values[i], trace.graph)) for i in tensors]
            body = close(trace, [inside[i] for i in mapped], outputs)
            captured = list(trace.captures)
        fronted = [moved(entered[i], self.axes[i] or 0, 0) for i in mapped]
        batch_outputs, batched = replay(
            body,
            [*fronted, *captured],
            [True] * len(mapped) + [False] * len(captured),
            self.size,
            graph,
            {inside[i]: entered[i] for i in mapped},
        )
        axes = _result_axes(self.out_axes, result, len(values))
        for i, y, b in zip(tensors, batch_outputs, batched, strict=True):
            assert y is not None
            values[i] = self._placed(y, b, axes[i])
        return unflatten(spec, values)

    def _placed(self, y: Output, batched: bool, axis: Axis) -> Output:
        """A result with its batch axis at the position that was asked for."""
        if axis is None:
            if batched:
                raise ArgumentError(
                    f"vmap: out_axes is None for a result that differs from example to example, {y.type!r} "
                    "of all; give the position that their axis shall have"
                )
            return y
        if not batched:
            y = repeated(y, self.size)
        if not -y.ndim <= axis < y.ndim:
            raise ArgumentError(
                f"vmap: out_axes={axis} does not exist in a result of {y.ndim} dimensions, with that of the "
                f"examples; take {-y.ndim} to {y.ndim - 1}"
            )
        return moved(y, 0, axis % y.ndim)


def _of_one(type: TensorType, axis: Axis) -> TensorType:
    return tensor_type(type.dtype, tuple(s for i, s in enumerate(type.shape) if i != axis))


# ----------------------------------------------------------------------------------------------- axes


def _argument_axes(in_axes: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Axis]:
    """The axis for each leaf of the arguments."""
    if in_axes is None or is_whole(in_axes):
        leaf_axes = [in_axes] * len(flatten(args)[0])
    elif not isinstance(in_axes, (tuple, list)):
        raise ArgumentError(
            f"vmap: in_axes={shorten(in_axes)} is no axis; take an integer, None, or a tuple with one of "
            "them, or a structure of them, for each positional argument"
        )
    elif len(in_axes) != len(args):
        raise ArgumentError(
            f"vmap: in_axes has {len(in_axes)} entries for {len(args)} positional arguments; give one each"
        )
    else:
        leaf_axes = [
            axis for axes, arg in zip(in_axes, args, strict=True) for axis in _spread(axes, arg, "in_axes")
        ]
    return leaf_axes + [0] * len(flatten(kwargs)[0])


def _result_axes(out_axes: Any, result: Any, count: int) -> list[Axis]:
    axes = _spread(out_axes, result, "out_axes")
    assert len(axes) == count
    return axes


def _spread(axes: Any, tree: Any, what: str) -> list[Axis]:
    """The axis for each leaf of *tree*, from *axes*, a prefix of its structure."""
    flatten(axes)  # Registers the dataclasses in it with optree.
    flatten(tree)
    leaf_axes: list[Axis] = []
    try:
        optree.tree_map_(
            lambda axis, part: leaf_axes.extend([axis] * len(flatten(part)[0])),
            axes,
            tree,
            is_leaf=lambda x: x is None,
            namespace=NAMESPACE,
        )
    except (TypeError, ValueError) as error:
        whole = "the result" if what == "out_axes" else "the argument"
        raise ArgumentError(
            f"vmap: {what}={shorten(axes)} does not fit {whole} ({str(error).splitlines()[0]}); give it the "
            "same structure, or one axis for all of it"
        ) from None
    for axis in leaf_axes:
        if axis is not None and not is_whole(axis):
            raise ArgumentError(
                f"vmap: {what} holds {shorten(axis)}, which is no axis; take an integer or None"
            )
    return leaf_axes


def _normal(axis: Axis, leaf: object, name: str) -> Axis:
    """The batch axis of one argument, counted from the front; None if it has none."""
    if axis is None:
        return None
    if not is_tensor(leaf):
        if isinstance(leaf, (int, float, complex)):
            raise ArgumentError(
                f"vmap: {name} is the number {leaf!r}, which has no axis of examples; give None for it in "
                "in_axes"
            )
        return None
    kind = type_of(leaf)
    if not -kind.ndim <= axis < kind.ndim:
        raise ArgumentError(
            f"vmap: in_axes says axis {axis} for {name}, which is {kind!r}; name an axis that it has, or "
            "None if it is the same for all"
        )
    return whole(axis) % kind.ndim


def _names(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The name of each leaf of the arguments in error messages."""

    def of(tree: Any, what: str) -> Iterable[str]:
        return [f"{what} at {path!r}" if path else what for path in paths(tree)]

    names = [name for i, arg in enumerate(args) for name in of(arg, f"argument {i}")]
    return names + [name for key in sorted(kwargs) for name in of(kwargs[key], f"argument {key!r}")]
