"""Weights that a file holds as one, or apart, and the module did not.

Exporters store equal arrays once. So parameters that begin with the same numbers (biases of zeros, scales of
ones, layers that are copies) become one initializer, which would be trained as one. The other way round, an
exporter that transposes a matrix makes a second copy of one that two layers share (the table of an embedding
and the head of a language model), and these would be trained apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx

from stopgrad.interop.onnx.nodes import text
from stopgrad.interop.onnx.reading import array_from
from stopgrad.interop.onnx.weights.exporters import module_of
from stopgrad.interop.onnx.weights.uses import Use
from stopgrad.interop.onnx.weights.weight_verdicts import Weighing

SHOWN = 3
"""The most names that a note has."""

_HELD_APART = {"bias", "scale", "slope"}
"""Places of which each layer has its own, also in files that do not say whose they are."""


class Merged(NamedTuple):
    """An initializer that stands for several parameters.

    Attributes:
        name: of the initializer.
        uses: its readers by the names of the parameters.
        tied: whether the module itself has them as one.
    """

    name: str
    uses: dict[str, list[Use]]
    tied: bool


def shared(model: onnx.ModelProto, apart: bool) -> list[str]:
    """Make a model, which holds its data, share the weights that its module shares; what to tell, as notes.

    Args:
        model: it is changed.
        apart: whether parameters that were merged become tensors of their own.
    """
    merges = merged(model)
    notes = [note_of(merge) for merge in merges if merge.tied or not apart]
    if apart:
        split(model, merges)
        own = [name for merge in merges if not merge.tied for name in merge.uses if name != merge.name]
        if own:
            notes.append(_apart(own))
    notes += tie(model)
    absent = _absent(model)
    if absent:
        more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
        notes.append(
            f"the file lacks parameters of the module: {', '.join(map(repr, absent[:SHOWN]))}{more}; the "
            "exporter computed with them or dropped them, and they are not trained: export with "
            "stopgrad.onnx.export"
        )
    return notes


def _absent(model: onnx.ModelProto) -> list[str]:
    """The parameters of the module, as far as the file names them, that no tensor stands for."""
    weighing = Weighing(model)
    present: set[str] = set()
    for tensor in _weights(model) if weighing.metadata.parameters else ():
        name = text(tensor.name)
        verdict = weighing.of(name, _array(tensor))
        if verdict.weight:
            present |= {name, *verdict.of}
            present |= {_owner(name, use, weighing) for use in weighing.uses.readers.get(name, [])}
    absent = [name for name in weighing.metadata.parameters if name not in present]
    # Of tied weights, the file has one name for both.
    tied = sum({"table", "matrix"} <= weighing.uses.places(text(t.name)) for t in _weights(model))
    others = [name for name in absent if name.rpartition(".")[2] == "weight"][:tied]
    return [name for name in absent if name not in others]


def merged(model: onnx.ModelProto) -> list[Merged]:
    """The weights of a model, which holds its data, that stand for several parameters of the module."""
    weighing = Weighing(model)
    return [merge for tensor in _weights(model) if (merge := _merged(tensor, weighing)) is not None]


def _weights(model: onnx.ModelProto) -> Iterator[Any]:
    """The initializers of floating-point numbers."""
    kinds = (
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    )
    return (tensor for tensor in model.graph.initializer if tensor.data_type in kinds)


def _array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    return array_from(tensor, None, f"the initializer {text(tensor.name)!r}")


def _merged(tensor: onnx.TensorProto, weighing: Weighing) -> Merged | None:
    name = text(tensor.name)
    readers = weighing.uses.readers.get(name, [])
    if len(readers) < 2:
        return None
    array = _array(tensor)
    if not weighing.of(name, array).weight:
        return None
    uses: dict[str, list[Use]] = {}
    for use in readers:
        uses.setdefault(_owner(name, use, weighing), []).append(use)
    begins = bool((array == array.reshape(-1)[:1]).all())
    if len(uses) < 2 and begins and not weighing.metadata.exporter:
        uses = _by_node(name, readers)
    if len(uses) < 2:
        return None
    labels = {_label(owner, some, weighing) for owner, some in uses.items()}
    if len(labels) == 1:  # One layer that the module calls several times.
        return None
    copies = len({re.sub(r"\d+", "#", label) for label in labels}) == 1
    return Merged(name, uses, not begins and not copies)


def _label(owner: str, uses: list[Use], weighing: Weighing) -> str:
    """The name of a parameter; where the exporter made it up, that of the module that uses it."""
    if not weighing.metadata.is_made_up(owner):
        return owner
    ends = [reader for use in uses for y in use.node.output for reader in weighing.uses.of(text(y))]
    modules = [module_of(text(use.node.name)) for use in (ends if uses[0].operator == "Identity" else uses)]
    return re.sub(r"_\d+(?=\.|$)", "", modules[0]) if modules and modules[0] else owner


def _owner(name: str, use: Use, weighing: Weighing) -> str:
    """The name of the parameter that a use of an initializer is of."""
    metadata = weighing.metadata
    if metadata.inputs:
        return next(iter(weighing.sources(use)), name)
    if (
        metadata.exporter == "pytorch"
        and use.operator == "Identity"
        and not text(use.node.name).startswith("/")
    ):
        return text(use.node.output[0])  # So the older exporter writes what it found to be equal.
    return name


def _by_node(name: str, readers: list[Use]) -> dict[str, list[Use]]:
    """The uses in places that each layer has of its own, in a file that does not name parameters."""
    if not all(use.place() in _HELD_APART for use in readers):
        return {}
    return {name if i == 0 else f"{name}/{i}": [use] for i, use in enumerate(readers)}


def note_of(merge: Merged) -> str:
    """What to tell of it."""
    names = [name for name in merge.uses if name != merge.name]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    shown = ", ".join(map(repr, names[:SHOWN])) + more
    if merge.tied:
        return f"{merge.name!r} is also {shown}: tied weights, which are trained as one"
    return (
        f"{merge.name!r} also stands for {shown}, which began with the same numbers: the exporter merged "
        "them, and they are trained as one; split_shared (--split-shared) holds them apart"
    )


def _apart(names: list[str]) -> str:
    """What to tell of parameters that are held apart again."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    single = len(names) == 1
    who, what, verb = ("parameter", "another", "is") if single else ("parameters", "others", "are")
    return (
        f"{len(names)} {who} that the exporter had merged into {what}, since they began with the same "
        f"numbers, {verb} held apart: {', '.join(map(repr, names[:SHOWN]))}{more}"
    )


def split(model: onnx.ModelProto, merges: list[Merged]) -> None:
    """Give each parameter that was merged into another an initializer of its own, in place."""
    tensors = {text(tensor.name): tensor for tensor in model.graph.initializer}
    dropped: list[int] = []
    taken = {text(y) for node in model.graph.node for y in node.output} | set(tensors)
    for merge in merges:
        for owner, uses in merge.uses.items():
            if merge.tied or owner == merge.name:
                continue
            own = uses[0].operator == "Identity" and text(uses[0].node.output[0]) == owner
            name = owner if own or owner not in taken else f"{owner}/own"
            taken.add(name)
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(tensors[merge.name])
            tensor.name = name
            for use in uses:
                if own:
                    dropped.append(id(use.node))
                else:
                    use.node.input[use.position] = name
    remaining = [node for node in model.graph.node if id(node) not in set(dropped)]
    if dropped:
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in remaining]
        del model.graph.node[:]
        model.graph.node.extend(nodes)


def tie(model: onnx.ModelProto) -> list[str]:
    """Compute matrices that are another weight, transposed, from that weight; what was done, for notes."""
    weighing = Weighing(model)
    tensors = {text(t.name): t for t in _weights(model) if len(t.dims) == 2}
    tables = {n: t for n, t in tensors.items() if "table" in weighing.uses.places(n)}
    notes, transposes = [], []
    for name, tensor in tensors.items():
        if not weighing.metadata.is_made_up(name) or "matrix" not in weighing.uses.places(name):
            continue
        for table, other in tables.items():
            if list(other.dims) == [*tensor.dims][::-1] and _is_transposed(tensor, other):
                transposes.append(
                    onnx.helper.make_node("Transpose", [table], [name], f"{name}/tied", perm=[1, 0])
                )
                notes.append(f"{name!r} is {table!r}, transposed: tied weights, which are trained as one")
                break
    if transposes:
        gone = {node.output[0] for node in transposes}
        remaining = [t for t in model.graph.initializer if t.name not in gone]
        nodes = [*transposes, *model.graph.node]
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        remaining = [onnx.TensorProto.FromString(t.SerializeToString()) for t in remaining]
        del model.graph.node[:], model.graph.initializer[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(remaining)
    return notes


def _is_transposed(tensor: onnx.TensorProto, other: onnx.TensorProto) -> bool:
    mine, theirs = _array(tensor), _array(other)
    return bool(mine.size and (mine != mine[:1, :1]).any() and np.array_equal(mine, theirs.T))
