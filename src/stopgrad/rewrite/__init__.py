"""Rewrites: each builds a new graph, and maps the old outputs to new ones. None edits in place."""

from __future__ import annotations

from stopgrad.rewrite.engine import Pass, Rewritten, Rule, check_sizes, rewrite
from stopgrad.rewrite.passes import Forming, erase_gates, fold, formed, merge, prepare, simplify

__all__ = [
    "Forming",
    "Pass",
    "Rewritten",
    "Rule",
    "check_sizes",
    "erase_gates",
    "fold",
    "formed",
    "merge",
    "prepare",
    "rewrite",
    "simplify",
]
