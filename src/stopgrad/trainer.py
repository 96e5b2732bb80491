"""Runs training graphs on a stock ONNX Runtime. See :mod:`stopgrad.interop.trainer`."""

from stopgrad.interop.trainer import *
