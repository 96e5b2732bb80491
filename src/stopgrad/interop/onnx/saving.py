"""Writes graphs as ONNX models, with gates as functions that every runtime can execute."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

import stopgrad as sg
from stopgrad.base.errors import ArgumentError, EngineError
from stopgrad.engines.onnxruntime.nodes import Beside, Program, model_of, written
from stopgrad.engines.onnxruntime.nodes.graph_rewrites import RULES
from stopgrad.engines.onnxruntime.nodes.program import LATEST, OLDEST
from stopgrad.graph.files import AnyPath, replacing
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.public import guarded
from stopgrad.interop.onnx.erased import list_gates
from stopgrad.interop.onnx.weights.exporters import say
from stopgrad.interop.shared.saving import Given, Values, Wanted, asked, value_of
from stopgrad.rewrite import erase_gates, rewrite

OPSET = 21
"""The default version of ONNX's operators."""

LARGEST = 2**31 - 2**20
"""The largest model, in bytes, that is written into one file; the format is limited to 2 GiB."""


@guarded("save")
def save(
    path: AnyPath,
    outputs: Wanted,
    inputs: Given = None,
    *,
    values: Values = None,
    opset: int = OPSET,
    external: bool | None = None,
    gates: bool = True,
) -> None:
    """Write a graph, for instance a gradient, as an ONNX model that any runtime executes.

    Args:
        path: of the file.
        outputs: what the model computes, by the names of its results; a list of outputs has the names of
            their operations. Or an imported model, or a function of arrays, whose results are
            called ``"output"``, or by their paths in what it returns.
        inputs: what it is given, likewise; by default all placeholders that are needed, in their order. A
            parameter among them is an input of the model; others are stored in it. Of a function, a list of
            arrays like its arguments; sizes that are to stay open, :func:`function` names (``shapes=``).
        values: of parameters: a session, or arrays by the parameters' names; by default their first values.
        opset: the version of ONNX's operators, from 18 to 26.
        external: whether arrays of 1 KiB and more go into a file beside the model, named after it with
            ``.data`` appended; by default only if the model is too large for one file, which holds 2 GiB.
        gates: whether gates and custom gradients are written, so that they are there when the model is loaded
            again. False is for inference alone.

    Raises:
        ArgumentError: an argument is not what it must be, or an input is missing.
        EngineError: an operation cannot be expressed in ONNX; it is named with its line.
        FileError: the file cannot be written. An older one is left as it was.

    References:
        ONNX, https://onnx.ai/onnx/repo-docs/IR.html.
    """
    put(path, ready_of(outputs, inputs, values, opset, gates), external)


def put(path: AnyPath, ready: Ready, external: bool | None) -> None:
    """Write a program as a model into a file, and its large arrays into another one if *external* says so."""
    if external not in (None, True, False):
        raise ArgumentError(f"external is True, False or None, not {external!r}")
    if external is None:
        external = ready.bytes > LARGEST
    if not external:
        _write(path, ready.model(), None)
        return
    target = Path(os.path.realpath(os.fspath(path)))
    beside = Beside(_free(target))
    model = ready.model(beside)
    _write_parts(target.parent / beside.location, beside)
    _write(path, model, target.parent / beside.location)
    for old in _data_files(target):  # Data files of the model that was there before.
        if old.name != beside.location:
            old.unlink(missing_ok=True)


@guarded("to_model")
def to_model(
    outputs: Wanted,
    inputs: Given = None,
    *,
    values: Values = None,
    opset: int = OPSET,
    gates: bool = True,
) -> onnx.ModelProto:
    """The model that :func:`save` writes, as an object of ``onnx``. Arguments and errors are the same.

    Examples:
        >>> import stopgrad.onnx as sgo
        >>> with sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32, ["batch", 2], name="x")
        ...     (dx,) = sg.gradients(x * sg.exp(sg.stop_gradient(x)), [x])
        >>> [node.op_type for node in sgo.to_model({"dx": dx}).graph.node]
        ['StopGradient', 'Exp']
    """
    return ready_of(outputs, inputs, values, opset, gates).model()


# ---------------------------------------------------------------------------------------------- the graph


class Ready(NamedTuple):
    """A program, the values of its parameters, and what sort of tensors these are, by kind."""

    program: Program
    stored: dict[str, NumpyArray]
    kinds: Mapping[str, Iterable[str]]

    @property
    def bytes(self) -> int:
        return sum(
            array.nbytes for arrays in (self.stored, self.program.constants) for array in arrays.values()
        )

    def model(self, beside: Beside | None = None) -> onnx.ModelProto:
        model = model_of(self.program, self.stored, beside=beside)
        model.producer_version = sg.__version__
        say(model, self.kinds)
        list_gates(model)
        return model


def ready_of(
    outputs: Wanted,
    inputs: Given,
    values: Values,
    opset: int,
    gates: bool = True,
    kinds: Mapping[str, Iterable[str]] | None = None,
) -> Ready:
    """A program that is ready to be written. Parameters of an imported model have its names for them."""
    if isinstance(opset, bool) or not isinstance(opset, int) or not OLDEST <= opset <= LATEST:
        raise ArgumentError(f"opset is a whole number from {OLDEST} to {LATEST}, not {opset!r}")
    xs, ys, stored = asked(outputs, inputs, "model")
    everything = {**xs, **stored}
    if gates not in (True, False):
        raise ArgumentError(f"gates is True or False, not {gates!r}")
    rules = RULES if gates else (erase_gates, *RULES)
    done = rewrite([*ys.values()], [*everything.values()], rules)
    arrays = {name: value_of(x, name, values) for name, x in stored.items()}
    program = written(
        dict(zip(everything, done.inputs, strict=True)),
        dict(zip(ys, done.outputs, strict=True)),
        opset,
        stored=arrays,
    )
    return Ready(program, arrays, {"parameter": list(arrays)} if kinds is None else kinds)


# ---------------------------------------------------------------------------------------------- the files


def _write(path: AnyPath, model: onnx.ModelProto, data: Path | None) -> None:
    try:
        content = model.SerializeToString()
    except Exception as error:
        if data is not None:
            data.unlink(missing_ok=True)
        raise EngineError(f"the model does not fit into one file: {error}; take external=True") from error
    with replacing(path) as file, open(file, "wb", closefd=False) as stream:
        stream.write(content)


def _write_parts(path: Path, beside: Beside) -> None:
    with replacing(path) as file, open(file, "wb", closefd=False) as stream:
        for start, array in beside.parts:
            stream.write(b"\0" * (start - stream.tell()))
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            stream.write(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)


def _data_files(target: Path) -> list[Path]:
    """The files beside a model that hold its large arrays."""
    pattern = re.compile(re.escape(target.name) + r"(\.\d+)?\.data")
    return [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]


def _free(target: Path) -> str:
    """A name for such a file that the older model, valid until it is replaced, does not refer to."""
    taken = {path.name for path in _data_files(target)} if target.parent.is_dir() else set()
    names = (f"{target.name}{f'.{i}' if i else ''}.data" for i in range(len(taken) + 1))
    return next(name for name in names if name not in taken)
