"""What an update does in a sampled step: it is done on copies, with what is in ``grad``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.updates import Step
from stopgrad.interop.shared import keras_updates
from stopgrad.interop.torch import internals, updating


class Updates:
    """Does updates with the gradients that are there when the optimizer steps, or when the sample ends.

    Args:
        optimizer: of PyTorch or of Keras, or a compiled model of Keras.
        model: what is monitored.
        parameters: the parameters that are monitored now, by name.

    Raises:
        ArgumentError: it is none of these, or computes the loss anew in each step.
    """

    def __init__(
        self, optimizer: Any, model: Any, parameters: Callable[[], Mapping[str, torch.Tensor]]
    ) -> None:
        self._of_keras = keras_updates.optimizer_in(optimizer) is not None
        if not self._of_keras:
            updating.is_optimizer("monitor", optimizer)
            if updating.needs_closure(optimizer):
                raise ArgumentError(
                    f"monitor: {type(optimizer).__name__} computes the loss anew in each step, which a "
                    "monitor does not have; ask sgt.explain(loss, ..., optimizer=optimizer)"
                )
        self._optimizer, self._model, self._parameters = optimizer, model, parameters
        self._steps: dict[str, Step] | None = None
        self._hook: Any = None

    def begin(self, safely: Callable[..., None]) -> None:
        """A sampled step begins; *safely* calls what must not end the training."""
        self.end()
        self._steps = None
        if not self._of_keras:

            def before(*_: object) -> None:
                if self._steps is None:
                    safely("doing an update on copies", self._do)

            self._hook = self._optimizer.register_step_pre_hook(before)

    def end(self) -> None:
        """The step has ended: the optimizer is as it was."""
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def steps(self) -> dict[str, Step]:
        """What the update of this step does to parameters, by their names."""
        if self._steps is None:
            self._do()
        return self._steps or {}

    def _do(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:  # The copy has no hook of ours.
            hook.remove()
        self._steps = {}
        with internals.DisableTorchFunction():
            asked = dict(self._parameters())
            if self._of_keras:
                gradients = {id(x): x.grad for x in asked.values()}
                self._steps = updating.keras_steps("monitor", self._optimizer, self._model, asked, gradients)
            else:
                updated = [p for group in self._optimizer.param_groups for p in group["params"]]
                gradients = {id(x): x.grad for x in (*asked.values(), *updated)}
                self._steps = updating.steps_from("monitor", self._optimizer, gradients, None, asked)
