"""``monitor``: watches a model while it is trained, and tells when a verdict on its gradients changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf

from stopgrad.base.errors import ArgumentError
from stopgrad.graph.public import guarded
from stopgrad.interop.shared import keras
from stopgrad.interop.tensorflow.asking import differentiated
from stopgrad.interop.tensorflow.recording.recorder import Recorder
from stopgrad.interop.tensorflow.updating import keras_optimizer, steps_of
from stopgrad.interop.tensorflow.watching import Asked, Names, Watch, named_in, subjects_of
from stopgrad.train.monitoring.monitor import Monitor
from stopgrad.train.monitoring.verdicts import merged, verdicts_of, with_steps


class TensorflowMonitor(Monitor):
    """Monitors the gradients of a model; :func:`monitor` makes it. Each ``with`` block is a step.

    In steps that are not sampled, it does nothing but count them.
    """

    def __init__(
        self, model: Asked, only: Names | None, every: int, to: object, optimizer: object = None
    ) -> None:
        super().__init__(every, to)
        self._model, self._only, self._optimizer = model, only, optimizer
        self._gradients: dict[int, Any] = {}
        if optimizer is not None:
            keras_optimizer("monitor", optimizer)
        self._seen: Watch | None = None
        self._was_eager = False
        if not any(not subject.held for subject in subjects_of("monitor", Recorder(), model).values()):
            raise ArgumentError("monitor: no variable of the model is trainable")

    def __enter__(self) -> Self:
        if self.due:
            self._was_eager = bool(tf.config.functions_run_eagerly())
            self._safely("beginning to sample", self._begin)
        return self

    def _begin(self) -> None:
        self._seen = Watch(measures=True)
        if self._optimizer is not None:
            self._seen._recorder.arrived = self._arrived
        self._seen.__enter__()
        tf.config.run_functions_eagerly(True)

    def _arrived(self, sources: Sequence[Any], gradients: Sequence[tf.Tensor | None]) -> None:
        """Keep the gradients of a sampled step until it ends; of a variable, the last."""
        for x, g in zip(sources, gradients, strict=True):
            if g is not None:
                self._gradients[id(keras.plain(x))] = g

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        watch, self._seen = self._seen, None
        if watch is not None:
            tf.config.run_functions_eagerly(self._was_eager)
            watch.__exit__(None, None, None)
            if kind is None:
                self._safely("sampling", self._sample, watch)
            self._gradients.clear()
        self.step += 1

    def _sample(self, watch: Watch) -> None:
        verdicts = merged(
            [verdicts_of(call.explain(self._model, only=self._only)) for call in watch.gradient_calls]
        )
        if verdicts and self._optimizer is not None:
            asked = {name: x for name, x in named_in("monitor", self._model).items() if name in verdicts}
            arrived = {name: (x, self._gradients.get(id(keras.plain(x)))) for name, x in asked.items()}
            verdicts = with_steps(verdicts, steps_of("monitor", self._optimizer, arrived))
        if verdicts:  # Else nothing was differentiated: the next step is sampled in its place.
            self._take(verdicts)

    def keras_callback(self) -> object:
        """A callback for ``fit`` of the Keras model that is monitored: its steps are the batches.

        Keras compiles its step as a whole, into which nothing looks. So the gradient of a sampled batch is
        computed once more before it, with the weights, the data and the seeds that it is about to use: a
        verdict is about the loss of ``fit``, as :func:`stopgrad.tensorflow.explain` has it.

        Raises:
            ArgumentError: the monitor was not made for a Keras model. When training begins: it trains another
                model, one with a ``train_step`` of its own, or one that executes several steps at once.
        """
        model = self._model
        if not keras.is_model(model):
            raise ArgumentError("keras_callback: this monitor has no Keras model; make it by monitor(model)")

        def begin(trained: Any) -> None:
            if trained is not model:
                raise ArgumentError(f"keras_callback: the monitor is of another model than {trained.name!r}")
            keras.fit_loss("keras_callback", model)
            if getattr(trained, "steps_per_execution", 1) != 1:
                raise ArgumentError(
                    "keras_callback: steps_per_execution must be 1, so that a batch is a step"
                )

        def run(model: object, step: Any, batches: Any) -> Any:
            batch = next(batches)
            self._safely("sampling", self._ask, batch)
            self.step += 1
            # The step takes its batch from an iterator itself, whose kind is part of what was compiled.
            return step(iter(tf.data.Dataset.from_tensors(batch)))

        return keras.fit_callback(self, begin, run)

    def _ask(self, batch: object) -> None:
        loss, model = keras.fit_loss("monitor", self._model), self._model
        results_of = model.distribute_strategy.experimental_local_results
        first = tf.nest.map_structure(
            lambda x: results_of(x)[0], batch
        )  # Of a strategy, its first replica's.
        x, y, sample_weight = keras.unpacked(first)
        with keras.scope():  # In which the model stays as it was.
            flow, arrived = differentiated(
                lambda: loss(model, x, y, sample_weight), (), {}, model, self._only, True
            )
        if self._optimizer is not None:
            flow = flow.with_steps(steps_of("monitor", self._optimizer, arrived))
        self._take(verdicts_of(flow))


@guarded("monitor")
def monitor(
    model: Asked,
    *,
    every: int = 100,
    to: object = None,
    only: Names | None = None,
    optimizer: keras.Optimizer | None = None,
) -> TensorflowMonitor:
    """Watch a model while it is trained, and tell when the verdict on a variable's gradient changes.

    Values and gradients are the same as without it, but for rounding: what ``tf.function`` compiles runs
    eagerly in sampled steps of ``with monitor:``.

    Args:
        model: a Keras model, a ``tf.Module``, variables, or a dict or list of these. Variables that are not
            trainable do not count.
        every: one step in so many is sampled, beginning with the first.
        to: where it reports to: None for the standard output, which is told changes alone; a path, for a file
            of JSON lines; a stream; an object with ``add_scalar``, as TensorBoard's ``SummaryWriter``; one
            with ``log``, as a run of Weights & Biases; or a list of these.
        only: a pattern, or patterns, of names: ``"encoder/*"``.
        optimizer: what updates the variables, an optimizer of Keras, or a compiled model: in each sampled
            step an update is done and what it changed is put back, and it is told if one moves a variable at
            which no gradient arrives.

    Returns:
        A context manager for one step after the other, from the forward to ``tape.gradient``; with a
        ``keras_callback()`` for ``fit``.

    Raises:
        ArgumentError: there is nothing to monitor, or it cannot report there.

    Examples:
        >>> import tensorflow as tf, stopgrad.tensorflow as sgtf
        >>> w = tf.Variable(1.5, name="w")
        >>> monitor = sgtf.monitor(w, every=1)
        >>> for _ in range(3):
        ...     with monitor, tf.GradientTape() as tape:
        ...         loss = tf.nn.relu(w * 1.0)
        ...         gradient = tape.gradient(loss, w)
        ...     _ = w.assign_sub(1.0)
        stopgrad: since step 2, the gradient of w is exactly 0...
    """
    return TensorflowMonitor(model, only, every, to, optimizer)
