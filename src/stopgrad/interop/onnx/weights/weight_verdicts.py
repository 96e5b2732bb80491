"""Decides for each initializer of a model whether it is a weight or a constant, and says why.

What the file itself says comes first: the signature that PyTorch's exporter writes, or what
:func:`stopgrad.onnx.save` has noted. Then come numbers that no weight holds, the places in which the tensor
is used, tables that are known, and names. A tensor for which nothing speaks is a weight, as initializers are
in files by hand; but not one that the exporter has computed and named itself.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import onnx

from stopgrad.interop.onnx.nodes import text
from stopgrad.interop.onnx.weights.exporters import LINE, Metadata, metadata_of, module_of
from stopgrad.interop.onnx.weights.number_patterns import recognised, telling
from stopgrad.interop.onnx.weights.uses import NORMS, WEIGHTS, Use, Uses

_OF_CONSTANTS = re.compile(
    r"(.*[._/])?(inv_freq|\w*mask|masked_bias|position_ids|cos_cached|sin_cached|rotary_\w+|num_batches_tracked"
    r"|pixel_mean|pixel_std|image_mean|image_std)"
)
"""Names that modules give to constants."""


QUANTISES = "a scale of quantised numbers"
"""Why such a tensor is a constant."""

_LAYERS = ("LSTM", "GRU", "RNN")
_RECURRENT = {1: "weight_ih", 2: "weight_hh", 3: "bias"}
"""Parts of the names of a recurrence's parameters, by the positions of the operands made from them."""


class Verdict(NamedTuple):
    """Whether a tensor is a weight, and why.

    Attributes:
        weight: whether it is one.
        why: the evidence.
        of: the names that the module has for what it was made from, if the file says them.
        dtype, shape: of the tensor.
    """

    weight: bool
    why: str
    of: tuple[str, ...] = ()
    dtype: str = ""
    shape: tuple[int, ...] = ()


class Weighing:
    """The evidence about the tensors of one model."""

    uses: Uses
    unread: tuple[str, ...]

    def __init__(self, model: onnx.ModelProto) -> None:
        self.metadata: Metadata = metadata_of(model)
        self.uses = Uses(model)
        self._inputs = {text(x.name) for x in model.graph.input} - self.uses.stored
        self._layers = _numbered(model)
        read = {name for node in model.graph.node for name in self.metadata.read_by(node)}
        #: Parameters of the module that the file says nothing else of: they were computed with, and are gone.
        self.unread = tuple(p for p in self.metadata.parameters if p not in read | self.uses.stored)

    def of(self, name: str, array: np.generic | np.ndarray[Any, Any]) -> Verdict:
        """The verdict on an initializer of floating-point numbers."""
        array = np.asarray(array)
        return self._judged(name, array)._replace(dtype=array.dtype.name, shape=array.shape)

    def _judged(self, name: str, array: np.ndarray[Any, Any]) -> Verdict:
        for evidence in (
            self._from_file,
            self._quantises,
            self._impossible,
            self._computed,
            self._by_use,
            self._by_looks,
        ):
            verdict = evidence(name, array)
            if verdict is not None:
                return verdict
        if self.metadata.is_made_up(name):
            return Verdict(False, "the exporter computed it, and it stands where no weight stands")
        return Verdict(True, "it is stored, and nothing says that it is a constant")

    # ----------------------------------------------------------------------------------------- evidence

    def _from_file(self, name: str, array: np.ndarray[Any, Any]) -> Verdict | None:
        kind = self.metadata.kinds.get(name)
        if kind is None:
            return (
                Verdict(False, "the file lists its parameters without it") if self.metadata.complete else None
            )
        if kind == "parameter":
            return Verdict(True, "the file says that it is a parameter", (name,))
        return Verdict(False, f"the file says that it is a {kind}")

    def _quantises(self, name: str, array: np.ndarray[Any, Any]) -> Verdict | None:
        return Verdict(False, QUANTISES) if self.uses.quantises(name) else None

    def _impossible(self, name: str, array: np.ndarray[Any, Any]) -> Verdict | None:
        why = telling(array)
        if why is not None:
            return Verdict(False, why)
        uses = self.uses.of(name)
        norm = self.metadata.is_made_up(name) and all(use.operator in NORMS for use in uses) and bool(uses)
        if norm and all((array == (1 if use.position == 1 else 0)).all() for use in uses):
            return Verdict(False, "ones and zeros that an operator must be given: the norm learns nothing")
        return None

    def _computed(self, name: str, array: np.ndarray[Any, Any]) -> Verdict | None:
        """A tensor of a program of ``torch.export`` that its signature does not have: it was computed."""
        if not self.metadata.inputs or "first state" in self.uses.places(name):
            return None
        sources = tuple(dict.fromkeys(p for use in self.uses.of(name) for p in self._computed_from(use)))
        if sources:
            return Verdict(True, f"the exporter made it from {_shortened(sources)}", sources)
        weight = not self.uses.places(name).isdisjoint(WEIGHTS)
        constant_by_use = self.uses.is_masking(name) or self.uses.is_compared(name)
        is_constant = constant_by_use or recognised(array) is not None
        if self.unread and not is_constant and (weight or array.ndim > 1):
            are = "is" if len(self.unread) == 1 else "are"
            why = f"the exporter computed it, and {_shortened(self.unread)} of the module {are} nowhere else"
            return Verdict(True, why, self.unread)
        return None

    def _computed_from(self, use: Use) -> list[str]:
        """The module's parameters from which a tensor without a name that is used so may be made."""
        return [name for name in self.sources(use) if name not in self._beside(use)]

    def sources(self, use: Use) -> list[str]:
        """The module's parameters that a use of a tensor may be one of, as far as the file says."""
        words = _RECURRENT.get(use.position, "") if use.operator in _LAYERS else ""
        end = f"_l{self._layers[id(use.node)]}" if words else ""
        place, sources = use.place() or self.uses.beside(use), []
        for name in self.metadata.read_by(use.node):
            leaf = name.rpartition(".")[2]
            if words:
                fits = words in leaf and leaf.removesuffix("_reverse").endswith(end)
            else:
                fits = place == "" or ("bias" in leaf) == (place == "bias")
            if fits:
                sources.append(name)
        return sources

    def _beside(self, use: Use) -> set[str]:
        """The names of the stored operands of a node, besides the one in question."""
        return {text(x) for i, x in enumerate(use.node.input) if i != use.position} & self.uses.stored

    def _by_use(self, name: str, array: np.ndarray[Any, Any]) -> Verdict | None:
        places = self.uses.places(name)
        if places == {"statistic"}:
            return Verdict(False, "a running statistic of batch normalisation")
        if places == {"first state"}:
            return Verdict(False, "the state in which a recurrence begins")
        if places == {"rotation"}:
            return Verdict(False, "the cosines and sines of rotary embeddings")
        if self.uses.is_compared(name):
            return Verdict(False, "it is only compared, or an index or a shape")
        why_constant = recognised(array)
        weight = sorted(places & WEIGHTS)
        if weight == ["bias"] and not array.ndim and self.metadata.exporter != "pytorch":
            return Verdict(False, "a single number, which an operator must be given")
        if weight and (why_constant is None or not self.metadata.is_made_up(name)):
            modules = self._modules(name, weight)
            where = f" of {_shortened(modules)}" if modules else ""
            leaf = "bias" if weight == ["bias"] else "weight"
            sources = (
                (name,)
                if not self.metadata.is_made_up(name)
                else tuple(f"{module}.{leaf}" for module in modules)
            )
            return Verdict(True, f"it stands where weights stand: as {_words(weight)}{where}", sources)
        return None if why_constant is None else Verdict(False, why_constant)

    def _by_looks(self, name: str, array: np.ndarray[Any, Any]) -> Verdict | None:
        if self.uses.is_masking(name) and self.metadata.is_made_up(name):
            return Verdict(False, "it is only added to what goes into a softmax")
        if self.uses.normalises(name, self._inputs):
            return Verdict(False, "the model's inputs are normalised by it")
        if _OF_CONSTANTS.fullmatch(name):
            return Verdict(False, "modules call constants so")
        if not array.ndim and self.metadata.exporter != "pytorch":
            return Verdict(False, "a single number")
        return None

    def _modules(self, name: str, places: list[str]) -> tuple[str, ...]:
        """The modules in which a tensor that the exporter has named is used, by the names of nodes."""
        if not self.metadata.is_made_up(name) or self.metadata.exporter != "pytorch" or self.metadata.inputs:
            return ()
        nodes = [text(use.node.name) for use in self.uses.of(name) if use.place() in places]
        return tuple(dict.fromkeys(module for module in map(module_of, nodes) if module))


def _numbered(model: onnx.ModelProto) -> dict[int, int]:
    """The numbers of the layers of recurrences, which are nodes of one line of the program."""
    counts: Counter[str] = Counter()
    numbers = {}
    for node in model.graph.node:
        if text(node.op_type) in _LAYERS:
            line = "".join(text(e.value) for e in node.metadata_props if e.key == LINE)
            numbers[id(node)] = counts[line]
            counts[line] += 1
    return numbers


def weighing_of(model: onnx.ModelProto) -> Weighing:
    """The evidence about the tensors of a model."""
    return Weighing(model)


def _shortened(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


_ARTICLES = {
    "matrix": "a matrix",
    "kernel": "a kernel",
    "bias": "a bias",
    "scale": "a scale",
    "slope": "a slope",
}


def _words(places: list[str]) -> str:
    return " and ".join(_ARTICLES.get(place, "a table that is looked up") for place in places)
