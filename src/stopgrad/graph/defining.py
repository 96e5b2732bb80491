"""All that the definition of an operation needs, from many modules, in one module.

A file of operations, of this package or of yours, imports classes by name, which keeps signatures short, and
calls everything else through the module::

    from stopgrad.graph import defining as d
    from stopgrad.graph.defining import Op, Tensor, TensorType


    class Cube(Op):
        '''Elementwise cube.'''

        infer = d.same(d.is_inexact)
        gradient = {"x": lambda g, op: 3.0 * g * op.x * op.x}
        lower = lambda xp, x: x * x * x
        batch = d.ELEMENTWISE
        samples = d.singles()


    cube = d.unary(Cube, "cube")

``docs/add-an-operation.md`` explains a complete definition. Each name is documented in its own module.
"""

from __future__ import annotations

# In rows, so that the whole list fits on a screen.
# fmt: off
# isort: off

# Definitions: the base class and its families, gradient rules, kinds of attributes.
from stopgrad.graph.op import (
    Extremes, Gradient, Joint, Lowering, NoGradient, Op, Rule, Samples, Status, Undefined, Wire,
    not_differentiable, stopped, unconnected, unsupported,
)
from stopgrad.graph.kinds import Axes, Axis, Kind, Permutation, Scalar, Sizes, Span, Spans
from stopgrad.graph.families import (
    ALIKE, BY_ZERO, EXTREMES, INF, NAN, PAIRS, Arithmetic, Binary, Elementwise, GradientOfActivation,
    GradientOfElementwise, RealElementwise, Unary, axes_in, axis_in, binary, directly, flushed, unary,
)
from stopgrad.graph.traits import Cure, Magnitudes, Unsound
from stopgrad.base.promotion import Promotion
from stopgrad.graph.selective import Acting
from stopgrad.graph.body import Bodies, Body

# Rules of inference and the checks of which others are made.
from stopgrad.graph.type_rules import (
    DESCRIPTIONS, Infer, broadcast, broadcast_c2, broadcast_shapes, broadcast_to_bool, check_dtype,
    check_same_dtype, check_shape, documented, is_any, is_boolean, is_floating, is_for_each, is_inexact,
    is_integer, is_integral, is_number, is_real, normal_axes, normal_axis, same, same_shape, to_bool,
)
from stopgrad.graph.inferred import about, naming, raise_for, widened

# Batching: what ``vmap`` does.
from stopgrad.graph.batch_rules import (
    ALONG, BROADCAST, CONV, CONV_BACK_FILTER, CONV_BACK_INPUT, EINSUM, ELEMENTWISE, FOLD, GATHER, KEYS,
    MATMUL, NAMES, ONE_HOT, PAD, SCATTER, SOLVE, SWITCH, Flags, Outputs, Partly, again, along, everywhere,
)

# Samples, from which tests are made.
from stopgrad.base.samples import Values, bools, complexes, floats, ints, pairs, sample, singles

# Public functions, and how they build.
from stopgrad.graph.public import builds, call, guarded, publish, reads_arguments
from stopgrad.graph.build import (
    apply, as_output, building_in, check_name, close, coerce, constant_in, emit, graph_for, inline,
    joined, local, parameter_of, together, tracing,
)
from stopgrad.graph.builder import current, default_graph
from stopgrad.graph.scope import Scope, as_scope, require_graph
from stopgrad.base.coercion import flag, is_whole, real, whole
from stopgrad.base.structure import flatten, is_leaf, map_leaves, paths, shown, tensors_among, unflatten

# Tensors: operands, outputs, their types and sizes.
from stopgrad.base.arrays import Array, ArrayLike, Namespace
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.operands import (
    Literal, NumpyArray, Tensor, as_array, as_list, is_python, is_tensor, python_dtype, shorten, show_shape,
    type_of,
)
from stopgrad.base.types import (
    DTYPES, DType, DTypeLike, Dim, Shape, ShapeLike, Size, TensorType, at_least, bfloat16, bool_,
    complex64, complex128, dtype_of, exact_quotient, float16, float32, float64, int8, int16, int32, int64,
    product, same_size, shape_of, tensor_type, total, uint8, uint16, uint32, uint64,
)

# Errors.
from stopgrad.base.errors import (
    ArgumentError, AxisError, DTypeError, EngineError, GradientError, GraphError, ShapeError,
    StopgradError,
)

__all__ = [
    "ALIKE", "ALONG", "BROADCAST", "BY_ZERO", "CONV", "CONV_BACK_FILTER", "CONV_BACK_INPUT",
    "DESCRIPTIONS", "DTYPES", "EINSUM", "ELEMENTWISE", "EXTREMES", "FOLD", "GATHER", "INF", "KEYS",
    "MATMUL", "NAMES", "NAN", "ONE_HOT", "PAD", "PAIRS", "SCATTER", "SOLVE", "SWITCH", "Acting",
    "ArgumentError", "Arithmetic", "Array", "ArrayLike", "Axes", "Axis", "AxisError", "Binary", "Bodies",
    "Body", "Cure", "DType", "DTypeError", "DTypeLike", "Dim", "Elementwise", "EngineError", "Extremes",
    "Flags", "Gradient", "GradientError", "GradientOfActivation", "GradientOfElementwise", "Graph",
    "GraphError", "Infer", "Joint", "Kind", "Literal", "Lowering", "Magnitudes", "Namespace",
    "NoGradient", "NumpyArray", "Op", "Operation", "Output", "Outputs", "Partly", "Permutation",
    "Promotion", "RealElementwise", "Rule", "Samples", "Scalar", "Scope", "Shape", "ShapeError",
    "ShapeLike", "Size", "Sizes", "Span", "Spans", "Status", "StopgradError", "Tensor", "TensorType",
    "Unary", "Undefined", "Unsound", "Values", "Wire", "about", "again", "along", "apply", "as_array",
    "as_list", "as_output", "as_scope", "at_least", "axes_in", "axis_in", "bfloat16", "binary", "bool_",
    "bools", "broadcast", "broadcast_c2", "broadcast_shapes", "broadcast_to_bool", "building_in",
    "builds", "call", "check_dtype", "check_name", "check_same_dtype", "check_shape", "close", "coerce",
    "complex64", "complex128", "complexes", "constant_in", "current", "default_graph", "describe",
    "directly", "documented", "dtype_of", "emit", "everywhere", "exact_quotient", "flag", "flatten",
    "float16", "float32", "float64", "floats", "flushed", "graph_for", "guarded", "inline", "int8",
    "int16", "int32", "int64", "ints", "is_any", "is_boolean", "is_floating", "is_for_each",
    "is_inexact", "is_integer", "is_integral", "is_leaf", "is_number", "is_python", "is_real",
    "is_tensor", "is_whole", "joined", "local", "map_leaves", "naming", "normal_axes", "normal_axis",
    "not_differentiable", "pairs", "parameter_of", "paths", "product", "publish", "python_dtype",
    "raise_for", "reads_arguments", "real", "require_graph", "same", "same_shape", "same_size", "sample",
    "shape_of", "shorten", "show_shape", "shown", "singles", "stopped", "tensor_type", "tensors_among",
    "to_bool", "together", "total", "tracing", "type_of", "uint8", "uint16", "uint32", "uint64", "unary",
    "unconnected", "unflatten", "unsupported", "whole", "widened",
]
