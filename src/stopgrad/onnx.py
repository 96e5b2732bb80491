"""Loads, saves and trains ONNX models. See :mod:`stopgrad.interop.onnx`."""

from stopgrad.interop.onnx import *
