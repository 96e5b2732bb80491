"""Monitors: while a model is trained, they tell when the verdict on a parameter's gradient changes.

The core knows of no framework: verdicts go in, changes come out and are handed to sinks.
"""
