"""ONNX models as graphs of ours, and back.

Examples:
    >>> import stopgrad.onnx as sgo
    >>> sgo.load.__name__
    'load'
"""

from stopgrad.onnx.loading import load as load
