"""stopgrad: graphs of typed operations whose gradients you can cut, see, check, run and ship.

>>> import stopgrad as sg
>>> sg.grad(lambda x: x * sg.stop_gradient(x))(3.0)
array(3., dtype=float32)
"""

from __future__ import annotations

from stopgrad import ops
from stopgrad.autodiff.reach import Cut, Reach
from stopgrad.autodiff.reverse import Gradients, gradients
from stopgrad.autodiff.transforms import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from stopgrad.errors import (
    DefinitionError,
    DTypeError,
    EngineError,
    FeedError,
    GradientError,
    GraphError,
    ShapeError,
    StopgradError,
)
from stopgrad.flow import Flow, assert_blocked, assert_flows, explain
from stopgrad.graph import Graph, Operand, Operation, Output, Scope, name_scope
from stopgrad.ops.arithmetic import *
from stopgrad.ops.compare import *
from stopgrad.ops.convert import *
from stopgrad.ops.data import *
from stopgrad.ops.elementwise import *
from stopgrad.ops.gates import *
from stopgrad.ops.linalg import *
from stopgrad.ops.reduce import *
from stopgrad.ops.shape import *
from stopgrad.ops.special import *
from stopgrad.session import Function, Session, function
from stopgrad.types import (
    Dim,
    DType,
    TensorType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    dim,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

bool = bool_
StopGradient = ops.StopGradient
__version__ = "0.1.0"
