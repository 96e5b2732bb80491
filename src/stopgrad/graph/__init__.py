"""Graphs; how operations are defined and built; bodies, text and files. No mathematics and no engines."""
