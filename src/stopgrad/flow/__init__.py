"""Seeing where gradients flow."""

from __future__ import annotations

from stopgrad.flow.assertions import assert_blocked, assert_flows, assert_only_flows
from stopgrad.flow.explain import explain
from stopgrad.flow.model import Cut, Finding, GateUse, Reach, Story
from stopgrad.flow.report import Flow

__all__ = [
    "Cut",
    "Finding",
    "Flow",
    "GateUse",
    "Reach",
    "Story",
    "assert_blocked",
    "assert_flows",
    "assert_only_flows",
    "explain",
]
