"""The page of questions says how many clicks each answer is away from the front page."""

from __future__ import annotations

import re
from pathlib import Path

from pages import DOCS

LINK = re.compile(r"\]\(([^)#\s]+\.md)[^)]*\)")
ROW = re.compile(r"^\| [^|]+ \| \[[^\]]+\]\(([^)]+)\) \| (\d) \|$", re.MULTILINE)


def clicks() -> dict[Path, int]:
    """For each page, the fewest links that lead to it from the front page."""
    found = {DOCS / "index.md": 0}
    waiting = list(found)
    for page in waiting:
        if page.name == "questions.md":
            continue  # It would be a short cut.
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if target.exists() and target not in found:
                found[target] = found[page] + 1
                waiting.append(target)
    return found


def test_each_answer_is_as_many_clicks_away_as_the_page_says() -> None:
    rows = ROW.findall((DOCS / "questions.md").read_text(encoding="utf-8"))
    assert len(rows) == 20
    away = clicks()
    assert {page: int(count) for page, count in rows} == {
        page: away[(DOCS / page).resolve()] for page, _ in rows
    }
