"""What networks are made of, as ``tf.nn`` and ``jax.nn`` have it.

Activations, convolutions, pooling, normalisation, attention, dropout and losses.

Examples:
    >>> sg.nn.relu(np.array([-1.0, 2.0]))
    array([0., 2.])
"""

from __future__ import annotations

import typing

from stopgrad.ops.elementwise.composite import (
    layer_norm as layer_norm,
    log_softmax as log_softmax,
    softmax as softmax,
)
from stopgrad.ops.elementwise.trigonometric import tanh as tanh
from stopgrad.ops.indexing.gather import one_hot as one_hot
from stopgrad.ops.linalg.norms import l2_normalize as l2_normalize
from stopgrad.ops.losses.cross_entropy import *
from stopgrad.ops.losses.objectives import *
from stopgrad.ops.losses.ranking import *
from stopgrad.ops.namespaces.contents import public_in, reads
from stopgrad.ops.neural.activations import *
from stopgrad.ops.neural.attention import *
from stopgrad.ops.neural.convolution import *
from stopgrad.ops.neural.embedding import *
from stopgrad.ops.neural.filters import *
from stopgrad.ops.neural.normalization import *
from stopgrad.ops.neural.pools import *
from stopgrad.ops.neural.resize import *
from stopgrad.ops.neural.units import *
from stopgrad.ops.order.sorting import top_k as top_k
from stopgrad.ops.random.sampling import dropout as dropout

if not typing.TYPE_CHECKING:  # Type checkers see what is imported.
    __all__ = public_in(globals())
    __getattr__, __dir__ = reads("nn", __all__)
