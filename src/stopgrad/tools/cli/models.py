"""Models in files, which commands take in place of functions: ONNX models, and graphs of TensorFlow."""

from __future__ import annotations

import os
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require

_SAVED = ("saved_model.pb", "saved_model.pbtxt")
"""The files that make a folder a SavedModel of TensorFlow's."""


def named(target: str) -> tuple[str, str] | None:
    """The path of the model that a target names, and what stands after a colon; None if it names none."""
    place, colon, name = target.rpartition(":")
    for path, rest in ((target, ""), (place, name)) if colon else ((target, ""),):
        if path.endswith((".onnx", ".pb", ".pbtxt")) or _is_saved(path):
            return path, rest
    return None


def _is_saved(path: str) -> bool:
    return os.path.isdir(path) and any(os.path.isfile(os.path.join(path, one)) for one in _SAVED)


def loaded(path: str, name: str) -> Any:
    """The model in a file; a name is that of a SavedModel's signature, or of a graph's node."""
    if path.endswith(".onnx"):
        sgo = require("stopgrad.onnx", "a command about an ONNX model", "onnx")
        if name:
            raise ArgumentError(f"{path}: an ONNX model is taken whole; leave {':' + name!r} out")
        return sgo.load(path)
    sgtf = require("stopgrad.tensorflow", "a command about a graph of TensorFlow", "tensorflow")
    if os.path.isdir(path):
        return sgtf.load(path, signature=name or None)
    return sgtf.load(path, name or None)
