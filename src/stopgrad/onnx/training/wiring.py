"""The model as it is trained: a copy in which frozen weights and chosen values are behind stops."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from stopgrad.build import without_gc
from stopgrad.flow.ablation.without import stopping
from stopgrad.graph import Graph, Output
from stopgrad.imported import Model
from stopgrad.onnx.training.adapters import Adapter, Lora, adapters, adapting
from stopgrad.onnx.training.choosing import chosen, stopped, trained
from stopgrad.rewrite import rewrite


@dataclass
class Wired:
    """A model, ready for a loss.

    Attributes:
        graph: the copy.
        inputs, outputs: of the model, by name.
        weights: all parameters of the model, by name.
        trained: what is trained, by name: parameters of the model, or adapters.
        frozen: the names of the others.
        stops: by pattern, the names of what was put behind a stop.
        adapters: of weights.
    """

    graph: Graph
    inputs: dict[str, Output]
    outputs: dict[str, Output]
    weights: dict[str, Output]
    trained: dict[str, Output]
    frozen: list[str]
    stops: dict[str, list[str]]
    adapters: list[Adapter]


def wired(
    model: Model,
    *,
    freeze: Sequence[str] = (),
    only: Sequence[str] = (),
    stop: Sequence[str] = (),
    lora: Lora | None = None,
    states: Collection[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> Wired:
    """A copy of a model in which gradients flow only where they are wanted.

    Args:
        model: as it was loaded.
        freeze, only: patterns of names of parameters.
        stop: patterns of names of scopes, operations or values.
        lora: adapters; with them, only what *only* names is trained besides.
        states: the names of parameters that are no weights, but statistics or a key of random numbers.
        aliases: further names of nodes and values, each with its scope.

    Raises:
        ArgumentError: a pattern matches nothing, or nothing is left to train.
    """
    kept = {name: x for name, x in model.parameters.items() if name not in states}
    names = [name for name, x in kept.items() if x.dtype.is_floating]
    operations = list(model.graph.operations)
    based = chosen("lora", lora.weights, names) if lora is not None else []
    if lora is None:
        chosen_names = trained(_weights(kept, names, only), freeze, only)
    else:
        frozen_too = set(chosen("freeze", freeze, names)) | set(based)
        chosen_names = [n for n in (chosen("only", only, names) if only else []) if n not in frozen_too]
    stops = stopped(stop, operations, model.outputs.values(), aliases)
    frozen = [name for name in kept if name not in set(chosen_names)]
    tensors = [kept[name] for name in frozen if name not in set(based)]
    tensors += [x for hits in stops.values() for x in hits]
    rules, places, made = [], dict[str, Output](), list[Adapter]()
    if lora is not None:
        weights = {name: kept[name] for name in based}
        made = adapters(lora, weights, operations, {*model.parameters, *model.inputs})
        rule, places = adapting(made, weights, operations)
        rules.append(rule)
    rules.append(stopping(dict.fromkeys(tensors)))
    given = [*model.inputs.values(), *model.parameters.values()]
    done = without_gc(rewrite, [*model.outputs.values(), *given], (), rules)
    moved = {old: new for old, new in zip(given, done.outputs[len(model.outputs) :], strict=True)}
    weights = {name: _behind(moved[x]) for name, x in model.parameters.items()}
    learning = {name: weights[name] for name in chosen_names}
    return Wired(
        graph=done.graph,
        inputs={name: moved[x] for name, x in model.inputs.items()},
        outputs=dict(zip(model.outputs, done.outputs, strict=False)),
        weights=weights,
        trained=learning | places,
        frozen=frozen,
        stops={pattern: [x.op.name for x in hits] for pattern, hits in stops.items()},
        adapters=made,
    )


def _weights(kept: Mapping[str, Output], names: list[str], only: Sequence[str]) -> list[str]:
    """What is trained where nothing is said: single numbers are constants, unless they are asked for."""
    return names if only else [name for name in names if kept[name].shape]


def _behind(x: Output) -> Output:
    """The parameter itself, where a stop or adapters stand before it."""
    while x.op.type != "Parameter":
        x = x.op.inputs[0]
    return x
