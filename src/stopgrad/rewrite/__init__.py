"""Rewrites: each builds a new graph and says where every operation went; none edits in place."""

from __future__ import annotations

from stopgrad.rewrite.engine import Rewritten, needed, rewrite
from stopgrad.rewrite.passes import erase_gates, fold, merge, prepare, simplify

__all__ = ["Rewritten", "erase_gates", "fold", "merge", "needed", "prepare", "rewrite", "simplify"]
