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


def array_of(x: Any) -> Any:
    """An input or output of a case as an array, where it is one."""
    if isinstance(x, onnx.TensorProto):
        return onnx.numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, np.generic) else x


_WANTED = re.compile(r"\('([^']*)'\) must be known")


def loaded(case: Case) -> tuple[Any, dict[str, Any]]:
    """A case's model, and what it is given; inputs that must be known when the graph is built are fixed.

    Those are the ones that the loader names; of values that are computed of inputs, all scalars, and vectors
    of whole numbers and bools.
    """
    names = [x.name for x in case.model.graph.input if x.name]
    given = {name: array_of(x) for name, x in zip(names, case.inputs, strict=False)}
    fixed: dict[str, Any] = {}
    while True:
        try:
            return sgo.load(case.model, known=fixed), {n: x for n, x in given.items() if n not in fixed}
        except sg.GraphError as error:
            wanted = set(_WANTED.findall(str(error)))
            more = {n: x for n, x in given.items() if n in wanted and n not in fixed}
            if not more and wanted:
                more = {n: x for n, x in given.items() if n not in fixed and _says_sizes(x)}
            if not more:
                raise
            fixed |= more


def _says_sizes(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim <= (1 if x.dtype.kind in "iub" else 0)


def computed(case: Case) -> list[np.ndarray[Any, Any]]:
    """What a model computes of its inputs, on the numpy engine."""
    model, given = loaded(case)
    found = model(**given)
    return list(found.values()) if isinstance(found, dict) else [found]


def compare(case: Case, found: Sequence[Any]) -> None:
    """Raise where results are not those that onnx says."""
    assert len(found) == len(case.outputs), f"{len(found)} results, not {len(case.outputs)}"
    for y, expected in zip(found, map(array_of, case.outputs), strict=True):
        wanted = np.asarray(expected)
        assert y.dtype == wanted.dtype, f"{y.dtype}, not {wanted.dtype}"
        assert y.shape == wanted.shape, f"shape {y.shape}, not {wanted.shape}"
        if wanted.dtype.kind in "fcV":
            y, wanted = (x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (y, wanted))
            np.testing.assert_allclose(y, wanted, case.rtol, case.atol)
        else:
            np.testing.assert_array_equal(y, wanted)
