"""Batches of examples. See :mod:`stopgrad.train.data`."""

from stopgrad.train.data import *
