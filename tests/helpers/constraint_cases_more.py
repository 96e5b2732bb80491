"""For each documented constraint of arrays, products, windows, draws and gates, a call that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import dim, dtype_of
from stopgrad.graph.immediate import evaluate
from stopgrad.graph.op import REGISTRY

BOOLS = np.ones(3, np.bool_)
INTS = np.ones(3, np.int32)
FLOATS = np.ones(3, np.float32)
DOUBLES = np.ones(3, np.float64)
COMPLEXES = np.ones(3, np.complex64)
FOUR = np.ones(4, np.float32)
SCALAR = np.ones((), np.float32)
WIDE = np.ones((), np.float64)
MATRIX = np.ones((2, 3), np.float32)
KEY = np.ones(2, np.uint32)
TOO_MANY = (2**17, 2**17)

CASES: dict[tuple[str, str], Callable[[], Any]] = {}


def refuses(type: str, *calls: Callable[[], Any]) -> None:
    """The calls break the constraints of an operation, or of a function made of several, in their order."""
    for i, call in enumerate(calls, 1):
        CASES[type, f"C{i}"] = call


def call(type: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """A call of the operation's public function."""
    return partial(REGISTRY[type].function, *args, **kwargs)


def assigned(to: Any, value: Any) -> None:
    with sg.Graph().as_default():
        sg.assign(sg.parameter(np.zeros(3, np.float32)) if to is None else to, value)


def built(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    with sg.Graph().as_default():
        function(*args, **kwargs)


# ------------------------------------------------------------------------------------------ values, shapes

refuses(
    "Assign", lambda: assigned("w", FLOATS), lambda: assigned(None, DOUBLES), lambda: assigned(None, FOUR)
)
refuses("Shard", call("Shard", FLOATS, ("data", None)))
refuses("Placeholder", lambda: built(sg.placeholder, sg.float32, [3], sharding=("data", None)))
refuses("Parameter", lambda: built(sg.parameter, FLOATS, sharding=("data", None)))
refuses("Size", call("Size", FLOATS, axis=1))
refuses("Fill", call("Fill", [2], FLOATS))
refuses(
    "Range",
    call("Range", 0, 3, 0),
    call("Range", 3, dtype=sg.bool),
    call("Range", "3"),
    call("Range", 0.5, dim("n")),
)
refuses("Reshape", call("Reshape", FLOATS, [2, -1]))
refuses("expand_dims", partial(sg.expand_dims, FLOATS, 2))
refuses("squeeze", partial(sg.squeeze, FLOATS, 1))
refuses("Transpose", call("Transpose", MATRIX, [0, 0]))
refuses("BroadcastTo", call("BroadcastTo", FLOATS, [4]))
refuses("Sum", call("Sum", BOOLS), call("Sum", FLOATS, 1))
refuses(
    "StridedSlice",
    call("StridedSlice", FLOATS, [0, 0], [1, 1]),
    lambda: evaluate(REGISTRY["StridedSlice"], [FLOATS], (((2, 2, 1),),)),
    call("StridedSlice", FLOATS, [0], [3], [0]),
)
refuses("StridedSliceGrad", call("StridedSliceGrad", FLOATS, (4,), ((1, 2, 2),)))
refuses(
    "ConcatV2",
    call("ConcatV2", [FLOATS, DOUBLES], 0),
    call("ConcatV2", [FLOATS, FLOATS], 1),
    call("ConcatV2", [MATRIX, MATRIX.T], 0),
)
refuses(
    "Pack",
    call("Pack", [FLOATS, DOUBLES]),
    call("Pack", [FLOATS, FLOATS], 2),
    call("Pack", [FLOATS, FOUR]),
)
refuses("unstack", partial(sg.unstack, FLOATS, axis=1), partial(sg.unstack, FLOATS, 4))
refuses("Split", call("Split", FLOATS, 3, axis=1), call("Split", FLOATS, [1, 1]))
refuses(
    "PadV2", call("PadV2", FLOATS, [[1, 1]], constant_values=FLOATS), call("PadV2", FLOATS, [[1, 1], [1, 1]])
)
refuses("Tile", call("Tile", FLOATS, [1, 2]))
refuses("ReverseV2", call("ReverseV2", FLOATS, [1]))

# ---------------------------------------------------------------------------------------- indices, sorting

refuses("GatherV2", call("GatherV2", FLOATS, FLOATS), call("GatherV2", FLOATS, INTS, axis=1))
CASES["GatherV2", "C3"] = call("GatherV2", MATRIX, INTS, axis=1, batch_dims=1)
refuses(
    "TensorScatterAdd",
    call("TensorScatterAdd", FLOATS, FLOATS, FLOATS),
    call("TensorScatterAdd", FLOATS, INTS, FLOATS, 1),
    call("TensorScatterAdd", MATRIX, INTS, MATRIX, 1, batch_dims=1),
    call("TensorScatterAdd", FLOATS, INTS, DOUBLES),
    call("TensorScatterAdd", FLOATS, INTS, FOUR),
)
refuses(
    "TakeAlongAxis",
    call("TakeAlongAxis", FLOATS, FLOATS),
    call("TakeAlongAxis", FLOATS, INTS, 1),
    call("TakeAlongAxis", MATRIX, INTS),
)
refuses(
    "ScatterAddAlongAxis",
    call("ScatterAddAlongAxis", FLOATS, FLOATS, FLOATS),
    call("ScatterAddAlongAxis", FLOATS, INTS, FLOATS, 1),
    call("ScatterAddAlongAxis", MATRIX, INTS, FLOATS),
    call("ScatterAddAlongAxis", FLOATS, INTS, DOUBLES),
    call("ScatterAddAlongAxis", FLOATS, INTS, FOUR),
)
refuses(
    "OneHot",
    call("OneHot", FLOATS, 2),
    call("OneHot", INTS, 2, SCALAR, WIDE),
    call("OneHot", INTS, 2, axis=2),
)
refuses("Argsort", call("Argsort", COMPLEXES), call("Argsort", FLOATS, 1))
refuses("Sort", call("Sort", COMPLEXES), call("Sort", FLOATS, 1))
refuses(
    "TopKV2",
    call("TopKV2", COMPLEXES),
    call("TopKV2", SCALAR),
    call("TopKV2", FLOATS, 4),
    call("TopKV2", FLOATS, 2, index_type=sg.float32),
)

# ------------------------------------------------------------------------------------ products, recurrence

refuses(
    "MatMul",
    call("MatMul", MATRIX, MATRIX.astype(np.float64)),
    call("MatMul", MATRIX, MATRIX),
    call("MatMul", SCALAR, MATRIX),
    call("MatMul", np.ones((2, 3, 3)), np.ones((4, 3, 3))),
)
refuses(
    "Einsum",
    call("Einsum", "i,i->", FLOATS, DOUBLES),
    call("Einsum", "ij->i", FLOATS),
    call("Einsum", "i,i->", FLOATS, FOUR),
    call("Einsum", "i->j", FLOATS),
)
refuses(
    "LinearRecurrence",
    call("LinearRecurrence", INTS, INTS),
    call("LinearRecurrence", FLOATS, FOUR),
    call("LinearRecurrence", FLOATS, FLOATS, axis=1),
)

# ------------------------------------------------------------------------------------------------- windows

IMAGE = np.ones((1, 5, 2), np.float32)
FILTERS = np.ones((2, 2, 4), np.float32)
RESULT = np.ones((1, 4, 4), np.float32)
WRONG = np.ones((1, 3, 4), np.float32)
INTEGERS = IMAGE.astype(np.int32)

refuses(
    "Conv",
    call("Conv", INTEGERS, FILTERS.astype(np.int32)),
    call("Conv", IMAGE, MATRIX),
    call("Conv", IMAGE, FILTERS, strides=0),
    call("Conv", IMAGE, np.ones((7, 2, 4), np.float32)),
    call("Conv", IMAGE, FILTERS, groups=2),
)
refuses(
    "ConvBackpropInput",
    call("ConvBackpropInput", IMAGE.shape, FILTERS, RESULT.astype(np.float64)),
    call("ConvBackpropInput", IMAGE.shape, MATRIX, RESULT),
    call("ConvBackpropInput", IMAGE.shape, FILTERS, RESULT, padding="FULL"),
    call("ConvBackpropInput", IMAGE.shape, np.ones((7, 2, 4), np.float32), RESULT),
    call("ConvBackpropInput", IMAGE.shape, FILTERS, RESULT, groups=2),
    call("ConvBackpropInput", IMAGE.shape, FILTERS, WRONG),
)
refuses(
    "ConvBackpropFilter",
    call("ConvBackpropFilter", IMAGE, FILTERS.shape, RESULT.astype(np.float64)),
    call("ConvBackpropFilter", MATRIX, FILTERS.shape, RESULT),
    call("ConvBackpropFilter", IMAGE, FILTERS.shape, RESULT, dilations=[1, 2]),
    call("ConvBackpropFilter", IMAGE, (7, 2, 4), RESULT),
    call("ConvBackpropFilter", IMAGE, FILTERS.shape, RESULT, groups=2),
    call("ConvBackpropFilter", IMAGE, FILTERS.shape, WRONG),
)
for pool in ("MaxPool", "AvgPool"):
    refuses(
        pool,
        call(pool, INTEGERS, 2, 2, "VALID"),
        call(pool, MATRIX, 2, 2, "VALID"),
        call(pool, IMAGE, 0, 1, "VALID"),
        call(pool, IMAGE, 7, 1, "VALID"),
    )
for pool, fits in (("MaxPoolGrad", IMAGE[:, :2]), ("MaxPoolGradGrad", IMAGE)):
    refuses(
        pool,
        call(pool, IMAGE, fits.astype(np.float64), 2),
        call(pool, MATRIX, MATRIX, 2),
        call(pool, IMAGE, fits, 0),
        call(pool, IMAGE, IMAGE, 7, 1),
        call(pool, IMAGE, IMAGE[:, :3], 2),
    )
refuses(
    "AvgPoolGrad",
    call("AvgPoolGrad", INTEGERS[:, :2], IMAGE.shape, 2),
    lambda: evaluate(REGISTRY["AvgPoolGrad"], [MATRIX], ((2, 3), (2,), (2,), "VALID", (1,))),
    call("AvgPoolGrad", IMAGE[:, :2], IMAGE.shape, 0),
    call("AvgPoolGrad", IMAGE, IMAGE.shape, 7, 1),
    call("AvgPoolGrad", IMAGE, IMAGE.shape, 2),
)

# ------------------------------------------------------------------------------------------ random numbers

refuses("RandomSplit", call("RandomSplit", FLOATS))
refuses("RandomFoldIn", call("RandomFoldIn", FLOATS, 1), call("RandomFoldIn", KEY, SCALAR))
refuses(
    "RandomBits",
    call("RandomBits", [2], FLOATS),
    call("RandomBits", TOO_MANY, KEY),
    call("RandomBits", [2], KEY, "int32"),
)
for draw in ("RandomUniform", "RandomNormal"):
    refuses(
        draw,
        call(draw, [2], FLOATS),
        call(draw, TOO_MANY, KEY),
        call(draw, [2], KEY, dtype=dtype_of("bool")),
    )
for draw in ("RandomLogGamma", "RandomPoisson"):
    refuses(
        draw,
        call(draw, FLOATS, DOUBLES),
        call(draw, KEY, FLOATS),
        call(draw, np.stack([KEY, KEY]), np.ones(3)),
    )
refuses("ImplicitLogGamma", call("ImplicitLogGamma", FLOATS, DOUBLES), call("ImplicitLogGamma", FLOATS, FOUR))
refuses("LogGammaMoment", call("LogGammaMoment", INTS, INTS, 0), call("LogGammaMoment", FLOATS, FOUR, 0))
for share in ("Igamma", "Igammac"):
    refuses(share, call(share, COMPLEXES, COMPLEXES), call(share, FLOATS, FOUR))
refuses(
    "BetaMoment",
    call("BetaMoment", INTS, INTS, INTS, 0, 0),
    call("BetaMoment", FLOATS, FLOATS, FOUR, 0, 0),
)
refuses("Betainc", call("Betainc", COMPLEXES, COMPLEXES, COMPLEXES), call("Betainc", FLOATS, FLOATS, FOUR))
refuses("random_categorical", partial(sg.random_categorical, FLOATS, 2, KEY, axis=1))

# --------------------------------------------------------------------------------------------------- gates

refuses("StopGradientWhen", call("StopGradientWhen", FLOATS, BOOLS))
refuses("ScaleGradient", call("ScaleGradient", FLOATS, WIDE), call("ScaleGradient", FLOATS, FLOATS))
refuses("ClipGradient", call("ClipGradient", COMPLEXES, 0, 1), call("ClipGradient", FLOATS, FLOATS, 1.0))
refuses(
    "ClipGradientByNorm",
    call("ClipGradientByNorm", FLOATS, WIDE),
    call("ClipGradientByNorm", FLOATS, FLOATS),
)
refuses("StraightThrough", call("StraightThrough", FLOATS, DOUBLES), call("StraightThrough", FLOATS, FOUR))
