"""Loads and saves TensorFlow's graphs, without TensorFlow: ``import stopgrad.tensorflow as sgtf``.

Examples:
    >>> import stopgrad.tensorflow as sgtf
    >>> sgtf.load.__name__
    'load'
"""

from __future__ import annotations

from stopgrad.interop.tensorflow.loading import load
from stopgrad.interop.tensorflow.saving import save, to_graph

__all__ = ["load", "save", "to_graph"]
