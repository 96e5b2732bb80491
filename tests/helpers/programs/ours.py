"""Programs in this library, and what their text uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import stopgrad as sg
from programs.forms import OURS
from programs.language import Function, Statement, Writer

__all__ = ["scan_of", "sg", "summed"]


def scan_of(f: Callable[..., Any], count: int, carry: Sequence[Any], rows: Sequence[Any], length: int) -> Any:
    """What is carried through a scan, and the sums of what it gives."""

    def step(carried: Any, row: Any) -> Any:
        made = f(*carried, *(() if row is None else (row,)))
        return tuple(made[:count]), tuple(made[count:])

    last, given = sg.scan(step, tuple(carry), sg.stack(list(rows)) if rows else None, length=length)
    return (*last, *[sg.reduce_sum(x, axis=0) for x in given])


def summed(results: Any) -> Any:
    """The sums of results over all examples."""
    return tuple([sg.reduce_sum(x, axis=0) for x in results])


class Ours(Writer):
    """Writes programs in this library."""

    module, library, forms = "programs.ours", "ours", OURS
    constructs = {
        "call": "{f0}({args})",
        "cond": "sg.cond(sg.reduce_any({first}), {f0}, {f1}, {rest})",
        "switch": "sg.switch(sg.reduce_max({first}), [{functions}], {rest})",
        "while": "sg.while_loop(lambda *c: sg.reduce_any({f0}(*c)[0]), {f1}, ({args}), "
        "maximum_iterations={number})",
        "fori": "sg.fori_loop(0, {number}, lambda i, c: {f0}(*c), ({args}))",
        "scan": "scan_of({f0}, {count}, ({carried}), ({beside}), {number})",
        "map": "summed(sg.map_fn({f0}, sg.stack([{args}])))",
        "vmap": "summed(sg.vmap({f0}, in_axes=(0, {axes}))(sg.stack([{carried}]), {beside}))",
        "checkpoint": "sg.checkpoint({f0})({args})",
        "custom": "sg.custom_gradient({f0})({args})",
    }

    def returned(self, statement: Statement, function: Function) -> str:
        given = super().returned(statement, function)
        if statement.form != "custom":
            return given
        cotangents = [f"h{k}" for k in range(len(function.gives))]
        parts = [
            "None" if some is None else " + ".join([f"{r + 2.0} * h{r}" for r in some])
            for some in statement.passes
        ]
        return f"{given}, lambda {', '.join(cotangents)}: ({', '.join(parts)},)"

    def opening(self, statement: Statement) -> str:
        return "with sg.no_gradient():"
