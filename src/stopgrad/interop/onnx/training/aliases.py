"""The other names of tied weights: of several names of one tensor, exporters keep one."""

from __future__ import annotations

import ast
import glob
from collections.abc import Sequence
from dataclasses import replace

import onnx

from stopgrad.interop.onnx.nodes import text
from stopgrad.interop.onnx.patterns import matches
from stopgrad.interop.onnx.training.training_description import Asked

_SCOPES = "pkg.torch.onnx.name_scopes"
"""The metadata of a node in which PyTorch names the modules around it, from the outermost on, and itself."""


def other_names(model: onnx.ModelProto) -> dict[str, str]:
    """Names that tied weights would have in the modules that use them, each with the initializer's name.

    An embedding that is also the weight of the last layer is stored as ``tokens.weight``, or as
    ``head.weight``. Whichever it is, the other module uses it, so its name and the last part of the
    initializer's are the other name.
    """
    stored = {text(tensor.name) for tensor in model.graph.initializer}
    aliases: dict[str, str] = {}
    for node in model.graph.node:
        module = _module(node)
        for name in map(text, node.input) if module else ():
            other = f"{module}.{name.rpartition('.')[2]}"
            if name in stored and "." in name and other not in stored:
                aliases.setdefault(other, name)
    return aliases


def _module(node: onnx.NodeProto) -> str:
    """The path of the module that a node is in; empty where the file does not say."""
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            try:
                scopes = ast.literal_eval(entry.value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return ""
            return str(scopes[-2]) if isinstance(scopes, list) and len(scopes) > 1 else ""
    path = text(node.name)
    return ".".join(path.split("/")[1:-1]) if path.startswith("/") else ""


def with_first_names(asked: Asked, model: onnx.ModelProto) -> Asked:
    """What was asked, with patterns of other names of weights replaced by their stored names."""
    others, names = other_names(model), [text(tensor.name) for tensor in model.graph.initializer]

    def stored(patterns: Sequence[str]) -> list[str]:
        stored_patterns: list[str] = []
        for pattern in patterns:
            hits = dict.fromkeys(name for other, name in others.items() if matches(other, pattern))
            if not hits or any(matches(name, pattern) for name in names):
                stored_patterns.append(pattern)
            stored_patterns += map(glob.escape, hits)
        return stored_patterns

    return replace(asked, freeze=stored(asked.freeze), only=stored(asked.only), train=stored(asked.train))
