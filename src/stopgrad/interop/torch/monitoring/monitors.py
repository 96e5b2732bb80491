"""``monitor``: watches a model while it is trained, and tells when a verdict on its gradients changes."""

from __future__ import annotations

from typing import Any, Self

import torch

from stopgrad.base.errors import ArgumentError
from stopgrad.graph.public import guarded
from stopgrad.interop.shared import keras
from stopgrad.interop.torch.monitoring.callbacks import keras_callback, lightning_callback, trainer_callback
from stopgrad.interop.torch.monitoring.sampled_updates import Updates
from stopgrad.interop.torch.monitoring.step_sampling import (
    ArrivalsOnly,
    Sampling,
    WholeStep,
    is_compiled,
)
from stopgrad.interop.torch.questions import Asked, Names, chosen, modules_in, named_tensors
from stopgrad.train.monitoring.monitor import Monitor
from stopgrad.train.monitoring.verdicts import merged, with_steps


class TorchMonitor(Monitor):
    """Monitors the gradients of a model; :func:`monitor` makes it. Each ``with`` block is a step.

    In steps that are not sampled, it does nothing but count them.
    """

    def __init__(
        self, model: Asked, only: Names | None, every: int, to: object, optimizer: Any = None
    ) -> None:
        super().__init__(every, to)
        self._model, self._only = model, only
        self._sampling: Sampling | None = None
        self._updates = None if optimizer is None else Updates(optimizer, model, self._parameters)
        made_later = any(keras.is_layer(part) and not part.weights for part in modules_in(model))
        if not made_later and not self._parameters():
            raise ArgumentError("monitor: no parameter of the model requires a gradient")

    def _parameters(self) -> dict[str, torch.Tensor]:
        """The parameters that require gradients now."""
        tensors = chosen("monitor", named_tensors("monitor", self._model), self._only)
        return {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}

    def __enter__(self) -> Self:
        if self.due:
            parts = modules_in(self._model)
            compiled = any(map(is_compiled, parts))
            self.begin(ArrivalsOnly(self._parameters()) if compiled else WholeStep())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.end(failed=kind is not None)

    def begin(self, sampling: Sampling) -> None:
        """Sample the step that begins. One that was never ended, since its training failed, ends first."""
        self._drop()
        self._safely("beginning to sample", sampling.begin)
        self._sampling = sampling
        if self._updates is not None:
            self._safely("beginning to sample", self._updates.begin, self._safely)

    def end(self, failed: bool = False) -> None:
        """The step has ended; it is reported unless it failed."""
        sampling = self._drop()
        if sampling is not None and not failed:
            self._safely("sampling", self._sample, sampling)
        self.step += 1

    def _drop(self) -> Sampling | None:
        """End what samples the present step; it is None where nothing does."""
        sampling, self._sampling = self._sampling, None
        if sampling is not None:
            self._safely("ending to sample", sampling.end)
            if self._updates is not None:
                self._safely("ending to sample", self._updates.end)
        return sampling

    def _sample(self, sampling: Sampling) -> None:
        verdicts = merged(sampling.verdicts(self._parameters()))
        if verdicts:  # Else nothing was differentiated: the next step is sampled in its place.
            self._take(verdicts if self._updates is None else with_steps(verdicts, self._updates.steps()))

    def lightning_callback(self) -> Any:
        """A callback for the ``Trainer`` of Lightning: its steps are the batches.

        Raises:
            EngineError: neither ``lightning`` nor ``pytorch_lightning`` is installed.
        """
        return lightning_callback(self)

    def trainer_callback(self) -> Any:
        """A callback for the ``Trainer`` of transformers, which sees the model's forward, and the gradients.

        What is computed from the model's results outside of it is known from autograd alone, without lines.

        Raises:
            EngineError: ``transformers`` is not installed.
        """
        return trainer_callback(self)

    def keras_callback(self) -> Any:
        """A callback for ``fit`` of a Keras model on PyTorch: its steps are the batches, of all calls.

        A sampled batch is watched from its forward to the optimizer's step. Of a model that is compiled with
        ``jit_compile=True``, only what arrives at its weights is told, not why.

        Raises:
            ArgumentError: Keras is not imported.
        """
        return keras_callback(self)


@guarded("monitor")
def monitor(
    model: Asked,
    *,
    every: int = 100,
    to: Any = None,
    only: Names | None = None,
    optimizer: Any = None,
) -> TorchMonitor:
    """Watch a model while it is trained, and tell when the verdict on a parameter's gradient changes.

    Values and gradients are the same as without it. Code that is compiled runs uncompiled in sampled steps,
    unless it is the model or a part of it: it stays compiled, and only what arrives at parameters is told.

    Args:
        model: a module, an optimizer, or a dict or list of these. Parameters that require no gradient do not
            count.
        every: one step in so many is sampled, beginning with the first.
        to: where it reports to: None for the standard output, which is told changes alone; a path, for a file
            of JSON lines; a stream; an object with ``add_scalar``, as TensorBoard's ``SummaryWriter``; one
            with ``log``, as a run of Weights & Biases; or a list of these.
        only: a pattern, or patterns, of names: ``"encoder.*"``.
        optimizer: what updates the parameters, of ``torch.optim`` or of Keras, or a compiled model of Keras:
            in each sampled step an update is done on copies, with what is in the parameters' ``grad``, and it
            is told if one moves a parameter at which no gradient arrives.

    Returns:
        A context manager for one step after the other, from the forward to the last ``backward``; with
        callbacks for trainers.

    Raises:
        ArgumentError: there is nothing to monitor, or it cannot report there.

    Examples:
        >>> import torch, stopgrad.torch as sgt
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        >>> monitor = sgt.monitor(net, every=1)
        >>> for shift in (0.0, -100.0):
        ...     _ = torch.nn.init.constant_(net[0].bias, 50.0 + shift)
        ...     with monitor:
        ...         net(torch.ones(1, 2)).sum().backward()
        stopgrad: since step 1, the gradient of 0.weight, 0.bias is exactly 0: ...relu is dead: it is off
        wherever a gradient arrives
    """
    return TorchMonitor(model, only, every, to, optimizer)
