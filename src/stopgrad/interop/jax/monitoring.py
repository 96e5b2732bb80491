"""Monitors of trainings in JAX: the loss is a function, called with what the training step is called with."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.magnitudes.repeated import Repeated
from stopgrad.graph.arguments import parameters_of
from stopgrad.graph.operands import shorten
from stopgrad.graph.public import guarded
from stopgrad.interop.jax.gradients import Gradients, of_results
from stopgrad.interop.jax.loading import Question, question
from stopgrad.interop.jax.updating import Training, updated
from stopgrad.interop.jax.updating.keras_models import keras_steps
from stopgrad.interop.shared import keras
from stopgrad.train.monitoring.monitor import Monitor
from stopgrad.train.monitoring.verdicts import verdicts_of


class JaxMonitor(Monitor):
    """Monitors the gradients of a JAX function; :func:`monitor` makes it.

    Called in each step, it computes the gradient again in those that are sampled: JAX's own, compiled, and
    for what happens on the way that of the graph which :func:`stopgrad.jax.explain` makes; and has nothing to
    do in the others.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: int | Sequence[int] | None,
        every: int,
        to: object,
        training: Training,
    ) -> None:
        super().__init__(every, to)
        if not callable(f):
            raise ArgumentError(f"jax.monitor: takes a function, not {shorten(f)}")
        self._f, self._argnums, self._training = f, argnums, training
        self._model: Any = f if keras.is_model(f) else None
        self._trained: list[int] = []
        self._kinds: list[Any] = []
        self._question: Question | None = None
        self._asking: Repeated | None = None
        self._gradients: Gradients | None = None

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Note a step; before or after it runs, but not both.

        Args:
            args, kwargs: the function's arguments in this step; for a Keras model, x and y, and the weights
                of samples if there are some.
        """
        if self.due:
            self._safely("sampling", self._sample, args, kwargs)
        self.step += 1

    def _sample(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._model is not None:
            self._f, args = keras.fit_loss("jax.monitor", self._model), (self._model, *args)
            trained = [id(v) for v in self._model.trainable_variables]
            if trained != self._trained:
                self._trained, self._question = trained, None
        posed, values = self._traced(args, kwargs)
        assert self._asking is not None
        assert self._gradients is not None
        own = functools.partial(self._gradients, values=values)
        fed = posed.fed("jax.monitor", values)
        flow = self._asking(dict(zip(posed.inputs.values(), fed, strict=True)), own)
        if self._training.is_given and self._model is not None:
            flow = flow.with_steps(keras_steps("jax.monitor", self._model, args[1:], self._training))
        elif self._training.is_given:
            training = self._training._replace(optimizer=_present(self._training.optimizer))
            update = updated("jax.monitor", self._f, args, kwargs, self._argnums, training)
            flow = flow.with_steps(update.steps)
        self._take(verdicts_of(flow))

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Question, list[Any]]:
        """The function as it was traced for arguments like these, and their values."""
        posed = self._question
        if posed is not None:
            try:
                values = posed.program.leaves(args, kwargs)
            except ArgumentError:  # They have another structure.
                posed = None
            else:
                posed = posed if self._kinds == list(map(_kind, values)) else None
        if posed is None:
            posed = self._question = question("jax.monitor", self._f, args, kwargs, self._argnums)
            self._asking = Repeated(posed.asked, posed.findings, "xla")
            self._gradients = Gradients(of_results(posed.program.closed, posed.losses), posed.positions)
            values = posed.program.leaves(args, kwargs)
            self._kinds = list(map(_kind, values))
        return posed, values

    def keras_callback(self) -> object:
        """A callback for ``fit`` of the Keras model that is monitored: its steps are the batches.

        Keras compiles its step as a whole, into which nothing looks. So the gradient of a sampled batch is
        computed once more before it, with the weights, the data and the seeds that it is about to use:
        a verdict is about the loss of ``fit``, as :func:`stopgrad.jax.explain` has it. Where
        ``steps_per_execution`` is more than 1, an execution is a step, and its first batch is sampled.

        Raises:
            ArgumentError: the monitor was not made for a Keras model. When training begins: it trains another
                model, or one with a ``train_step`` of its own.
        """
        model = self._model
        if model is None:
            raise ArgumentError("keras_callback: this monitor has no Keras model; make it by monitor(model)")

        def begin(trained: Any) -> None:
            if trained is not model:
                raise ArgumentError(f"keras_callback: the monitor is of another model than {trained.name!r}")
            keras.fit_loss("keras_callback", model)

        def run(model: object, step: Any, state: Any, batches: Any) -> Any:
            batch = next(batches)
            x, y, sample_weight = keras.unpacked(batch)
            with keras.current(model, *state[:3]):
                self(x, y, sample_weight)
            return step(state, itertools.chain([batch], batches))

        return keras.fit_callback(self, begin, run)


def _present(optimizer: object) -> object:
    """An optimizer as it is now: what a function that needs no arguments returns."""
    if not callable(optimizer) or hasattr(optimizer, "update"):
        return optimizer
    needed = [p for p in parameters_of(optimizer) if p.default is p.empty]
    return optimizer if needed else optimizer()


def _kind(value: Any) -> tuple[tuple[int, ...], object]:
    """Shape and dtype of an argument."""
    return np.shape(value), jax.dtypes.result_type(value) if not hasattr(value, "dtype") else value.dtype


@guarded("jax.monitor")
def monitor(
    f: Callable[..., object],
    *,
    argnums: int | Sequence[int] | None = 0,
    every: int = 100,
    to: object = None,
    grad: Callable[..., object] | None = None,
    wrt: object = None,
    optimizer: object = None,
) -> JaxMonitor:
    """Watch the gradients of a loss while it is trained, and tell when a verdict on them changes.

    Args:
        f: the loss, as for ``jax.grad``; or a compiled Keras model, for the loss of its ``fit`` and the
            weights that this trains.
        argnums: which of its arguments are trained; None for all.
        every: one step in so many is sampled, beginning with the first; the gradient is then computed once
            more. The first sample takes as long as compiling it.
        to: where it reports to: None for the standard output, which is told changes alone; a path, for a file
            of JSON lines; a stream; an object with ``add_scalar``, as TensorBoard's ``SummaryWriter``; one
            with ``log``, as a run of Weights & Biases; or a list of these.
        grad, wrt, optimizer: what you train with, as for :func:`stopgrad.jax.explain`: in each sampled step
            an update is done on copies, and it is told if one moves a parameter at which no gradient arrives.
            The optimizer may also be a function without parameters that returns it, with its present state.

    Returns:
        A function of the loss's arguments, which is called once in each step; for a Keras model, with a
        ``keras_callback()`` for its ``fit``, which calls it.

    Raises:
        ArgumentError: these do not fit together.

    Examples:
        >>> import jax, stopgrad.jax as sgj
        >>> def loss(w, x):
        ...     return jax.nn.relu(w * x)
        >>> w, monitor = 1.5, sgj.monitor(loss, every=1)
        >>> for _ in range(3):
        ...     monitor(w, 1.0)
        ...     w -= 1.0
        stopgrad: since step 2, the gradient of w is exactly 0: ...relu is dead: it is off wherever a gradient
        arrives
    """
    return JaxMonitor(f, argnums, every, to, Training(grad, wrt, optimizer))
