"""stopgrad: graphs of typed operations whose gradients you can cut, see, check, run and ship.

>>> import stopgrad as sg
>>> sg.grad(lambda x: x * sg.stop_gradient(x))(3.0)
array(3., dtype=float32)
"""

from __future__ import annotations

from stopgrad import interchange as _interchange  # noqa: F401 - gives graphs their text and file forms
from stopgrad import ops
from stopgrad.autodiff.reach import Cut, Reach
from stopgrad.autodiff.reverse import Gradients, gradients
from stopgrad.autodiff.transforms import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from stopgrad.errors import (
    ArgumentError,
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
from stopgrad.ops import *
from stopgrad.ops.gates import StopGradient
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
__version__ = "0.1.0"

__all__ = [
    "ArgumentError", "Cut", "DType", "DTypeError", "DefinitionError", "Dim", "EngineError", "FeedError", "Flow", "Function", "GradientError",
    "Gradients", "Graph", "GraphError", "Operand", "Operation", "Output", "Reach", "Scope", "Session", "ShapeError", "StopGradient",
    "StopgradError", "TensorType", "assert_blocked", "assert_flows", "bfloat16", "bool", "bool_", "complex64", "complex128", "dim",
    "explain", "float16", "float32", "float64", "function", "grad", "gradients", "hessian", "hvp", "int8", "int16", "int32", "int64",
    "jacobian", "jvp", "name_scope", "ops", "uint8", "uint16", "uint32", "uint64", "value_and_grad", "vjp",
]  # fmt: skip
__all__ += ops.__all__
