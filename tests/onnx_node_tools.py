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
