"""The HTML page of a report, and what a notebook shows of it."""

from __future__ import annotations

from stopgrad.flow.page.html import page, write

__all__ = ["page", "write"]
