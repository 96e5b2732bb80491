"""The backend node tests of the ``onnx`` package, run through the importer; as a command, their count.

``python tests/helpers/onnx_node_tools.py [engine]`` prints how many pass of how many there are, what fails,
and what is left out, with the reason.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.backend.test.case import node as generated
from onnx.backend.test.loader import load_model_tests

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx.operators.calling import dtype_of_code


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
        return _cases(load_model_tests(kind="node"))


SLOWLY_MADE = {
    *("averagepool", "lppool", "maxpool", "attention", "softmax_cross_entropy_loss", "image_decoder"),
    *("resize", "affinegrid", "linear_attention", "negativeloglikelihoodloss", "layernormalization"),
}
"""Modules of onnx that take a second each, or nearly, to generate their tests; layers have tests of ours."""


def one_of_each() -> list[Case]:
    """The first test of each operator, or of each set of operators, that is quickly made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(generated.__path__):
            if module.name not in SLOWLY_MADE:
                importlib.import_module(f"{generated.__name__}.{module.name}")
    first: dict[frozenset[str], Case] = {}
    for case in _cases(generated._NodeTestCases):
        if not case.name.endswith("_expanded") and why_left_out(case) is None:
            first.setdefault(frozenset(node.op_type for node in case.model.graph.node), case)
    return list(first.values())


def _cases(found: Sequence[Any]) -> list[Case]:
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


# ------------------------------------------------------------------------------------------- left out

_HERE = {code for code in onnx.TensorProto.DataType.values() if dtype_of_code(code) is not None}

LEFT_OUT = {
    "random numbers, which are not those of the reference": (
        r"^bernoulli|^training_dropout(_default)?(_mask)?$"
    ),
    "an operator that was another one before opset 13": (
        r"dropout_(default|random)_old|scatter_with(out)?_axis|loop11|scan_sum|upsample_nearest"
    ),
    "decodes compressed images": r"image_decoder",
    "looks for words in lists of numbers": r"tfidfvectorizer",
}
"""Why tests are left out that are about floats, integers and bools; by patterns of their names."""


def why_left_out(case: Case) -> str | None:
    """Why a test is left out, or None."""
    for x in (*case.model.graph.input, *case.model.graph.output):
        if not x.type.HasField("tensor_type"):
            return "a sequence or optional goes in or out, which models here do not take"
        kind = x.type.tensor_type.elem_type
        if kind == onnx.TensorProto.STRING:
            return "strings"
        if kind not in _HERE:
            return "an element type of 8 bits or fewer that there is not here (float8, int4 and smaller)"
    name = case.name.removeprefix("test_")
    return next((why for why, pattern in LEFT_OUT.items() if re.search(pattern, name)), None)


# ------------------------------------------------------------------------------------------------ running


def computed(model: Any, given: dict[str, Any], engine: str = "numpy") -> list[np.ndarray[Any, Any]]:
    """What a model computes of its inputs, on an engine."""
    if engine == "numpy":
        found = model(**given)
    else:
        found = sg.function(lambda xs: model(**xs), engine=engine)(given)
    return [np.asarray(y) for y in (found.values() if isinstance(found, dict) else [found])]


def compare(case: Case, found: Sequence[Any], share: float = 0.0) -> None:
    """Raise where results are not those of onnx, within its tolerance; of 16 bits, a few roundings.

    Sums in another order may differ by a share of the largest number.
    """
    assert len(found) == len(case.outputs), f"{len(found)} results, not {len(case.outputs)}"
    for y, expected in zip(found, map(array_of, case.outputs), strict=True):
        wanted = np.asarray(expected)
        assert y.dtype == wanted.dtype, f"{y.dtype}, not {wanted.dtype}"
        assert y.shape == wanted.shape, f"shape {y.shape}, not {wanted.shape}"
        if wanted.dtype.kind in "fcV":
            rtol = max(case.rtol, 4.0 * _ROUNDINGS.get(wanted.dtype.name, 0.0))
            y, wanted = (x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (y, wanted))
            finite = np.abs(wanted[np.isfinite(wanted)])
            atol = max(case.atol, share * float(finite.max(initial=0.0)))
            np.testing.assert_allclose(y, wanted, rtol, atol)
        else:
            np.testing.assert_array_equal(y, wanted)


_ROUNDINGS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The relative error of one rounding."""


class Count(NamedTuple):
    """What became of all tests.

    Attributes:
        passed: the names of those that pass.
        failed: the others' names, each with what was raised.
        left_out: the names of those that are not run, each with the reason.
        fixed: the names of those that pass with some inputs given when the model is loaded.
    """

    passed: list[str]
    failed: dict[str, str]
    left_out: dict[str, str]
    fixed: list[str]

    def __str__(self) -> str:
        total = len(self.passed) + len(self.failed) + len(self.left_out)
        run = len(self.passed) + len(self.failed)
        lines = [
            f"{len(self.passed)} of {total} node tests of onnx {onnx.__version__} pass "
            f"({len(self.passed) / total:.1%}), and of the {run} that are not left out "
            f"{len(self.passed) / max(run, 1):.1%}; {len(self.fixed)} with inputs that are fixed when loaded"
        ]
        lines += [f"  left out, {n}: {why}" for why, n in Counter(self.left_out.values()).most_common()]
        lines += [f"  fails: {name}: {error}" for name, error in self.failed.items()]
        return "\n".join(lines)


def count(engine: str = "numpy", step: int = 1, among: Sequence[Case] | None = None) -> Count:
    """Run all tests that are not left out, or some of them: one in so many."""
    made = Count([], {}, {}, [])
    for case in (cases() if among is None else among)[::step]:
        why = why_left_out(case)
        if why is not None:
            made.left_out[case.name] = why
            continue
        try:
            model, given = loaded(case)
            compare(case, computed(model, given, engine), 0.0 if engine == "numpy" else 1e-6)
            made.passed.append(case.name)
            if len(given) < len(case.inputs):
                made.fixed.append(case.name)
        except sg.EngineError as error:  # An engine need not run every operation.
            made.left_out[case.name] = f"the {engine} engine: {error.message[:80]}"
        except (AssertionError, sg.StopgradError) as error:
            made.failed[case.name] = " ".join(str(error).split())[:300]
    return made


if __name__ == "__main__":
    result = count(*sys.argv[1:2])
    print(result)
    sys.exit(bool(result.failed))
