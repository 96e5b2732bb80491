"""What exporters write into a file about the parameters of the module that they exported.

PyTorch's exporter (``torch.onnx.export``, through ``torch.export``) writes the signature of the exported
program: which inputs are parameters, buffers and constants. Each node has the line of the program that it
was made for, with the names of the inputs that this reads; so a tensor that the exporter has computed from a
parameter (a transposed weight) is known by its user. Files of :func:`stopgrad.onnx.save` say which tensors
are parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import onnx

from stopgrad.interop.onnx.nodes import text

OURS = "stopgrad.tensors"
"""The key of a model's metadata under which the kinds of its tensors stand: JSON, names by kind."""

FROZEN = "frozen parameter"
"""The kind of a parameter that requires no gradient."""

KINDS = ("parameter", FROZEN, "buffer", "constant")
"""The kinds of tensors of a module."""

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
LINE = "pkg.torch.onnx.fx_node"
"""The key of a node's metadata under which the line of the program stands that it was made for."""

_INPUT = re.compile(r"^\s*(\w+): (PARAMETER|BUFFER|CONSTANT_TENSOR) target='([^']*)'", re.MULTILINE)
_SPOKEN = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant"}
_OWN_NAME = re.compile(
    r"onnx::\w+|val_\d+|.*Constant(_\d+)?(_output_\d+)?|/.*|.*lifted_tensor_\d+|\d+"
    r"|(clone|_to_copy|lift_fresh_copy|detach|full|full_like|ones|ones_like|zeros|zeros_like|scalar_tensor)(_\d+)?"
)
"""Names that PyTorch's exporters make up for tensors that they compute."""
_TORCHS = re.compile(r"onnx::[A-Z]\w*_\d+(_quantized)?|/\S+_output_\d+")
"""Those that nobody else makes up."""


class Metadata(NamedTuple):
    """What a file says.

    Attributes:
        exporter: the name of what wrote it.
        kinds: of tensors, by their names in the file; those of :data:`KINDS`.
        inputs: for a program of ``torch.export``, its tensors: the kind and the name in the module, by the
            names that lines of the program have for them.
        complete: whether *kinds* has all parameters.
    """

    exporter: str
    kinds: Mapping[str, str]
    inputs: Mapping[str, tuple[str, str]]
    complete: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names that the module has for its parameters, as far as the file says."""
        return [name for kind, name in self.inputs.values() if kind == "parameter"]

    def is_made_up(self, name: str) -> bool:
        """Whether a name is one that the exporter makes up for what it computes."""
        if self.inputs:
            return name not in self.kinds
        return self.exporter == "pytorch" and _OWN_NAME.fullmatch(name) is not None

    def read_by(self, node: onnx.NodeProto) -> list[str]:
        """The names of the module's parameters that the line reads for which a node was made."""
        line = next((text(e.value) for e in node.metadata_props if e.key == LINE), "") if self.inputs else ""
        if "batch_norm" in line and text(node.op_type) != "BatchNormalization":
            return []  # The exporter folded it into the layer before, whose line is lost.
        read = re.findall(r"%(\w+)", line.partition("args =")[2])
        inputs = [self.inputs.get(word, ("", "")) for word in read]
        return [name for kind, name in inputs if kind == "parameter"]


def module_of(node: str) -> str:
    """The module that PyTorch's older exporter made a node for, by the node's name; "" if it does not say.

    Examples:
        >>> module_of("/encoder/layer.0/query/MatMul"), module_of("/layer1/layer1.0/conv1/Conv")
        ('encoder.layer.0.query', 'layer1.0.conv1')
    """
    parts: list[str] = []
    for part in node.strip("/").split("/")[:-1] if node.startswith("/") else ():
        if parts and part.startswith(f"{parts[-1]}."):  # Sequences name their parts so.
            parts.pop()
        parts.append(part)
    return ".".join(parts)


def metadata_of(model: onnx.ModelProto) -> Metadata:
    """What a file says about its tensors."""
    ours = _ours(model)
    kinds = dict(ours or {})
    signature = next((text(e.value) for e in model.graph.metadata_props if e.key == _SIGNATURE), "")
    inputs = {word: (_SPOKEN[kind], name) for word, kind, name in _INPUT.findall(signature)}
    kinds |= {name: kind for kind, name in inputs.values()}
    for x in (*model.graph.value_info, *model.graph.input):
        for e in x.metadata_props:
            if e.key == _KIND and text(e.value) in _SPOKEN:
                kinds[text(x.name)] = _SPOKEN[text(e.value)]
    return Metadata(_exporter(model), kinds, inputs, ours is not None)


def _exporter(model: onnx.ModelProto) -> str:
    """What exported a model; tools that rewrite files put their own names in its place."""
    names = (text(t.name) for t in model.graph.initializer)
    return "pytorch" if any(map(_TORCHS.fullmatch, names)) else text(model.producer_name)


def _ours(model: onnx.ModelProto) -> dict[str, str] | None:
    """The kinds that we have written; None if we have written none."""
    for e in model.metadata_props:
        if e.key == OURS:
            try:
                listing: Any = json.loads(text(e.value))
                return {str(name): kind for kind in KINDS for name in listing.get(kind, [])}
            except (ValueError, AttributeError, TypeError):  # Someone else's, or damaged: it says nothing.
                continue
    return None


def say(model: onnx.ModelProto, kinds: Mapping[str, Iterable[str]]) -> None:
    """Write the kinds of a model's tensors into its metadata: by kind, names."""
    others = [e for e in model.metadata_props if e.key != OURS]
    del model.metadata_props[:]
    model.metadata_props.extend(others)
    listing = json.dumps({kind: list(names) for kind, names in kinds.items()})
    model.metadata_props.append(onnx.StringStringEntryProto(key=OURS, value=listing))
