"""Reads TensorFlow's files with care: nothing in them is trusted, and nothing is executed."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
from google.protobuf import text_format

from stopgrad.base.errors import ArgumentError, FileError, MissingFileError
from stopgrad.base.types import DType
from stopgrad.graph.operands import shorten
from stopgrad.interop.shared.calling import dtype_from
from stopgrad.interop.tensorflow.bundle import Bundle
from stopgrad.interop.tensorflow.capturing import Live
from stopgrad.interop.tensorflow.live import is_live, traced
from stopgrad.interop.tensorflow.messages import TYPE_NAMES, GraphDef, SavedModel
from stopgrad.interop.tensorflow.nodes import Function

if TYPE_CHECKING:
    from google.protobuf.message import Message

MODEL = "saved_model.pb"
"""The file of a SavedModel's folder that holds its graph."""
_TEXT_MODEL = "saved_model.pbtxt"
_LARGEST = 2**31 - 1
"""The most bytes of a message; the format allows no more."""
_LARGEST_TEXT = 2**28
"""The most bytes of a message in text form."""
_FILLED = 2**26
"""The most elements of all constants together that repeat a stored one."""


class Source(NamedTuple):
    """A graph and where it comes from.

    Attributes:
        graph: the ``GraphDef``.
        name: its name in messages.
        meta: the ``MetaGraphDef`` around it; None for a graph that is in no SavedModel.
        bundle: the checkpoint of its variables, if there is one.
        live: what a running program holds besides the graph.
    """

    graph: Any
    name: str
    meta: Any = None
    bundle: Bundle | None = None
    live: Live | None = None


GraphSource: TypeAlias = Any
"""What a graph can be read from: a path, the bytes of a ``GraphDef``, or an object of TensorFlow's."""


def read(source: GraphSource, inputs: Sequence[Any] | Mapping[str, Any] | None = None) -> Source:
    """A graph from a file or folder, from bytes, or from an object of TensorFlow's, which may need *inputs*.

    Raises:
        MissingFileError, FileError: there is no such file, or it is none that can be read.
        ArgumentError: it is none of these.
    """
    if inputs is not None and not is_live(source):
        raise ArgumentError(
            "inputs= is for functions and models of a running TensorFlow; a file has its own inputs"
        )
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Source(_graph(bytes(source), "the graph"), "the graph")
    if getattr(getattr(source, "DESCRIPTOR", None), "full_name", "") == "tensorflow.GraphDef":
        return Source(_graph(source.SerializeToString(), "the graph"), "the graph")
    if is_live(source):
        live = Live(traced(source, inputs))
        return Source(_sound(live.graph, live.name), live.name, live=live)
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(
            "takes the path of a graph or of a SavedModel's folder, the bytes of a GraphDef, or of "
            f"TensorFlow a function, graph, model or tf.Module, not {shorten(source)}"
        )
    path = os.fsdecode(source)
    try:
        if os.path.isdir(path):
            return _saved_model(path)
        if os.path.basename(path) in (MODEL, _TEXT_MODEL):
            return _saved_model(os.path.dirname(os.path.abspath(path)))
        return _file(path)
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file {path!r}") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path!r} cannot be read: {error}") from error


def _file(path: str) -> Source:
    name = os.path.basename(path)
    if path.endswith((".pbtxt", ".txt")):
        return Source(_sound(_parsed_text(GraphDef(), _content(path, _LARGEST_TEXT), name), name), name)
    return Source(_graph(_content(path, _LARGEST), name), name)


def _content(path: str, largest: int, follow: bool = True) -> bytes:
    """The bytes of a plain file."""
    status = os.stat(path, follow_symlinks=follow)
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{path!r} is no file")  # A pipe or device would be read without end.
    if status.st_size > largest:
        raise FileError(f"{path!r} has {status.st_size} bytes; at most {largest} are read")
    with open(path, "rb") as file:
        return file.read(largest + 1)[:largest]


def _graph(content: bytes, name: str) -> Message:
    return _sound(_parsed(GraphDef(), content, name), name)


def _parsed(message: Any, content: bytes, name: str) -> Any:
    try:
        message.ParseFromString(content)
    except Exception as error:  # Of protobuf's, which has no types.
        raise FileError(f"{name} is no graph of TensorFlow, or is truncated or damaged: {error}") from error
    return message


def _parsed_text(message: object, content: bytes, name: str) -> Message:
    try:
        text_format.Parse(content, message, allow_unknown_extension=True, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise FileError(f"{name} is no graph of TensorFlow in text form, or is damaged: {error}") from error
    return message


def _sound(graph: Any, name: str) -> Any:
    if not len(graph.node):
        raise FileError(
            f"{name} is no graph of TensorFlow, or is truncated: it holds no node (of a SavedModel, give the "
            f"folder in which {MODEL} lies)"
        )
    return graph


# -------------------------------------------------------------------------------------------- saved models


def _saved_model(folder: str) -> Source:
    name = os.path.basename(os.path.abspath(folder))
    model = SavedModel()
    if os.path.lexists(os.path.join(folder, MODEL)):
        content = _content(os.path.join(folder, MODEL), _LARGEST, follow=False)
        _parsed(model, content, f"{name}/{MODEL}")
    elif os.path.lexists(os.path.join(folder, _TEXT_MODEL)):
        content = _content(os.path.join(folder, _TEXT_MODEL), _LARGEST_TEXT, follow=False)
        _parsed_text(model, content, f"{name}/{_TEXT_MODEL}")
    else:
        raise MissingFileError(f"the folder {folder!r} is no SavedModel: it holds no {MODEL}")
    if not len(model.meta_graphs):
        raise FileError(f"{name}/{MODEL} holds no graph: it is truncated or damaged")
    meta = next(
        (meta for meta in model.meta_graphs if "serve" in meta.meta_info_def.tags), model.meta_graphs[0]
    )
    return Source(meta.graph_def, name, meta, Bundle.of(os.path.join(folder, "variables")))


# ----------------------------------------------------------------------------------------- element types

_NUMPY: dict[str, Any] = {
    "DT_FLOAT": np.float32, "DT_DOUBLE": np.float64, "DT_INT32": np.int32, "DT_UINT8": np.uint8,
    "DT_INT16": np.int16, "DT_INT8": np.int8, "DT_COMPLEX64": np.complex64, "DT_INT64": np.int64,
    "DT_BOOL": np.bool_, "DT_UINT16": np.uint16, "DT_COMPLEX128": np.complex128, "DT_HALF": np.float16,
    "DT_UINT32": np.uint32, "DT_UINT64": np.uint64, "DT_BFLOAT16": ml_dtypes.bfloat16,
    "DT_QINT8": np.int8, "DT_QUINT8": np.uint8, "DT_QINT16": np.int16, "DT_QUINT16": np.uint16,
    "DT_QINT32": np.int32,
}  # fmt: skip
_FIELDS = {
    "DT_FLOAT": "float_val", "DT_DOUBLE": "double_val", "DT_INT32": "int_val", "DT_UINT8": "int_val",
    "DT_INT16": "int_val", "DT_INT8": "int_val", "DT_COMPLEX64": "scomplex_val", "DT_INT64": "int64_val",
    "DT_BOOL": "bool_val", "DT_UINT16": "int_val", "DT_COMPLEX128": "dcomplex_val", "DT_HALF": "half_val",
    "DT_UINT32": "uint32_val", "DT_UINT64": "uint64_val", "DT_BFLOAT16": "half_val",
    "DT_STRING": "string_val",
    "DT_QINT8": "int_val", "DT_QUINT8": "int_val", "DT_QINT16": "int_val", "DT_QUINT16": "int_val",
    "DT_QINT32": "int_val",
}  # fmt: skip


def type_name(number: int) -> str:
    """The name of an element type, such as ``"DT_FLOAT"``; of one that is unknown, its number."""
    return TYPE_NAMES.get(number - 100 if number > 100 else number, str(number))


def dtype_of_number(number: int) -> DType | None:
    """Our element type for a number of ``DataType``, or None."""
    name = type_name(number)
    return dtype_from(_NUMPY[name]) if name in _NUMPY else None


def numpy_type(number: int, what: str) -> np.dtype[Any]:
    """NumPy's element type for a number of ``DataType``."""
    name = type_name(number)
    if name not in _NUMPY:
        raise FileError(f"{what} is of the element type {name}, which there is not here")
    return np.dtype(_NUMPY[name])


# ----------------------------------------------------------------------------------------------- tensors


def array_from(tensor: Any, what: str) -> np.ndarray[Any, Any]:
    """The values of a ``TensorProto``. Those that a tensor repeats are one in memory.

    Raises:
        FileError: its data is not what it declares.
    """
    shape = tuple(int(d.size) for d in tensor.tensor_shape.dim)
    if any(size < 0 for size in shape) or tensor.tensor_shape.unknown_rank:
        raise FileError(f"{what} has no known sizes")
    count, name = math.prod(shape), type_name(tensor.dtype)
    if name not in _FIELDS:
        raise FileError(f"{what} is of the element type {name}, which there is not here")
    if tensor.tensor_content and name != "DT_STRING":
        dtype = np.dtype(_NUMPY[name]).newbyteorder("<")
        if count * dtype.itemsize != len(tensor.tensor_content):
            raise FileError(
                f"{what} declares {count} elements of {name} and stores {len(tensor.tensor_content)} bytes"
            )
        numbers = np.frombuffer(tensor.tensor_content, np.uint8 if dtype.kind == "b" else dtype)
        numbers = numbers != 0 if dtype.kind == "b" else numbers.astype(dtype.newbyteorder("="), copy=False)
        return numbers.reshape(shape)
    values = _stored(tensor, name, what)
    if len(values) > count:
        raise FileError(f"{what} declares {count} elements and stores {len(values)}")
    if len(values) == count:
        return values.reshape(shape)
    if count - len(values) > _FILLED:
        raise FileError(f"{what} declares {count} elements and stores {len(values)}")
    last = values[-1:] if len(values) else np.zeros(1, values.dtype)
    rest = np.broadcast_to(last, (count - len(values),))
    return (
        np.broadcast_to(last.reshape((1,) * len(shape)), shape)
        if len(values) < 2
        else np.concatenate([values, rest]).reshape(shape)
    )


def _stored(tensor: object, name: str, what: str) -> np.ndarray[Any, Any]:
    """The values in the field for the tensor's type."""
    stored = getattr(tensor, _FIELDS[name])
    if name == "DT_STRING":
        strings = np.empty(len(stored), object)
        strings[:] = list(stored)
        return strings
    dtype = np.dtype(_NUMPY[name])
    if name in ("DT_HALF", "DT_BFLOAT16"):
        return (np.array(stored, np.int64) & 0xFFFF).astype(np.uint16).view(dtype)
    if dtype.kind == "c":
        pairs = np.array(stored, np.float32 if name == "DT_COMPLEX64" else np.float64)
        if len(pairs) % 2:
            raise FileError(f"{what} stores half a complex number")
        return pairs.view(dtype)
    wide = np.array(stored, dtype if dtype.itemsize == 8 or dtype.kind in "fb" else np.int64)
    return wide.astype(dtype)


def filled(tensor: Any) -> int:
    """How many elements a ``TensorProto`` declares that it does not store."""
    name = type_name(tensor.dtype)
    if tensor.tensor_content or name not in _FIELDS:
        return 0
    count = math.prod(max(int(d.size), 0) for d in tensor.tensor_shape.dim)
    return max(count - len(getattr(tensor, _FIELDS[name])), 0)


def check_filled(tensors: Generator[Any, None, None], name: str) -> None:
    """Refuse a graph whose constants declare far more than they store.

    Raises:
        FileError: they do.
    """
    total = 0
    for tensor in tensors:
        total += filled(tensor)
        if total > _FILLED:
            raise FileError(
                f"the constants of {name} declare more than {_FILLED} elements that they do not store"
            )


# -------------------------------------------------------------------------------------------- attributes


def shape_from(shape: Any) -> tuple[int | None, ...] | None:
    """A ``TensorShapeProto``: None for unknown sizes, or for an unknown number of axes."""
    if shape.unknown_rank:
        return None
    return tuple(int(d.size) if d.size >= 0 else None for d in shape.dim)


def attribute_value(attribute: Any, around: Mapping[str, Any], what: str) -> Any:
    """The value of an ``AttrValue``; one that a function leaves open is that of *around*."""
    kind = attribute.WhichOneof("value")
    if kind == "placeholder":
        bound = around.get(attribute.placeholder)
        if bound is None or bound.WhichOneof("value") == "placeholder":
            raise FileError(f"{what} is left open, and nothing around says what it is")
        return attribute_value(bound, {}, what)
    if kind == "list":
        items = attribute.list
        for name, read_one in _VALUES.items():
            values = getattr(items, name)
            if len(values):
                return [read_one(value, what) for value in values]
        return []
    return None if kind is None else _VALUES[kind](getattr(attribute, kind), what)


_VALUES: dict[str, Any] = {
    "s": lambda s, what: bytes(s).decode(errors="replace"),
    "i": lambda i, what: int(i),
    "f": lambda f, what: float(f),
    "b": lambda b, what: bool(b),
    "type": lambda number, what: dtype_of_number(number),
    "shape": lambda shape, what: shape_from(shape),
    "tensor": lambda tensor, what: array_from(tensor, what),
    "func": lambda func, what: Function(str(func.name), func.attr),
}
