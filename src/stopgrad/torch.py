"""For PyTorch: watch, explain and load its code. See :mod:`stopgrad.interop.torch`."""

from stopgrad.interop.torch import *
