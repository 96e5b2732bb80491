"""Checks models before they are read: names, order, unknown operators. All findings are told at once."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import onnx

from stopgrad.base.errors import FileError, GraphError
from stopgrad.engines.onnxruntime.nodes.forms.gates import CUSTOM
from stopgrad.graph.op import REGISTRY
from stopgrad.interop.onnx.nodes import (
    all_nodes,
    called,
    domain_of,
    graphs_in,
    live,
    shown,
    text,
)
from stopgrad.interop.onnx.reading import OLDEST, opsets
from stopgrad.interop.onnx.schemas import has_function, is_same, schema_of
from stopgrad.interop.shared.inlining import DEEPEST, Inlined
from stopgrad.ops.gates.stopping import Gate

GATES = "stopgrad"
"""The domain whose operators are gates."""

Functions = Mapping[tuple[str, str, str], Any]

EXPANDED = 1_000_000
"""The most nodes that a function may become. Those of the whole model are counted as it is read."""
_SHOWN = 20
"""The most nodes of one kind that an error names."""
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
    | {"Dropout"}
)


def check_model(
    model: onnx.ModelProto, name: str, operators: Container[str]
) -> dict[tuple[str, str, str], Any]:
    """The functions of a model, by domain, name and overload.

    Raises:
        FileError: a name is defined twice, or used before it is defined.
        GraphError: some of its operators are unknown.
    """
    functions: dict[tuple[str, str, str], Any] = {}
    for function in model.functions:
        key = domain_of(function), text(function.name), text(function.overload)
        if key in functions:
            raise FileError(f"{name} has two functions {'::'.join(key[:2])!r}")
        functions[key] = function
    versions = versions_of(model, name)
    graph = model.graph
    _check_names(graph, name)
    _check_functions(functions, name)
    unknown = _Unknown(functions, operators)
    unknown.look(live(graph.node, [text(y.name) for y in graph.output]), versions)
    unknown.raise_for(name)
    return functions


def versions_of(model: onnx.ModelProto, name: str) -> dict[str, int]:
    """The versions of the domains of a model.

    Of opsets older than the oldest that is supported, only operators that have not changed since are read.

    Raises:
        FileError: such a model has other operators.
    """
    versions = opsets(model.opset_import, name)
    if "" not in versions and any(not domain_of(node) for node in all_nodes(model)):
        raise FileError(
            f"{name} states no opset of ai.onnx, whose operators it has: the file may be truncated"
        )
    stated = versions.setdefault("", OLDEST)
    if stated < OLDEST:
        changed = sorted({text(node.op_type) for node in all_nodes(model) if _has_changed(node, stated)})
        if changed:
            raise FileError(
                f"{name} is of opset {stated}, in which {', '.join(changed[:_SHOWN])} are others than in "
                f"opset {OLDEST}, the oldest that is read; convert the model with "
                "onnx.version_converter.convert_version(model, 21)"
            )
        versions[""] = OLDEST
    return versions


def _has_changed(node: onnx.NodeProto, stated: int) -> bool:
    old, new = (schema_of(text(node.op_type), "", v) for v in (stated, OLDEST))
    if domain_of(node) or old is None:
        return False
    return new is None or not is_same(old, new)


def _check_functions(functions: Functions, name: str) -> None:
    """Refuse functions that call themselves, or become too many nodes when inlined."""

    def look(key: tuple[str, str, str]) -> tuple[int, list[tuple[str, str, str]]]:
        return len(functions[key].node), [k for k in _calls(functions[key]) if k in functions]

    inlined = Inlined(look, name, lambda key: key[1])
    if any(inlined.size(key) > EXPANDED for key in functions):
        raise FileError(f"the functions of {name} become more than {EXPANDED} nodes")


def _calls(function: onnx.FunctionProto) -> Iterator[tuple[str, str, str]]:
    """The functions that a function may call, also from inner graphs, and the gradient functions of these."""
    waiting = list(function.node)
    while waiting:
        node = waiting.pop()
        yield domain_of(node), text(node.op_type), text(node.overload)
        yield gradient_of(node)
        waiting += [inner for graph in graphs_in(node, deep=False) for inner in graph.node]


# -------------------------------------------------------------------------------------------------- names


def _check_names(graph: onnx.GraphProto, name: str) -> None:
    """Refuse graphs in which a name is defined twice, or read before it is defined."""
    waiting: list[tuple[Any, frozenset[str], int]] = [(graph, frozenset(), 0)]
    while waiting:
        here, around, depth = waiting.pop()
        if depth > DEEPEST:
            raise FileError(f"{name}: graphs stand in one another more than {DEEPEST} deep")
        inputs = [text(x.name) for x in here.input]
        stored = [text(t.name) for t in here.initializer]
        stored += [text(t.values.name) for t in here.sparse_initializer]
        for names, what in ((inputs, "inputs"), (stored, "initializers")):
            _check_unique(names, f"{what} of {name}")
        defined = {*inputs, *stored}
        for node in here.node:
            _check_node(node, defined, around, name)
            bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
            bodies += [g for a in node.attribute for g in a.graphs]
            if bodies:
                visible = around | defined
                waiting += [(body, visible, depth + 1) for body in bodies]
            defined.update(text(y) for y in node.output if y)
        _check_unique([text(y.name) for y in here.output] if here is graph else [], f"outputs of {name}")


def _check_unique(names: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise FileError(f"one of the {what} has no name")
        if name in seen:
            raise FileError(f"two of the {what} are called {name!r}")
        seen.add(name)


def _check_node(node: onnx.NodeProto, defined: set[str], around: Container[str], name: str) -> None:
    for x in map(text, node.input):
        if x and x not in defined and x not in around:
            raise FileError(f"{name}: the node {shown(node)} reads {x!r}, which nothing computes")
    for y in map(text, node.output):
        if y and y in defined:
            raise FileError(f"{name}: the node {shown(node)} computes {y!r}, which is there already")


# --------------------------------------------------------------------------------------- unknown operators


class _Unknown:
    """The unknown operators of a model, each with the nodes that call it."""

    def __init__(self, functions: Functions, operators: Container[str]) -> None:
        self.functions, self.operators = functions, operators
        self.found: dict[str, list[str]] = {}
        self._seen: set[int] = set()
        self._known: dict[tuple[str, str, int], bool] = {}

    def look(self, nodes: Sequence[Any], versions: Mapping[str, int]) -> None:
        """Find them among these nodes, their bodies and the functions that they call."""
        waiting = [(list(nodes), versions)]
        while waiting:
            here, versions = waiting.pop()
            for node in here:
                waiting += [(list(g.node), versions) for g in graphs_in(node, deep=False)]
                domain, op_type = domain_of(node), text(node.op_type)
                functions = [(domain, op_type, text(node.overload)), gradient_of(node)]
                called_functions = [self.functions[key] for key in functions if key in self.functions]
                for function in called_functions:
                    if id(function) not in self._seen and gate_of(domain, op_type) is None:
                        self._seen.add(id(function))
                        own = {**versions, **opsets(function.opset_import, text(function.name))}
                        waiting.append((list(function.node), own))
                if not called_functions and not self._is_known(domain, op_type, versions.get(domain, 1)):
                    key = f"{domain}::{op_type}" if domain else f"{op_type} (opset {versions.get('', 1)})"
                    self.found.setdefault(key, []).append(called(node))

    def _is_known(self, domain: str, op_type: str, version: int) -> bool:
        key = domain, op_type, version
        if key not in self._known:
            rule = f"{domain}::{op_type}" if domain else op_type
            schema = None if rule in self.operators else schema_of(op_type, domain, version)
            has_body = schema is not None and has_function(schema)
            self._known[key] = rule in self.operators or has_body or gate_of(domain, op_type) is not None
        return self._known[key]

    def raise_for(self, name: str) -> None:
        """Raise an error that names all of them, if there are any."""
        if not self.found:
            return
        lines = []
        for operator, nodes in self.found.items():
            more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
            lines.append(f"{operator}: {', '.join(map(repr, nodes[:_SHOWN]))}{more}")
        cure = "export the model with other operators, or with a function that says what they compute"
        count = "1 operator" if len(lines) == 1 else f"{len(lines)} operators"
        raise GraphError(
            f"{count} of {name} have no translation; their nodes:\n  " + "\n  ".join(lines) + f"\n{cure}"
        )


def gate_of(domain: str, op_type: str) -> type[Gate] | None:
    """The gate that an operator of the domain ``stopgrad`` stands for, or None."""
    gate = REGISTRY.get(op_type) if domain == GATES else None
    return gate if gate is not None and issubclass(gate, Gate) else None


def is_custom(node: onnx.NodeProto) -> bool:
    """Whether a node gives its operands on with a gradient of their own."""
    return domain_of(node) == GATES and text(node.op_type).startswith(CUSTOM)


def gradient_of(node: onnx.NodeProto) -> tuple[str, str, str]:
    """The key of the gradient function of such a node, whose name is empty where there is none."""
    names = [text(a.s) for a in node.attribute if a.name == "gradient"] if is_custom(node) else []
    return GATES, next(iter(names), ""), ""


# ------------------------------------------------------------------------------------------------ graphs


def draws(model: onnx.ModelProto) -> bool:
    """Whether any node of a model may draw random numbers."""
    return any(text(node.op_type) in _RANDOM for node in all_nodes(model))
