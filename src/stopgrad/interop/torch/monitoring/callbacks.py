"""A monitor as a callback of Lightning's ``Trainer``, of that of transformers, and of Keras' ``fit``."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.interop.shared import keras
from stopgrad.interop.torch.monitoring.step_sampling import ArrivalsOnly, ForwardAlone, Sampling, WholeStep
from stopgrad.interop.torch.recording.used import parameters_of

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")


class Steps(Protocol):
    """A monitor, as callbacks use it."""

    step: int

    @property
    def due(self) -> bool: ...

    def __enter__(self) -> Any: ...

    def begin(self, sampling: Sampling) -> None: ...

    def end(self, failed: bool = False) -> None: ...


def lightning_callback(monitor: Steps) -> Any:
    """A callback of the Lightning that is imported; if none is, of the one that is installed."""
    name = next((name for name in _LIGHTNING if name in sys.modules), _LIGHTNING[1])
    base: Any = require(name, "a callback for Lightning").Callback

    class MonitorCallback(base):  # type: ignore[misc]
        """Samples batches of training."""

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            monitor.step = trainer.global_step
            monitor.__enter__()

        def on_train_batch_end(self, *_: Any) -> None:
            monitor.end()

        def on_exception(self, *_: Any) -> None:
            monitor.end(failed=True)

    return MonitorCallback()


def trainer_callback(monitor: Steps) -> Any:
    """A callback of transformers, which tells no callback of exceptions: so the forward alone is watched."""
    base: Any = require("transformers", "a callback for its Trainer").TrainerCallback

    class MonitorCallback(base):  # type: ignore[misc]
        """Samples steps of training."""

        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            monitor.step = state.global_step
            if monitor.due:
                monitor.begin(ForwardAlone(model))

        def on_step_end(self, *_: Any, **__: Any) -> None:
            monitor.end()

    return MonitorCallback()


def keras_callback(monitor: Steps) -> Any:
    """A callback of Keras, which watches the whole step of a batch, unless that is compiled."""

    def begin(model: Any) -> None:
        if keras.loaded("torch") is None:
            raise ArgumentError("keras_callback: Keras computes with another backend than PyTorch")

    def run(model: Any, step: Any, *args: Any) -> Any:
        trainable = {name: p for name, p in parameters_of(model) if p.requires_grad}
        monitor.begin(ArrivalsOnly(trainable) if model.jit_compile else WholeStep())
        failed = True
        try:
            result = step(*args)
            failed = False
        finally:
            monitor.end(failed)
        return result

    return keras.fit_callback(monitor, begin, run)
