"""Our gradient rules against a framework's own, at ordinary points and at the edges of domains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "rules-at-edges.md"
INF, NAN = np.inf, np.nan
LINE = np.array(
    [
        -INF,
        -1e30,
        -3.5,
        -2.0,
        -1.0,
        -0.5,
        -1e-30,
        -0.0,
        0.0,
        1e-30,
        0.25,
        0.5,
        1.0,
        1.5,
        2.0,
        7.0,
        1e30,
        INF,
        NAN,
    ],
    np.float32,
)
"""The points at which functions of one number are compared."""
FEW = np.array([-INF, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0, INF], np.float32)
PAIRS = np.repeat(FEW, len(FEW)), np.tile(FEW, len(FEW))
"""The points at which functions of two numbers are compared."""
UNIT = np.array([0.0, 1e-30, 0.25, 0.5, 1.0], np.float32)
TIES = np.array([2.0, 1.0, 2.0, 0.0, 1.0], np.float32)
PLAIN = np.array([0.5, -1.5, 2.0, 0.25, 3.0], np.float32)
ZEROS = np.zeros(5, np.float32)
ONE_ZERO = np.array([0.5, 0.0, 2.0, 0.25, 3.0], np.float32)
TWO_ZEROS = np.array([0.5, 0.0, 2.0, 0.0, 3.0], np.float32)
WITH_INF = np.array([0.5, -INF, 2.0, INF, 3.0], np.float32)
BELOW = np.array([0.5, -INF, 2.0, -INF, 3.0], np.float32)
ALL_BELOW = np.full(5, -INF, np.float32)
EMPTY = np.zeros(0, np.float32)
VECTORS = {
    "plain": PLAIN, "ties": TIES, "zeros": ZEROS, "one zero": ONE_ZERO, "two zeros": TWO_ZEROS,
    "infinities": WITH_INF, "some -inf": BELOW, "all -inf": ALL_BELOW, "empty": EMPTY,
}  # fmt: skip
"""The vectors at which functions of several numbers are compared."""
_ROTATED = np.linalg.qr(np.arange(9.0).reshape(3, 3) + 5 * np.eye(3))[0]
MATRICES = {
    "plain": (_ROTATED @ np.diag([1.0, 2.0, 4.0]) @ _ROTATED.T).astype(np.float32),
    "equal eigenvalues": np.eye(3, dtype=np.float32),
    "two equal": np.diag(np.array([1.0, 1.0, 3.0], np.float32)),
    "singular": np.diag(np.array([0.0, 1.0, 3.0], np.float32)),
    "zero": np.zeros((3, 3), np.float32),
}
"""The symmetric matrices at which functions of one are compared."""


class Comparison(NamedTuple):
    """A function's gradients at some points, by both.

    Attributes:
        points: what the points are.
        theirs, ours: the gradients, an element for each point; or of one point, if there are fewer points.
        error: why ours has none; empty if it has.
    """

    points: Sequence[str]
    theirs: np.ndarray[Any, Any]
    ours: np.ndarray[Any, Any] | None
    error: str = ""


def differing(one: Comparison, limit: float = 2e-3) -> list[tuple[str, str, str]]:
    """The points at which they differ: the point, theirs and ours."""
    if one.ours is None:
        return [(", ".join(one.points), short(one.theirs), one.error)]
    same = np.isclose(one.theirs, one.ours, rtol=limit, atol=1e-6, equal_nan=True)
    if len(one.points) == 1:
        return [] if same.all() else [(one.points[0], short(one.theirs), short(one.ours))]
    flat = list(np.flatnonzero(~same))
    return [(one.points[i], short(one.theirs[i]), short(one.ours[i])) for i in flat]


def short(x: Any) -> str:
    """A number, or what kinds of numbers an array has."""
    array = np.asarray(x)
    if array.ndim == 0:
        return f"{float(array):.4g}"
    if not np.isfinite(array).all():
        return "NaN" if np.isnan(array).any() else "infinite"
    return "0" if not array.any() else f"[{', '.join(f'{v:.3g}' for v in array.ravel()[:5])}]"


def table(compared: Iterable[tuple[str, Comparison]]) -> str:
    """The functions that differ, as Markdown, with the numbers of functions and points."""
    points: dict[str, int] = {}
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for name, one in compared:
        points[name] = points.get(name, 0) + len(one.points)
        rows.setdefault(name, []).extend(differing(one))
    different = {name: some for name, some in rows.items() if some}
    count = sum(map(len, different.values()))
    lines = [
        f"{len(points)} functions at {sum(points.values()):,} points; {len(different)} of them differ, at "
        f"{count:,} points.",
        "",
        "| function | points | differ | for example at | theirs | ours |",
        "| --- | ---: | ---: | --- | --- | --- |",
    ]
    for name, some in different.items():
        point, theirs, ours = some[0]
        lines.append(f"| {name} | {points[name]} | {len(some)} | {point} | {theirs} | {ours} |")
    return "\n".join(lines)


def on_page(world: str) -> str:
    """The table of a world as it is on the page."""
    return _place(world).findall(PAGE.read_text())[0]


def write(world: str, text: str) -> None:
    """Write the table of a world into the page."""
    PAGE.write_text(_place(world).sub(lambda _: f"{text}\n", PAGE.read_text(), count=1))


def _place(world: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {world} -->\n).*?(?=<!-- end -->)", re.DOTALL)
