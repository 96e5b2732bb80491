"""Optimisers. See :mod:`stopgrad.train.optimizers`."""

from stopgrad.train.optimizers import *
