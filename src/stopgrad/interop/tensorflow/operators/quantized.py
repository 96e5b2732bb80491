"""Quantisation that is imitated in training: rounded numbers, whose gradient is that of clipping."""

from __future__ import annotations

import stopgrad as sg
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.tensorflow.operators.calling import Call, Table


def _between(node: Call, x: sg.Output, low: sg.Output, high: sg.Output) -> sg.Output:
    """x, rounded to as many steps as there are between two bounds, which are moved so that 0 is one of them.

    The gradient reaches x inside of the bounds, and beyond them the bound: a straight-through estimator.
    """
    least = 1 if node.attribute("narrow_range", False) else 0
    bits = int(node.attribute("num_bits", 8))
    if not 2 <= bits <= 16:
        node.fail(f"it imitates numbers of 2 to 16 bits, not of {bits}")
    most = 2**bits - 1
    first, last = (brought(n, x.dtype) for n in (least, most))
    step = sg.realdiv(sg.subtract(high, low), brought(most - least, x.dtype))
    zero = sg.clip_by_value(sg.subtract(first, sg.realdiv(low, step)), first, last)
    zero = sg.floor(sg.add(zero, brought(0.5, x.dtype)))  # Halves are rounded up.
    lowest, highest = (sg.multiply(sg.subtract(end, zero), step) for end in (first, last))
    inside = sg.subtract(sg.clip_by_value(x, lowest, highest), lowest)
    count = sg.floor(sg.add(sg.realdiv(inside, step), brought(0.5, x.dtype)))
    rounded = sg.add(sg.multiply(count, step), lowest)
    passed = sg.where(sg.less(x, lowest), low, sg.where(sg.greater(x, highest), high, x))
    return sg.straight_through(rounded, passed)


def _with_constants(node: Call, x: sg.Output) -> sg.Output:
    low, high = (brought(float(node.attribute(name, default)), x.dtype) for name, default in _BOUNDS)
    return _between(node, x, low, high)


_BOUNDS = (("min", -6.0), ("max", 6.0))

QUANTIZED: Table = {
    "FakeQuantWithMinMaxArgs": _with_constants,
    "FakeQuantWithMinMaxVars": _between,
    "FakeQuantWithMinMaxVarsPerChannel": _between,
}
