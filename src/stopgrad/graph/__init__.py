"""Graphs, how operations are defined and built, bodies, text and files; no mathematics, no engine."""
