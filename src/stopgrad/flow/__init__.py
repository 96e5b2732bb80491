"""Seeing where gradients flow."""

from __future__ import annotations

from stopgrad.flow.explain import Flow, GateUse, assert_blocked, assert_flows, explain

__all__ = ["Flow", "GateUse", "assert_blocked", "assert_flows", "explain"]
