"""What was measured, as tables: on the terminal, and in docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from runtime import gates
from runtime.workers import PEERS

LIMITS = ("numpy", "numba")
ALLOWED = 1.15
Table = tuple[str, list[str], list[list[str]]]

# ---------------------------------------------------------------------------------------------- ratios


def fastest(row: dict[str, Any], names: Sequence[str], key: str) -> tuple[float, str] | None:
    times = [(row["libraries"][n][key], n) for n in names if key in row["libraries"].get(n, {})]
    return min(times, default=None)


def ratios(row: dict[str, Any]) -> None:
    """Into a row: stopgrad's time by the fastest peer's, the limits', and JAX's; in processor time, too."""
    groups = {
        "fastest_peer": [n for n in PEERS if n not in LIMITS],
        "fastest_limit": LIMITS,
        "jax": ["jax"],
        "jax tuned": ["jax tuned"],
        "before": ["before"],
    }
    for suffix, key in (("", "ms"), (", processor", "cpu_ms")):
        ours = row["libraries"]["stopgrad"].get(key)
        for name, members in groups.items():
            best = fastest(row, members, key)
            if ours is not None and best is not None:
                row[name + suffix] = {"name": best[1], "ratio": ours / best[0]}


def mean(rows: list[dict[str, Any]], key: str) -> float | None:
    """The geometric mean of a ratio: every row once, however many cases it has."""
    by_row: dict[str, list[float]] = {}
    for row in rows:
        if key in row:
            by_row.setdefault(row["row"], []).append(row[key]["ratio"])
    return geometric_mean(map(geometric_mean, by_row.values())) if by_row else None


# ---------------------------------------------------------------------------------------------- tables


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def time_text(cell: dict[str, Any], problem: Any, key: str = "ms") -> str:
    if key not in cell:
        return "–"
    row = problem["row"] if isinstance(problem, dict) else problem.row
    scaled, unit = (1e3 * cell[key], " µs") if row == "S8" else (cell[key], "")
    if key != "ms":
        return f"{number(scaled)}{unit}"
    mark = "" if cell.get("agrees", True) else " ≠"
    return f"{number(scaled)}{unit} ±{100 * cell['spread']:.0f}{mark}"


def ratio_text(row: dict[str, Any], key: str, named: bool = False) -> str:
    found = row.get(key)
    if found is None:
        return "–"
    return f"{found['ratio']:.2f}" + (f" {found['name']}" if named else "")


def timed(found: dict[str, Any], title: str, key: str, suffix: str) -> Table:
    """One table of times, and its ratios."""
    columns = found["columns"]
    kinds = {
        "before": "ours / before",
        "fastest_peer": "ours / fastest peer",
        "jax": "ours / jax",
        "jax tuned": "ours / jax tuned",
        "fastest_limit": "ours / stand-in",
    }
    shown = {name: head for name, head in kinds.items() if any(name + suffix in row for row in found["rows"])}
    body = [
        [
            name_of(row),
            *[time_text(row["libraries"].get(c, {}), row, key) for c in columns],
            *[ratio_text(row, name + suffix, name == "fastest_peer") for name in shown],
        ]
        for row in found["rows"]
    ]
    return title, ["", *columns, *shown.values()], body


def name_of(row: dict[str, Any]) -> str:
    return f"{row['row']} {row['case']}"


def tables(found: dict[str, Any]) -> list[Table]:
    wall = "Time of a call: ms (S8: µs), fastest round, ± % to the middle one; ≠ where results disagree"
    firsts = [
        [
            name_of(row),
            again_text(row["libraries"]["stopgrad"]),
            *[first_text(row["libraries"].get(c, {})) for c in found["columns"]],
        ]
        for row in found["rows"]
    ]
    first = "First result in s / peak memory of the process in MB"
    made = [
        timed(found, wall, "ms", ""),
        timed(found, "Processor time of a call, in all threads: ms (S8: µs)", "cpu_ms", ", processor"),
        (first, ["", "stopgrad again", *found["columns"]], firsts),
        gates.table(found["gates"]),
    ]
    return [table for table in made if table[-1]]


def again_text(cell: dict[str, Any]) -> str:
    return f"{cell['again_s']:.2f}" if "again_s" in cell else "–"


def first_text(cell: dict[str, Any]) -> str:
    return f"{cell['first_s']:.2f} / {cell['rss_mb']:.0f}" if "first_s" in cell else "–"


def lines_of(header: list[str], body: list[list[str]]) -> list[str]:
    """A table of Markdown, its columns aligned."""
    widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
    written = []
    for line in [header, *body]:
        cells = [line[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]]
        written.append("| " + " | ".join(cells) + " |")
    rule = "|-" + "-" * widths[0] + "-|" + "|".join("-" * (w + 1) + ":" for w in widths[1:]) + "|"
    return [written[0], rule, *written[1:]]


def show(title: str, header: list[str], body: list[list[str]]) -> None:
    print("", title, "", *lines_of(header, body), sep="\n")


def heading(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    loads = [row["load"] for row in found["rows"]]
    busy = f"; load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    return f"{found['date']}, {found['machine']}{busy}; {versions}."


# --------------------------------------------------------------------------------------------- remarks


def remarks(found: dict[str, Any]) -> list[str]:
    """The means, who is behind, the disagreements, and why cells are empty."""
    rows, missing = found["rows"], found["missing"]
    lines = [line for suffix in ("", ", processor") for line in verdicts(rows, suffix)]
    empty: dict[str, list[str]] = {}
    for row in rows:
        for name, cell in row["libraries"].items():
            if not cell.get("agrees", True):
                expected = row["libraries"]["stopgrad"]["figures"]
                what = f"loss, Σ |gradient| (or losses) {cell['figures']} against {expected}"
                lines.append(f"{name_of(row)}, {name}: {what}")
            elif "left_out" in cell and name not in missing:
                empty.setdefault(f"{name}: {cell['left_out']}", []).append(name_of(row))
    for why, where in empty.items():
        whole = [r for r, cases in cases_of(rows).items() if cases <= {*where}]
        parts = [*whole, *[name for name in where if name.split()[0] not in whole]]
        lines.append(f"{why}: {'; '.join(parts)}")
    for name, why in missing.items():
        cure = " (pip install -e '.[bench]' installs all)" if "ModuleNotFoundError" in why else ""
        lines.append(f"{name}: left out: {why}{cure}")
    return lines


def verdicts(rows: list[dict[str, Any]], suffix: str) -> list[str]:
    """The geometric means of a kind of time, and the rows that are behind."""
    kind = "processor time" if suffix else "time of a call"
    means = [(against, mean(rows, against + suffix)) for against in ("fastest_peer", "jax", "jax tuned")]
    if means[0][1] is None:
        return []
    said = ", ".join(f"{against.replace('_', ' ')} {m:.2f}" for against, m in means if m is not None)
    key = "fastest_peer" + suffix
    rated = [row for row in rows if key in row]
    measured = [(row[key]["ratio"], f"{name_of(row)} {ratio_text(row, key, True)}") for row in rated]
    ahead = sum(ratio <= 1 for ratio, _ in measured)
    behind = [name for ratio, name in sorted(measured, reverse=True) if ratio > ALLOWED]
    of = f"{ahead} of {len(measured)} cases no slower than the fastest peer, {len(behind)} above {ALLOWED}"
    return [
        f"{kind}, geometric mean of ours over all rows, by the {said}",
        f"{kind}: {of}{': ' if behind else ''}{'; '.join(behind)}",
    ]


def cases_of(rows: list[dict[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["row"], set()).add(name_of(row))
    return found


# ------------------------------------------------------------------------------------------- the page


def into_docs(found: dict[str, Any], page: Path) -> None:
    """The tables and remarks between the page's marks."""
    parts = [heading(found), ""]
    for title, header, body in tables(found):
        used = [i for i in range(len(header)) if i == 0 or any(line[i] != "–" for line in body)]
        code = ["code", *[f"`{row['kind']}`" for row in found["rows"]]]
        lines = [[line[i] for i in used] for line in [header, *body]]
        if title.startswith("Time"):
            lines = [[*line, name] for line, name in zip(lines, code, strict=True)]
        parts += [f"**{title}**", "", *lines_of(lines[0], lines[1:]), ""]
    parts += [f"- {line}" for line in remarks(found)]
    text = page.read_text()
    marks = r"(<!-- runtime\.py: begin -->\n).*?(\n<!-- runtime\.py: end -->)"
    written, count = re.subn(marks, lambda m: m[1] + "\n".join(parts) + m[2], text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page} has no marks for the tables of runtime.py")
    page.write_text(written)
