"""Operations that check or print their operands and pass them on."""

from __future__ import annotations

from typing import Any

import stopgrad as sg
from stopgrad.interop.tensorflow.operators.calling import Call, Table


def _nothing(node: Call, *operands: Any) -> None:
    """Checks and messages that have no result take no part in what is computed."""


def _first(node: Call, x: sg.Output, *others: Any) -> Any:
    return x


def _with_shape(node: Call, x: sg.Output) -> Any:
    """Checks known sizes now; symbolic ones are not checked."""
    wanted = node.attribute("shape")
    if wanted is not None:
        known = list(x.shape)
        fits = len(known) == len(wanted) and all(
            new is None or isinstance(old, sg.Dim) or old == new
            for old, new in zip(known, wanted, strict=False)
        )
        if not fits:
            node.fail(f"its operand has the shape {tuple(known)}, not {tuple(wanted)}")
    return x


CHECKS: Table = {
    "Assert": _nothing,
    "PrintV2": _nothing,
    "Print": _first,
    "CheckNumerics": _first,
    "CheckNumericsV2": _first,
    "EnsureShape": _with_shape,
}
