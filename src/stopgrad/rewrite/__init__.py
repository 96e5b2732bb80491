"""Rewrites: each builds a new graph and says where every operation went; none edits in place."""

from __future__ import annotations

from stopgrad.rewrite.engine import Rewritten, check_sizes, needed, rewrite
from stopgrad.rewrite.passes import erase_gates, fold, merge, prepare, simplify

__all__ = [
    "Rewritten",
    "check_sizes",
    "erase_gates",
    "fold",
    "merge",
    "needed",
    "prepare",
    "rewrite",
    "simplify",
]
