"""Seeing where gradients flow."""

from __future__ import annotations

from stopgrad.flow.explain import assert_blocked, assert_flows, explain
from stopgrad.flow.model import Cut, Finding, Flow, GateUse, Reach, Story

__all__ = [
    "Cut",
    "Finding",
    "Flow",
    "GateUse",
    "Reach",
    "Story",
    "assert_blocked",
    "assert_flows",
    "explain",
]
