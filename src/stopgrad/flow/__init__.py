"""Seeing where gradients flow."""

from __future__ import annotations

from stopgrad.flow.ablation.ablate import ablate
from stopgrad.flow.ablation.ablation import Ablation, Change, Stop, Suggestion
from stopgrad.flow.assertions import assert_blocked, assert_flows, assert_only_flows
from stopgrad.flow.checking.check import check_gradients
from stopgrad.flow.checking.gradient_check import Checked, GradientCheck
from stopgrad.flow.explain import explain
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.nans.nan_trace import NanInput, NanNote, NanSite, NanTrace
from stopgrad.flow.nans.trace import trace_nan
from stopgrad.flow.parts import Cut, Finding, GateUse, Reach, Story

__all__ = [
    "Ablation",
    "Change",
    "Checked",
    "Cut",
    "Finding",
    "Flow",
    "GateUse",
    "GradientCheck",
    "NanInput",
    "NanNote",
    "NanSite",
    "NanTrace",
    "Reach",
    "Stop",
    "Story",
    "Suggestion",
    "ablate",
    "assert_blocked",
    "assert_flows",
    "assert_only_flows",
    "check_gradients",
    "explain",
    "trace_nan",
]
