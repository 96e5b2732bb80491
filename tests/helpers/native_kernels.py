"""Functions run by XLA with the kernels for convolutions, and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import stopgrad as sg
from stopgrad.engines import engine as engine_named
from stopgrad.engines.xla.native import convolution
from stopgrad.engines.xla.native.library import library
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Region, program
from stopgrad.rewrite import prepare

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


class Native:
    """A function run by XLA with kernels. ``computed``: the types of the operations of each kernel."""

    def __init__(self, function: Callable[..., Any], *arrays: Any) -> None:
        assert library().available
        with sg.Graph().as_default():
            places = [sg.placeholder(sg.float32, x.shape) for x in arrays]
            built = function(*places)
        outputs = [*built] if isinstance(built, (list, tuple)) else [built]
        form = prepare(outputs, places)
        self.computed: list[list[str]] = []
        run = program(form.inputs, form.outputs, engine_named("xla"), self._regions)  # type: ignore[arg-type]
        self.run = jax.jit(lambda *values: run(values))
        self.values = [np.asarray(y) for y in self.run(*arrays)]

    def _regions(self, operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
        found = convolution.regions(operations, wanted)
        self.computed += [[op.type for op in region.operations] for region in found]
        return found


def agree(function: Callable[..., Any], *arrays: Any, kernels: int) -> Native:
    """Check results against float64; the error may be twice XLA's, and a few roundings."""
    native = Native(function, *arrays)
    assert len(native.computed) == kernels, native.computed
    exact = sg.function(function, engine="numpy")(*[x.astype(np.float64) for x in arrays])
    plain = sg.function(function, engine="xla", strict=True)(*arrays)
    if not isinstance(exact, (list, tuple)):
        exact, plain = [exact], [plain]
    for found, reference, other in zip(native.values, exact, plain, strict=True):
        assert found.dtype == np.float32
        assert found.shape == reference.shape
        scale = np.abs(reference).max(initial=1e-30)
        error, usual = np.abs(found - reference).max(initial=0), np.abs(other - reference).max(initial=0)
        assert usual <= 1e-5 * scale
        assert error <= 2 * usual + 1e-6 * scale
    return native


def three(**geometry: Any) -> Callable[..., Any]:
    """A convolution and its two gradients."""

    def function(x: Any, filters: Any, g: Any) -> Any:
        y = sg.conv(x, filters, **geometry)
        return [y, *sg.gradients([y], [x, filters], [g])]

    return function
