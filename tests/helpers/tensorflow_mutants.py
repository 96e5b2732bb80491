"""Mutants of TensorFlow's graphs and checkpoints, and what must hold of any of them when it is loaded."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.helpers.onnx_mutants import BYTE_WISE, SlowError, bounded, mutate_field

import stopgrad as sg
import stopgrad.tensorflow as sgtf
from stopgrad.interop.tensorflow.messages import GraphDef, SavedModel
from stopgrad.interop.tensorflow.translating import KNOWN_OPERATIONS

GRAPHS = Path(__file__).parents[1] / "interop" / "tensorflow" / "graphs"
OPERATIONS = sorted(KNOWN_OPERATIONS)
CONTROL = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "_SwitchN", "While", "If", "Case")
NAMES = ("", "x", "^x", "x:1", "x:-1", "x:y:9", "\x00", "../x", "é" * 9, "a" * 5000, "x:99999999999")


def seeds() -> list[bytes]:
    """The graphs that TensorFlow wrote, in some order."""
    return [path.read_bytes() for path in sorted(GRAPHS.glob("*.pb"))]


def mutant(r: random.Random, graphs: Sequence[bytes]) -> bytes:
    """A graph with something wrong in it."""
    content = r.choice(graphs)
    if r.random() < 0.25:
        for _ in range(r.choice((1, 1, 2, 8))):
            content = r.choice(BYTE_WISE)(r, content)
        return content
    graph = GraphDef()
    graph.ParseFromString(content)
    mutate(r, graph)
    return bytes(graph.SerializeToString())


def mutate(r: random.Random, graph: Any) -> None:
    """Change some nodes of a graph, or of its functions."""
    for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
        lists = [graph.node, *[f.node_def for f in graph.library.function]]
        nodes = r.choice([one for one in lists if len(one)] or [graph.node])
        if not len(nodes):
            return
        if r.random() < 0.1 and len(graph.library.function):
            _change_function(r, r.choice(list(graph.library.function)), graph)
        else:
            r.choice(CHANGES)(r, r.choice(list(nodes)), nodes)


def _other_operation(r: random.Random, node: Any, nodes: Any) -> None:
    node.op = r.choice(CONTROL if r.random() < 0.4 else OPERATIONS)


def _other_input(r: random.Random, node: Any, nodes: Any) -> None:
    given = r.choice([*[one.name for one in nodes], *[x for one in nodes for x in one.input], *NAMES])
    with suppress(ValueError):
        if len(node.input) and r.random() < 0.7:
            node.input[r.randrange(len(node.input))] = given
        else:
            node.input.append(given)


def _fewer_inputs(r: random.Random, node: Any, nodes: Any) -> None:
    if len(node.input):
        del node.input[r.randrange(len(node.input))]


def _other_name(r: random.Random, node: Any, nodes: Any) -> None:
    with suppress(ValueError):
        node.name = r.choice([*[one.name for one in nodes], *NAMES])


def _without(r: random.Random, node: Any, nodes: Any) -> None:
    nodes.remove(node)


def _attribute(r: random.Random, node: Any, nodes: Any) -> None:
    if node.attr and r.random() < 0.3:
        del node.attr[r.choice(sorted(node.attr))]
    elif node.attr:
        with suppress(AttributeError, TypeError, ValueError):  # What has a map inside.
            mutate_field(r, node.attr[r.choice(sorted(node.attr))])


def _exchanged(r: random.Random, node: Any, nodes: Any) -> None:
    other = r.choice(list(nodes))
    if node.attr and other.attr:
        node.attr[r.choice(sorted(node.attr))].CopyFrom(other.attr[r.choice(sorted(other.attr))])


CHANGES: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    *(_other_operation, _other_input, _other_input, _fewer_inputs, _other_name, _without),
    *(_attribute, _attribute, _attribute, _exchanged, _exchanged),
)


def _change_function(r: random.Random, function: Any, graph: Any) -> None:
    others = [one.signature.name for one in graph.library.function]
    choice = r.randrange(4)
    if choice == 0:
        function.signature.name = r.choice(others)
    elif choice == 1 and function.ret:
        function.ret[r.choice(sorted(function.ret))] = r.choice([*function.ret.values(), "x:y:0", "nobody"])
    elif choice == 2 and len(function.signature.input_arg):
        del function.signature.input_arg[r.randrange(len(function.signature.input_arg))]
    else:
        r.choice(list(function.node_def)).op = r.choice(others)  # It may call itself.


def saved_mutant(r: random.Random, model: bytes) -> bytes:
    """The file of a SavedModel with something wrong in its graph or signatures."""
    found = SavedModel()
    found.ParseFromString(model)
    meta = found.meta_graphs[0]
    if r.random() < 0.3:
        for signature in meta.signature_def.values():
            for info in (*signature.inputs.values(), *signature.outputs.values()):
                if r.random() < 0.3:
                    info.name = r.choice([*[node.name for node in meta.graph_def.node], "nobody:0", "x:y:z"])
    else:
        mutate(r, meta.graph_def)
    return bytes(found.SerializeToString())


def outcome(source: Any) -> tuple[str, str]:
    """How loading ends: ``("loaded", "")``, ``("refused", kind)``, or ``("broken", what is wrong)``."""
    try:
        with bounded(), warnings.catch_warnings():
            warnings.simplefilter("error")
            sgtf.load(source)
    except sg.InternalError as error:
        return "broken", f"{type(error).__name__}: {error}"
    except sg.StopgradError as error:
        return "refused", type(error).__name__
    except SlowError:
        return "broken", "too slow"
    except BaseException as error:
        return "broken", f"{type(error).__name__}: {error}"
    return "loaded", ""
