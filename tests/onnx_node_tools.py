"""The backend node tests of the ``onnx`` package, run through the importer; as a command, their count.

``python tests/onnx_node_tools.py [engine]`` prints how many pass of how many there are, what fails, and what is
left out, with the reason.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

import stopgrad as sg
import stopgrad.onnx as sgo


class Case(NamedTuple):
    """One node test: a model, and arrays in and out."""

    name: str
    model: Any
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


def cases() -> list[Case]:
    """All node tests that the installed onnx generates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    made = []
    for case in found:
        inputs, outputs = case.data_sets[0]
        made.append(Case(case.name, case.model, list(inputs), list(outputs), case.rtol, case.atol))
    return made


def computed(case: Case, known: Sequence[str] = ()) -> list[np.ndarray[Any, Any]]:
    """What a model computes of its inputs, on the numpy engine; some of the inputs are known."""
    names = [x.name for x in case.model.graph.input if x.name]
    given = dict(zip(names, case.inputs, strict=False))
    fixed = {name: given[name] for name in known if name in given}
    model = sgo.load(case.model, known=fixed)
    found = model(**{name: x for name, x in given.items() if name not in fixed})
    return list(found.values()) if isinstance(found, dict) else [found]


def compare(case: Case, found: Sequence[Any]) -> None:
    """Raise where results are not those that onnx says."""
    assert len(found) == len(case.outputs), f"{len(found)} results, not {len(case.outputs)}"
    for y, wanted in zip(found, case.outputs, strict=True):
        wanted = np.asarray(wanted)
        assert y.dtype == wanted.dtype, f"{y.dtype}, not {wanted.dtype}"
        assert y.shape == wanted.shape, f"shape {y.shape}, not {wanted.shape}"
        if wanted.dtype.kind in "fcV":
            y, wanted = (x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (y, wanted))
            np.testing.assert_allclose(y, wanted, case.rtol, case.atol)
        else:
            np.testing.assert_array_equal(y, wanted)
