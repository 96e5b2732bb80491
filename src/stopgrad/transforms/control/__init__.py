"""Operations that run bodies: branches, loops, and recomputation."""

from __future__ import annotations

from stopgrad.control.branches import cond, switch
from stopgrad.control.loops import fori_loop, while_loop
from stopgrad.control.recompute import checkpoint
from stopgrad.control.scans import map_fn, scan

__all__ = ["checkpoint", "cond", "fori_loop", "map_fn", "scan", "switch", "while_loop"]
