"""``ablate`` of live TensorFlow: the tape's gradient with and without the stops of each line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stopgrad.base.errors import StopgradError
from stopgrad.base.source import RawLocation
from stopgrad.flow.ablation.ablation import Ablation
from stopgrad.flow.ablation.variants import Arrays, Gradients
from stopgrad.graph.public import guarded
from stopgrad.interop.shared.ablating import Line, ablated, by_lines, counts
from stopgrad.interop.shared.derivatives import line_of
from stopgrad.interop.tensorflow.asking import explain
from stopgrad.interop.tensorflow.stops import Posed, Stops, eagerly, to_numpy


@guarded("ablate")
def ablate(
    f: Callable[..., object], *args: object, repeats: int = 5, seed: int = 0, **kwargs: object
) -> Ablation:
    """What the stops of each line do to TensorFlow's gradient of a function.

    For each line of the user's that calls ``tf.stop_gradient``, the function runs again without those stops,
    eagerly, under a tape. Variables have their values again after it.

    Args:
        f, args, kwargs: as for :func:`check_gradients`.
        repeats: the number of measurements of which each time is the median; 0 to measure none. A time is
            that of a call and its gradient, run eagerly.
        seed: the seed of noise: besides the given data, copies with noise on the sources are examined.

    Returns:
        An :class:`stopgrad.flow.ablation.ablation.Ablation`, whose verdicts are ``"changes the gradient"``,
        ``"changes nothing"``, ``"idle"`` and ``"without it, the gradient is an error"``. TensorFlow's
        operations are not counted, and no further stops are suggested.

    Raises:
        ArgumentError: the function returns no tensor, or there is nothing to differentiate.

    Examples:
        >>> import tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> x = tf.constant([0.5, 2.0])
        >>> sgtf.ablate(lambda x: tf.reduce_sum(x * tf.stop_gradient(x)), x, repeats=0).stops[0].verdict
        'changes the gradient'
    """
    repeated, seeded = counts(repeats, seed)
    with eagerly():
        point = Posed("ablate", f, args, kwargs)
        try:
            by_line = by_lines([("tf.stop_gradient", place) for place in point.stops.places])
            idle = _idle(f, args, kwargs) if by_line else {}
            lines = [line._replace(why_idle=idle.get(line_of(line.places[0]), "")) for line in by_line]
            return ablated("TensorFlow, eagerly", _Opened(point, lines), repeated, seeded)
        finally:
            point.restore_all()


def _idle(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[tuple[str, int] | None, str]:
    """Why the stops of lines do nothing, as far as the report on the function says it."""
    reasons: dict[tuple[str, int] | None, list[str]] = {}
    with contextlib.suppress(StopgradError):
        for use in explain(f, *args, **kwargs).gates:
            location = use.operation.location
            reasons.setdefault(None if location is None else (location.file, location.line), []).append(
                use.why_idle
            )
    return {line: why[0] for line, why in reasons.items() if all(why)}


class _Opened:
    """A function of TensorFlow's, differentiated with and without the stops of a line."""

    def __init__(self, point: Posed, lines: Sequence[Line]) -> None:
        self.lines, self._point = lines, point
        self.points = {name: to_numpy(x) for name, x in point.sources.items()}
        self.sizes = float(sum(np.abs(to_numpy(y).astype(np.complex128)).sum() for y in point.results))

    def gradients(self, values: Arrays, without: Line | None) -> Gradients:
        tensors = [tf.constant(value) for value in values]
        sources = list(self._point.sources.values())
        changed = {id(x): v for x, v in zip(sources, tensors, strict=True) if not isinstance(x, tf.Variable)}
        variables = [(x, v) for x, v in zip(sources, tensors, strict=True) if isinstance(x, tf.Variable)]
        before = [x.numpy() for x, _ in variables]
        try:
            for x, value in variables:
                x.assign(value)
            with tf.GradientTape() as tape:
                tape.watch(list(changed.values()))
                results = self._point.again(Stops(opens=_opens(without)), changed)
        finally:
            for (x, _), value in zip(variables, before, strict=True):
                x.assign(value)
        gradients = tape.gradient(results, [changed.get(id(x), x) for x in sources])
        return [None if g is None else to_numpy(g) for g in gradients]

    def run(self, without: Line | None) -> Callable[[], Gradients]:
        values = list(self.points.values())
        return lambda: self.gradients(values, without)


def _opens(without: Line | None) -> Callable[[RawLocation | None], bool] | None:
    """Which stops are taken out."""
    if without is None:
        return None
    location = line_of(without.places[0])
    return lambda place: line_of(place) == location
