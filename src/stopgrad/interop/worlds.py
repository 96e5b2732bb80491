"""Questions about functions and losses of any world: ours, PyTorch's, JAX's, TensorFlow's.

Each world answers in a module of its own folder, which is imported when a question is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.flow import (
    ablate as ablate_ours,
    check_gradients as check_ours,
    explain as explain_ours,
    trace_nan as trace_ours,
)
from stopgrad.flow.ablation.ablation import Ablation
from stopgrad.flow.checking.gradient_check import GradientCheck
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.nans.nan_trace import NanTrace
from stopgrad.graph.graph import Operation, Output
from stopgrad.interop.value_worlds import JAX, OURS, TENSORFLOW, TORCH, kind, kinds_in, named_worlds


class World(NamedTuple):
    """A world other than ours.

    Attributes:
        package: the package that is needed.
        extra: what of ours installs it; empty if nothing does.
        module: the module with its ``report(ys, args, kwargs)``, which gives a report and a note on it, and
            its ``trace_nan``, ``check_gradients`` and ``ablate``.
    """

    package: str
    extra: str
    module: str


WORLDS = {
    TORCH: World("torch", "torch", "stopgrad.interop.torch.world"),
    JAX: World("jax", "jax", "stopgrad.interop.jax.world"),
    TENSORFLOW: World("tensorflow", "", "stopgrad.interop.tensorflow.world"),
}
"""The other worlds, by name."""


def explain(ys: Any, *args: Any, **kwargs: Any) -> Flow:
    """Whether gradients arrive at tensors; and if not, which operation, on which line, cuts them.

    Args:
        ys: outputs of a graph; a function; or a loss of PyTorch or TensorFlow that was watched. A function
            may be written with ``sg`` or with PyTorch, JAX or TensorFlow: its arguments and its code tell.
        args: what is asked about; or the function's arguments.
        kwargs: for ours, ``argnums``, ``stop_gradients``, ``magnitudes``, ``feed_dict``, ``session``, and the
            function's keyword arguments, as :func:`stopgrad.flow.explain.explain` describes them; for another
            world, those of its own ``explain``, such as ``model``.

    Returns:
        A :class:`stopgrad.flow.flow_report.Flow`: for each tensor a ``status``, the numbers of ``paths`` and
        ``cut_paths``, and ``cuts``.

    Raises:
        ArgumentError: objects of two worlds are asked about.
        GraphError, GradientError, FeedError: as :func:`stopgrad.flow.explain.explain`.

    Examples:
        >>> sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)["b"].status
        'stopped'
    """
    return report("explain", ys, args, kwargs)[0]


def trace_nan(ys: Any, *args: Any, **kwargs: Any) -> NanTrace:
    """The operation that made the first NaN or infinity, in values or in the gradient, with the user's line.

    Args:
        ys, args: outputs of a graph and what is asked about, or a function and its arguments. A function may
            be written with ``sg`` or with PyTorch, JAX or TensorFlow: its arguments and its code tell, and
            the gradient judged is the framework's own.
        kwargs: the options of :func:`stopgrad.flow.nans.trace.trace_nan`, or of another world's
            ``trace_nan``, and the function's keyword arguments.

    Returns:
        A :class:`stopgrad.flow.nans.nan_trace.NanTrace`, which is true if a NaN or infinity arrives.

    Raises:
        GraphError, FeedError: as :func:`stopgrad.flow.nans.trace.trace_nan`.

    Examples:
        >>> sg.trace_nan(lambda x: sg.log(x - x), 1.0).first.kind
        'inf'
    """
    traced: NanTrace = _question("trace_nan", ys, args, kwargs)(ys, *args, **kwargs)
    return traced


def check_gradients(ys: Any, *args: Any, **kwargs: Any) -> GradientCheck:
    """Compare gradients with finite differences of the function that stops leave.

    Args:
        ys, args: outputs of a graph and what is asked about, or a function and its arguments. A function may
            be written with ``sg`` or with PyTorch, JAX or TensorFlow: then the framework's own gradient is
            what is judged.
        kwargs: the options of :func:`stopgrad.flow.checking.check.check_gradients`, or of another world's
            ``check_gradients``, and the function's keyword arguments.

    Returns:
        A :class:`stopgrad.flow.checking.gradient_check.GradientCheck`, which is true if all agree.

    Raises:
        GradientError: they differ, unless ``raises=False``.
        ArgumentError, DTypeError, GraphError, FeedError: the arguments do not fit.

    Examples:
        >>> sg.check_gradients(lambda x: sg.exp(x) * sg.stop_gradient(x), 1.0).passed
        True
    """
    checked: GradientCheck = _question("check_gradients", ys, args, kwargs)(ys, *args, **kwargs)
    return checked


def ablate(ys: Any, *args: Any, **kwargs: Any) -> Ablation:
    """What each stop does to a gradient on real data, and where a stop would only save work.

    Args:
        ys, args: outputs of a graph and what is asked about, or a function and its arguments. A function may
            be written with ``sg`` or with PyTorch, JAX or TensorFlow: then the framework differentiates it,
            with and without each stop.
        kwargs: the options of :func:`stopgrad.flow.ablation.ablate.ablate`, or of another world's ``ablate``,
            and the function's keyword arguments.

    Returns:
        An :class:`stopgrad.flow.ablation.ablation.Ablation`, with a verdict for each line that stops.

    Raises:
        GradientError, GraphError, FeedError: as :func:`stopgrad.flow.ablation.ablate.ablate`.

    Examples:
        >>> sg.ablate(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0, repeats=0).stops[0].verdict
        'changes the gradient'
    """
    ablated: Ablation = _question("ablate", ys, args, kwargs)(ys, *args, **kwargs)
    return ablated


_OURS: Mapping[str, Callable[..., Any]] = {
    "ablate": ablate_ours,
    "check_gradients": check_ours,
    "trace_nan": trace_ours,
}
"""What answers a question about a graph or a function of ours, by the question's name."""


def _question(what: str, ys: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that answers a question in whichever world it is."""
    world = world_of(what, ys, args, kwargs)
    if world == OURS:
        return _OURS[what]
    answer: Callable[..., Any] = getattr(_module(world, f"{what} of {world} code"), what)
    return answer


def _module(world: str, purpose: str) -> Any:
    """The module of another world, which needs its package."""
    package, extra, module = WORLDS[world]
    require(package, purpose, extra)
    return require(module, purpose, extra)


def report(what: str, ys: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Flow, str]:
    """The report on a question in whichever world it is, and a note on it."""
    world = world_of(what, ys, args, kwargs)
    if world == OURS:
        return explain_ours(ys, *args, **kwargs), ""
    answered: tuple[Flow, str] = _module(world, f"explaining {world} code").report(ys, args, kwargs)
    return answered


def world_of(what: str, ys: object, args: object, kwargs: object) -> str:
    """The world of a question: that of its objects, or else the one that the function's code names."""
    if isinstance(ys, (Output, Operation)) or (not callable(ys) and OURS in kinds_in(ys)):
        return OURS  # Its options may hold what only our functions understand, such as a feed_dict.
    kinds = kinds_in([ys, args, kwargs])
    others = [world for world in WORLDS if world in kinds]
    if len(others) > 1:
        raise ArgumentError(f"{what}: objects of both {others[0]} and {others[1]}; ask about one of them")
    if TORCH in kinds or TENSORFLOW in kinds:
        return others[0]
    if not callable(ys) or kind(ys):
        return kind(ys) or OURS
    named = named_worlds(ys)
    if JAX in kinds:
        return OURS if list(named) == [OURS] else JAX
    return next(iter(named)) if len(named) == 1 else OURS
