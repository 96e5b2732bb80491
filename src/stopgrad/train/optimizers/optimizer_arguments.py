"""The arguments of optimisers: a loss, parameters, and how to treat them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, DTypeError, GraphError, ShapeError
from stopgrad.base.structure import flatten, paths
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.names import check_name
from stopgrad.graph.operands import shorten
from stopgrad.graph.public import reads_arguments
from stopgrad.ops.structural.sources import Parameter
from stopgrad.train.optimizers.rules import Rule, at_least

Patterns: TypeAlias = str | Iterable[str]
"""Patterns of names of parameters, such as ``"encoder/*"``; ``"encoder"`` matches all names below it, too."""


class How(TypedDict, total=False):
    """The keyword arguments of every optimiser besides its hyperparameters.

    Attributes:
        groups: hyperparameters for some of the parameters, by patterns of their names:
            ``{"head/*": {"learning_rate": 1e-2}, ("*/b", "*/scale"): {"weight_decay": 0.0}}``. A rule such as
            ``sg.optimizers.AdamW()`` instead of a dict updates these parameters by another optimiser. The
            first pattern that matches counts.
        no_decay: patterns of the parameters whose weight decay is 0.
        clip_norm: the maximum norm of all gradients together, to which greater ones are scaled down, as in
            ``torch.nn.utils.clip_grad_norm_``.
        clip_value: the maximum absolute value of an element of a gradient, to which elements are clipped.
        accumulate: the number of runs after which parameters change, by the mean of the gradients of these
            runs. Schedules count the changes.
        loss_scale: for gradients of 16 bits, in which small numbers vanish: the first factor by which they
            are multiplied on their way, and divided at its end. A step whose gradients are not all finite is
            left out, and the factor halved; after 2000 steps made in a row, it is doubled. This is the rule
            of ``torch.amp.GradScaler``, which begins at 65536. None for no factor.
        average: the decay of an exponential moving average that is kept of each parameter; None for none.
        name: the scope of the operations, and the prefix of the names of state.
    """

    groups: Mapping[str | tuple[str, ...], Mapping[str, Any] | Rule]
    no_decay: Patterns
    clip_norm: float | None
    clip_value: float | None
    accumulate: int
    loss_scale: float | None
    average: float | None
    name: str | None


@reads_arguments
def checked(how: Mapping[str, Any]) -> How:
    """The keyword arguments, checked and with defaults filled in."""
    unknown = [key for key in how if key not in How.__annotations__]
    if unknown:
        raise ArgumentError(
            f"there is no argument {unknown[0]!r}; besides the hyperparameters there are "
            f"{shorten(list(How.__annotations__))}"
        )
    accumulate = how.get("accumulate", 1)
    if not is_whole(accumulate) or not 1 <= whole(accumulate) < 2**53:
        raise ArgumentError(f"accumulate is a whole number from 1 on, not {accumulate!r:.60}")
    average = how.get("average")
    groups = {} if how.get("groups") is None else how["groups"]
    if not isinstance(groups, Mapping):
        raise ArgumentError(
            "groups is a dict from patterns of names to hyperparameters, such as "
            f"{{'head/*': {{'learning_rate': 0.01}}}}, not {groups!r:.60}"
        )
    name = how.get("name")
    if name is not None:
        check_name(name)
    return How(
        groups=groups,
        no_decay=() if how.get("no_decay") is None else how["no_decay"],
        clip_norm=_bound(how.get("clip_norm"), "clip_norm"),
        clip_value=_bound(how.get("clip_value"), "clip_value"),
        accumulate=whole(accumulate),
        loss_scale=_bound(how.get("loss_scale"), "loss_scale"),
        average=None if average is None else at_least(average, "average", 0.0, 1.0),
        name=name,
    )


def _bound(value: float | None, name: str) -> float | None:
    if value is None:
        return None
    bound = at_least(value, name)
    if not bound:
        raise ArgumentError(f"{name} is a number above 0, or None; not {value!r:.60}")
    return bound


# ------------------------------------------------------------------------------------------ the tensors


def loss_in(loss: Output | Operation) -> Output:
    """The loss as an output; raises unless it is a floating-point scalar of a graph."""
    if isinstance(loss, Operation):
        loss = loss.as_output()
    if not isinstance(loss, Output):
        raise GraphError(
            f"the loss is an output of a graph, not {loss!r:.60}; for functions of arrays there is sg.grad"
        )
    if not loss.dtype.is_floating:
        raise DTypeError(f"the loss is a floating-point number, not {describe(loss)}")
    if loss.type.ndim:
        raise ShapeError(f"the loss is a scalar, not {describe(loss)}; take its mean with sg.reduce_mean")
    return loss


def named(parameters: Any, graph: Graph) -> dict[str, Output]:
    """The parameters by name: by the keys of a dict, or else by their names in the graph."""
    leaves = flatten(parameters)[0]
    keys: Sequence[str] = paths(parameters) if isinstance(parameters, Mapping) else ()
    by_name: dict[str, Output] = {}
    seen: set[Output] = set()
    for i, leaf in enumerate(leaves):
        x = _parameter(leaf, graph)
        if x in seen:
            raise GraphError(f"{describe(x)} is among the parameters twice; give it once")
        seen.add(x)
        name = keys[i] if keys else x.op.name
        if name in by_name:
            raise GraphError(
                f"two parameters are called {name!r}: {describe(by_name[name])} and {describe(x)}"
            )
        by_name[name] = x
    if not by_name:
        raise GraphError("there are no parameters to move; give those that sg.parameter made")
    return by_name


def _parameter(x: object, graph: Graph) -> Output:
    if isinstance(x, Operation):
        x = x.as_output()
    if not isinstance(x, Output):
        raise GraphError(f"parameters are outputs that sg.parameter made, not {x!r:.60}")
    if x.op.definition is not Parameter:
        raise GraphError(f"only a parameter, made by sg.parameter, can be moved; not {describe(x)}")
    if x.op.graph is not graph:
        raise GraphError(f"{describe(x)} belongs to another graph than the loss")
    if not x.dtype.is_floating:
        cure = (
            "make a parameter for the real part and one for the imaginary part"
            if x.dtype.is_complex
            else "no gradient reaches it; leave it out"
        )
        raise DTypeError(f"{describe(x)} is not a floating-point parameter; {cure}")
    return x
