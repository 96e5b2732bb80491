"""Operations that check or print their operands and pass them on."""

from __future__ import annotations

import stopgrad as sg
from stopgrad.interop.tensorflow.operators.calling import Call, Table


def _nothing(node: Call, *operands: object) -> None:
    """Checks and messages that have no result take no part in what is computed."""


def _first(node: Call, x: sg.Output, *others: object) -> sg.Output:
    return x


def _with_shape(node: Call, x: sg.Output) -> sg.Output:
    """Checks known sizes now; symbolic ones are not checked."""
    declared = node.attribute("shape")
    if declared is not None:
        actual = list(x.shape)
        fits = len(actual) == len(declared) and all(
            expected is None or isinstance(size, sg.Dim) or size == expected
            for size, expected in zip(actual, declared, strict=False)
        )
        if not fits:
            node.fail(f"its operand has the shape {tuple(actual)}, not {tuple(declared)}")
    return x


CHECKS: Table = {
    "Assert": _nothing,
    "PrintV2": _nothing,
    "Print": _first,
    "CheckNumerics": _first,
    "CheckNumericsV2": _first,
    "EnsureShape": _with_shape,
}
