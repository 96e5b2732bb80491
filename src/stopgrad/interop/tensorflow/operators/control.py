"""Branches and loops of functions, as control flow of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.shared.conversions import Refused
from stopgrad.interop.tensorflow.operators.calling import Call, Function, Known, Table, knows_all
from stopgrad.interop.tensorflow.operators.lists import TensorList
from stopgrad.interop.tensorflow.operators.loops import Loop

_ERRORS = (Refused, sg.ShapeError, sg.DTypeError, sg.ArgumentError, sg.GraphError)


# ------------------------------------------------------------------------------------------------ branches


class _Results:
    """What branches return: tensors, and what all of them hand on."""

    def __init__(self, node: Call) -> None:
        self.node = node
        self.first: list[Any] | None = None

    def tensors(self, results: Sequence[Any]) -> list[Any]:
        """The tensors among the results of a branch, with the elements of lists."""
        if self.first is None:
            self.first = list(results)
        tensors = []
        for first, result in zip(self.first, results, strict=True):
            if first is result and not isinstance(first, (sg.Output, Known, TensorList)):
                continue
            if isinstance(result, TensorList):
                tensors.append(result.rows())
            elif isinstance(result, (sg.Output, Known)):
                tensors.append(self.node.tensor(result))
            else:
                raise Refused("its branches return different resources")
        return tensors

    def rebuilt(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The results, from the tensors that the branch that was chosen returned."""
        assert self.first is not None
        remaining = iter(tensors)
        results: list[Any] = []
        for first in self.first:
            if isinstance(first, TensorList):
                results.append(TensorList(first.length, None, None, next(remaining)))
            else:
                results.append(next(remaining) if isinstance(first, (sg.Output, Known)) else first)
        return tuple(results)


Build = Callable[[list[Callable[[], list[Any]]]], Sequence[sg.Output] | sg.Output]
"""Builds the choice between functions without arguments."""


def _chosen(node: Call, functions: Sequence[Function], args: Sequence[Any], build: Any) -> tuple[Any, ...]:
    """One of several functions; *build* gets them as functions without arguments."""
    results = _Results(node)

    def branch(function: Function) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            with node.inside():
                return results.tensors(node.call_known(function, args))

        return run

    with node.trying():
        chosen = build([branch(function) for function in functions])
    chosen = chosen if isinstance(chosen, (list, tuple)) else [chosen]
    return results.rebuilt(chosen)


def _truth(node: Call, x: sg.Output) -> sg.Output:
    """Whether a scalar is true; a number is where it is not 0, other tensors where they have elements."""
    if x.ndim:
        return sg.constant(True) if 0 not in x.shape else sg.constant(False)
    return x if x.dtype is sg.bool_ else sg.not_equal(x, sg.cast(0, x.dtype))


@knows_all
def _if(node: Call, condition: sg.Output | Known, *args: object) -> tuple[Any, ...]:
    """One branch if the condition is known; otherwise a ``cond`` of both."""
    branches = [node.attribute("then_branch"), node.attribute("else_branch")]
    if node.is_known(condition) and isinstance(condition, Known) and not condition.is_symbolic:
        return tuple(node.call_known(branches[0 if bool(condition.array.any()) else 1], args))
    truth = _truth(node, node.tensor(condition))
    return _chosen(node, branches, args, lambda both: sg.cond(truth, *both))


@knows_all
def _case(node: Call, index: sg.Output | Known, *args: object) -> tuple[Any, ...]:
    """The function of an index; the last one if there is none of that index."""
    branches: list[Function] = node.attribute("branches")
    if isinstance(index, Known) and not index.is_symbolic:
        i = int(index.array.reshape(-1)[0])
        return tuple(node.call_known(branches[i if 0 <= i < len(branches) else -1], args))
    place = node.tensor(index)
    last = np.int32(len(branches) - 1)
    place = sg.where(sg.less(place, np.int32(0)), last, place)
    return _chosen(node, branches, args, lambda all_of_them: sg.switch(place, all_of_them))


# --------------------------------------------------------------------------------------------------- loops


@knows_all
def _while(node: Call, *states: object) -> tuple[Any, ...]:
    return Loop(node, node.attribute("cond"), node.attribute("body"), states).built()


CONTROL: Table = {
    "If": _if,
    "StatelessIf": _if,
    "Case": _case,
    "StatelessCase": _case,
    "While": _while,
    "StatelessWhile": _while,
}
