"""Public functions: ``explain``, which asks in one call, and the assertions for tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from stopgrad.base.errors import ArgumentError, FlowError
from stopgrad.flow.assertions import blocked_or_raise, flows_or_raise, held_or_raise, only_flows_or_raise
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.updates import Step
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.public import call, guarded
from stopgrad.interop.shared import keras, keras_updates
from stopgrad.interop.torch import internals, updating
from stopgrad.interop.torch.questions import Asked, Loss, Names, chosen, losses_in, named_tensors
from stopgrad.interop.torch.recording.autograd_nodes import node_of, owners_of
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.recording.used import parameters_of
from stopgrad.interop.torch.watching import RECORDERS, Watch, explained

__tracebackhide__ = True  # What pytest shows of a failure ends at the line of the test.

UNSEEN = (
    "No watch saw how this loss was made: what passes is known from autograd alone, without lines. "
    "Make the loss inside 'with sgt.watch():' to see them."
)


@guarded("explain")
def explain(
    f: Callable[..., Any],
    *args: torch.Tensor,
    model: Asked | None = None,
    only: Names | None = None,
    magnitudes: bool = False,
    optimizer: Any = None,
    **kwargs: Any,
) -> Flow:
    """Watch one call of a function: do gradients of what it returns arrive, and which lines cut them?

    Args:
        f: a function, or a module, that returns a tensor or a structure with tensors. A model of Keras with
            two arguments, x and y, stands for the loss that its ``fit`` differentiates.
        args, kwargs: its arguments.
        model: what is asked about: a module, an optimizer, tensors, or a dict or list of these. Unless given,
            the tensors among the arguments that require gradients and the parameters of the modules among
            them, of *f* itself, and of the object that *f* is a method of.
        only: a pattern, or patterns, of the names that are asked about.
        magnitudes: whether to differentiate what *f* returns, as :meth:`Watch.explain` does, and tell how
            large the gradients are, and where they vanish or explode.
        optimizer: what updates the parameters, of ``torch.optim`` or of Keras, or a compiled model of Keras:
            an update is done on copies, and the report says which parameters it *moves*, and which *without a
            gradient*. Nothing of yours is changed.

    Returns:
        A :class:`stopgrad.flow.flow_report.Flow`, whose keys are names: of parameters (of Keras' their
        paths), or paths of arguments.

    Raises:
        ArgumentError: *f* returns no tensor, or there is nothing to ask about; a Keras model with x and y is
            not compiled.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> def loss(w, x):
        ...     return (w * x.detach()).sum()
        >>> print(sgt.explain(loss, torch.ones(2, requires_grad=True), torch.ones(2)))
        A gradient reaches w.
        <BLANKLINE>
        flows: w
    """
    if not callable(f) or isinstance(f, torch.Tensor):
        raise ArgumentError(
            f"explain: takes a function and its arguments, not {type(f).__name__}; for a loss that is there "
            "already, make it inside 'with sgt.watch() as seen:' and ask seen.explain(loss, model)"
        )
    if keras.is_model(f) and len(args) == 2 and not kwargs:
        loss, network = keras.fit_loss("explain", f), cast(torch.nn.Module, f)
        model = network if model is None else model
        if not network.built:
            network(args[0])

        def again() -> Any:
            with keras.scope():  # In which the model stays as it was.
                return call(loss, f, *args)
    else:
        again = functools.partial(call, f, *args, **kwargs)
    with Watch() as seen:
        returned = again()
    losses = list(tensors_in(returned))
    if not losses:
        raise ArgumentError(f"explain: the function returned {type(returned).__name__}, and no tensor in it")
    xs = arguments_of(f, args, kwargs) if model is None else model
    if model is None and not xs:
        raise ArgumentError(
            "explain: none of the arguments requires a gradient; say with model= what is asked about"
        )
    flow = seen.explain(losses, xs, only=only, magnitudes=magnitudes)
    if optimizer is None:
        return flow
    return with_updates("explain", flow, optimizer, losses, again, xs)


def with_updates(
    what: str, flow: Flow, optimizer: Any, losses: Sequence[Any], again: Callable[[], Any], xs: Any
) -> Flow:
    """A report with what an update by an optimizer of PyTorch or of Keras does.

    Args:
        what: the caller, for errors.
        flow: the report.
        optimizer: the optimizer.
        losses: what is differentiated, with its graph.
        again: computes what holds the losses once more.
        xs: what was asked about.
    """
    asked = {name: x for name, x in named_tensors(what, xs).items() if name in flow.xs}
    return flow.with_steps(_steps(what, optimizer, losses, again, asked, xs))


def _steps(
    what: str,
    optimizer: Any,
    losses: Sequence[Any],
    again: Callable[[], Any],
    asked: Mapping[str, Any],
    xs: Any,
) -> dict[str, Step]:
    """What an update does to the tensors asked about."""
    if keras_updates.optimizer_in(optimizer) is None:
        return updating.steps_of(what, optimizer, losses, lambda: list(tensors_in(again())), asked)
    return updating.keras_steps(
        what, optimizer, xs, asked, updating.gradients_of(losses, list(asked.values()))
    )


@guarded("assert_held")
def assert_held(
    f: Callable[..., Any],
    *args: Any,
    optimizer: Any,
    model: Asked | None = None,
    only: Names | None = None,
    **kwargs: Any,
) -> None:
    """Raise if an update of an optimizer moves any of some parameters.

    A stop, or ``detach``, does not always hold a parameter: where a gradient of zeros is there, weight decay
    and momentum move it.

    Args:
        f, args, model, kwargs: as for :func:`explain`.
        optimizer: what updates the parameters; an update is done on copies.
        only: a pattern, or patterns, of the names that must be held; all that are asked about unless given.

    Raises:
        FlowError: some move, by how much, and why, as far as it is known.
        ArgumentError: as for :func:`explain`; the optimizer is none.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> net = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 1)})
        >>> def loss(x):
        ...     return net["head"](net["encoder"](x)).sum()
        >>> opt = torch.optim.AdamW(net["head"].parameters(), lr=0.1)
        >>> sgt.assert_held(loss, torch.ones(1, 2), model=net, optimizer=opt, only="encoder.*")
    """
    flow = explain(f, *args, model=model, optimizer=optimizer, **kwargs)
    held_or_raise("assert_held", flow, list(chosen("assert_held", dict.fromkeys(flow), only)))


def arguments_of(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that require gradients, and modules' parameters, among the arguments of a call, by name."""
    home = getattr(f, "__self__", None)
    tensors: dict[str, Any] = {}
    for part in (f, home):
        if isinstance(part, torch.nn.Module):
            tensors |= dict(parameters_of(part))
    by_name = {**dict(zip(argument_names(f, len(args)), args, strict=True)), **kwargs}
    stack = [(name, x) for name, x in reversed(by_name.items())]
    while stack:
        name, x = stack.pop()
        if isinstance(x, torch.Tensor):
            if x.requires_grad:
                tensors[name] = x
        elif isinstance(x, torch.nn.Module):
            for key, p in parameters_of(
                x
            ):  # Those of Keras have paths already, which may be equal in two models.
                is_path = keras.is_layer(x) and tensors.get(key, p) is p
                tensors[key if is_path else f"{name}.{key}"] = p
        elif keras.is_variable(x):
            tensors[x.path if tensors.get(x.path, x.value) is x.value else f"{name}.{x.path}"] = x.value
        elif isinstance(x, dict):
            stack.extend([(f"{name}.{key}", part) for key, part in reversed(x.items())])
        elif isinstance(x, (list, tuple)):
            stack.extend(reversed([(f"{name}.{i}", part) for i, part in enumerate(x)]))
    return tensors


def tensors_in(tree: object) -> Iterator[Any]:
    """The tensors that have gradients, anywhere in what a function returned."""
    stack = [tree]
    while stack:
        x = stack.pop()
        if isinstance(x, torch.Tensor):
            if x.is_floating_point() or x.is_complex():
                yield x
        elif isinstance(x, dict):
            stack.extend(reversed(x.values()))
        elif isinstance(x, (list, tuple)):
            stack.extend(reversed(x))


@guarded("assert_flows")
def assert_flows(loss: Loss, xs: Asked, only: Names | None = None) -> None:
    """Raise unless gradients of a loss arrive at tensors.

    Args:
        loss: a tensor, or a dict or list of tensors; lines are told where ``sgt.watch()`` saw it made.
        xs: a module, an optimizer, a tensor, or a dict or list of these.
        only: a pattern, or patterns, of names: gradients arrive at exactly these, and at no other of xs.

    Raises:
        FlowError: some do not arrive; what cuts the paths, and on which lines. With *only*, others do.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> net = torch.nn.Linear(2, 1)
        >>> with sgt.watch():
        ...     loss = net(torch.ones(2)).sum()
        >>> sgt.assert_flows(loss, net)
    """
    flow, was_watched = _report("assert_flows", loss, xs)
    keys = list(flow)
    try:
        if only is None:
            flows_or_raise("assert_flows", flow, keys)
        else:
            expected = list(chosen("assert_flows", dict.fromkeys(keys), only))
            only_flows_or_raise("assert_flows", flow, keys, expected)
    except FlowError as error:
        raise _with_hint(error, was_watched) from None


@guarded("assert_blocked")
def assert_blocked(loss: Loss, xs: Asked, by: Names | None = None) -> None:
    """Raise if a gradient of a loss arrives at any of some tensors.

    Args:
        loss, xs: as for :func:`assert_flows`.
        by: the line that must cut paths to each of them, such as ``"model.py:14"``, or several of them; any
            unless given.

    Raises:
        FlowError: some do, and on which lines an open path runs; or another line cuts them.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> net, target = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> with sgt.watch():
        ...     loss = (net(torch.ones(2)) - target(torch.ones(2)).detach()).sum()
        >>> sgt.assert_blocked(loss, target)
    """
    flow, was_watched = _report("assert_blocked", loss, xs)
    try:
        blocked_or_raise("assert_blocked", flow, list(flow), by)
    except FlowError as error:
        raise _with_hint(error, was_watched) from None


def _with_hint(error: FlowError, was_watched: bool) -> FlowError:
    return error if was_watched else FlowError(f"{error.message}\n\n{UNSEEN}")


def _report(what: str, loss: Loss, xs: Asked) -> tuple[Flow, bool]:
    """The report, and whether a watch saw how the loss was made."""
    losses = losses_in(what, loss)
    with internals.DisableTorchFunction():
        recorder, was_watched = _recorder_of(losses)
        named = named_tensors(what, xs)
        if not named:
            raise ArgumentError(f"{what}: there are no tensors in xs")
        value_of = recorder.loss if was_watched else recorder.value_of_loss
        return explained(what, recorder, [value_of(tensor) for tensor in losses], named, None), was_watched


def _recorder_of(losses: list[Any]) -> tuple[Recorder, bool]:
    """The recorder that saw the losses being made, or a new one; and whether one saw them.

    An earlier question about the same losses has left a recorder at their nodes that watched nothing.
    """
    for tensor in losses:
        owners = [] if node_of(tensor) is None else owners_of(node_of(tensor))
        for owner in (*owners, *RECORDERS):
            if isinstance(owner, Recorder) and owner in RECORDERS and owner.knows(tensor):
                return owner, True
    return Recorder(), False
