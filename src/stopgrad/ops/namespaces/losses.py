"""Losses, as ``tf.losses``, ``optax.losses`` and ``torch.nn.functional`` have them.

Examples:
    >>> sg.losses.huber(np.array([0.0, 0.0]), np.array([0.5, 3.0]))
    array(1.3125)
"""

from __future__ import annotations

import typing

from stopgrad.ops.losses.cross_entropy import *
from stopgrad.ops.losses.objectives import *
from stopgrad.ops.losses.ranking import *
from stopgrad.ops.namespaces.contents import public_in, reads

if not typing.TYPE_CHECKING:  # Type checkers see what is imported.
    __all__ = public_in(globals())
    __getattr__, __dir__ = reads("losses", __all__)
