"""Seeing where gradients flow."""

from __future__ import annotations

from stopgrad.flow.explain import Flow, GateUse, assert_blocked, assert_flows, explain
from stopgrad.flow.nans import trace_nan
from stopgrad.flow.nans_report import NanInput, NanNote, NanSite, NanTrace

__all__ = [
    "Flow",
    "GateUse",
    "NanInput",
    "NanNote",
    "NanSite",
    "NanTrace",
    "assert_blocked",
    "assert_flows",
    "explain",
    "trace_nan",
]
