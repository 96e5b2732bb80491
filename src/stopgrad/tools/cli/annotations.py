"""Reads shapes and dtypes from texts and annotations."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from stopgrad.base.errors import ArgumentError, StopgradError
from stopgrad.base.structure import flatten
from stopgrad.base.types import DTYPES, TensorType, dtype_of, shape_of, tensor_type
from stopgrad.graph.arguments import plain_path

# --------------------------------------------------------------------------------------------- texts

_TYPE = re.compile(r"\s*(?P<dtype>[A-Za-z]\w*)?\s*(?:\[(?P<sizes>[^\[\]]*)\])?\s*")


def type_from(text: str) -> TensorType | None:
    """The type that a text such as ``"float32[n, 3]"`` describes; None if it describes something else.

    Without a dtype it is float32, without sizes a scalar. A size is a number, a name, or ``?``.

    Examples:
        >>> type_from("float32[n, 3]"), type_from("[2]"), type_from("int64"), type_from("Params")
        (float32[n, 3], float32[2], int64[], None)
    """
    match = _TYPE.fullmatch(text)
    if match is None or not (match["dtype"] or match["sizes"] is not None):
        return None
    if (match["dtype"] or "float32") not in DTYPES:
        return None
    return _type(match["dtype"] or "float32", match["sizes"] or "")


def _type(dtype: str, sizes: str) -> TensorType:
    words = [word.strip() for word in sizes.split(",")]
    if words[-1] == "":
        del words[-1]  # For a scalar, and for (3,).
    return tensor_type(DTYPES[dtype], shape_of([_size(word) for word in words]))


def _size(word: str) -> int | str | None:
    if word in ("?", "_", "None"):
        return None
    return int(word) if re.fullmatch(r"-?\d+", word) else word


def shape_option(text: str) -> tuple[str, TensorType]:
    """The value of ``--shape``: the path of an argument's leaf, and its type.

    Examples:
        >>> shape_option("x=2,3"), shape_option("params['w']=n:float64"), shape_option("s=")
        (('x', float32[2, 3]), ('params.w', float64[n]), ('s', float32[]))
    """
    path, equals, rest = text.partition("=")
    path = plain_path(path.strip())
    if not equals or not path:
        raise ArgumentError(f"--shape {text}: write name=sizes, such as x=2,3 or params.w=2,3:float64")
    try:
        if "[" in rest and (declared := type_from(rest)) is not None:
            return path, declared
        sizes, colon, dtype = rest.partition(":")
        dtype = dtype.strip() if colon else "float32"
        if dtype not in DTYPES:
            raise ArgumentError(f"{dtype!r} is no element type; there are {', '.join(DTYPES)}")
        return path, _type(dtype, re.sub(r"[()\[\]]", "", sizes))
    except StopgradError as error:
        raise ArgumentError(f"--shape {text}: {error.message}") from None


# --------------------------------------------------------------------------------------- annotations


def from_annotation(annotation: Any, names: Mapping[str, Any]) -> object:
    """An argument as its annotation describes it, a structure of types; None if it has no shape.

    It understands types as texts (``"float32[n, 3]"``), also as the second part of ``Annotated``; objects
    with a shape and a dtype; jaxtyping's; dataclasses, named tuples, typed dicts and tuples of these.
    """
    if isinstance(annotation, str):
        declared = type_from(annotation)
        if declared is not None:
            return declared
        with contextlib.suppress(ValueError, SyntaxError):  # Postponed annotations make a text within a text.
            inner = ast.literal_eval(annotation)
            if isinstance(inner, str):
                return type_from(inner)
        annotation = evaluated(annotation, names)
    if isinstance(annotation, typing.ForwardRef):
        return from_annotation(annotation.__forward_arg__, names)
    if typing.get_origin(annotation) is Annotated:
        parts = (from_annotation(part, names) for part in annotation.__metadata__)
        return next((part for part in parts if part is not None), None)
    if typing.get_origin(annotation) is tuple:
        return _all(tuple(from_annotation(part, names) for part in typing.get_args(annotation)))
    if isinstance(sizes := getattr(annotation, "dim_str", None), str):
        return _from_jaxtyping(sizes, annotation.dtypes)
    if inspect.isclass(annotation):
        return _from_fields(annotation, names)
    if hasattr(annotation, "shape") and hasattr(annotation, "dtype"):
        return tensor_type(dtype_of(annotation.dtype), shape_of(annotation.shape))
    return None


def _from_jaxtyping(sizes: str, dtypes: object) -> TensorType | None:
    """The type for ``Float[Array, "batch 3"]``; None if sizes stand for several axes, or are computed.

    Among several dtypes it takes float32 or else the widest; for any dtype, float32.
    """
    names = [name for name in dtypes if name in DTYPES] if isinstance(dtypes, Sequence) else ["float32"]
    words = [word.lstrip("#?").rpartition("=")[2] for word in sizes.split()]
    if not names or not all(re.fullmatch(r"\w+", word) for word in words):
        return None
    return _type("float32" if "float32" in names else names[-1], ",".join(words))


def evaluated(annotation: str, names: Mapping[str, Any]) -> object:
    """The value of an annotation that is a text; None if it cannot be evaluated."""

    class Holder:
        __annotations__ = {"it": annotation}

    with contextlib.suppress(Exception):  # The text may be anything; then it has no shape.
        return inspect.get_annotations(Holder, globals=dict(names), eval_str=True)["it"]
    return None


def _all(tree: object) -> object:
    return None if any(leaf is None for leaf in flatten(tree, none_is_leaf=True)[0]) else tree


def _from_fields(kind: type, names: Mapping[str, Any]) -> object:
    """An instance of a structure class, made of its fields' types and defaults."""
    if issubclass(kind, np.generic):
        return None
    defaults: Mapping[str, Any]
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        annotated = {field.name: field.type for field in fields}
        defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    elif hasattr(kind, "_field_defaults") or typing.is_typeddict(kind):
        annotated = inspect.get_annotations(kind)
        defaults = getattr(kind, "_field_defaults", {})
    else:
        return None
    values = {}
    for name, annotation in annotated.items():
        values[name] = from_annotation(annotation, names)
        if values[name] is None:
            if name not in defaults:
                return None
            values[name] = defaults[name]
    if not dataclasses.is_dataclass(kind):
        return kind(**values)
    value = object.__new__(kind)  # Its own __init__ may want more than types.
    for name, leaf in values.items():
        object.__setattr__(value, name, leaf)
    return value


def scalar_annotation(annotation: object, names: Mapping[str, Any]) -> TensorType | None:
    """The value for an argument without a default whose annotation is a type of plain numbers."""
    kind = evaluated(annotation, names) if isinstance(annotation, str) else annotation
    if kind in (float, complex) or (inspect.isclass(kind) and issubclass(kind, np.generic)):
        with contextlib.suppress(StopgradError):
            return tensor_type(dtype_of(kind), ())
    return None
