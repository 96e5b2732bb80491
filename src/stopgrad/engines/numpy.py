"""The reference: NumPy, one operation after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.engines.protocol import Compiled, failed, lowering, program
from stopgrad.graph import Operation, Output
from stopgrad.namespaces import NUMPY

Step = tuple[Operation, Any, dict[str, Any], list[int], list[int], list[Any], list[int]]
"""Operation, lowering, attributes, input slots, output slots, output dtypes, slots that nobody reads afterwards."""


class NumPyEngine:
    """Runs every operation's ``numpy`` definition. Floating-point warnings are off: values say what happened."""

    name = "numpy"

    def compile(self, inputs: Sequence[Output], outputs: Sequence[Output], donate: Sequence[int] = ()) -> Compiled:
        slots = {x: i for i, x in enumerate(inputs)}
        steps = _steps(slots, inputs, outputs)
        results = [slots[y] for y in outputs]
        count = len(slots)

        def run(arrays: Sequence[Any]) -> list[Any]:
            values: list[Any] = [None] * count
            values[: len(arrays)] = arrays
            with np.errstate(all="ignore"):
                for op, function, attributes, reads, writes, dtypes, dead in steps:
                    try:
                        made = function(NUMPY, *[values[i] for i in reads], **attributes)
                    except Exception as error:
                        raise failed(op, "numpy", error) from error
                    if len(writes) == 1:
                        values[writes[0]] = np.asarray(made, dtypes[0])
                    else:
                        for i, value, dtype in zip(writes, made, dtypes, strict=True):
                            values[i] = np.asarray(value, dtype)
                    for i in dead:
                        values[i] = None
            return _apart([values[i] for i in results], arrays)

        return run

    def hold(self, array: Any) -> Any:
        return np.array(array)

    def is_native(self, x: Any) -> bool:
        return type(x) is np.ndarray and x.dtype.isnative


def _steps(slots: dict[Output, int], inputs: Sequence[Output], outputs: Sequence[Output]) -> list[Step]:
    operations = program(inputs, outputs)
    for op in operations:
        for y in op.outputs:
            slots[y] = len(slots)
    last_use = {slots[x]: n for n, op in enumerate(operations) for x in op.inputs}
    kept = {slots[y] for y in outputs}
    dead: dict[int, list[int]] = {}
    for slot, n in last_use.items():
        if slot not in kept:
            dead.setdefault(n, []).append(slot)
    return [
        (
            op,
            lowering(op, "numpy"),
            dict(op.attributes),
            [slots[x] for x in op.inputs],
            [slots[y] for y in op.outputs],
            [y.dtype.numpy for y in op.outputs],
            dead.get(n, []),
        )
        for n, op in enumerate(operations)
    ]


def _apart(values: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Results that share no memory with what was fed, nor with each other: one may be handed out, another kept."""
    taken = {id(array) for array in arrays}
    apart = []
    for value in values:
        if value.base is not None or not value.flags.writeable or id(value) in taken:
            value = np.array(value)
        taken.add(id(value))
        apart.append(value)
    return apart
