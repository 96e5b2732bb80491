"""The pages of the documentation, and the code that they show."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r"`([\w/]+\.py)`(?:: (?:the class )?`(\w+)`)?")
"""A file that a page names, and what it says is defined there."""


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code, or of what it prints, of a page."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def pages() -> list[Path]:
    """All pages; what the site is built into, in folders with an underscore, has none."""
    return [page for page in DOCS.rglob("*.md") if not page.relative_to(DOCS).parts[0].startswith("_")]
