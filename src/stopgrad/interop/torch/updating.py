"""What one update of the user's PyTorch optimizer does to each parameter: it is done on copies."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.updates import Comparing, Step
from stopgrad.graph.operands import shorten
from stopgrad.interop.shared import keras, keras_updates
from stopgrad.interop.shared.unseen import unseen

Tensor = torch.Tensor
Losses = Callable[[], Sequence[Tensor]]
"""Computes the losses once more."""


def steps_of(
    what: str,
    optimizer: torch.optim.Optimizer,
    losses: Sequence[Tensor],
    again: Losses,
    xs: Mapping[str, Tensor],
) -> dict[str, Step]:
    """What updates do to tensors, by their names; nothing of the user's is changed.

    Args:
        what: the caller, for errors.
        optimizer: of PyTorch.
        losses: what is differentiated, with its graph, which is kept.
        again: computes the losses once more, for optimizers that ask for it.
        xs: the tensors asked about.

    Raises:
        ArgumentError: it is no optimizer, or an update fails.
    """
    is_optimizer(what, optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = gradients_of(losses, list({id(p): p for p in (*xs.values(), *parameters)}.values()))
    return steps_from(what, optimizer, gradients, again, xs)


def is_optimizer(what: str, optimizer: torch.optim.Optimizer) -> None:
    """Raise unless something is an optimizer of PyTorch."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(
            f"{what}: optimizer is one of torch.optim, or of Keras, not {shorten(optimizer)}; of several, "
            "ask about each"
        )


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer computes the loss anew in each step."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def steps_from(
    what: str,
    optimizer: torch.optim.Optimizer,
    gradients: Mapping[int, Tensor | None],
    again: Losses | None,
    xs: Mapping[str, Tensor],
) -> dict[str, Step]:
    """What updates do with given gradients; see :func:`steps_of`.

    Args:
        what, optimizer, xs: as of that.
        gradients: those, by the identities of these tensors and of all that the optimizer has.
        again: as of that; None for optimizers that do not ask for it.
    """
    leaves = {name: x for name, x in xs.items() if x.is_leaf and (x.is_floating_point() or x.is_complex())}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    everything = list({id(p): p for p in (*leaves.values(), *parameters)}.values())
    named_gradients = {name: gradients[id(x)] for name, x in leaves.items() if gradients[id(x)] is not None}
    ids = {id(p) for p in parameters}
    why = {name: "the optimizer does not have it" for name, x in leaves.items() if id(x) not in ids}
    comparing = Comparing(_numbers(leaves), _numbers(named_gradients), why)
    try:
        with unseen(), _same_draws():
            update = _Updates(optimizer, everything, gradients, again)
            while not comparing.is_settled:
                update.step()
                comparing.take(_numbers({name: update.copies[id(x)] for name, x in leaves.items()}))
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise ArgumentError(f"{what}: an update of the optimizer failed on copies ({reason})") from error
    return comparing.found()


def gradients_of(losses: Sequence[Tensor], tensors: Sequence[Tensor]) -> dict[int, Tensor | None]:
    """The gradients by the tensors' identities; None where none arrives."""
    inputs = [x for x in tensors if x.requires_grad]
    roots = [y for y in losses if y.requires_grad]
    gradients: dict[int, Tensor | None] = {id(x): None for x in tensors}
    if inputs and roots:
        ones = [torch.ones_like(y) for y in roots]
        grads = torch.autograd.grad(roots, inputs, ones, retain_graph=True, allow_unused=True)
        gradients |= {id(x): g for x, g in zip(inputs, grads, strict=True)}
    return gradients


def _is_zero(x: Tensor | None) -> bool:
    return x is not None and not bool(torch.any(_dense(x) != 0))


def _dense(x: Tensor) -> Tensor:
    return x.to_dense() if x.layout is not torch.strided else x


def _numbers(tensors: Mapping[str, Tensor | None]) -> dict[str, Any]:
    """The values as NumPy's arrays."""
    arrays = {}
    for name, x in tensors.items():
        if x is not None and not x.is_meta:
            value = _dense(x.detach()).cpu()
            wide = value if value.is_complex() else value.to(torch.float64)
            arrays[name] = wide.resolve_conj().resolve_neg().numpy().copy()
    return arrays


@contextlib.contextmanager
def _same_draws() -> Iterator[None]:
    """What is drawn in here is drawn again afterwards."""
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if is_used else ()
    with torch.random.fork_rng(list(devices)):
        yield


class _Updates:
    """An optimizer with copies of its parameters, and of what it remembers."""

    def __init__(
        self,
        optimizer: Any,
        tensors: Sequence[Tensor],
        gradients: Mapping[int, Tensor | None],
        again: Losses | None,
    ) -> None:
        self._tensors, self._again = tensors, again
        memo: dict[int, Any] = {}
        self.copies = {}
        for x in tensors:
            copied = x.detach().clone().requires_grad_(x.requires_grad)
            self.copies[id(x)] = memo[id(x)] = copied
            g = gradients[id(x)]
            # A gradient of zeros that is there stays there if none arrives: zero_grad(set_to_none=False).
            grad = x.grad.clone() if g is None and _is_zero(x.grad) and x.grad is not None else g
            copied.grad = None if grad is None else grad.detach().clone()
        self._optimizer = copy.deepcopy(optimizer, memo)
        for name, value in vars(optimizer).items():  # What pickling leaves out, as LBFGS' list of parameters.
            if name not in vars(self._optimizer):
                setattr(self._optimizer, name, copy.deepcopy(value, memo))
        self._needs_closure = needs_closure(self._optimizer)

    def step(self) -> None:
        """Do an update."""
        grads = {key: None if x.grad is None else x.grad.clone() for key, x in self.copies.items()}
        if self._needs_closure:
            self._optimizer.step(self._closure)
        else:
            self._optimizer.step()
        for key, x in self.copies.items():
            x.grad = grads[key]

    def _closure(self) -> Tensor | int:
        """The loss at the copies, and its gradients in them."""
        with torch.enable_grad(), _with_values_of(self._tensors, self.copies):
            assert self._again is not None
            losses = self._again()
            gradients = gradients_of(losses, self._tensors)
        for x in self._tensors:
            g = gradients[id(x)]
            if g is not None:
                self.copies[id(x)].grad = g.detach().clone()
        return sum(y.detach().sum() for y in losses)


@contextlib.contextmanager
def _with_values_of(tensors: Sequence[Tensor], copies: Mapping[int, Tensor]) -> Iterator[None]:
    """In here, tensors have the values of their copies; their storage is not written into."""
    before = [x.data for x in tensors]
    try:
        for x in tensors:
            x.data = copies[id(x)].detach().clone()
        yield
    finally:
        for x, data in zip(tensors, before, strict=True):
            x.data = data


def keras_steps(
    what: str,
    optimizer: torch.optim.Optimizer,
    xs: Any,
    asked: Mapping[str, Tensor],
    gradients: Mapping[int, Tensor | None],
) -> dict[str, Step]:
    """What updates of a Keras optimizer do.

    Args:
        what: the caller, for errors.
        optimizer: of Keras, or a compiled model.
        xs: what was asked about: a model, or a mapping with models.
        asked: its tensors by name.
        gradients: those of these, by their identities.
    """
    parts = list(xs.values()) if isinstance(xs, Mapping) else [xs]
    layers = [x for x in [*parts, optimizer] if keras.is_layer(x)]
    own = keras_updates.optimizer_in(optimizer)
    every = [*own.variables, *[v for layer in layers for v in layer.variables]]
    by_value = {id(v.value): v for v in every}
    variables = {name: by_value[id(x)] for name, x in asked.items() if id(x) in by_value}
    return keras_updates.steps_of(
        what, own, variables, {name: gradients[id(asked[name])] for name in variables}
    )
