"""Operations that run bodies: branches, loops, and recomputation."""

from __future__ import annotations

from stopgrad.transforms.control.branches import cond, switch
from stopgrad.transforms.control.loops import fori_loop, while_loop
from stopgrad.transforms.control.recompute import checkpoint
from stopgrad.transforms.control.scans import map_fn, scan

__all__ = ["checkpoint", "cond", "fori_loop", "map_fn", "scan", "switch", "while_loop"]
