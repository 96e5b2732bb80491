"""Bad input: each gets a clear error that names the operation, the user's line and the cure; nothing changes.

Two tables: what is refused, and what looks odd but must work.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import each_engine, form_for
from bad_input import Bad, Setting, bad, inside, lines_of, refused

import stopgrad as sg
from stopgrad.base.namespaces import NUMPY
from stopgrad.engines import registry

HERE = __file__


def closed(s: Setting) -> sg.Session:
    session = sg.Session(s.graph, engine="numpy")
    session.close()
    return session


ARRAY = np.ones(3, np.float32)

BUILDING = [
    # operands
    bad(
        "add two shapes",
        lambda s: s.v + s.u,
        sg.ShapeError,
        "AddV2",
        "(C2)",
        "[3]",
        "[4]",
        "neither is 1",
        blames="v u",
    ),
    bad("add two graphs", lambda s: s.v + s.a, sg.GraphError, "AddV2", "two graphs", "feed", blames="v a"),
    bad(
        "array of wrong shape on the left",
        lambda s: np.ones(5, np.float32) * s.v,
        sg.ShapeError,
        "Mul",
        "[5]",
        "[3]",
        blames="v",
    ),
    bad(
        "list of wrong length",
        lambda s: sg.add(s.v, [1.0, 2.0]),
        sg.ShapeError,
        "AddV2",
        "[3]",
        "[2]",
        blames="v",
    ),
    bad("a string", lambda s: s.v + "one", sg.DTypeError, "AddV2", "'one'", "text, not numbers"),
    bad("None", lambda s: s.v * None, sg.DTypeError, "Mul", "None", "numbers"),
    bad(
        "an object array",
        lambda s: s.v + np.array([object()] * 3),
        sg.DTypeError,
        "AddV2",
        "Python objects, not numbers",
    ),
    bad(
        "a ragged list",
        lambda s: sg.add(s.v, [[1.0], [1.0, 2.0]]),
        sg.DTypeError,
        "AddV2",
        "differ in length",
    ),
    bad("a dict", lambda s: sg.exp({"a": s.v}), sg.DTypeError, "Exp", "'a'", "not numbers"),
    bad("a function", inside(lambda s: sg.exp(np.exp)), sg.DTypeError, "Exp", "ufunc", "not numbers"),
    bad("an int that overflows", lambda s: s.small + 1000, sg.DTypeError, "AddV2", "1000", "int8"),
    bad("a huge int", lambda s: s.i + 2**70, sg.DTypeError, "AddV2", "int32", str(2**70)[:20]),
    bad("negative of booleans", lambda s: -s.b, sg.DTypeError, "Neg", "numbers", blames="b"),
    bad("floor of complex", lambda s: sg.floor(s.z), sg.DTypeError, "Floor", "real numbers", blames="z"),
    bad("less of complex", lambda s: s.z < s.z, sg.DTypeError, "Less", "real", blames="z"),
    bad("maximum of complex", lambda s: sg.maximum(s.z, s.z), sg.DTypeError, "Maximum", "real", blames="z"),
    bad(
        "logical and of floats",
        lambda s: sg.logical_and(s.v, s.v),
        sg.DTypeError,
        "LogicalAnd",
        "booleans",
        blames="v",
    ),
    bad(
        "bits of floats", lambda s: s.v & s.v, sg.DTypeError, "BitwiseAnd", "integers or booleans", blames="v"
    ),
    bad("shift by floats", lambda s: s.i << s.v, sg.DTypeError, "LeftShift", "integers", blames="i v"),
    bad(
        "where without booleans",
        lambda s: sg.where(s.v, s.v, s.v),
        sg.DTypeError,
        "SelectV2",
        "condition must be bool",
        "float32",
        "x != 0",
        blames="v",
    ),
    bad(
        "where of two shapes",
        lambda s: sg.where(s.b, s.u, 0.0),
        sg.ShapeError,
        "SelectV2",
        "[3]",
        "[4]",
        blames="b u",
    ),
    bad(
        "complex of half floats",
        lambda s: sg.complex(s.half, 1.0),
        sg.DTypeError,
        "Complex",
        "float32 or float64",
    ),
    bad("add_n of nothing", lambda s: sg.add_n([]), sg.ArgumentError, "AddN", "at least one", "sg.zeros"),
    bad(
        "add_n of two shapes",
        lambda s: sg.add_n([s.v, s.u]),
        sg.ShapeError,
        "AddN",
        "[3]",
        "[4]",
        blames="v u",
    ),
    bad(
        "polygamma of order -1",
        lambda s: sg.polygamma(-1, s.v),
        sg.ArgumentError,
        "Polygamma",
        "at least 0",
        "-1",
    ),
    bad(
        "polygamma of a float order",
        lambda s: sg.polygamma(1.5, s.v),
        sg.ArgumentError,
        "Polygamma",
        "integer",
        "1.5",
    ),
    # products
    bad(
        "matmul of inner sizes", lambda s: s.m @ s.k, sg.ShapeError, "MatMul", "(C2)", "3", "4", blames="m k"
    ),
    bad(
        "matmul of a scalar", lambda s: sg.matmul(s.s, s.m), sg.ShapeError, "MatMul", "two axes", blames="s m"
    ),
    bad("matmul of vectors", lambda s: sg.matmul(s.v, s.u), sg.ShapeError, "MatMul", "3", "4"),
    bad("matmul with a wrong vector", lambda s: s.m @ s.u, sg.ShapeError, "MatMul", "3", "4"),
    # shapes
    bad(
        "reshape to another count",
        lambda s: sg.reshape(s.m, [4]),
        sg.ShapeError,
        "Reshape",
        "(C1)",
        "6",
        "4",
        blames="m",
    ),
    bad(
        "reshape with two unknowns",
        lambda s: sg.reshape(s.m, [-1, -1]),
        sg.ShapeError,
        "Reshape",
        "-1 once",
        blames="m",
    ),
    bad(
        "reshape to a negative size",
        lambda s: sg.reshape(s.m, [-2, 3]),
        sg.ShapeError,
        "Reshape",
        "negative",
        blames="m",
    ),
    bad(
        "reshape to a float size",
        lambda s: sg.reshape(s.m, [2.5, 2.4]),
        sg.ShapeError,
        "Reshape",
        "2.5",
        "no size",
    ),
    bad(
        "reshape with -1 that does not fit",
        lambda s: sg.reshape(s.m, [4, -1]),
        sg.ShapeError,
        "Reshape",
        "6",
        blames="m",
    ),
    bad("reshape to a tensor", lambda s: sg.reshape(s.m, s.i), sg.ShapeError, "Reshape", "no size"),
    bad(
        "transpose by no order",
        lambda s: sg.transpose(s.m, [0, 0]),
        sg.ShapeError,
        "Transpose",
        "(C1)",
        "(0, 0)",
        blames="m",
    ),
    bad(
        "transpose by strings",
        lambda s: sg.transpose(s.m, ["a", "b"]),
        sg.ArgumentError,
        "Transpose",
        "integer",
    ),
    bad(
        "transpose by too few axes",
        lambda s: sg.transpose(s.m, [0]),
        sg.ShapeError,
        "Transpose",
        "2 axes",
        blames="m",
    ),
    bad(
        "broadcast to another shape",
        lambda s: sg.broadcast_to(s.v, [2, 4]),
        sg.ShapeError,
        "BroadcastTo",
        "[2, 4]",
        blames="v",
    ),
    bad(
        "expand_dims out of range",
        lambda s: sg.expand_dims(s.v, 5),
        sg.AxisError,
        "expand_dims",
        "axis 5",
        "2 dimensions",
    ),
    bad("squeeze a larger axis", lambda s: sg.squeeze(s.m, 0), sg.ShapeError, "size 1", blames="m"),
    bad("squeeze out of range", lambda s: sg.squeeze(s.m, 7), sg.AxisError, "squeeze", "axis 7"),
    bad("concat of nothing", lambda s: sg.concat([], 0), sg.ShapeError, "ConcatV2", "at least one"),
    bad(
        "concat of other sizes",
        lambda s: sg.concat([s.m, s.k], 0),
        sg.ShapeError,
        "ConcatV2",
        "(C3)",
        "[2, 3]",
        "[4, 5]",
        blames="m k",
    ),
    bad(
        "concat out of range",
        lambda s: sg.concat([s.v, s.v], 1),
        sg.AxisError,
        "ConcatV2",
        "axis 1",
        "1 dimension",
        blames="v",
    ),
    bad(
        "concat of one tensor that is no list",
        lambda s: sg.concat(s.v, 0),
        sg.ArgumentError,
        "ConcatV2",
        "list",
    ),
    bad(
        "stack of other shapes",
        lambda s: sg.stack([s.v, s.u]),
        sg.ShapeError,
        "Pack",
        "(C3)",
        "[3]",
        "[4]",
        blames="v u",
    ),
    bad("stack of nothing", lambda s: sg.stack([]), sg.ShapeError, "Pack", "at least one"),
    bad(
        "stack of two graphs",
        lambda s: sg.stack([s.v, s.a]),
        sg.GraphError,
        "Pack",
        "two graphs",
        blames="v a",
    ),
    bad(
        "split unevenly", lambda s: sg.split(s.u, 3), sg.ShapeError, "Split", "4", "3 equal parts", blames="u"
    ),
    bad(
        "split to wrong sizes",
        lambda s: sg.split(s.u, [1, 1]),
        sg.ShapeError,
        "Split",
        "(C2)",
        "2",
        "4",
        blames="u",
    ),
    bad("split into none", lambda s: sg.split(s.u, 0), sg.ShapeError, "Split", "0 equal parts", blames="u"),
    bad("split out of range", lambda s: sg.split(s.u, 2, axis=1), sg.AxisError, "Split", "axis 1"),
    bad("unstack a symbolic axis", lambda s: sg.unstack(s.x), sg.ShapeError, "unstack", "n", "num="),
    bad(
        "pad with too few axes",
        lambda s: sg.pad(s.m, [[1, 1]]),
        sg.ShapeError,
        "PadV2",
        "(C2)",
        "per axis",
        blames="m",
    ),
    bad(
        "pad with negative sizes", lambda s: sg.pad(s.v, [[-1, 0]]), sg.ShapeError, "PadV2", "-1", "negative"
    ),
    bad(
        "pad in an unknown mode",
        lambda s: sg.pad(s.v, [[1, 1]], mode="WRAP"),
        sg.ArgumentError,
        "PadV2",
        "'WRAP'",
        "REFLECT",
    ),
    bad(
        "reflect too far",
        lambda s: sg.pad(s.v, [[3, 0]], mode="REFLECT"),
        sg.ShapeError,
        "PadV2",
        "REFLECT",
        "size 3",
        blames="v",
    ),
    bad(
        "reflect too many axes",
        lambda s: sg.pad(s.v, [[1, 0], [1, 0]], mode="REFLECT"),
        sg.ShapeError,
        "PadV2",
        "per axis",
    ),
    bad(
        "pad with another dtype",
        lambda s: sg.pad(s.v, [[1, 1]], constant_values=s.start),
        sg.DTypeError,
        "PadV2",
        "float64",
    ),
    bad(
        "tile with too few multiples",
        lambda s: sg.tile(s.m, [2]),
        sg.ShapeError,
        "Tile",
        "(C1)",
        "2 axes",
        blames="m",
    ),
    bad("reverse out of range", lambda s: sg.reverse(s.v, [1]), sg.AxisError, "ReverseV2", "axis 1"),
    # indices
    bad(
        "index out of range", lambda s: s.v[3], sg.ShapeError, "StridedSlice", "index 3", "size 3", blames="v"
    ),
    bad(
        "too many indices",
        lambda s: s.v[0, 0],
        sg.ShapeError,
        "StridedSlice",
        "2 indices",
        "1 ax",
        blames="v",
    ),
    bad("index by a float", lambda s: s.v[1.0], sg.ShapeError, "StridedSlice", "1.0", "integers", blames="v"),
    bad(
        "index by a boolean mask",
        lambda s: s.v[s.mask],
        sg.ShapeError,
        "StridedSlice",
        "boolean_mask(x, mask, size=",
        "sg.where",
    ),
    bad("index by a string", lambda s: s.v["a"], sg.ShapeError, "StridedSlice", "'a'", blames="v"),
    bad("index by a list", lambda s: s.v[[0, 3]], sg.ShapeError, "StridedSlice", "index 3", blames="v"),
    bad("index by floats", lambda s: s.v[s.v], sg.DTypeError, "StridedSlice", "sg.cast", blames="v"),
    bad("slice with step 0", lambda s: s.v[::0], sg.ShapeError, "StridedSlice", "step", "0", blames="v"),
    bad("slice by floats", lambda s: s.v[0.5:], sg.ShapeError, "StridedSlice", "0.5", blames="v"),
    bad("two ellipses", lambda s: s.m[..., ...], sg.ShapeError, "StridedSlice", "Ellipsis", blames="m"),
    bad("gather by floats", lambda s: sg.gather(s.v, s.v), sg.DTypeError, "GatherV2", "integers", blames="v"),
    bad(
        "gather out of axes",
        lambda s: sg.gather(s.v, s.i, axis=1),
        sg.AxisError,
        "GatherV2",
        "axis 1",
        blames="v i",
    ),
    bad("one_hot of floats", lambda s: sg.one_hot(s.v, 3), sg.DTypeError, "OneHot", "integers", blames="v"),
    bad(
        "one_hot of negative depth", lambda s: sg.one_hot(s.i, -1), sg.ShapeError, "OneHot", "-1", "negative"
    ),
    bad("top_k of too many", lambda s: sg.top_k(s.v, 4), sg.ShapeError, "TopKV2", "4", blames="v"),
    bad(
        "sort in no direction",
        lambda s: sg.sort(s.v, direction="UP"),
        sg.ArgumentError,
        "Sort",
        "'UP'",
        "ASCENDING",
    ),
    bad("sort of complex", lambda s: sg.sort(s.z), sg.DTypeError, "Sort", "real", blames="z"),
    bad("range by 0", inside(lambda s: sg.range(0, 3, 0)), sg.ShapeError, "Range", "delta", "0"),
    bad("range of a tensor", lambda s: sg.range(s.s), sg.ShapeError, "Range", "s:0", "sizes"),
    # reductions
    bad(
        "reduce over no such axis",
        lambda s: sg.reduce_sum(s.m, axis=2),
        sg.AxisError,
        "Sum",
        "axis 2",
        "2 dimensions",
    ),
    bad(
        "reduce over an axis twice",
        lambda s: sg.reduce_mean(s.m, axis=(0, -2)),
        sg.ShapeError,
        "Mean",
        "twice",
    ),
    bad(
        "reduce over a float axis",
        lambda s: sg.reduce_max(s.m, axis=0.5),
        sg.ShapeError,
        "Max",
        "0.5",
        "integer",
    ),
    bad(
        "sum of booleans",
        lambda s: sg.reduce_sum(s.b),
        sg.DTypeError,
        "Sum",
        "numbers",
        "sg.cast",
        blames="b",
    ),
    bad("all of floats", lambda s: sg.reduce_all(s.v), sg.DTypeError, "All", "booleans", blames="v"),
    bad("argmax over no such axis", lambda s: sg.argmax(s.v, axis=1), sg.AxisError, "ArgMax", "axis 1"),
    bad(
        "argmax over nothing",
        lambda s: sg.argmax(s.none),
        sg.ShapeError,
        "ArgMax",
        "no elements",
        blames="none",
    ),
    bad("cumsum over no such axis", lambda s: sg.cumsum(s.v, axis=-2), sg.AxisError, "Cumsum", "axis -2"),
    # dtypes, names, sizes
    bad("cast to no dtype", lambda s: sg.cast(s.v, "float8"), sg.DTypeError, "Cast", "'float8'", "float32"),
    bad(
        "placeholder of no dtype",
        inside(lambda s: sg.placeholder("string")),
        sg.DTypeError,
        "Placeholder",
        "'string'",
        "float32",
    ),
    bad(
        "placeholder of negative size",
        inside(lambda s: sg.placeholder(sg.float32, [-1])),
        sg.ShapeError,
        "Placeholder",
        "negative",
        "None",
    ),
    bad(
        "placeholder of a float size",
        inside(lambda s: sg.placeholder(sg.float32, [1.5])),
        sg.ShapeError,
        "Placeholder",
        "1.5",
        "no size",
    ),
    bad(
        "placeholder of a bad size name",
        inside(lambda s: sg.placeholder(sg.float32, ["batch size"])),
        sg.ShapeError,
        "Placeholder",
        "'batch size'",
        "identifier",
    ),
    bad(
        "placeholder of a keyword as a size",
        inside(lambda s: sg.placeholder(sg.float32, ["lambda"])),
        sg.ShapeError,
        "Placeholder",
        "'lambda'",
    ),
    bad(
        "placeholder of a bad name",
        inside(lambda s: sg.placeholder(sg.float32, name="my input")),
        sg.GraphError,
        "Placeholder",
        "'my input'",
        "letter",
    ),
    bad(
        "an operation of an empty part",
        inside(lambda s: sg.exp(s.v, name="/x")),
        sg.GraphError,
        "Exp",
        "'/x'",
        "letter",
    ),
    bad(
        "an operation's name that is no string",
        inside(lambda s: sg.exp(s.v, name=3)),
        sg.GraphError,
        "Exp",
        "3",
        "letter",
    ),
    bad(
        "a scope's name with a space",
        inside(lambda s: sg.name_scope("a b")),
        sg.GraphError,
        "'a b'",
        "letter",
    ),
    bad(
        "a placeholder without a graph",
        lambda s: sg.placeholder(sg.float32),
        sg.GraphError,
        "placeholder",
        "with graph.as_default()",
    ),
    bad(
        "a parameter without a graph",
        lambda s: sg.parameter(1.0),
        sg.GraphError,
        "parameter",
        "with graph.as_default()",
    ),
    bad(
        "a scope without a graph",
        lambda s: sg.name_scope("a"),
        sg.GraphError,
        "name_scope",
        "with graph.as_default()",
    ),
    bad("create without a scope", lambda s: sg.ops.Exp.create(s.v), sg.GraphError, "Exp.create", "Scope"),
    bad(
        "an unknown operation",
        lambda s: s.graph.operation_or_raise("doubld"),
        sg.GraphError,
        "'doubld'",
        "'doubled'",
    ),
    bad(
        "an unknown output",
        lambda s: s.graph.output("doubled:1"),
        sg.GraphError,
        "'doubled:1'",
        "outputs 0",
        blames="doubled",
    ),
    bad(
        "constant of a tensor",
        inside(lambda s: sg.constant(s.v)),
        sg.GraphError,
        "Const",
        "use it as it is",
        blames="v",
    ),
    bad("constant of a string", inside(lambda s: sg.constant("a")), sg.DTypeError, "Const", "'a'", "numbers"),
    bad(
        "constant that does not fit",
        inside(lambda s: sg.constant(300, sg.uint8)),
        sg.DTypeError,
        "Const",
        "300",
        "uint8",
    ),
    bad(
        "constant of another shape",
        inside(lambda s: sg.constant([1.0, 2.0], shape=[3])),
        sg.ShapeError,
        "Const",
        "[2]",
        "[3]",
    ),
    bad(
        "constant of a symbolic shape",
        inside(lambda s: sg.constant(1.0, shape=["n"])),
        sg.ShapeError,
        "Const",
        "n",
        "sg.full",
    ),
    bad("parameter of None", inside(lambda s: sg.parameter(None)), sg.DTypeError, "Parameter", "None"),
    bad(
        "parameter of a tensor",
        inside(lambda s: sg.parameter(s.v)),
        sg.GraphError,
        "Parameter",
        "array",
        blames="v",
    ),
    bad("fill with a vector", lambda s: sg.fill([2], s.v), sg.ShapeError, "Fill", "scalar", blames="v"),
    bad("zeros of negative size", inside(lambda s: sg.zeros([-2])), sg.ShapeError, "Fill", "negative"),
    bad("a size as a number", lambda s: int(s.x.shape[0]), sg.ShapeError, "n", "fed", "sg.size"),
    bad("a range over a size", lambda s: list(range(s.x.shape[0])), sg.ShapeError, "n", "fed", "sg.size"),
    bad("a size as an array's shape", lambda s: np.zeros(s.x.shape), sg.ShapeError, "n", "fed"),
    bad("a size modulo text", lambda s: s.x.shape[0] + "a", sg.ArgumentError, "'a'", "whole numbers"),
    bad("a size's name that is no string", lambda s: sg.dim(3), sg.ShapeError, "3", "identifier"),
    bad("ones like text", lambda s: sg.ones_like("text"), sg.DTypeError, "Fill", "'text'", "not numbers"),
    bad(
        "full of text", inside(lambda s: sg.full([2], "text")), sg.DTypeError, "full", "'text'", "not numbers"
    ),
    bad("a size and a float", lambda s: s.x.shape[0] * 1.5, sg.ShapeError, "1.5", "sg.size"),
    bad("size of no such axis", lambda s: sg.size(s.x, axis=4), sg.AxisError, "Size", "axis 4"),
    bad(
        "immediate with a symbolic size",
        lambda s: sg.zeros(["n"]),
        sg.ShapeError,
        "number",
        "with graph.as_default()",
    ),
    # outputs as values
    bad(
        "a tensor as a condition",
        lambda s: 1 if s.mask else 0,
        sg.GraphError,
        "truth value",
        "Session.run",
        "sg.where",
    ),
    bad("a tensor as an int", lambda s: int(s.s), sg.GraphError, "integer value", "Session.run", blames="s"),
    bad(
        "a tensor as a float",
        lambda s: float(s.s),
        sg.GraphError,
        "floating-point value",
        "Session.run",
        blames="s",
    ),
    bad("a tensor as a complex number", lambda s: complex(s.s), sg.GraphError, "Session.run", blames="s"),
    bad("a tensor as an array", lambda s: np.asarray(s.v), sg.GraphError, "array", "Session.run", blames="v"),
    bad("iterating over a scalar", lambda s: list(s.s), sg.ArgumentError, "0-dimensional", blames="s"),
    bad(
        "iterating over a symbolic axis",
        lambda s: list(s.x),
        sg.ShapeError,
        "size n of its first axis",
        "fed",
        blames="x",
    ),
    bad("in", lambda s: 1.0 in s.v, sg.GraphError, "sg.equal", blames="v"),
    bad(
        "an operation of two outputs as one",
        lambda s: s.graph.output("halves"),
        sg.GraphError,
        "'halves'",
        "2 outputs",
        ".output(i)",
    ),
]

GRADIENTS = [
    bad(
        "gradients of nothing",
        lambda s: sg.gradients([], [s.v]),
        sg.GradientError,
        "gradients",
        "ys is empty",
    ),
    bad(
        "gradients of a number",
        lambda s: sg.gradients(1.0, [s.v]),
        sg.GraphError,
        "gradients",
        "ys",
        "1.0",
        "sg.grad",
    ),
    bad(
        "gradients towards an array",
        lambda s: sg.gradients(s.loss, [ARRAY]),
        sg.GraphError,
        "gradients",
        "xs",
        "sg.grad",
    ),
    bad(
        "gradients across graphs",
        lambda s: sg.gradients(s.loss, [s.a]),
        sg.GraphError,
        "gradients",
        "two graphs",
        blames="loss a",
    ),
    bad(
        "gradients with stops of another graph",
        lambda s: sg.gradients(s.loss, [s.v], stop_gradients=[s.a]),
        sg.GraphError,
        "two graphs",
        blames="a",
    ),
    bad(
        "too many seeds",
        lambda s: sg.gradients(s.loss, [s.v], grad_ys=[1.0, 2.0]),
        sg.GradientError,
        "2 grad_ys for 1 ys",
    ),
    bad(
        "a seed of another shape",
        lambda s: sg.gradients(s.doubled, [s.v], grad_ys=[s.u]),
        sg.ShapeError,
        "cotangent",
        "[4]",
        blames="doubled",
    ),
    bad(
        "a seed of another dtype",
        lambda s: sg.gradients(s.doubled, [s.v], grad_ys=[s.d]),
        sg.DTypeError,
        "cotangent",
        "float64",
        "sg.cast",
        blames="doubled",
    ),
    bad(
        "a seed of another graph",
        lambda s: sg.gradients(s.doubled, [s.v], grad_ys=[s.a]),
        sg.GraphError,
        "another graph",
        blames="doubled a",
    ),
    bad(
        "a seed that is no number",
        lambda s: sg.gradients(s.loss, [s.v], grad_ys=["one"]),
        sg.DTypeError,
        "gradients",
        "cotangent",
        "one",
    ),
    bad(
        "a ragged seed",
        lambda s: sg.gradients(s.doubled, [s.v], grad_ys=[[1.0, [2.0]]]),
        sg.DTypeError,
        "gradients",
        "cotangent",
    ),
    bad(
        "a complex loss without a seed",
        lambda s: sg.gradients(s.z, [s.z]),
        sg.DTypeError,
        "complex",
        "grad_ys",
        "sg.real",
        blames="z",
    ),
    bad(
        "no such unconnected_gradients",
        lambda s: sg.gradients(s.loss, [s.v], unconnected_gradients="zeros"),
        sg.GradientError,
        "'none' or 'zero'",
        "'zeros'",
    ),
    bad(
        "a bad gradient scope",
        lambda s: sg.gradients(s.loss, [s.v], name="my grads"),
        sg.GraphError,
        "gradients",
        "'my grads'",
        "letter",
    ),
    bad(
        "a prevented gradient",
        lambda s: sg.gradients(s.barred, [s.v]),
        sg.GradientError,
        "PreventGradient",
        "use the other loss",
        blames="barred",
    ),
    bad(
        "a gradient in a closed past",
        lambda s: sg.Gradients.create(s.v, s.loss, [s.v]),
        sg.GraphError,
        "Gradients.create",
        "Scope",
    ),
    bad("explain nothing", lambda s: sg.explain([], [s.v]), sg.GradientError, "explain", "ys is empty"),
    bad(
        "explain across graphs",
        lambda s: sg.explain(s.loss, [s.a]),
        sg.GraphError,
        "explain",
        "two graphs",
        blames="loss a",
    ),
    bad("explain arrays", lambda s: sg.explain(s.loss, [ARRAY]), sg.GraphError, "explain", "outputs"),
    bad(
        "trace a NaN to nothing",
        lambda s: sg.trace_nan([], [s.v]),
        sg.GradientError,
        "trace_nan",
        "ys is empty",
    ),
    bad(
        "trace a NaN across graphs",
        lambda s: sg.trace_nan(s.loss, [s.a]),
        sg.GraphError,
        "trace_nan",
        "two graphs",
        blames="loss a",
    ),
    bad(
        "trace a NaN without values",
        lambda s: sg.trace_nan(s.loss, [s.v]),
        sg.FeedError,
        "trace_nan",
        "must be fed",
    ),
    bad(
        "trace a NaN with feeds for nothing",
        lambda s: sg.trace_nan(s.loss, [s.v], feed_dict={1: 2.0}),
        sg.GraphError,
        "trace_nan",
        "no output, operation or name",
    ),
    bad(
        "trace a NaN with values that are no dict",
        lambda s: sg.trace_nan(s.loss, [s.v], feed_dict=[1.0]),
        sg.FeedError,
        "trace_nan",
        "feed_dict is a dict",
    ),
    bad(
        "trace a NaN with a wrong session",
        lambda s: sg.trace_nan(s.loss, [s.v], session="numpy"),
        sg.ArgumentError,
        "trace_nan",
        "session is a Session",
    ),
    bad("explain without xs", lambda s: sg.explain(s.loss), sg.GraphError, "explain", "ys and xs"),
    bad(
        "check nothing",
        lambda s: sg.check_gradients([], [s.v]),
        sg.GradientError,
        "check_gradients",
        "ys is empty",
    ),
    bad(
        "check gradients across graphs",
        lambda s: sg.check_gradients(s.loss, [s.a]),
        sg.GraphError,
        "check_gradients",
        "two graphs",
        blames="loss a",
    ),
    bad(
        "check gradients without values",
        lambda s: sg.check_gradients(s.loss, [s.v]),
        sg.FeedError,
        "check_gradients",
        "must be fed",
    ),
    bad(
        "check gradients with feeds for nothing",
        lambda s: sg.check_gradients(s.loss, [s.v], feed_dict={1: 2.0}),
        sg.GraphError,
        "check_gradients",
        "no output, operation or name",
    ),
    bad(
        "check gradients with values that are no dict",
        lambda s: sg.check_gradients(s.loss, [s.v], feed_dict=[1.0]),
        sg.FeedError,
        "check_gradients",
        "feed_dict is a dict",
    ),
    bad(
        "check third derivatives",
        lambda s: sg.check_gradients(s.loss, [s.v], order=3),
        sg.ArgumentError,
        "check_gradients",
        "order is 1 or 2",
    ),
    bad("ablate nothing", lambda s: sg.ablate([], [s.v]), sg.GradientError, "ablate", "ys is empty"),
    bad("ablate arrays", lambda s: sg.ablate(s.loss, [ARRAY]), sg.GraphError, "ablate", "outputs"),
    bad(
        "ablate across graphs",
        lambda s: sg.ablate(s.loss, [s.a]),
        sg.GraphError,
        "ablate",
        "two graphs",
        blames="loss a",
    ),
    bad(
        "ablate without data",
        lambda s: sg.ablate(s.loss, [s.v], repeats=0),
        sg.FeedError,
        "must be fed",
        blames="v",
    ),
    bad(
        "ablate what has no gradient",
        lambda s: sg.ablate(s.barred, [s.v], feed_dict={s.v: [1.0, 2.0, 3.0]}, repeats=0),
        sg.GradientError,
        "use the other loss",
        blames="barred",
    ),
    bad(
        "assert a flow that is cut",
        lambda s: sg.assert_flows(s.rounded, [s.v]),
        sg.FlowError,
        "assert_flows",
        "not differentiable",
        "test_bad_input.py:",
    ),
    bad(
        "assert a wall that is open",
        lambda s: sg.assert_blocked(s.loss, [s.v]),
        sg.FlowError,
        "assert_blocked",
        "arrive",
    ),
    bad(
        "assert that gradients flow nowhere else",
        lambda s: sg.assert_only_flows(s.loss, to=[s.w]),
        sg.FlowError,
        "assert_only_flows",
        "too",
    ),
    bad(
        "assert of a tensor by a wrong name",
        lambda s: sg.assert_flows(s.loss, to="vv"),
        sg.GraphError,
        "assert_flows",
        "no tensor 'vv'",
    ),
    bad(
        "assert across graphs",
        lambda s: sg.assert_blocked(s.loss, [s.a]),
        sg.GraphError,
        "assert_blocked",
        "two graphs",
        blames="loss a",
    ),
    bad("assert of nothing", lambda s: sg.assert_flows(s.loss, []), sg.GraphError, "nothing is asked about"),
    bad(
        "assert a wall of no name",
        lambda s: sg.assert_blocked(s.rounded, [s.v], by="targt"),
        sg.GraphError,
        "assert_blocked",
        "no operation or scope 'targt'",
    ),
    bad(
        "a report in no room",
        lambda s: sg.explain(s.loss, [s.v]).to_text(width=10),
        sg.ArgumentError,
        "to_text",
        "40 columns",
    ),
    bad(
        "grad of a vector",
        lambda s: sg.grad(lambda x: x * 2.0)(ARRAY),
        sg.GradientError,
        "grad",
        "scalar",
        "[3]",
        "sg.jacobian",
    ),
    bad(
        "grad of an integer",
        lambda s: sg.grad(lambda x: sg.cast(x, sg.int32))(1.0),
        sg.GradientError,
        "grad",
        "real floating-point",
        "int32",
    ),
    bad(
        "grad of a complex number",
        lambda s: sg.grad(lambda x: x * 2.0)(1j),
        sg.GradientError,
        "grad",
        "complex64",
        "sg.real",
    ),
    bad(
        "grad of a pair",
        lambda s: sg.grad(lambda x: (x, x))(1.0),
        sg.GradientError,
        "grad",
        "tuple",
        "has_aux=True",
    ),
    bad(
        "grad of None", lambda s: sg.grad(lambda x: None)(1.0), sg.GradientError, "grad", "NoneType", "scalar"
    ),
    bad(
        "grad without its second value",
        lambda s: sg.grad(lambda x: x, has_aux=True)(1.0),
        sg.GradientError,
        "grad",
        "has_aux",
        "pair",
    ),
    bad(
        "grad towards an int",
        lambda s: sg.grad(lambda x: x * 2.0)(3),
        sg.DTypeError,
        "grad",
        "floating-point",
        "sg.cast",
    ),
    bad(
        "grad towards no argument",
        lambda s: sg.grad(lambda x: x, argnums=1)(1.0),
        sg.GradientError,
        "grad",
        "argnums=1",
        "1 positional",
    ),
    bad(
        "grad towards a name",
        lambda s: sg.grad(lambda x: x, argnums="x")(1.0),
        sg.ArgumentError,
        "grad",
        "argnums",
        "'x'",
    ),
    bad("grad of no function", lambda s: sg.grad(3.0), sg.ArgumentError, "grad", "function", "3.0"),
    bad(
        "grad with another absence",
        lambda s: sg.grad(lambda x: x, unconnected=None),
        sg.GradientError,
        "grad",
        "'zero' or 'none'",
    ),
    bad(
        "a build error inside grad",
        lambda s: sg.grad(lambda x: x + np.ones((2, 2)))(np.ones(3)),
        sg.ShapeError,
        "AddV2",
        "[3]",
        "[2, 2]",
    ),
    bad(
        "vjp with too many cotangents",
        lambda s: sg.vjp(lambda x: x, 1.0)[1]((1.0, 2.0)),
        sg.GradientError,
        "vjp",
        "2 cotangents for 1",
    ),
    bad(
        "vjp with a wrong shape",
        lambda s: sg.vjp(lambda x: x * 1.0, ARRAY)[1](np.ones(4, np.float32)),
        sg.ShapeError,
        "cotangent",
        "[4]",
    ),
    bad(
        "jvp with another shape",
        lambda s: sg.jvp(lambda x: x, (ARRAY,), (np.ones(4, np.float32),)),
        sg.ShapeError,
        "jvp",
        "[3]",
        "[4]",
    ),
    bad(
        "jvp with another dtype",
        lambda s: sg.jvp(lambda x: x, (ARRAY,), (np.ones(3),)),
        sg.DTypeError,
        "jvp",
        "float32",
        "float64",
    ),
    bad("jvp without tuples", lambda s: sg.jvp(lambda x: x, 1.0, 1.0), sg.GradientError, "jvp", "tuples"),
    bad(
        "jvp with too few tangents",
        lambda s: sg.jvp(lambda x: x["a"], ({"a": 1.0, "b": 2.0},), ({"a": 1.0},)),
        sg.GradientError,
        "jvp",
        "1 tangents for 2",
    ),
    bad(
        "jacobian of a symbolic size",
        lambda s: sg.jacobian(lambda x: x * 2.0)(s.x),
        sg.ShapeError,
        "jacobian",
        "symbolic",
        "n",
    ),
    bad(
        "hessian of a vector",
        lambda s: sg.hessian(lambda x: x * 2.0)(ARRAY),
        sg.GradientError,
        "grad",
        "scalar",
    ),
    bad("hvp without tuples", lambda s: sg.hvp(lambda x: x, 1.0, 1.0), sg.GradientError, "hvp", "tuples"),
    bad(
        "hvp of a vector",
        lambda s: sg.hvp(lambda x: x * 2.0, (ARRAY,), (ARRAY,)),
        sg.GradientError,
        "grad",
        "scalar",
    ),
    # gates
    bad(
        "stop towards a number",
        lambda s: sg.stop_gradient(s.v, wrt=[1.0]),
        sg.GraphError,
        "StopGradient",
        "wrt=",
        "1.0",
    ),
    bad(
        "stop towards another graph",
        lambda s: sg.stop_gradient(s.v, wrt=[s.a]),
        sg.GraphError,
        "two graphs",
        blames="v a",
    ),
    bad(
        "stop when a float",
        lambda s: sg.stop_gradient(s.v, when=s.s),
        sg.DTypeError,
        "StopGradientWhen",
        "scalar boolean",
        blames="v s",
    ),
    bad(
        "stop when a vector",
        lambda s: sg.stop_gradient(s.v, when=s.b),
        sg.DTypeError,
        "StopGradientWhen",
        "scalar boolean",
        blames="v b",
    ),
    bad(
        "stop when text",
        lambda s: sg.stop_gradient(s.v, when="training"),
        sg.DTypeError,
        "StopGradient",
        "'training'",
    ),
    bad(
        "scale by a vector",
        lambda s: sg.scale_gradient(s.v, s.v),
        sg.ShapeError,
        "ScaleGradient",
        "scalar",
        blames="v",
    ),
    bad(
        "scale by another dtype",
        lambda s: sg.scale_gradient(s.v, s.start),
        sg.DTypeError,
        "ScaleGradient",
        "float64",
        blames="v",
    ),
    bad(
        "clip between a text",
        lambda s: sg.clip_gradient(s.v, "low", 1.0),
        sg.DTypeError,
        "ClipGradient",
        "low",
    ),
    bad(
        "clip a complex tensor",
        lambda s: sg.clip_gradient(s.z, -1.0, 1.0),
        sg.DTypeError,
        "ClipGradient",
        "real",
        "order",
        blames="z",
    ),
    bad(
        "clip to a vector norm",
        lambda s: sg.clip_gradient_norm(s.v, s.v),
        sg.ShapeError,
        "ClipGradientByNorm",
        "scalar",
        blames="v",
    ),
    bad(
        "gates over half a structure",
        lambda s: sg.clip_gradient({"a": s.v, "b": s.d}, -1.0, s.s),
        sg.DTypeError,
        "ClipGradient",
        blames="d s",
    ),
    bad(
        "straight through another shape",
        lambda s: sg.straight_through(s.v, s.u),
        sg.ShapeError,
        "StraightThrough",
        "(C2)",
        "[3]",
        "[4]",
        blames="v u",
    ),
    bad(
        "straight through another dtype",
        lambda s: sg.straight_through(s.v, s.d),
        sg.DTypeError,
        "StraightThrough",
        "float64",
        blames="v d",
    ),
    bad(
        "probe without a good name",
        lambda s: sg.probe(s.v, "my probe"),
        sg.GraphError,
        "'my probe'",
        "letter",
    ),
    bad(
        "custom_gradient without a pair",
        lambda s: sg.custom_gradient(lambda a: a)(s.v),
        sg.ArgumentError,
        "custom_gradient",
        "pair",
    ),
    bad(
        "custom_gradient of a number",
        lambda s: sg.custom_gradient(3.0),
        sg.ArgumentError,
        "custom_gradient",
        "function",
        "3.0",
    ),
]

RUNNING = [
    bad(
        "an unfed placeholder",
        lambda s: s.run(s.doubled),
        sg.FeedError,
        "must be fed",
        "feed_dict",
        "doubled",
        blames="v doubled",
    ),
    bad(
        "one of two unfed",
        lambda s: s.run(s.sum, x=np.ones((2, 3))),
        sg.FeedError,
        "'y'",
        "must be fed",
        blames="y sum",
    ),
    bad(
        "a fetched placeholder unfed",
        lambda s: s.run(s.v),
        sg.FeedError,
        "'v'",
        "must be fed",
        "it is fetched",
        blames="v",
    ),
    bad(
        "a gradient that needs an unfed placeholder",
        lambda s: s.run([s.loss, s.sum], v=ARRAY),
        sg.FeedError,
        "'x'",
        "must be fed",
        blames="x",
    ),
    bad(
        "feed another size",
        lambda s: s.run(s.doubled, v=np.ones(4)),
        sg.FeedError,
        "'v'",
        "[4]",
        "[3]",
        blames="v",
    ),
    bad("feed another rank", lambda s: s.run(s.doubled, v=1.0), sg.FeedError, "'v'", "[]", "[3]", blames="v"),
    bad(
        "feed a column",
        lambda s: s.run(s.doubled, v=np.ones((3, 1))),
        sg.FeedError,
        "'v'",
        "[3, 1]",
        "[3]",
        blames="v",
    ),
    bad(
        "feed a float to an int",
        lambda s: s.run(s.i, i=[1.5, 2.0, 3.0]),
        sg.FeedError,
        "'i'",
        "float64",
        "int32",
        "convert",
        blames="i",
    ),
    bad(
        "feed ints that overflow",
        lambda s: s.run(s.small, small=[1, 1000]),
        sg.FeedError,
        "'small'",
        "int8",
        "1000",
        blames="small",
    ),
    bad(
        "feed a complex to a float",
        lambda s: s.run(s.v, v=[1j, 0, 0]),
        sg.FeedError,
        "'v'",
        "complex128",
        "float32",
        blames="v",
    ),
    bad(
        "feed a float to a bool",
        lambda s: s.run(s.b, b=[1.0, 0.0, 0.0]),
        sg.FeedError,
        "'b'",
        "float64",
        "bool",
        blames="b",
    ),
    bad(
        "feed booleans to a float",
        lambda s: s.run(s.v, v=[True, False, True]),
        sg.FeedError,
        "'v'",
        "bool",
        "float32",
        blames="v",
    ),
    bad(
        "feed a string", lambda s: s.run(s.v, v="abc"), sg.FeedError, "'v'", "no array of numbers", blames="v"
    ),
    bad("feed None", lambda s: s.run(s.v, v=None), sg.FeedError, "'v'", "None", blames="v"),
    bad(
        "feed a ragged list",
        lambda s: s.run(s.v, v=[1.0, [2.0], 3.0]),
        sg.FeedError,
        "'v'",
        "no array",
        blames="v",
    ),
    bad("feed a tensor", lambda s: s.run(s.v, v=s.w), sg.FeedError, "'v'", "Session.run", blames="v w"),
    bad(
        "feed a masked array",
        lambda s: s.run(s.v, v=np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])),
        sg.FeedError,
        "'v'",
        "masked",
        ".filled",
        blames="v",
    ),
    bad(
        "two sizes of one name",
        lambda s: s.session.run(s.sum, {s.x: np.ones((2, 3)), s.y: np.ones((5, 3))}),
        sg.ShapeError,
        "n = 2",
        "m = 5",
        blames="sum",
    ),
    bad(
        "1 and 5 do not broadcast",
        lambda s: s.session.run(s.sum, {s.x: np.ones((1, 3)), s.y: np.ones((5, 3))}),
        sg.ShapeError,
        "n = 1",
        "m = 5",
        blames="sum",
    ),
    bad(
        "5 and 1 do not broadcast",
        lambda s: s.session.run(s.sum, {s.x: np.ones((5, 3)), s.y: np.ones((1, 3))}),
        sg.ShapeError,
        "n = 5",
        "m = 1",
        blames="sum",
    ),
    bad(
        "a size that nothing fed names",
        lambda s: s.session.run(s.nowhere),
        sg.ShapeError,
        "Fill",
        "'q'",
        "feed a value whose shape names it",
        blames="nowhere",
    ),
    bad(
        "an index beyond what was fed",
        lambda s: s.run(s.sixth, x=np.ones((3, 3))),
        sg.ShapeError,
        "StridedSlice",
        "5",
        "size 3",
        blames="sixth",
    ),
    bad(
        "a mirror beyond what was fed",
        lambda s: s.run(s.mirrored, x=np.ones((1, 3))),
        sg.ShapeError,
        "StridedSlice",
        "size 1",
        blames="mirrored",
    ),
    bad(
        "the largest of nothing fed",
        lambda s: s.run(s.largest, x=np.ones((0, 3))),
        sg.ShapeError,
        "ArgMax",
        "no elements",
        blames="largest",
    ),
    bad(
        "a gradient of another size than its operand",
        lambda s: s.run(s.slope, x=np.ones((2, 3))),
        sg.ShapeError,
        "BroadcastTo",
        "[3, 3]",
        "[2, 3]",
        blames="parts",
    ),
    bad(
        "an intermediate of another size",
        lambda s: s.run(s.sum, x=np.ones((2, 4)), y=np.ones((2, 3))),
        sg.FeedError,
        "'x'",
        "[2, 4]",
        "[n, 3]",
        blames="x",
    ),
    bad(
        "feed what is no tensor",
        lambda s: s.session.run(s.s, {3: 1.0}),
        sg.GraphError,
        "Session.run",
        "3",
        "output",
    ),
    bad("feed an unknown name", lambda s: s.session.run(s.s, {"t": 1.0}), sg.GraphError, "'t'", "'s'"),
    bad(
        "feed a tensor of another graph",
        lambda s: s.session.run(s.s, {s.s: 1.0, s.a: ARRAY}),
        sg.GraphError,
        "another graph",
        blames="a",
    ),
    bad(
        "feed one tensor twice",
        lambda s: s.session.run(s.s, {s.s: 1.0, "s": 2.0}),
        sg.FeedError,
        "twice",
        "'s'",
    ),
    bad(
        "feed no dictionary",
        lambda s: s.session.run(s.s, [1.0]),
        sg.FeedError,
        "Session.run",
        "feed_dict",
        "dict",
    ),
    bad("fetch a number", lambda s: s.session.run(3.0), sg.GraphError, "Session.run", "3.0", "output"),
    bad("fetch an array", lambda s: s.session.run(ARRAY), sg.GraphError, "Session.run", "fetch"),
    bad("fetch an unknown name", lambda s: s.session.run("lost"), sg.GraphError, "'lost'", "'loss'"),
    bad("fetch from another graph", lambda s: s.session.run(s.a), sg.GraphError, "another graph", blames="a"),
    bad(
        "fetch an operation of two outputs",
        lambda s: s.session.run(s.halves[0].op, {s.u: np.ones(4)}),
        sg.GraphError,
        "2 outputs",
        ".output(i)",
    ),
    bad(
        "two assigns of one parameter",
        lambda s: s.session.run([s.step, s.reset]),
        sg.GraphError,
        "twice",
        "'w'",
        "'step'",
        "'reset'",
        blames="w step reset",
    ),
    bad(
        "feed and assign a parameter",
        lambda s: s.session.run(s.step, {s.w: ARRAY}),
        sg.FeedError,
        "both fed and assigned",
        "'w'",
        blames="w",
    ),
    bad(
        "assign to a placeholder",
        lambda s: sg.assign(s.v, s.v),
        sg.GraphError,
        "Assign",
        "(C1)",
        "sg.parameter",
        blames="v",
    ),
    bad("assign to a name", lambda s: sg.assign("w", s.v), sg.GraphError, "Assign", "(C1)", "'w'"),
    bad(
        "assign another shape",
        lambda s: sg.assign(s.w, s.u),
        sg.ShapeError,
        "Assign",
        "(C3)",
        "[3]",
        "[4]",
        blames="w u",
    ),
    bad(
        "assign another dtype",
        lambda s: sg.assign(s.w, s.d),
        sg.DTypeError,
        "Assign",
        "float64",
        "sg.cast",
        blames="w d",
    ),
    bad(
        "assign from another graph",
        lambda s: sg.assign(s.w, s.a),
        sg.GraphError,
        "Assign",
        "two graphs",
        blames="w a",
    ),
    bad(
        "a good assign beside a bad fetch",
        lambda s: s.session.run([s.step, s.doubled]),
        sg.FeedError,
        "must be fed",
        blames="v",
    ),
    bad(
        "a good assign beside a bad size",
        lambda s: s.session.run([s.step, s.sum], {s.x: np.ones((1, 3)), s.y: np.ones((5, 3))}),
        sg.ShapeError,
        blames="sum",
    ),
    bad(
        "the value of what is no parameter",
        lambda s: s.session.value(s.v),
        sg.GraphError,
        "'v'",
        "parameter",
        blames="v",
    ),
    bad(
        "the value of another graph's parameter",
        lambda s: s.session.value(s.c),
        sg.GraphError,
        "another graph",
        blames="c",
    ),
    bad(
        "a closed session runs nothing",
        lambda s: closed(s).run(s.w),
        sg.GraphError,
        "closed",
        "open a new one",
    ),
    bad("a closed session has no values", lambda s: closed(s).value(s.w), sg.GraphError, "closed"),
    bad(
        "a closed session saves nothing",
        lambda s: closed(s).save("nowhere.safetensors"),
        sg.GraphError,
        "closed",
    ),
    bad(
        "restore from no npz",
        lambda s: s.session.restore(HERE),
        sg.GraphError,
        "test_bad_input.py",
        "Session.save",
    ),
    bad(
        "an unknown engine",
        lambda s: sg.Session(s.graph, engine="tpu"),
        sg.EngineError,
        "'tpu'",
        "'auto'",
        "'xla'",
        "'numpy'",
    ),
    bad("an engine that is no name", lambda s: sg.Session(s.graph, engine=3), sg.EngineError, "3", "'auto'"),
    bad(
        "a session over no graph", lambda s: sg.Session(), sg.GraphError, "Session", "with graph.as_default()"
    ),
    bad("a session over a tensor", lambda s: sg.Session(s.v), sg.GraphError, "Session", "graph", blames="v"),
    # functions
    bad("function of no function", lambda s: sg.function(3.0), sg.ArgumentError, "function", "3.0"),
    bad(
        "function on an unknown engine",
        lambda s: sg.function(lambda x: x, engine="tpu")(1.0),
        sg.EngineError,
        "'tpu'",
        "'numpy'",
    ),
    bad(
        "function that assigns",
        lambda s: sg.function(lambda x: sg.parameter(1.0) * x)(1.0),
        sg.GraphError,
        "Parameter",
        "session",
    ),
    bad(
        "function that returns another graph's",
        lambda s: sg.function(lambda x: s.v)(1.0),
        sg.GraphError,
        "another graph",
        blames="v",
    ),
    bad(
        "function that mixes in another graph's",
        lambda s: sg.function(lambda x: x + s.v)(1.0),
        sg.GraphError,
        "AddV2",
        "two graphs",
        blames="v",
    ),
    bad(
        "function of a string array",
        lambda s: sg.function(lambda x: x)(np.array(["a"])),
        sg.DTypeError,
        "function",
        "<U1",
    ),
    bad(
        "function that donates what is not there",
        lambda s: sg.function(lambda x: x, donate_argnums=2)(1.0),
        sg.ArgumentError,
        "donate_argnums",
        "2",
    ),
    bad(
        "a build error inside a function",
        lambda s: sg.function(lambda x: x + np.ones((2, 2)))(np.ones(3)),
        sg.ShapeError,
        "AddV2",
        "[3]",
        "[2, 2]",
    ),
    bad(
        "an unhashable argument",
        lambda s: sg.function(lambda x, y: x)(1.0, {1}),
        sg.ArgumentError,
        "function",
        "{1}",
    ),
]

CASES = [*BUILDING, *GRADIENTS, *RUNNING]


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 150
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_bad_input_is_refused_and_leaves_everything_as_it_was(case: Bad) -> None:
    s = Setting()
    message = refused(s, case)
    missing = [part for part in case.says if part not in message]
    assert not missing, message
    run = {(inspect.getfile(Setting), line) for line in lines_of(Setting.run)}
    named = {(file, int(line)) for file, line in re.findall(r"at (\S+):(\d+)", message)}
    assert named & ({(HERE, line) for line in lines_of(case.wrong)} | run), message
    for tensor in case.blames:
        built = getattr(s, tensor)
        assert f"{built.op.location.file}:{built.op.location.line}" in message, (tensor, message)
    assert f"{sg.__path__[0]}" not in message, message
    s.check_unharmed()


# ----------------------------------------------------------------------------------- what must work

NAN, INF = np.nan, np.inf
F32, F64 = np.float32, np.float64


@dataclass(frozen=True)
class Good:
    """An odd but right use: a function of placeholders, what they are fed, and the result by hand."""

    name: str
    f: Callable[..., Any]
    feeds: tuple[tuple[Any, Any, Any], ...]
    expected: Any

    def __repr__(self) -> str:
        return self.name


def good(name: str, f: Callable[..., Any], *feeds: tuple[Any, Any, Any], gives: Any) -> Good:
    return Good(name, f, feeds, np.asarray(gives))


class Stubborn(np.ndarray):  # type: ignore[type-arg]
    """A kind of array that computes in its own way, as matrices and masked arrays do."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("computed in its own way")


def _frozen(values: Any) -> np.ndarray[Any, Any]:
    array = np.array(values, F32)
    array.flags.writeable = False
    return array


GOOD = [
    good("NaN fed", lambda x: x * 2.0, (sg.float32, [2], [NAN, 1.0]), gives=np.array([NAN, 2.0], F32)),
    good("NaN in a maximum", lambda x: sg.reduce_max(x), (sg.float32, [3], [1.0, NAN, 2.0]), gives=F32(NAN)),
    good("infinities fed", lambda x: x + x, (sg.float32, [2], [INF, -INF]), gives=np.array([INF, -INF], F32)),
    good("infinity less infinity", lambda x: x - x, (sg.float32, [1], [INF]), gives=np.array([NAN], F32)),
    good(
        "division by zero",
        lambda x: 1.0 / x,
        (sg.float32, [2], [0.0, -0.0]),
        gives=np.array([INF, -INF], F32),
    ),
    good(
        "a negative zero stays",
        lambda x: 1.0 / (x * 1.0),
        (sg.float32, [1], [-0.0]),
        gives=np.array([-INF], F32),
    ),
    good(
        "log of nothing good",
        lambda x: sg.log(x),
        (sg.float32, [2], [0.0, -1.0]),
        gives=np.array([-INF, NAN], F32),
    ),
    good("an empty array", lambda x: x * 2.0, (sg.float32, ["n"], np.zeros(0, F32)), gives=np.zeros(0, F32)),
    good("an empty list", lambda x: x * 2, (sg.int32, ["n"], []), gives=np.zeros(0, np.int32)),
    good("the sum of nothing", lambda x: sg.reduce_sum(x), (sg.float32, ["n"], []), gives=F32(0)),
    good("the product of nothing", lambda x: sg.reduce_prod(x), (sg.float32, ["n"], []), gives=F32(1)),
    good("the mean of nothing", lambda x: sg.reduce_mean(x), (sg.float32, ["n"], []), gives=F32(NAN)),
    good("the maximum of nothing", lambda x: sg.reduce_max(x), (sg.float32, ["n"], []), gives=F32(-INF)),
    good(
        "all of nothing",
        lambda x: sg.reduce_all(x),
        (sg.bool, ["n"], np.zeros(0, bool)),
        gives=np.bool_(True),
    ),
    good(
        "a zero-size axis",
        lambda x: sg.reduce_sum(x, axis=0),
        (sg.float32, ["n", 3], np.zeros((0, 3))),
        gives=np.zeros(3, F32),
    ),
    good(
        "a zero inner size",
        lambda x, y: x @ y,
        (sg.float32, [2, "k"], np.zeros((2, 0))),
        (sg.float32, ["k", 2], np.zeros((0, 2))),
        gives=np.zeros((2, 2), F32),
    ),
    good(
        "nothing joined to something",
        lambda x: sg.concat([x, [7.0]], 0),
        (sg.float32, ["n"], []),
        gives=np.array([7.0], F32),
    ),
    good(
        "a slice beyond the end",
        lambda x: x[2:9],
        (sg.float32, [3], [1.0, 2.0, 3.0]),
        gives=np.array([3.0], F32),
    ),
    good("a slice of nothing", lambda x: x[3:], (sg.float32, [3], [1.0, 2.0, 3.0]), gives=np.zeros(0, F32)),
    good("a 0-d array", lambda x: x + 1.0, (sg.float32, [], np.array(2.0, F32)), gives=F32(3)),
    good("a Python float", lambda x: x + 1.0, (sg.float32, [], 2.0), gives=F32(3)),
    good("a Python int for a float", lambda x: x + 1.0, (sg.float32, [], 2), gives=F32(3)),
    good("a Python bool", lambda x: ~x, (sg.bool, [], True), gives=np.bool_(False)),
    good("a Python complex number", lambda x: x * x, (sg.complex64, [], 1j), gives=np.complex64(-1)),
    good("a float for a complex number", lambda x: x * 1j, (sg.complex64, [], 2.0), gives=np.complex64(2j)),
    good("a NumPy scalar", lambda x: x * 2, (sg.int32, [], np.int32(4)), gives=np.int32(8)),
    good("float64 for float32", lambda x: x, (sg.float32, [1], np.array([0.1])), gives=np.array([0.1], F32)),
    good(
        "int64 for int8, where it fits",
        lambda x: x,
        (sg.int8, [2], np.array([-128, 127])),
        gives=np.array([-128, 127], np.int8),
    ),
    good(
        "floats for bfloat16",
        lambda x: sg.cast(x, sg.float32),
        (sg.bfloat16, [2], [1.0, 1.0078125]),
        gives=np.array([1.0, 1.0078125], F32),
    ),
    good("floats for float16", lambda x: x, (sg.float16, [1], [1e6]), gives=np.array([INF], np.float16)),
    good(
        "a nested list",
        lambda x: sg.transpose(x),
        (sg.float32, [2, 2], [[1.0, 2.0], [3.0, 4.0]]),
        gives=np.array([[1.0, 3.0], [2.0, 4.0]], F32),
    ),
    good("a tuple", lambda x: x, (sg.float32, [2], (1.0, 2.0)), gives=np.array([1.0, 2.0], F32)),
    good(
        "every other element",
        lambda x: x * 2.0,
        (sg.float32, [2], np.arange(4, dtype=F32)[::2]),
        gives=np.array([0.0, 4.0], F32),
    ),
    good(
        "a reversed array",
        lambda x: x * 2.0,
        (sg.float32, [3], np.arange(3, dtype=F32)[::-1]),
        gives=np.array([4.0, 2.0, 0.0], F32),
    ),
    good(
        "a repeated row",
        lambda x: x + 1.0,
        (sg.float32, [2, 2], np.broadcast_to(F32(1), (2, 2))),
        gives=np.full((2, 2), 2.0, F32),
    ),
    good(
        "Fortran order",
        lambda x: sg.reshape(x, [4]),
        (sg.float32, [2, 2], np.asfortranarray([[1, 2], [3, 4]], F32)),
        gives=np.array([1.0, 2.0, 3.0, 4.0], F32),
    ),
    good(
        "a read-only array",
        lambda x: x + 1.0,
        (sg.float32, [2], _frozen([1.0, 2.0])),
        gives=np.array([2.0, 3.0], F32),
    ),
    good(
        "a read-only array handed through",
        lambda x: sg.stop_gradient(x),
        (sg.float32, [2], _frozen([1.0, 2.0])),
        gives=np.array([1.0, 2.0], F32),
    ),
    good(
        "a big-endian array",
        lambda x: x + 1.0,
        (sg.float32, [2], np.array([1.0, 2.0], ">f4")),
        gives=np.array([2.0, 3.0], F32),
    ),
    good(
        "a big-endian constant",
        lambda x: x + np.array([1, 2], ">i4"),
        (sg.int32, [2], [1, 1]),
        gives=np.array([2, 3], np.int32),
    ),
    good(
        "an array with a will of its own",
        lambda x: x * x,
        (sg.float32, [2], np.array([2.0, 3.0], F32).view(Stubborn)),
        gives=np.array([4.0, 9.0], F32),
    ),
    good(
        "an array on the left",
        lambda x: np.array([1.0, 2.0], F32) - x,
        (sg.float32, [2], [1.0, 1.0]),
        gives=np.array([0.0, 1.0], F32),
    ),
    good(
        "a list on the right",
        lambda x: sg.add(x, [1, 2]),
        (sg.float32, [2], [1.0, 1.0]),
        gives=np.array([2.0, 3.0], F32),
    ),
    good(
        "sizes that agree",
        lambda x, y: x + y,
        (sg.float32, ["n"], [1.0, 2.0]),
        (sg.float32, ["m"], [3.0, 4.0]),
        gives=np.array([4.0, 6.0], F32),
    ),
    good(
        "a size of one",
        lambda x, y: x + y,
        (sg.float32, ["n"], [1.0]),
        (sg.float32, ["m"], [3.0]),
        gives=np.array([4.0], F32),
    ),
    good(
        "a literal one broadcasts",
        lambda x, y: x + y,
        (sg.float32, ["n"], [1.0, 2.0]),
        (sg.float32, [1], [3.0]),
        gives=np.array([4.0, 5.0], F32),
    ),
    good(
        "an index outside",
        lambda x: sg.gather([1.0, 2.0], x),
        (sg.int32, [4], [1, 5, -1, -3]),
        gives=np.array([2.0, 0.0, 2.0, 0.0], F32),
    ),
    good("integers wrap around", lambda x: x + 1, (sg.int8, [], 127), gives=np.int8(-128)),
]


@each_engine
@pytest.mark.parametrize("case", GOOD, ids=repr)
def test_odd_input_works(case: Good, engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        inputs = [sg.placeholder(dtype, shape) for dtype, shape, _ in case.feeds]
        y = case.f(*inputs)
    values = [value for *_, value in case.feeds]
    kept = [np.array(value) for value in values]
    with sg.Session(graph, engine=engine) as session:
        got = session.run(y, dict(zip(inputs, values, strict=True)))
    assert type(got) is np.ndarray
    assert got.dtype == case.expected.dtype
    assert got.shape == case.expected.shape
    np.testing.assert_array_equal(got, case.expected)
    assert got.dtype.isnative
    for value, before in zip(values, kept, strict=True):
        np.testing.assert_array_equal(np.array(value), before)


@each_engine
def test_any_tensor_can_be_fed(engine: str) -> None:
    s = Setting(engine)
    np.testing.assert_array_equal(
        s.run(s.loss, doubled=[9.0, 9.0, 9.0], v=[1.0, 2.0, 3.0]), F32(14)
    )  # not on the way: without effect
    with s.graph.as_default():
        z = sg.exp(s.doubled) + s.w
    np.testing.assert_array_equal(
        s.run(z, doubled=[0.0, 0.0, 0.0]), np.array([2.0, 3.0, 4.0], F32)
    )  # v need not be fed then
    np.testing.assert_array_equal(
        s.run(z, doubled=np.zeros(3), w=[5.0, 5.0, 5.0]), np.array([6.0, 6.0, 6.0], F32)
    )
    assert s.session.value(s.w).tolist() == [1.0, 2.0, 3.0]  # feeding a parameter does not assign it
    np.testing.assert_array_equal(s.run(s.v, v=[1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0], F32))
    np.testing.assert_array_equal(
        s.session.run("doubled:0", {"v": [1.0, 2.0, 3.0]}), np.array([2.0, 4.0, 6.0], F32)
    )


@each_engine
def test_a_fetched_array_is_the_callers_own(engine: str) -> None:
    s = Setting(engine)
    fed = np.array([1.0, 2.0, 3.0], F32)
    got = s.run(s.v, v=fed)
    assert not np.shares_memory(got, fed)
    value = s.session.value(s.w)
    value[:] = 7.0
    np.testing.assert_array_equal(s.session.run(s.w), np.array([1.0, 2.0, 3.0], F32))


@each_engine
def test_jax_arrays_can_be_fed(engine: str) -> None:
    s = Setting(engine)
    got = s.run(s.doubled, v=jnp.arange(3.0))
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, np.array([0.0, 2.0, 4.0], F32))
    with pytest.raises(sg.FeedError, match=r"shape \[2\]"):
        s.run(s.doubled, v=jnp.arange(2.0))
    with pytest.raises(sg.FeedError, match="int32"):
        s.run(s.i, i=jnp.arange(3.0))


@pytest.mark.parametrize(
    "array",
    [np.array([1.0, 2.0], ">f8"), np.asfortranarray([1.0, 2.0]), np.arange(1.0, 5.0)[::2] * 0 + [1.0, 2.0]],
    ids=["endian", "fortran", "strided"],
)
def test_functions_take_odd_arrays(array: Any) -> None:
    np.testing.assert_array_equal(sg.function(lambda x: x * 2.0, engine="numpy")(array), [2.0, 4.0])
    np.testing.assert_array_equal(sg.grad(lambda x: sg.reduce_sum(x * x))(array), [2.0, 4.0])
    np.testing.assert_array_equal(sg.multiply(array, 2.0), [2.0, 4.0])


def test_a_gradient_of_a_vector_is_that_of_its_sum() -> None:
    s = Setting()
    with s.graph.as_default():
        (slope,) = sg.gradients(s.v * s.v, [s.v])
    np.testing.assert_array_equal(s.run(slope, v=[1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0], F32))
    assert "sum of its elements" in (sg.gradients.__doc__ or "")


# ------------------------------------------------------------------------------- what is not installed


def test_without_jax_the_xla_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Setting()
    monkeypatch.delitem(registry._MADE, "xla", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        sg.EngineError, match=r"(?s)xla engine needs jax.*pip install 'stopgrad\[xla\]'.*test_bad_input.py"
    ) as caught:
        sg.Session(s.graph, engine="xla")
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(sg.EngineError, match=r"pip install 'stopgrad\[xla\]'"):
        sg.function(lambda x: x, engine="xla")(1.0)
    with sg.Session(s.graph) as session:
        assert session.engine == "onnxruntime"
    s.check_unharmed()


def test_without_onnxruntime_its_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Setting()
    monkeypatch.delitem(registry._MADE, "onnxruntime", raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(sg.EngineError, match=r"onnxruntime engine needs onnxruntime.*'stopgrad\[onnx\]'"):
        sg.Session(s.graph, engine="onnxruntime")
    s.check_unharmed()


def test_without_scipy_the_numpy_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Setting()
    with s.graph.as_default():
        y = sg.erf(s.v)
    monkeypatch.delitem(NUMPY.__dict__, "special", raising=False)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(sg.EngineError, match=r"Erf.*stopgrad\[special\]") as caught:
        s.session.run([y, s.step], {s.v: ARRAY})
    assert f"{HERE}:{y.op.location.line}" in str(caught.value)
    assert s.session.value(s.w).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(sg.EngineError, match=r"Erf: .*stopgrad\[special\]"):
        sg.erf(1.0)


@each_engine
def test_a_failure_inside_an_engine_names_the_operation_and_leaves_the_parameters(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no memory left")

    s = Setting(engine)
    with s.graph.as_default():
        y = sg.tan(s.v)
    monkeypatch.setattr(sg.ops.Tan, form_for(engine), staticmethod(fails), raising=False)
    with pytest.raises(sg.EngineError, match=r"Tan 'Tan'.*no memory left") as caught:
        s.session.run([s.step, y], {s.v: ARRAY})
    assert f"{HERE}:{y.op.location.line}" in str(caught.value)
    assert s.session.value(s.w).tolist() == [1.0, 2.0, 3.0]
    assert sg.__path__[0] not in str(caught.value)
    assert "site-packages" not in str(caught.value)
    s.session.run(s.step)
    assert s.session.value(s.w).tolist() == [2.0, 4.0, 6.0]
