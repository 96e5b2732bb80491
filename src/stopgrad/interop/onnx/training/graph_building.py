"""Builds the training graph: the loss, the gradients and an optimiser's step behind a wired model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.errors import ArgumentError
from stopgrad.graph.graph import Output
from stopgrad.interop.onnx.reading import Source
from stopgrad.interop.onnx.training.manifest import unique
from stopgrad.interop.onnx.training.own_loss import of_model
from stopgrad.interop.onnx.training.specs import Spec
from stopgrad.interop.onnx.training.training_description import Asked, Loss
from stopgrad.interop.onnx.training.training_losses import Judged, built, scalar
from stopgrad.interop.onnx.training.wiring import Wired
from stopgrad.interop.shared.building import label_from


@dataclass
class Judgement:
    """A wired model and its loss.

    Attributes:
        wired: the model.
        loss: a scalar.
        labels: the inputs besides the model's, by name.
        notes: remarks for the user.
    """

    wired: Wired
    loss: Output
    labels: dict[str, Output]
    notes: list[str]


@dataclass
class Step:
    """One step of training.

    Attributes:
        judgement: the model and its loss.
        rate: the placeholder of the learning rate; None if a schedule gives it.
        parameters: the trained parameters, by name, without those that no gradient reaches.
        gradients: by the names of the trained parameters.
        state: the optimiser's state and all else carried from step to step, by name.
        renewed: the values of all of these after the step, by name.
        untouched: the parameters that no gradient reaches, with the reasons.
        kinds: of the state, by name.
    """

    judgement: Judgement
    rate: Output | None
    parameters: dict[str, Output]
    gradients: dict[str, Output]
    state: dict[str, Output]
    renewed: dict[str, Output]
    untouched: dict[str, str]
    kinds: dict[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------- losses


def judged(model: Wired, loss: Loss, outputs: Sequence[str], hidden: Sequence[str] = ()) -> Judgement:
    """Build a loss behind a model.

    Args:
        model: the wired model.
        loss: a name with options, a model or a function.
        outputs: the names of the outputs that the loss reads; if empty, all.
        hidden: the names of outputs that are not results.

    Raises:
        ArgumentError: there is no such output.
        DTypeError, ShapeError: the loss does not fit the outputs.
    """
    results = {name: y for name, y in model.outputs.items() if name not in hidden}
    unknown = next((name for name in outputs if name not in results), None)
    if unknown is not None:
        raise ArgumentError(f"outputs: the model has no output {unknown!r}; it has {', '.join(results)}")
    judged_outputs = {name: results[name] for name in outputs} if outputs else results
    named = loss.name if isinstance(loss, (Spec, Source)) else getattr(loss, "__name__", "loss")
    taken = [*model.inputs, *model.outputs, *model.weights, *model.trained, "learning_rate", "loss"]
    asks = Judged(named, judged_outputs, taken)
    with model.graph.as_default(), sg.name_scope("loss"):
        if isinstance(loss, Spec):
            value = built(loss, asks)
        elif isinstance(loss, Source):
            value = of_model(loss, asks)
        else:
            value = _of_function(loss, asks)
        if value.dtype != sg.float32 and value.dtype.itemsize < 4:
            value = sg.cast(value, sg.float32)
    return Judgement(model, value, asks.labels, [*model.notes, *asks.notes])


def _of_function(loss: Callable[..., Any], asks: Judged) -> Output:
    """A loss that is a function of the outputs; the placeholders that it makes become inputs."""
    before = set(asks.outputs.values())
    value = scalar(loss(dict(asks.outputs)), asks.name)
    graph = next(iter(before)).op.graph
    declared = set(asks.labels.values())
    for op in graph.operations:
        if op.type == "Placeholder" and op.name.startswith("loss/") and op.outputs[0] not in declared:
            asks.labels[op.name.removeprefix("loss/")] = op.outputs[0]
    return value


# --------------------------------------------------------------------------------------------- the step


def stepped(judgement: Judgement, asked: Asked, statistics: Mapping[str, str]) -> Step:
    """Build gradients and the step of an optimiser behind a loss.

    Args:
        judgement: the model and its loss.
        asked: the optimiser and its settings.
        statistics: parameters that the model itself updates, with the names of their new values.

    Raises:
        ArgumentError: there is no such optimiser, or it has no such option.
        GradientError: no gradient arrives anywhere.
    """
    wired = judgement.wired
    build = asked.optimizer.call
    with wired.graph.as_default():
        rate = sg.placeholder(sg.float32, (), name="learning_rate") if asked.schedule is None else None
        learning_rate = rate if asked.schedule is None else asked.schedule.call
        called = _labels(wired.trained)
        named = {called[name]: x for name, x in wired.trained.items()}
        update = build(judgement.loss, named, **asked.settings(learning_rate))
        renewed = {name: wired.outputs[source] for name, source in statistics.items()}
        carried = _random(wired, judgement.loss)
        renewed |= {name: new for name, (_, new) in carried.items()}
    parameters = {name: x for name, x in wired.trained.items() if x in update.gradients}
    kinds = dict.fromkeys(parameters, "parameter") | dict.fromkeys(statistics, "statistic")
    kinds |= dict.fromkeys(update.state, "optimizer") | dict.fromkeys(carried, "random")
    moved = parameters | update.state
    state = {name: wired.weights[name] for name in statistics} | update.state
    state |= {name: key for name, (key, _) in carried.items()}
    return Step(
        judgement,
        rate,
        parameters,
        {name: update.gradients[x] for name, x in parameters.items()},
        state,
        {name: update.updates[x] for name, x in moved.items()} | renewed,
        {name: update.untouched[label] for name, label in called.items() if label in update.untouched},
        kinds,
    )


def _labels(names: Iterable[str]) -> dict[str, str]:
    """Names under which the optimiser can keep state: those of files may have characters that ours cannot."""
    taken: set[str] = set()
    return {name: unique(label_from(name) or "parameter", taken) for name in names}


RANDOM = "random_key"
"""The name of the random key of an imported model."""


def _random(wired: Wired, loss: Output) -> dict[str, tuple[Output, Output]]:
    """The random key, if there is one, and that of the next step."""
    key = wired.weights.get(RANDOM)
    if key is None or key.dtype is not sg.uint32:
        return {}
    return {RANDOM: (key, sg.random_fold_in(key, _NEXT))}


_NEXT = np.uint32(2**32 - 1)
"""Folded into a key for the next step. The nodes of a model fold in small numbers, from 1 on."""
