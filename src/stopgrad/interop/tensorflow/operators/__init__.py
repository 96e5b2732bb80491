"""Rules for TensorFlow's operations, one file for each family; here their tables are one."""

from __future__ import annotations

from stopgrad.interop.tensorflow.operators.calling import Table

OPERATORS: Table = {}
