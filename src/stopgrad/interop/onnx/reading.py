"""Reads ONNX files with care: nothing in them is trusted, and nothing is executed."""

from __future__ import annotations

import contextlib
import math
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from stopgrad.base.errors import ArgumentError, FileError, MissingFileError, StopgradError
from stopgrad.graph.files import AnyPath
from stopgrad.graph.operands import shorten
from stopgrad.interop.onnx.large_arrays import Place, without_arrays
from stopgrad.interop.onnx.nodes import domain_of, text
from stopgrad.interop.onnx.ordering import ordered

OLDEST = 13
"""The oldest version of ``ai.onnx`` that is read; older models are converted by onnx itself."""

_TYPES = onnx.TensorProto.DataType
_SPARSE_CELLS = 2**24
"""A sparse tensor may have so many elements when made dense, or this factor times those stored:"""
_SPARSE_FACTOR = 4096


class Source(NamedTuple):
    """A model and where it comes from.

    Attributes:
        model: the ``ModelProto``.
        folder: the folder of its external data; None for a model that is in no file.
        name: its name in messages.
        places: where initializers stand whose numbers were left out of the model, by name.
    """

    model: Any
    folder: str | None
    name: str
    places: Mapping[str, Place] = {}


ModelSource: TypeAlias = AnyPath | bytes | onnx.ModelProto | Source
"""What a model can be read from."""


def read(source: ModelSource, lean: bool = False) -> Source:
    """A model from a path, from bytes, or as it is.

    Args:
        source: the model.
        lean: whether to leave large arrays in the file, until they are asked for.

    Raises:
        MissingFileError, FileError: there is no such file, or it is no ONNX model that can be read.
        ArgumentError: it is none of these.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, onnx.ModelProto):
        return Source(_sound(source, "the model"), None, "the model")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Source(_parsed(bytes(source), "the model"), None, "the model")
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(
            f"takes the path of a model, its bytes or an onnx.ModelProto, not {shorten(source)}"
        )
    path = os.fsdecode(source)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileError(f"{path!r} is no file")  # A pipe or device would be read without end.
        with open(path, "rb") as file:
            content, places = _content(path, file, lean)
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file {path!r}") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path!r} cannot be read: {error}") from error
    name = os.path.basename(path)
    return Source(_parsed(content, name), os.path.dirname(os.path.abspath(path)), name, places)


def _content(path: str, file: BinaryIO, lean: bool) -> tuple[bytes, dict[str, Place]]:
    if lean:
        with contextlib.suppress(FileError, ValueError):  # What is empty or damaged is told by the parser.
            return without_arrays(os.path.abspath(path), file)
    return file.read(), {}


def _parsed(content: bytes, name: str) -> Any:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # Of protobuf's, which has no types.
        raise FileError(f"{name} is no ONNX model, or is truncated or damaged: {error}") from error
    return _sound(model, name)


def _sound(model: onnx.ModelProto, name: str) -> Any:
    """The model with its nodes in order, after a check that its version is supported."""
    if not model.HasField("graph") or not model.ir_version:
        raise FileError(f"{name} is no ONNX model, or is truncated: it holds no graph, or no IR version")
    if model.ir_version > onnx.IR_VERSION:
        raise FileError(
            f"{name} is of IR version {model.ir_version}; the installed onnx {onnx.__version__} knows them "
            f"up to {onnx.IR_VERSION}: install a newer onnx"
        )
    version = opsets(model.opset_import, name).get("")
    newest = onnx.defs.onnx_opset_version()
    if version is not None and version > newest:
        raise FileError(
            f"{name} is of opset {version}; the installed onnx {onnx.__version__} knows them up to {newest}: "
            "install a newer onnx, or convert the model with onnx.version_converter.convert_version"
        )
    return ordered(model, name)


def opsets(imports: Iterable[onnx.OperatorSetIdProto], name: str) -> dict[str, int]:
    """The versions of the domains that a model or function imports; the domain ``ai.onnx`` is ``""``."""
    versions: dict[str, int] = {}
    for entry in imports:
        if not 0 < entry.version < 2**31:
            raise FileError(
                f"{name} states version {entry.version} of the domain {entry.domain or 'ai.onnx'!r}"
            )
        if versions.setdefault(domain_of(entry), entry.version) != entry.version:
            raise FileError(f"{name} states two versions of the domain {entry.domain or 'ai.onnx'!r}")
    return versions


# ----------------------------------------------------------------------------------------------- tensors


def array_from(tensor: onnx.TensorProto, folder: str | None, what: str) -> np.ndarray[Any, Any]:
    """The values of a ``TensorProto``. No more memory is taken than what is stored needs.

    Args:
        tensor: the tensor.
        folder: where external data lies: inside of it, in plain files.
        what: the tensor, for messages.

    Raises:
        FileError: its data is not what it declares, or it points outside of its folder.
    """
    if any(size < 0 for size in tensor.dims):
        raise FileError(f"{what} has the sizes {shorten(list(tensor.dims))}, of which one is negative")
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if external and folder is None:
        raise FileError(
            f"{what} lies in an external file, and the model came without a folder: give load the path of "
            "the model, or put the data in with onnx.load_external_data_for_model"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # About unknown keys.
            array = np.asarray(numpy_helper.to_array(tensor, folder or ""))
    except StopgradError:
        raise
    except Exception as error:  # For damaged data onnx raises errors of many types.
        raise FileError(f"{what} cannot be read: {_first_line(error)}") from error
    if array.shape != tuple(tensor.dims):
        raise FileError(f"{what} declares the sizes {list(tensor.dims)} and stores {list(array.shape)}")
    if array.dtype == np.bool_:  # A file may hold other bytes than 0 and 1.
        array = array.view(np.uint8) != 0
    return array


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def dense_from(sparse: onnx.SparseTensorProto, folder: str | None, what: str) -> np.ndarray[Any, Any]:
    """A ``SparseTensorProto`` as an array."""
    values = array_from(sparse.values, folder, f"the values of {what}")
    indices = array_from(sparse.indices, folder, f"the indices of {what}")
    shape = tuple(sparse.dims)
    cells = math.prod(shape)
    if any(size < 0 for size in shape) or cells > max(_SPARSE_CELLS, _SPARSE_FACTOR * values.size):
        raise FileError(f"{what} is sparse, of sizes {shorten(list(shape))}, too large to make dense")
    if values.ndim != 1 or indices.dtype != np.int64 or len(indices) != len(values):
        raise FileError(f"{what} is sparse, and its indices do not fit its values")
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        inside = (indices >= 0).all() and (indices < np.asarray(shape, np.int64)).all()
        flat = np.ravel_multi_index(tuple(indices.T), shape) if inside and len(indices) else indices[:, :0]
    else:
        flat = indices
        inside = np.bool_(indices.ndim == 1 and ((indices >= 0) & (indices < cells)).all())
    if not inside:
        raise FileError(f"{what} is sparse, and its indices lie outside of it")
    dense = np.zeros(cells, values.dtype)
    dense[flat.reshape(-1)] = values
    return dense.reshape(shape)


# -------------------------------------------------------------------------------------------- attributes


def attribute_value(attribute: onnx.AttributeProto, folder: str | None, what: str) -> Any:
    """The value of an attribute other than a graph, as a Python value or NumPy array."""
    kind = attribute.type
    read = _ATTRIBUTES.get(kind)
    if read is not None:
        return read(attribute)
    tensors: dict[int, Callable[[], Any]] = {
        onnx.AttributeProto.TENSOR: lambda: array_from(attribute.t, folder, what),
        onnx.AttributeProto.TENSORS: lambda: [array_from(t, folder, what) for t in attribute.tensors],
        onnx.AttributeProto.SPARSE_TENSOR: lambda: dense_from(attribute.sparse_tensor, folder, what),
    }
    if kind not in tensors:
        raise FileError(f"{what} is of a type ({kind}) that no attribute has here")
    return tensors[kind]()


_ATTRIBUTES: dict[int, Callable[[Any], Any]] = {
    onnx.AttributeProto.FLOAT: lambda a: float(a.f),
    onnx.AttributeProto.INT: lambda a: int(a.i),
    onnx.AttributeProto.STRING: lambda a: text(a.s),
    onnx.AttributeProto.FLOATS: lambda a: [float(x) for x in a.floats],
    onnx.AttributeProto.INTS: lambda a: [int(x) for x in a.ints],
    onnx.AttributeProto.STRINGS: lambda a: [text(x) for x in a.strings],
    onnx.AttributeProto.TYPE_PROTO: lambda a: a.tp,
}
