"""Loads and saves TensorFlow's graphs. See :mod:`stopgrad.interop.tensorflow`."""

from stopgrad.interop.tensorflow import *
