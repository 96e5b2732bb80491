"""Processes that compute together. See :mod:`stopgrad.scale.distributed`."""

from stopgrad.scale.distributed import *
