"""Seeing where gradients flow."""

from __future__ import annotations

from stopgrad.flow.explain import assert_blocked, assert_flows, explain
from stopgrad.flow.model import Cut, Finding, Flow, GateUse, Reach, Story
from stopgrad.flow.nans import trace_nan
from stopgrad.flow.nans_report import NanInput, NanNote, NanSite, NanTrace

__all__ = [
    "Cut",
    "Finding",
    "Flow",
    "GateUse",
    "NanInput",
    "NanNote",
    "NanSite",
    "NanTrace",
    "Reach",
    "Story",
    "assert_blocked",
    "assert_flows",
    "explain",
    "trace_nan",
]
