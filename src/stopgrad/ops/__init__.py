"""All operations: a class each, and its public function. One file per family.

The classes are attributes of this module by type (``sg.ops.MatMul``); the functions are also at the top level.
"""

from __future__ import annotations

from stopgrad.op import REGISTRY
from stopgrad.ops import (
    activations,
    arithmetic,
    compare,
    composite,
    convert,
    convolution,
    data,
    elementwise,
    gates,
    index,
    join,
    linalg,
    losses,
    pooling,
    random,
    recurrence,
    reduce,
    shape,
    slices,
    special,
)
from stopgrad.ops import operators as _operators  # noqa: F401 - gives outputs Python's operators
from stopgrad.ops.activations import *
from stopgrad.ops.arithmetic import *
from stopgrad.ops.compare import *
from stopgrad.ops.composite import *
from stopgrad.ops.convert import *
from stopgrad.ops.convolution import *
from stopgrad.ops.data import *
from stopgrad.ops.elementwise import *
from stopgrad.ops.gates import *
from stopgrad.ops.index import *
from stopgrad.ops.join import *
from stopgrad.ops.linalg import *
from stopgrad.ops.losses import *
from stopgrad.ops.pooling import *
from stopgrad.ops.random import *
from stopgrad.ops.recurrence import *
from stopgrad.ops.reduce import *
from stopgrad.ops.shape import *
from stopgrad.ops.slices import *
from stopgrad.ops.special import *

__all__ = []
__all__ += arithmetic.__all__
__all__ += elementwise.__all__
__all__ += special.__all__
__all__ += compare.__all__
__all__ += convert.__all__
__all__ += reduce.__all__
__all__ += shape.__all__
__all__ += slices.__all__
__all__ += join.__all__
__all__ += linalg.__all__
__all__ += data.__all__
__all__ += gates.__all__
__all__ += index.__all__
__all__ += activations.__all__
__all__ += composite.__all__
__all__ += losses.__all__
__all__ += random.__all__
__all__ += convolution.__all__
__all__ += pooling.__all__
__all__ += recurrence.__all__

globals().update(REGISTRY)
