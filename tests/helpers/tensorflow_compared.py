"""Graphs of TensorFlow's loaded here, and compared with what TensorFlow computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow_case import Array, Written

import stopgrad as sg
import stopgrad.tensorflow as sgtf

TOLERANCE = 1e-5


def disagreements(
    written: Written, engine: str, tolerance: float = TOLERANCE, known: dict[str, Any] | None = None
) -> list[str]:
    """Which values and gradients differ, on an engine, from TensorFlow's; where it has none, from zeros."""
    model = sgtf.load(written.graph, outputs=list(written.values), known=known)
    inputs = {name: x for name, x in model.inputs.items() if name in written.fed}
    sources = {**model.parameters, **inputs}
    wrt = [name for name in written.gradients if name in sources]
    ys = [model.outputs[name] for name in written.seeds]
    with model.graph.as_default():
        slopes = sg.gradients(ys, [sources[name] for name in wrt], list(written.seeds.values())) if ys else []
    asked = {name: model.outputs[name] for name in written.values}
    asked |= {f"gradient of {n}": g for n, g in zip(wrt, slopes, strict=True) if g is not None}
    with sg.Session(model.graph, engine=engine) as session:
        found = session.run(asked, {x: written.fed[name] for name, x in inputs.items()})
    expected = dict(written.values)
    for name in wrt:
        wanted = written.gradients[name]
        zeros = np.zeros_like(written.fed[name] if name in written.fed else model.values()[name])
        expected[f"gradient of {name}"] = zeros if wanted is None else wanted
        found.setdefault(f"gradient of {name}", zeros)
    lost = [name for name in written.gradients if name not in sources]
    if lost and known is None:
        return [f"{lost} are neither inputs nor parameters"]
    told = {name: difference(found[name], value, tolerance) for name, value in expected.items()}
    return [f"{name}: {why}" for name, why in told.items() if why]


def difference(found: Array, wanted: Array, tolerance: float = TOLERANCE) -> str:
    """In what an array differs from the one wanted; "" if in nothing.

    Numbers differ where they are further apart than the tolerance times the largest one wanted.
    """
    found, wanted = np.asarray(found), np.asarray(wanted)
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind not in "fc":
        return "" if np.array_equal(found, wanted) else f"{found.ravel()[:5]} instead of {wanted.ravel()[:5]}"
    finite = np.abs(wanted[np.isfinite(wanted)])
    near = max(tolerance, 2 * float(np.finfo(wanted.dtype).eps)) * max(1.0, float(finite.max(initial=0.0)))
    if np.allclose(found, wanted, rtol=0, atol=near, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"{np.nanmax(np.abs(found - wanted)):.1e} away, up to {near:.1e} allowed"
