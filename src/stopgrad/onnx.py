"""Models of ONNX in and out. See :mod:`stopgrad.interop.onnx`."""

from stopgrad.interop.onnx import *
