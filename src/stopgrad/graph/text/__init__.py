"""Graphs as text and files."""

from __future__ import annotations

from stopgrad.graph.text import saved, text

__all__ = ["saved", "text"]
