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
    what: str, optimizer: Any, losses: Sequence[Tensor], again: Losses, xs: Mapping[str, Tensor]
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
    held = [p for group in optimizer.param_groups for p in group["params"]]
    found = gradients_of(losses, list({id(p): p for p in (*xs.values(), *held)}.values()))
    return steps_from(what, optimizer, found, again, xs)


def is_optimizer(what: str, optimizer: Any) -> None:
    """Raise unless something is an optimizer of PyTorch."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(
            f"{what}: optimizer is one of torch.optim, or of Keras, not {shorten(optimizer)}; of several, "
            "ask about each"
        )


def needs_closure(optimizer: Any) -> bool:
    """Whether an optimizer computes the loss anew in each step."""
    asked = inspect.signature(optimizer.step).parameters.get("closure")
    return asked is not None and asked.default is inspect.Parameter.empty


def steps_from(
    what: str,
    optimizer: Any,
    found: Mapping[int, Tensor | None],
    again: Losses | None,
    xs: Mapping[str, Tensor],
) -> dict[str, Step]:
    """What updates do with given gradients; see :func:`steps_of`.

    Args:
        what, optimizer, xs: as of that.
        found: the gradients, by the identities of these tensors and of all that the optimizer has.
        again: as of that; None for optimizers that do not ask for it.
    """
    leaves = {name: x for name, x in xs.items() if x.is_leaf and (x.is_floating_point() or x.is_complex())}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    everything = list({id(p): p for p in (*leaves.values(), *held)}.values())
    gradients = {name: found[id(x)] for name, x in leaves.items() if found[id(x)] is not None}
    ids = {id(p) for p in held}
    why = {name: "the optimizer does not have it" for name, x in leaves.items() if id(x) not in ids}
    comparing = Comparing(_numbers(leaves), _numbers(gradients), why)
    try:
        with unseen(), _same_draws():
            update = _Updates(optimizer, everything, found, again)
            while not comparing.is_settled:
                update.step()
                comparing.take(_numbers({name: update.copies[id(x)] for name, x in leaves.items()}))
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise ArgumentError(f"{what}: an update of the optimizer failed on copies ({told})") from error
    return comparing.found()


def gradients_of(losses: Sequence[Tensor], tensors: Sequence[Tensor]) -> dict[int, Tensor | None]:
    """The gradients by the tensors' identities; None where none arrives."""
    asked = [x for x in tensors if x.requires_grad]
    roots = [y for y in losses if y.requires_grad]
    found: dict[int, Tensor | None] = {id(x): None for x in tensors}
    if asked and roots:
        ones = [torch.ones_like(y) for y in roots]
        made = torch.autograd.grad(roots, asked, ones, retain_graph=True, allow_unused=True)
        found |= {id(x): g for x, g in zip(asked, made, strict=True)}
    return found


def _is_zero(x: Tensor | None) -> bool:
    return x is not None and not bool(torch.any(_dense(x) != 0))


def _dense(x: Tensor) -> Tensor:
    return x.to_dense() if x.layout is not torch.strided else x


def _numbers(tensors: Mapping[str, Tensor | None]) -> dict[str, Any]:
    """The values as NumPy's arrays."""
    found = {}
    for name, x in tensors.items():
        if x is not None and not x.is_meta:
            value = _dense(x.detach()).cpu()
            wide = value if value.is_complex() else value.to(torch.float64)
            found[name] = wide.resolve_conj().resolve_neg().numpy().copy()
    return found


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
            made = x.detach().clone().requires_grad_(x.requires_grad)
            self.copies[id(x)] = memo[id(x)] = made
            g = gradients[id(x)]
            # A gradient of zeros that is there stays there if none arrives: zero_grad(set_to_none=False).
            kept = x.grad.clone() if g is None and _is_zero(x.grad) and x.grad is not None else g
            made.grad = None if kept is None else kept.detach().clone()
        self._optimizer = copy.deepcopy(optimizer, memo)
        for name, value in vars(optimizer).items():  # What pickling leaves out, as LBFGS' list of parameters.
            if name not in vars(self._optimizer):
                setattr(self._optimizer, name, copy.deepcopy(value, memo))
        self._needs_closure = needs_closure(self._optimizer)

    def step(self) -> None:
        """Do an update."""
        kept = {key: None if x.grad is None else x.grad.clone() for key, x in self.copies.items()}
        if self._needs_closure:
            self._optimizer.step(self._closure)
        else:
            self._optimizer.step()
        for key, x in self.copies.items():
            x.grad = kept[key]

    def _closure(self) -> Any:
        """The loss at the copies, and its gradients in them."""
        with torch.enable_grad(), _given(self._tensors, self.copies):
            assert self._again is not None
            losses = self._again()
            found = gradients_of(losses, self._tensors)
        for x in self._tensors:
            g = found[id(x)]
            if g is not None:
                self.copies[id(x)].grad = g.detach().clone()
        return sum(y.detach().sum() for y in losses)


@contextlib.contextmanager
def _given(tensors: Sequence[Tensor], copies: Mapping[int, Tensor]) -> Iterator[None]:
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
    what: str, optimizer: Any, xs: Any, asked: Mapping[str, Tensor], found: Mapping[int, Tensor | None]
) -> dict[str, Step]:
    """What updates of a Keras optimizer do.

    Args:
        what: the caller, for errors.
        optimizer: of Keras, or a compiled model.
        xs: what was asked about: a model, or a mapping with models.
        asked: its tensors by name.
        found: the gradients of these, by their identities.
    """
    parts = list(xs.values()) if isinstance(xs, Mapping) else [xs]
    layers = [x for x in [*parts, optimizer] if keras.is_layer(x)]
    own = keras_updates.optimizer_in(optimizer)
    every = [*own.variables, *[v for layer in layers for v in layer.variables]]
    by_value = {id(v.value): v for v in every}
    variables = {name: by_value[id(x)] for name, x in asked.items() if id(x) in by_value}
    return keras_updates.steps_of(what, own, variables, {name: found[id(asked[name])] for name in variables})
