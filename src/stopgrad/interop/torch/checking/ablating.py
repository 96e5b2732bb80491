"""``ablate`` of PyTorch functions: autograd's gradients with and without the stops of each line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from stopgrad.base.errors import StopgradError
from stopgrad.base.source import OWN, RawLocation, decode, kind_of
from stopgrad.flow.ablation.ablation import Ablation
from stopgrad.flow.ablation.variants import Arrays, Gradients
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.public import guarded
from stopgrad.interop.shared.ablating import Line, ablated, by_lines, counts
from stopgrad.interop.shared.derivatives import line_of
from stopgrad.interop.torch.asking import explain
from stopgrad.interop.torch.checking.function_at_point import (
    Posed,
    gradients_of,
    posed,
    tensor_of,
    to_numpy,
    wide_leaves,
)
from stopgrad.interop.torch.checking.repeated_calls import Calls
from stopgrad.interop.torch.questions import Asked, Names

_OPENED = (
    "Tensor.detach",
    "Tensor.detach_",
    "torch.detach",
    "Tensor.data",
    "torch.no_grad()",
    "torch.set_grad_enabled(False)",
)
"""The stops that can be taken out."""
_ALIKE = 1e-3
"""How near gradients in double precision must be to PyTorch's own for verdicts to be found from them."""


@guarded("ablate")
def ablate(
    f: Callable[..., Any],
    *args: Any,
    model: Asked | None = None,
    only: Names | None = None,
    repeats: int = 5,
    seed: int = 0,
    **kwargs: Any,
) -> Ablation:
    """What the stops of each line do to autograd's gradient of a function.

    For each line of the user's with ``detach``, ``.data`` or ``torch.no_grad()``, the function is called and
    differentiated again without those stops. Numbers that ``.item()`` and the like read stay numbers.
    Afterwards parameters, buffers, modules and random states are as before.

    Args:
        f, args, model, only, kwargs: as for :func:`check_gradients`.
        repeats: the number of measurements of which each time is the median; 0 to measure none. A time is
            that of a call and its gradient, and what it takes to watch them.
        seed: the seed of noise: besides the given data, copies with noise on the tensors that are asked about
            are examined.

    Returns:
        An :class:`stopgrad.flow.ablation.ablation.Ablation`, whose verdicts are ``"changes the gradient"``,
        ``"changes nothing"``, ``"idle"`` and ``"without it, the gradient is an error"``. PyTorch's operations
        are not counted, and no further stops are suggested.

    Raises:
        GradientError: PyTorch does not differentiate the function.
        ArgumentError: there is nothing to differentiate.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> x = torch.tensor([0.5, 2.0], requires_grad=True)
        >>> sgt.ablate(lambda x: (x * x.detach()).sum(), x, repeats=0).stops[0].verdict
        'changes the gradient'
    """
    repeated, seeded = counts(repeats, seed)
    point = posed("ablate", f, args, kwargs, model, only)
    first = Calls(holds=False)
    results = point.called(first)
    marks = [
        (what, place)
        for what, place in (*first.stops, *first.idle)
        if what in _OPENED and place is not None and kind_of(decode(place).file) == OWN
    ]
    idle = _idle(point, f, args, kwargs, model, only) if marks else {}
    lines = [
        line._replace(kind=line.kind.removeprefix("Tensor."), why_idle=(idle or {}).get(at, ""))
        for line in by_lines(marks)
        if idle is None or (at := line_of(line.places[0])) in idle
    ]
    return ablated("PyTorch, watched", _Opened(point, lines, results), repeated, seeded)


def _idle(
    point: Posed, f: Any, args: Sequence[Any], kwargs: dict[str, Any], model: Any, only: Any
) -> dict[tuple[str, int] | None, str] | None:
    """For the lines with stops on the way, why they do nothing; empty if they may do something.

    What is stopped only to be shown or kept is not on the way. None if the report on the function fails.
    """
    reasons: dict[tuple[str, int] | None, list[str]] = {}
    try:
        flow = explain(f, *args, model=model, only=only, **kwargs)
    except StopgradError:
        return None
    finally:
        point.state.restore()
    for use in flow.gates:
        location = use.operation.location
        reasons.setdefault(None if location is None else (location.file, location.line), []).append(
            use.why_idle
        )
    return {line: why[0] if all(why) else "" for line, why in reasons.items()}


class _Opened:
    """A function of PyTorch's, differentiated with and without the stops of a line."""

    def __init__(self, point: Posed, lines: Sequence[Line], results: Sequence[torch.Tensor]) -> None:
        self.lines, self._point = lines, point
        self.points = {name: to_numpy(x) for name, x in point.xs.items()}
        self.sizes = float(sum(np.abs(to_numpy(y).astype(np.complex128)).sum() for y in results))
        self._xs = list(point.xs.values())
        self._is_wide = False
        if lines:
            plain = self._computed(None)
            with contextlib.suppress(Exception):  # Whatever fails, the user's precision is left.
                wide = self._in_double(list(self.points.values()), None)
                self._is_wide = all(_alike(a, b) for a, b in zip(plain, wide, strict=True))

    def gradients(self, values: Arrays, without: Line | None) -> Gradients:
        if self._is_wide:
            return self._in_double(values, without)
        with self._moved(values):
            return self._computed(without)

    def run(self, without: Line | None) -> Callable[[], Gradients]:
        return lambda: self._computed(without)

    def _in_double(self, values: Arrays, without: Line | None) -> Gradients:
        leaves = wide_leaves(self._xs)
        with torch.no_grad():
            for x, value in zip(leaves.values(), values, strict=True):
                x.copy_(tensor_of(value, x.dtype))
        calls = Calls(holds=False, wide=leaves, opens=_opens(without))
        with self._moved(values):
            results = self._point.called(calls)
        # What an autograd.Function is given is the user's tensor, to which its gradient goes.
        gradients = gradients_of(
            results, [*leaves.values(), *self._xs], [torch.ones_like(y) for y in results]
        )
        count = len(self._xs)
        return [_sum(gradients[i], gradients[count + i]) for i in range(count)]

    def _computed(self, without: Line | None) -> Gradients:
        results = self._point.called(Calls(holds=False, opens=_opens(without)))
        gradients = gradients_of(results, self._xs, [torch.ones_like(y) for y in results])
        return [None if g is None else to_numpy(g) for g in gradients]

    @contextmanager
    def _moved(self, values: Arrays) -> Iterator[None]:
        """The user's tensors have other values, also after each call."""
        state = self._point.state
        moved = [tensor_of(value, x.dtype) for value, x in zip(values, self._xs, strict=True)]
        with state.moved(self._xs, moved):
            yield


def _opens(without: Line | None) -> Callable[[str, RawLocation | None], bool] | None:
    """Which stops are taken out."""
    if without is None:
        return None
    line = line_of(without.places[0])
    kind = "no_grad" if without.kind.endswith(")") else "detach"
    return lambda what, place: what == kind and line_of(place) == line


def _sum(a: torch.Tensor | None, b: torch.Tensor | None) -> NumpyArray | None:
    parts = [to_numpy(g) for g in (a, b) if g is not None]
    return parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else None


def _alike(a: NumpyArray | None, b: NumpyArray | None) -> bool:
    if a is None or b is None:
        return a is b
    size = max(float(np.abs(a.astype(np.complex128)).max(initial=0.0)), 1e-30)
    return bool((np.abs(a.astype(np.complex128) - b) <= _ALIKE * size).all())
