"""Graphs in and out."""

from __future__ import annotations

from stopgrad.interchange import text

__all__ = ["text"]
