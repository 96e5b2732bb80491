"""The model for training: a copy in which frozen weights and chosen values are behind stops."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stopgrad.base.errors import ArgumentError
from stopgrad.base.garbage import without_gc
from stopgrad.flow.ablation.without import stopping
from stopgrad.flow.words import some
from stopgrad.graph.graph import Graph, Output
from stopgrad.interop.imported import Model
from stopgrad.interop.onnx.training.adapters import Adapter, Lora, adapted, learned, unfit_for
from stopgrad.interop.onnx.training.trained_and_stopped import chosen, stopped, trained
from stopgrad.rewrite import rewrite


@dataclass
class Wired:
    """A model, ready for a loss.

    Attributes:
        graph: the copy.
        inputs, outputs: of the model, by name.
        weights: all parameters of the model, by name.
        trained: what is trained, by name: parameters of the model, and adapters.
        frozen: the names of the others.
        stops: the names of what was put behind a stop, by pattern.
        adapters: of weights.
        notes: remarks for the user.
    """

    graph: Graph
    inputs: dict[str, Output]
    outputs: dict[str, Output]
    weights: dict[str, Output]
    trained: dict[str, Output]
    frozen: list[str]
    stops: dict[str, list[str]]
    adapters: list[Adapter]
    notes: list[str] = field(default_factory=list)


def wired(
    model: Model,
    *,
    freeze: Sequence[str] = (),
    train: Sequence[str] = (),
    constants: Collection[str] = (),
    only: Sequence[str] = (),
    stop: Sequence[str] = (),
    lora: Lora | None = None,
    states: Collection[str] = (),
    scales: Collection[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> Wired:
    """A copy of a model in which gradients flow only to what is trained.

    Args:
        model: the loaded model.
        freeze, train, only: patterns of names of parameters.
        constants: the names of parameters that are trained only if a pattern names them.
        stop: patterns of names of scopes, operations or values.
        lora: adapters; only what *only* names is trained besides them.
        states: the names of parameters that are no weights, but statistics or a random key.
        scales: the names of parameters that are scales of quantised numbers, which get no adapters.
        aliases: further names of nodes and values, each with its scope.

    Raises:
        ArgumentError: a pattern matches nothing, or nothing is left to train.
    """
    parameters = {name: x for name, x in model.parameters.items() if name not in states}
    names = [name for name, x in parameters.items() if x.dtype.is_floating]
    operations = list(model.graph.operations)
    bases = {**{name: parameters[name] for name in names if name not in scales}, **model.dequantized}
    based_on, notes = _based(lora, bases, model) if lora is not None else ([], [])
    if lora is None:
        _check_trainable(model, names)
        chosen_names = trained(names, freeze, only, constants, train)
    else:
        frozen_too = set(chosen("freeze", freeze, names)) | set(based_on)
        besides = [*(chosen("only", only, names) if only else []), *chosen("train", train, names)]
        chosen_names = [name for name in dict.fromkeys(besides) if name not in frozen_too]
    stops = stopped(stop, operations, model.outputs.values(), aliases)
    frozen = [name for name in parameters if name not in set(chosen_names)]
    based = set(based_on)
    tensors = [parameters[name] for name in frozen if name not in based]
    tensors += [x for hits in stops.values() for x in hits]
    copy = _copied(model, tensors, {name: bases[name] for name in based_on}, lora)
    learning = {name: copy.weights[name] for name in chosen_names}
    return replace(
        copy,
        trained=learning | copy.trained,
        frozen=frozen,
        stops={pattern: [x.op.name for x in hits] for pattern, hits in stops.items()},
        notes=notes,
    )


def _check_trainable(model: Model, names: Sequence[str]) -> None:
    """Refuse models all of whose weights are quantised, and say what trains them."""
    if model.dequantized and not names:
        quantised = some([repr(name) for name in model.dequantized], 3)
        raise ArgumentError(
            f"no parameter is left to train: the weights are quantised ({quantised}); "
            "lora= puts adapters beside them, and train= trains scales"
        )
    if not names and any(op.type == "StraightThrough" for op in model.graph.operations):
        raise ArgumentError(
            "no parameter is left to train: the weights are whole numbers inside of operators such as "
            "QLinearConv; quantise in the form QDQ (QuantFormat.QDQ), where lora= puts adapters beside "
            "matrices"
        )


def _based(lora: Lora, bases: Mapping[str, Output], model: Model) -> tuple[list[str], list[str]]:
    """The weights that get adapters, and notes about matrices that get none.

    Of what a pattern matches, only that gets one beside which it fits; a name that is given alone must fit.
    """
    names = chosen("lora", lora.weights, list(bases))
    reasons = unfit_for(lora, {name: bases[name] for name in names}, list(model.outputs.values()))
    fitting = [name for name in names if name not in reasons or name in lora.weights]
    if not fitting:
        shown = "; ".join([f"{name!r}: {reasons[name]}" for name in names[:3]])
        patterns = some([repr(pattern) for pattern in lora.weights], 3)
        raise ArgumentError(f"lora: {patterns} matches no matrix that fits; {shown}")
    unadapted = [name for name in names if name not in fitting and bases[name].type.ndim == 2]
    return fitting, [f"lora: {name!r} has no adapter: {reasons[name]}" for name in unadapted]


def _copied(model: Model, tensors: Sequence[Output], based: Mapping[str, Output], lora: Lora | None) -> Wired:
    """A copy with these tensors behind stops, and with adapters."""
    places = [*model.inputs.values(), *model.parameters.values(), *based.values()]
    places = list(dict.fromkeys(places))
    done = without_gc(rewrite, [*model.outputs.values(), *places], (), (stopping(dict.fromkeys(tensors)),))
    outputs = dict(zip(model.outputs, done.outputs, strict=False))
    moved = dict(zip(places, map(_without_stops, done.outputs[len(outputs) :]), strict=True))
    learning: dict[str, Output] = {}
    adapters: list[Adapter] = []
    if lora is not None:
        weights = {name: moved[x] for name, x in based.items()}
        new, adapters = adapted(
            lora, [*outputs.values(), *moved.values()], weights, {*model.parameters, *model.inputs}
        )
        learning = learned(new, weights)
        outputs = {name: new.mapping[y] for name, y in outputs.items()}
        moved = {old: new.mapping[x] for old, x in moved.items()}
    return Wired(
        next(iter(outputs.values())).op.graph,
        {name: moved[x] for name, x in model.inputs.items()},
        outputs,
        {name: _without_stops(moved[x]) for name, x in model.parameters.items()},
        learning,
        [],
        {},
        adapters,
    )


def _without_stops(x: Output) -> Output:
    """The parameter, if x is a stop of one; else x."""
    while x.op.type == "StopGradient":
        x = x.op.inputs[0]
    return x
