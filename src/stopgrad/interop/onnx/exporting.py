"""Writes a PyTorch module as an ONNX model that says exactly what its parameters are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.graph.files import AnyPath
from stopgrad.graph.public import guarded
from stopgrad.interop.onnx.saving import OPSET, put, ready_of
from stopgrad.interop.onnx.weights.exporters import FROZEN

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@guarded("export")
def export(
    module: torch.nn.Module | ExportedProgram,
    example: torch.Tensor | Sequence[Any],
    path: AnyPath,
    *,
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    opset: int = OPSET,
    external: bool | None = None,
) -> None:
    """Write a PyTorch module as an ONNX model, with its parameters under their own names.

    The module goes through ``torch.export`` (as by :func:`stopgrad.torch.load`) and :func:`save`, in its form
    for inference. In the file, the parameters are those of ``named_parameters()``: none is folded, merged
    with another of the same values, or transposed; tied ones are one. Buffers and constants are said to be
    such, and parameters that do not require gradients to be frozen. ``detach`` and ``no_grad`` are gates. So
    :func:`load` and :func:`training` need not guess.

    Args:
        module: a ``torch.nn.Module``, or a program of ``torch.export``.
        example: its arguments, a tuple; or the only one.
        path: of the file.
        dynamic_shapes: the sizes that are open, as ``torch.export`` takes them.
        opset, external: as :func:`save` has them.

    Raises:
        ArgumentError: the module is none, or draws random numbers or renews buffers also in inference.
        GraphError, EngineError: an operation cannot be read or written; it is named.
        FileError: the file cannot be written. An older one is left as it was.

    Examples:
        >>> import torch, tempfile
        >>> import stopgrad.onnx as sgo
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sgo.export(torch.nn.Linear(3, 2), torch.ones(1, 3), f"{folder}/model.onnx")
        ...     list(sgo.load(f"{folder}/model.onnx").parameters)
        ['weight', 'bias']
    """
    sgt = require("stopgrad.torch", "stopgrad.onnx.export", "torch")
    if not hasattr(module, "named_parameters"):
        raise ArgumentError(f"takes a torch.nn.Module or an exported program, not {type(module).__name__}")
    arguments = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    with resting(module):
        model = sgt.load(module, *arguments, dynamic_shapes=dynamic_shapes)
    parameters = dict(module.named_parameters())
    kinds: dict[str, list[str]] = {"parameter": [], FROZEN: [], "buffer": []}
    for name, x in model.parameters.items():
        parameter = parameters.get(name)
        if parameter is None and x.dtype.name == "uint32":
            raise ArgumentError("the module draws random numbers also in inference; take them as arguments")
        kind = "buffer" if parameter is None else "parameter" if parameter.requires_grad else FROZEN
        kinds[kind].append(name)
    renewed = [name for name in model.outputs if name.startswith("updated.")]
    if renewed:
        raise ArgumentError(f"the module renews {renewed[0].removeprefix('updated.')!r} also in inference")
    put(path, ready_of(model, None, None, opset, kinds=kinds), external)


@contextmanager
def resting(module: torch.nn.Module | ExportedProgram) -> Iterator[None]:
    """A context in which a module and all of its parts are in their form for inference."""
    parts: Sequence[Any] = list(module.modules()) if hasattr(module, "modules") else []
    modes = [part.training for part in parts]
    try:
        for part in parts:
            part.training = False
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
