"""The result of a recipe's ``run``: numbers, checks, tables, pictures and gradient graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import stopgrad as sg

Progress = Callable[[float, str], None]
"""A function that is called with the share that is done, from 0 to 1, and what is being done."""

_RELATIONS = {"≤": operator.le, "≥": operator.ge, "=": operator.eq, "<": operator.lt, ">": operator.gt}


def silent(done: float, doing: str) -> None:
    """Ignores the progress."""


def part(progress: Progress, start: float, stop: float, doing: str) -> Callable[[float], None]:
    """The progress of a part, from 0 to 1, as progress of the whole, from *start* to *stop*."""
    return lambda done: progress(start + (stop - start) * done, doing)


@dataclass(frozen=True)
class Check:
    """A claim with its measurement: ``measured relation threshold``."""

    claim: str
    measured: float
    relation: str
    threshold: float

    @property
    def passed(self) -> bool:
        """Whether the claim holds; never for NaN.

        Examples:
            >>> Check("small", 1e-8, "≤", 1e-6).passed, Check("small", float("nan"), "≤", 1e-6).passed
            (True, False)
        """
        return bool(_RELATIONS[self.relation](self.measured, self.threshold))

    def __str__(self) -> str:
        return f"{self.claim}: {self.measured:.6g}, must be {self.relation} {self.threshold:.6g}"


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading; the first column names the row."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A figure of matplotlib, and what to say about it. *wide* figures take a row for themselves."""

    caption: str
    figure: Any
    wide: bool = False


@dataclass(frozen=True)
class LossGraph:
    """A scalar loss, its parameters and the gradient generated for them, all in one graph."""

    title: str
    note: str
    loss: sg.Output
    parameters: tuple[sg.Output, ...]
    gradients: tuple[sg.Output | None, ...]
    construction: tuple[sg.Operation, ...] = ()
    """Operations that the gradient must not pass, where a recipe names them."""

    @property
    def forward(self) -> list[sg.Operation]:
        """The operations from which the loss is computed, in order."""
        return self.loss.graph.subgraph_to([self.loss])

    @property
    def generated(self) -> list[sg.Operation]:
        """The operations that the generator made for the gradients, in order."""
        gradients = [g for g in self.gradients if g is not None]
        forward = set(self.forward)
        return (
            [
                op
                for op in self.loss.graph.subgraph_to(gradients)
                if op.origin is not None and op not in forward
            ]
            if gradients
            else []
        )

    @property
    def flow(self) -> sg.Flow:
        """The report on whether gradients of the loss arrive at the parameters, and what cuts them."""
        return sg.explain(self.loss, list(self.parameters))

    def stops(self) -> list[sg.Operation]:
        """The gates that cut a gradient."""
        return [use.operation for use in self.flow.gates if not use.idle]

    def passing(self) -> list[sg.Operation]:
        """Gradient operations made for operations of the construction; none if it is cut off."""
        hidden = set(self.construction)
        return [op for op in self.generated if op.origin in hidden]


@dataclass(frozen=True)
class Result:
    """The result of a workload."""

    name: str
    title: str
    summary: str
    checks: list[Check] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    graphs: list[LossGraph] = field(default_factory=list)
    code: list[Callable[..., object]] = field(default_factory=list)
    """The functions a reader should see."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def differentiate(
    title: str, note: str, loss: Callable[..., object], parameters: Any, **inputs: object
) -> LossGraph:
    """The graph of ``loss(parameters, **inputs)`` and its gradient with respect to the parameters.

    The arrays given are examples: only their shapes and dtypes count. *loss* may also return a pair of the
    loss and the operations that the gradient must not pass.

    Examples:
        >>> def loss(p):
        ...     return sg.reduce_sum(p["x"] * sg.stop_gradient(p["x"]))
        >>> graph = differentiate("square", "", loss, {"x": np.ones(3)})
        >>> print(graph.flow[graph.parameters[0]].status)
        partly stopped
    """
    with sg.Graph().as_default():
        named = {name: _stand_in(name, value) for name, value in parameters.items()}
        result = loss(named, **{name: _stand_in(name, x) for name, x in inputs.items()})
        value, construction = result if isinstance(result, tuple) else (result, ())
        targets = list(named.values())
        return LossGraph(
            title, note, value, tuple(targets), tuple(sg.gradients(value, targets)), tuple(construction)
        )


def _stand_in(name: str, value: Any) -> sg.Output:
    return sg.placeholder(value.dtype.name, value.shape, name=name)
