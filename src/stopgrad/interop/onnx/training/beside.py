"""Compares the gradient of a file with that of the PyTorch module that it was exported from.

Exporters write no ``detach()``, so that a file alone cannot say where the module's gradient ends. Where the
module is at hand, both gradients are computed, of the same loss at the same inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import stopgrad as sg
from stopgrad.base.errors import ArgumentError, GradientError
from stopgrad.base.namespaces import require
from stopgrad.interop.imported import Model
from stopgrad.interop.onnx.exporting import resting
from stopgrad.interop.onnx.weights import Verdict

if TYPE_CHECKING:
    import torch

_SHOWN = 4
_RELATIVE, _LEAST = 0.02, 1e-6
"""By how much the norms of two gradients may differ: a share of the larger one, and a number."""


def compare(
    module: Any,
    inputs: object,
    model: Model,
    trained: Sequence[str],
    verdicts: Mapping[str, Verdict],
    values: bool = True,
) -> None:
    """Refuse to train what gets no gradient in the module, or another one than in the file.

    Args:
        module: a ``torch.nn.Module``; it is asked in its form for inference, and not changed.
        inputs: its arguments, a tuple; or the only one.
        model: the file, as it was loaded.
        trained: the names of the parameters that would be trained.
        verdicts: on the tensors of the file, with the names that the module has for them.
        values: whether the numbers are compared, too; otherwise only whether there is a gradient.

    Raises:
        ArgumentError: the module is none, or the inputs are not those of the file.
        GradientError: the gradients differ; the parameters are named, with the line that ends the module's.
    """
    if not hasattr(module, "named_parameters") or inputs is None:
        raise ArgumentError("module= is the torch.nn.Module that was exported, and inputs= its arguments")
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if len(arguments) != len(model.inputs):
        raise ArgumentError(f"inputs: the file takes {', '.join(model.inputs)}, not {len(arguments)} inputs")
    with resting(module):
        theirs = _of_module(module, arguments)
    named = {name: _sources(name, verdicts, theirs) for name in trained if name in model.parameters}
    comparable = {name: sources for name, sources in named.items() if sources}
    lost = [name for name, sources in comparable.items() if all(theirs[source] is None for source in sources)]
    if lost:
        raise GradientError(_without(module, arguments, lost, comparable))
    if not values:
        return
    ours = _of_file(model, arguments, list(comparable))
    for name, sources in comparable.items():
        if len(sources) == 1:
            ends = [float(np.linalg.norm(x.astype(float))) for x in (ours[name], theirs[sources[0]])]
            if abs(ends[0] - ends[1]) > _RELATIVE * max(ends) + _LEAST:
                raise GradientError(
                    f"the gradient of {name!r} has another norm in the file than in the module, "
                    f"{ends[0]:.4g} and {ends[1]:.4g}: the exporter lost a detach() on one way; {_CURE}"
                )


_CURE = "export with stopgrad.onnx.export, which keeps it, or name what is frozen with freeze= or stop="


def _sources(name: str, verdicts: Mapping[str, Verdict], theirs: Mapping[str, Any]) -> list[str]:
    """The module's names for a tensor of the file."""
    if name in theirs:
        return [name]
    verdict = verdicts.get(name)
    return [source for source in (verdict.of if verdict is not None else ()) if source in theirs]


def _without(
    module: torch.nn.Module,
    arguments: Sequence[torch.Tensor],
    lost: Sequence[str],
    sources: Mapping[str, list[str]],
) -> str:
    """What is said of parameters that only the file has gradients of."""
    sgt = require("stopgrad.torch", "training(module=...)", "torch")
    with resting(module):
        flow = sgt.explain(module, *arguments)
    lines = dict.fromkeys(
        str(cut.location)
        for name in lost
        for source in sources[name]
        if source in flow
        for cut in flow[source].cuts
    )
    where = f" (it ends at {', '.join(list(lines)[:_SHOWN])})" if lines else ""
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return (
        f"the module has no gradient of {', '.join(map(repr, lost[:_SHOWN]))}{more}{where}, "
        f"and the file has: the exporter lost that; {_CURE}"
    )


def _of_module(module: torch.nn.Module, arguments: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The gradient of the sum of the squares of the module's results, by the names of its parameters."""
    torch = require("torch", "training(module=...)", "torch")
    parameters = dict(module.named_parameters())
    with torch.enable_grad():
        ys = [y for y in _leaves(module(*arguments)) if torch.is_tensor(y) and y.is_floating_point()]
        total = sum((y.double() ** 2).sum() for y in ys)
        learnable = {name: x for name, x in parameters.items() if x.requires_grad}
        gradients: Sequence[Any] = [None] * len(learnable)
        if learnable and torch.is_tensor(total) and total.requires_grad:
            gradients = torch.autograd.grad(total, list(learnable.values()), allow_unused=True)
    arrays = [None if g is None else g.detach().double().cpu().numpy() for g in gradients]
    return dict.fromkeys(parameters) | dict(zip(learnable, arrays, strict=True))


def _leaves(x: object) -> Iterator[Any]:
    """The values in nested tuples, lists and mappings."""
    if isinstance(x, Mapping):
        x = list(x.values())
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from _leaves(item)
    else:
        yield x


def _of_file(model: Model, arguments: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The same gradient of the file."""
    arrays = [np.asarray(x.detach().cpu() if hasattr(x, "detach") else x) for x in arguments]
    feeds = dict(zip(model.inputs.values(), arrays, strict=True))
    with model.graph.as_default():
        squares = [
            sg.reduce_sum(sg.square(sg.cast(y, sg.float64)))
            for y in model.outputs.values()
            if y.dtype.is_floating
        ]
        total = squares[0] if len(squares) == 1 else sg.add_n(squares)
        gradients = sg.gradients(total, [model.parameters[name] for name in names])
    there = {name: g for name, g in zip(names, gradients, strict=True) if g is not None}
    with sg.Session(model.graph, engine="numpy") as session:
        values = dict(zip(there, session.run(list(there.values()), feeds), strict=True))
    return {name: values.get(name, np.zeros(())) for name in names}
