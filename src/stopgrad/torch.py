"""PyTorch code: watched, explained, imported. See :mod:`stopgrad.interop.torch`."""

from stopgrad.interop.torch import *
