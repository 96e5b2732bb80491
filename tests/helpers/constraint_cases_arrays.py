"""For each constraint of scatters, dynamic slices, running extremes and searches, a call that breaks it."""

from __future__ import annotations

from typing import Any

import numpy as np
from constraint_cases_more import BOOLS, CASES, COMPLEXES, DOUBLES, FLOATS, INTS, MATRIX, call, refuses

import stopgrad as sg

__all__ = ["CASES"]

AT = np.zeros(2, np.int32)
TWO = np.ones(2, np.float32)

for _scatter, _wrong in (
    ("TensorScatterUpdate", (FLOATS, AT, DOUBLES[:2])),
    ("TensorScatterMax", (COMPLEXES, AT, COMPLEXES[:2])),
    ("TensorScatterMin", (COMPLEXES, AT, COMPLEXES[:2])),
    ("TensorScatterMul", (BOOLS, AT, BOOLS[:2])),
):
    refuses(
        _scatter,
        call(_scatter, FLOATS, TWO, TWO),
        call(_scatter, FLOATS, AT, TWO, axis=1),
        call(_scatter, FLOATS, AT, TWO, batch_dims=1),
        call(_scatter, *_wrong),
        call(_scatter, FLOATS, AT, FLOATS),
    )


def strided(x: Any, updates: Any, *spans: Any) -> Any:
    return call("TensorStridedSliceUpdate", x, updates, spans)


refuses(
    "TensorStridedSliceUpdate",
    strided(FLOATS, TWO),
    strided(FLOATS, TWO, (2, 2, 1)),
    strided(FLOATS, DOUBLES[:2], (0, 2, 1)),
    strided(FLOATS, FLOATS, (0, 2, 1)),
)
refuses(
    "DynamicSlice",
    call("DynamicSlice", FLOATS, [0.5], [1]),
    call("DynamicSlice", FLOATS, [0, 1], [1]),
    call("DynamicSlice", FLOATS, [0], [4]),
)
refuses(
    "DynamicUpdateSlice",
    call("DynamicUpdateSlice", FLOATS, TWO, [0.5]),
    call("DynamicUpdateSlice", FLOATS, TWO, [0, 1]),
    call("DynamicUpdateSlice", TWO, FLOATS, [0]),
    call("DynamicUpdateSlice", INTS, FLOATS, [0]),
)
refuses(
    "RavelMultiIndex",
    call("RavelMultiIndex", [FLOATS], [3]),
    call("RavelMultiIndex", [AT], [3, 4]),
    call("RavelMultiIndex", [AT, INTS], [3, 4]),
)
for _running in ("Cummax", "Cummin", "CumulativeLogsumexp"):
    refuses(_running, call(_running, COMPLEXES), call(_running, FLOATS, 1))
refuses(
    "SearchSorted",
    call("SearchSorted", COMPLEXES, COMPLEXES),
    call("SearchSorted", MATRIX, FLOATS),
    call("SearchSorted", FLOATS, FLOATS, out_type=sg.float32),
)
refuses("MulNoNan", call("MulNoNan", BOOLS, BOOLS), call("MulNoNan", FLOATS, TWO))
