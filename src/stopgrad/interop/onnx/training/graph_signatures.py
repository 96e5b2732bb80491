"""The inputs and outputs of each graph of a training folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stopgrad.interop.imported import Model
from stopgrad.interop.onnx.training.graph_building import Judgement, Step
from stopgrad.interop.onnx.training.manifest import (
    FORMAT,
    STATE_FILE,
    VERSION,
    Plan,
    Port,
    described,
    of_model,
    ports,
    unique,
    versions,
)
from stopgrad.interop.onnx.training.specs import Spec
from stopgrad.interop.onnx.training.training_description import Asked


def step_plan(step: Step) -> Plan:
    """Batch, labels, learning rate, parameters and state in; loss, new parameters and state out."""
    inputs = _batch(step.judgement)
    if step.rate is not None:
        inputs.append(Port("learning_rate", "learning_rate", step.rate))
    state = carried(step)
    inputs += state
    taken = {port.name for port in inputs}
    outputs = [Port(unique("loss", taken), "loss", step.judgement.loss)]
    outputs += [
        Port(unique(f"{port.name}/new", taken), port.role, step.renewed[port.name], {"updates": port.name})
        for port in state
    ]
    return Plan(inputs, outputs)


def gradients_plan(step: Step) -> Plan:
    """Batch, labels and parameters in; loss and gradients out."""
    inputs = [*_batch(step.judgement), *_model_state(step)]
    taken = {port.name for port in inputs}
    outputs = [Port(unique("loss", taken), "loss", step.judgement.loss)]
    outputs += [
        Port(unique(f"{name}/gradient", taken), "gradient", g, {"of": name})
        for name, g in step.gradients.items()
    ]
    return Plan(inputs, outputs)


def eval_plan(step: Step, judgement: Judgement, hidden: Mapping[str, Any]) -> Plan:
    """Batch, labels and parameters in; loss and the model's outputs out."""
    wired = judgement.wired
    tensors = {**wired.weights, **wired.trained}
    inputs = [*_batch(judgement)]
    # In inference, a model may draw no random numbers any more.
    state = [port for port in _model_state(step) if port.name in tensors]
    inputs += [Port(port.name, port.role, tensors[port.name]) for port in state]
    results = {name: y for name, y in wired.outputs.items() if name not in hidden}
    taken = {port.name for port in inputs} | set(results)
    return Plan(inputs, [Port(unique("loss", taken), "loss", judgement.loss), *ports(results, "output")])


def merge_plan(step: Step) -> Plan:
    """Parameters in; those weights of the inference model that training changes out."""
    inputs = [port for port in _model_state(step) if port.role == "parameter"]
    taken = {port.name for port in inputs}
    adapters = [
        adapter
        for adapter in step.judgement.wired.adapters
        if adapter.first in taken or adapter.second in taken
    ]
    small = {name for adapter in adapters for name in (adapter.first, adapter.second)}
    merged = {port.name: port.value for port in inputs if port.name not in small}
    merged |= {adapter.weight: adapter.merged for adapter in adapters}
    outputs = [Port(unique(f"{n}/merged", taken), "parameter", y, {"of": n}) for n, y in merged.items()]
    return Plan(inputs, outputs)


def predict_plan(step: Step, model: Model) -> Plan:
    """The model's inputs and the weights that training changes in; the model's outputs out."""
    names = [port.more["of"] for port in merge_plan(step).outputs if port.more]
    weights = {name: (model.parameters | model.dequantized)[name] for name in names}
    return Plan([*ports(model.inputs, "input"), *ports(weights, "parameter")], ports(model.outputs, "output"))


def carried(step: Step) -> list[Port]:
    """The tensors carried from step to step, those of the model first."""
    tensors = step.parameters | step.state
    return [
        *[Port(n, "parameter", x) for n, x in tensors.items() if of_model(step.kinds[n])],
        *[Port(n, "state", x) for n, x in tensors.items() if not of_model(step.kinds[n])],
    ]


def _model_state(step: Step) -> list[Port]:
    """The carried tensors that the loss depends on: all but the optimiser's."""
    return [port for port in carried(step) if step.kinds[port.name] != "optimizer"]


def _batch(judgement: Judgement) -> list[Port]:
    return [*ports(judgement.wired.inputs, "input"), *ports(judgement.labels, "labels")]


def manifest_of(asked: Asked, step: Step, plans: Mapping[str, Plan]) -> dict[str, Any]:
    """The contents of ``manifest.json``."""
    wired = step.judgement.wired
    state = {port.name: port for port in carried(step)}
    rate = asked.rate()
    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": versions(),
        "opset": asked.opset,
        "graphs": {name: plan.entry(f"{name}.onnx") for name, plan in plans.items()},
        "step": {p.more["updates"]: p.name for p in plans["train_step"].outputs if p.more},
        "state_file": STATE_FILE,
        "state": {
            name: {"role": port.role, "kind": step.kinds[name], **described(port.value)}
            for name, port in state.items()
        },
        "frozen": wired.frozen,
        "stopped": wired.stops,
        "untouched": step.untouched,
        "loss": _spoken(asked.loss),
        "optimizer": _spoken(asked.optimizer.spec),
        "learning_rate": (
            {"schedule": _spoken(asked.schedule.spec)}
            if asked.schedule is not None
            else {"input": "learning_rate", "default": rate}
        ),
        "clip": asked.clip,
        "accumulate": asked.accumulate,
        "mode": asked.mode,
        "precision": None if asked.precision is None else asked.precision.name,
        "loss_scale": asked.loss_scale,
        "adapters": [
            {"weight": a.weight, "first": a.first, "second": a.second, "scale": a.scale}
            for a in wired.adapters
        ],
    }


def _spoken(choice: Any) -> dict[str, Any]:
    """A name with its options."""
    if isinstance(choice, Spec):
        return {"name": choice.name, "options": dict(choice.options)}
    return {"name": getattr(choice, "__name__", "function"), "options": {}}
