"""What a row of the table is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Data = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A row of the table.

    Attributes:
        row: S1 to S21.
        case: what tells it from the others of its row.
        kind: the method of a library that solves it.
        sizes: what its data are made from.
        quick: the same, small.
        tolerance: the relative difference from stopgrad's results that is agreement.
        trains: a call goes on from where the last one ended, and gives its loss.
    """

    row: str
    case: str
    kind: str
    sizes: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-3
    trains: bool = False

    @property
    def name(self) -> str:
        return f"{self.row} {self.case}"
