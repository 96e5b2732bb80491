"""Namespaces of what exists, as other libraries have them: ``sg.fft``, ``sg.linalg``, ``sg.nn`` and others.

They take what the modules of a family export, so that a new operation is in them without being named here.
"""

from __future__ import annotations

from stopgrad.ops.namespaces import (
    fft as fft,
    linalg as linalg,
    losses as losses,
    nn as nn,
    random as random,
    tree as tree,
)
