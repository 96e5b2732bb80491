"""Steps of Keras' optimizers on PyTorch, of which PyTorch's hooks know nothing."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stopgrad.interop.shared import keras

OPTIMIZERS = "keras.optimizers"
"""The module of Keras that has them; Keras imports PyTorch before it."""


class KerasOptimizer:
    """An optimizer of Keras, as an audit reads those of PyTorch.

    Attributes:
        kind: its class.
        rate_at: where its learning rate is found.
        param_groups: one group: the parameters of its last step, and the learning rate.
    """

    rate_at = "optimizer.learning_rate"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.param_groups: list[dict[str, Any]] = []


Stepper = torch.optim.Optimizer | KerasOptimizer
"""An optimizer as an audit reads it."""


class KerasSteps:
    """Tells of the steps that optimizers of Keras make.

    Those that accumulate gradients are left out: most of their steps change nothing.

    Args:
        before, after: called around each step.
        lost: told what failed. The step is then made as without us.
    """

    def __init__(
        self,
        before: Callable[[Stepper], None],
        after: Callable[[Stepper], None],
        lost: Callable[[str], None],
    ) -> None:
        self._before, self._after, self._lost = before, after, lost
        self._seen: weakref.WeakKeyDictionary[Any, KerasOptimizer] = weakref.WeakKeyDictionary()
        self._owner: Any = None
        self._own: Any = None

    def begin(self) -> None:
        """Be told of steps from now on. To be called once ``keras.optimizers`` has been imported."""
        if self._owner is None:
            self._owner = sys.modules[OPTIMIZERS].Optimizer
            self._own = vars(self._owner).get("apply")
            self._owner.apply = self._around(self._owner.apply)

    def end(self) -> None:
        """Be told no more."""
        owner, self._owner = self._owner, None
        if owner is None:
            return
        if self._own is None:
            del owner.apply
        else:
            owner.apply = self._own

    def _around(self, apply: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(apply)
        def applied(optimizer: object, grads: object, trainable_variables: Any = None) -> object:
            variables = None if trainable_variables is None else list(trainable_variables)
            stepper = self._stepper_of(optimizer, variables)
            if stepper is not None:
                self._before(stepper)
            result = apply(optimizer, grads, variables)
            if stepper is not None:
                self._after(stepper)
            return result

        return applied

    def _stepper_of(self, optimizer: Any, variables: Sequence[Any] | None) -> KerasOptimizer | None:
        if keras.loaded("torch") is None or getattr(optimizer, "gradient_accumulation_steps", None):
            return None
        try:
            trained = keras.held_by(optimizer) or variables or ()
            tensors = [keras.plain(variable) for variable in trained]
            groups = [{"params": tensors, "lr": float(optimizer.learning_rate)}]
        except Exception as error:  # A schedule of the user's may do anything.
            self._lost(f"a step of {type(optimizer).__name__} ({type(error).__name__}: {error})")
            return None
        stepper = self._seen.setdefault(optimizer, KerasOptimizer(type(optimizer).__name__))
        stepper.param_groups = groups
        return stepper
