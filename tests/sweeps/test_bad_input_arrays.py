"""Bad input to indexing and the functions of arrays: each gets an error that names the cure."""

from __future__ import annotations

import numpy as np
import pytest
from bad_input import Bad, bad, check_refused, inside

import stopgrad as sg

ONE = np.ones(3, np.float32)

INDEXING = [
    bad(
        "an index array too large",
        lambda s: s.v[[0, 3]],
        sg.ShapeError,
        "index 3",
        "axis 0, of size 3",
        blames="v",
    ),
    bad("an index array too small", lambda s: s.m[:, [-4]], sg.ShapeError, "index -4", "axis 1", blames="m"),
    bad(
        "index arrays that do not broadcast",
        lambda s: s.m[[0, 1], [0, 1, 2]],
        sg.ShapeError,
        "index arrays",
        "[2]",
        "[3]",
    ),
    bad("index by a tensor of floats", lambda s: s.m[s.v], sg.DTypeError, "float32", "sg.cast"),
    bad(
        "index by an array of floats",
        lambda s: s.v[np.array([0.0])],
        sg.DTypeError,
        "integers or booleans",
        "sg.cast",
    ),
    bad("index by a set", lambda s: s.v[{0}], sg.ShapeError, "no index", "{0}"),
    bad("index by a dict", lambda s: s.v[{"a": 0}], sg.ShapeError, "no index"),
    bad("index by an object", lambda s: s.v[object()], sg.ShapeError, "no index"),
    bad("too many index arrays", lambda s: s.v[[0], [1]], sg.ShapeError, "(C1)", "2 indices for 1 axes"),
    bad(
        "a mask of the wrong size",
        lambda s: s.v[np.array([True, False])],
        sg.ShapeError,
        "mask",
        "[2]",
        "size 3",
    ),
    bad("a mask of too many axes", lambda s: s.v[np.ones((3, 3), bool)], sg.ShapeError, "(C1)"),
    bad(
        "a mask known when it runs",
        lambda s: s.m[:, s.b],
        sg.ShapeError,
        "depends on data",
        "boolean_mask",
        blames="b",
    ),
    bad(
        "a mask of rows known when it runs",
        lambda s: s.x[s.b],
        sg.ShapeError,
        "depends on data",
        "sg.where",
    ),
    bad("a slice to a tensor", lambda s: s.v[: s.s], sg.ShapeError, "(C3)", "sg.dynamic_slice"),
    bad("a slice from an array", lambda s: s.v[np.array([1, 2]) :], sg.ShapeError, "bounds no slice"),
    bad("a ragged index", lambda s: s.m[[[0], [0, 1]]], sg.DTypeError, "differ in length"),
    bad("a list with a tensor as index", lambda s: s.v[[s.s, 1]], sg.DTypeError, "sg.stack"),
    bad("text in an index list", lambda s: s.v[["a"]], sg.DTypeError, "text"),
    bad("at without brackets, set", lambda s: s.v.at[3].set(1.0), sg.ShapeError, "index 3", "size 3"),
    bad("set the wrong shape", lambda s: s.v.at[:2].set(ONE), sg.ShapeError, "x.at[...].set", "[3]", "[2]"),
    bad("set too many axes", lambda s: s.v.at[0].set([1.0, 2.0]), sg.ShapeError, "values of shape [2]"),
    bad("set by an index array, wrong", lambda s: s.m.at[[0, 1]].set(s.u), sg.ShapeError, "[4]", "[2, 3]"),
    bad("set doubles of a higher kind", lambda s: s.v.at[0].set(s.z), sg.DTypeError, "complex64", "sg.cast"),
    bad("set floats among integers", lambda s: s.i.at[0].set(0.5), sg.DTypeError, "int32", "sg.cast"),
    bad("set None", lambda s: s.v.at[0].set(None), sg.DTypeError, "None"),
    bad("add text", lambda s: s.v.at[0].add("a"), sg.DTypeError, "text"),
    bad("add to booleans", lambda s: s.b.at[[0]].add(True), sg.DTypeError, "numbers", "bool"),
    bad("the largest of complex numbers", lambda s: s.z.at[[0]].max(1.0), sg.DTypeError, "real numbers"),
    bad("apply no function", lambda s: s.v.at[0].apply(1.0), sg.ArgumentError, "apply", "set takes values"),
    bad(
        "set as many values as a mask has",
        lambda s: s.v.at[s.b].set(ONE),
        sg.ShapeError,
        "sg.where(mask, values, x)",
    ),
    bad("set by a mask of another size", lambda s: s.u.at[s.b].set(0.0), sg.ShapeError, "mask of shape [3]"),
    bad(
        "at a mask of another size", lambda s: s.v.at[[True, False]].set(0.0), sg.ShapeError, "mask", "size 3"
    ),
    bad("at by floats", lambda s: s.v.at[s.v].add(1.0), sg.DTypeError, "sg.cast"),
    bad("set of another graph", lambda s: s.v.at[:].set(s.a), sg.GraphError, "two graphs"),
]

ALONG = [
    bad(
        "validate_indices", lambda s: sg.gather(s.v, s.i, 0), sg.ArgumentError, "validate_indices=0", "axis="
    ),
    bad("gather by booleans", lambda s: sg.gather(s.v, s.b), sg.DTypeError, "GatherV2", "integers"),
    bad(
        "gather_nd by floats",
        lambda s: sg.gather_nd(s.m, [[0.5, 1.0]]),
        sg.DTypeError,
        "gather_nd",
        "integers",
    ),
    bad("gather_nd by a scalar", lambda s: sg.gather_nd(s.m, 0), sg.ShapeError, "gather_nd", "last axis"),
    bad(
        "gather_nd with too many",
        lambda s: sg.gather_nd(s.m, [[0, 0, 0]]),
        sg.ShapeError,
        "3 indices",
        "2 axes",
    ),
    bad(
        "gather_nd in batches", lambda s: sg.gather_nd(s.m, [[0], [1], [2]], 1), sg.ShapeError, "batch_dims=1"
    ),
    bad(
        "gather_nd, policy",
        lambda s: sg.gather_nd(s.m, [[0]], 0, None, "ERROR"),
        sg.ArgumentError,
        "'IGNORE'",
    ),
    bad(
        "scatter_nd of a wrong shape", lambda s: sg.scatter_nd([[0]], s.v, [5]), sg.ShapeError, "(C4)", "[1]"
    ),
    bad("scatter_nd without depth", lambda s: sg.scatter_nd(0, s.v, [5]), sg.ShapeError, "last axis"),
    bad(
        "tensor_scatter_nd_update of floats",
        lambda s: sg.tensor_scatter_nd_update(s.i, [[0]], [0.5]),
        sg.DTypeError,
        "int32",
        "sg.cast",
    ),
    bad(
        "tensor_scatter_nd_add, wrong",
        lambda s: sg.tensor_scatter_nd_add(s.v, [[0]], s.v),
        sg.ShapeError,
        "(C4)",
    ),
    bad(
        "scatter_max of complex",
        lambda s: sg.scatter_max(s.z, [0], [1j]),
        sg.DTypeError,
        "TensorScatterMax",
    ),
    bad(
        "scatter_update, axis",
        lambda s: sg.scatter_update(s.v, [0], [1.0], axis=1),
        sg.AxisError,
        "axis 1",
    ),
    bad(
        "ravel nothing",
        inside(lambda s: sg.ravel_multi_index([], [])),
        sg.ShapeError,
        "RavelMultiIndex",
        "(C2)",
    ),
    bad(
        "unravel floats", lambda s: sg.unravel_index(s.v, [2, 3]), sg.DTypeError, "unravel_index", "integers"
    ),
    bad("take by text", lambda s: sg.take(s.v, "a"), sg.DTypeError, "text"),
    bad("one_hot of floats", lambda s: sg.one_hot(s.v, 3), sg.DTypeError, "OneHot", "integers"),
    bad(
        "slice, too few", lambda s: sg.slice(s.m, [0], [1]), sg.ShapeError, "slice", "2 axes", "one for each"
    ),
    bad("slice beyond", lambda s: sg.slice(s.m, [0, 2], [1, 2]), sg.ShapeError, "slice", "axis 1"),
    bad("slice from the end", lambda s: sg.slice(s.v, [-1], [1]), sg.ShapeError, "counts from the end"),
    bad(
        "slice to the end of a tensor",
        lambda s: sg.slice(s.v, s.i, [-1]),
        sg.ShapeError,
        "-1",
        "depends on data",
    ),
    bad(
        "dynamic_slice too large", lambda s: sg.dynamic_slice(s.v, [0], [4]), sg.ShapeError, "(C3)", "size 3"
    ),
    bad("dynamic_slice by floats", lambda s: sg.dynamic_slice(s.v, [0.5], [1]), sg.DTypeError, "integers"),
    bad(
        "dynamic_slice, too many",
        lambda s: sg.dynamic_slice(s.v, s.i, [1]),
        sg.ShapeError,
        "one for each axis",
    ),
    bad(
        "dynamic_update_slice of floats",
        lambda s: sg.dynamic_update_slice(s.i, s.v, [0]),
        sg.DTypeError,
        "DynamicUpdateSlice",
        "sg.cast",
    ),
    bad(
        "strided_slice of unequal lengths",
        lambda s: sg.strided_slice(s.m, [0], [1, 2]),
        sg.ArgumentError,
        "begin, end and strides",
    ),
    bad(
        "strided_slice, var",
        lambda s: sg.strided_slice(s.v, [0], [1], var=s.w),
        sg.ArgumentError,
        "sg.assign",
    ),
]

TOGETHER = [
    bad("split by num", lambda s: sg.split(s.v, [1, 2], 0, 3), sg.ShapeError, "Split", "num=3", "2 parts"),
    bad("split into too much", lambda s: sg.split(s.v, [4, -1]), sg.ShapeError, "Split", "smaller"),
    bad("unstack by num", lambda s: sg.unstack(s.v, 4), sg.ShapeError, "unstack", "4 elements"),
    bad(
        "pad by a mode of another kind",
        lambda s: sg.pad(s.v, [[1, 1]], 3),
        sg.ArgumentError,
        "PadV2",
        "'REFLECT'",
    ),
    bad("roll by a float", lambda s: sg.roll(s.v, 0.5, 0), sg.ArgumentError, "roll", "shift"),
    bad(
        "roll two axes by three",
        lambda s: sg.roll(s.m, [1, 2, 3], [0, 1]),
        sg.ShapeError,
        "3 shifts for 2 axes",
    ),
    bad("repeat as often as depends", lambda s: sg.repeat(s.v, s.i), sg.ShapeError, "total_repeat_length="),
    bad("repeat less than never", lambda s: sg.repeat(s.v, -1), sg.ShapeError, "repeat", "[-1]".strip("[]")),
    bad("repeat by too few", lambda s: sg.repeat(s.v, [1, 2]), sg.ShapeError, "(C2)", "one for each"),
    bad("flip by text", lambda s: sg.flip(s.v, "a"), sg.ArgumentError, "axis", "'a'"),
    bad("moveaxis, twice", lambda s: sg.moveaxis(s.m, [0, 0], [0, 1]), sg.ShapeError, "moveaxis", "[0, 0]"),
    bad("rot90 about one axis", lambda s: sg.rot90(s.m, 1, (0, 0)), sg.ShapeError, "rot90", "[0, 0]"),
    bad("diff, negative", lambda s: sg.diff(s.v, -1), sg.ArgumentError, "diff", "-1"),
    bad("no permutation", inside(lambda s: sg.invert_permutation([0, 0])), sg.ArgumentError, "0 to 1 once"),
    bad(
        "argsort, stable",
        lambda s: sg.argsort(s.v, -1, "ASCENDING", "yes"),
        sg.ArgumentError,
        "stable",
        "'yes'",
    ),
    bad(
        "top_k, index_type", lambda s: sg.top_k(s.v, 1, True, sg.float32), sg.DTypeError, "TopKV2", "integers"
    ),
    bad("cummax of complex", lambda s: sg.cummax(s.z), sg.DTypeError, "Cummax", "real numbers", blames="z"),
    bad("cumulative_logsumexp, axis", lambda s: sg.cumulative_logsumexp(s.v, 1), sg.AxisError, "axis 1"),
    bad(
        "searchsorted, side",
        lambda s: sg.searchsorted(s.v, s.v, "middle"),
        sg.ArgumentError,
        "'left' or 'right'",
    ),
    bad("searchsorted by rows", lambda s: sg.searchsorted(s.m, s.v), sg.ShapeError, "SearchSorted", "(C2)"),
    bad("digitize by a matrix", lambda s: sg.digitize(s.v, s.m), sg.ShapeError, "digitize", "vector"),
    bad("linspace of -1", inside(lambda s: sg.linspace(0.0, 1.0, -1)), sg.ArgumentError, "linspace", "-1"),
    bad(
        "linspace of as many as a tensor says",
        lambda s: sg.linspace(s.s, 1.0, s.s),
        sg.GraphError,
        "when the graph runs",
    ),
    bad("meshgrid, indexing", lambda s: sg.meshgrid(s.v, indexing="yx"), sg.ArgumentError, "'xy' or 'ij'"),
    bad("meshgrid of a matrix", lambda s: sg.meshgrid(s.m), sg.ShapeError, "meshgrid", "vectors"),
    bad(
        "full_like of a vector", lambda s: sg.full_like(s.v, [1.0, 2.0]), sg.ShapeError, "full_like", "scalar"
    ),
    bad(
        "convert_to_tensor to another dtype",
        lambda s: sg.convert_to_tensor(s.v, sg.int32),
        sg.DTypeError,
        "sg.cast",
    ),
    bad(
        "map_structure of two kinds",
        inside(lambda s: sg.map_structure(len, [1], (1,))),
        sg.ArgumentError,
        "differ",
    ),
    bad(
        "map_structure of nothing", inside(lambda s: sg.map_structure(len)), sg.ArgumentError, "at least one"
    ),
    bad(
        "associative_scan of two sizes",
        lambda s: sg.associative_scan(lambda a, b: a, [s.v, s.u]),
        sg.ShapeError,
        "associative_scan",
        "(C2)",
    ),
    bad(
        "associative_scan of a symbolic size",
        lambda s: sg.associative_scan(sg.add, s.x),
        sg.ShapeError,
        "associative_scan",
        "one number",
    ),
]

COUNTING = [
    bad("nonzero without size", lambda s: sg.nonzero(s.b), sg.ShapeError, "depends on data", "size="),
    bad("argwhere without size", lambda s: sg.argwhere(s.b), sg.ShapeError, "depends on data", "size="),
    bad("where without size", lambda s: sg.where(s.b), sg.ShapeError, "depends on data", "size="),
    bad("where with x alone", lambda s: sg.where(s.b, s.v), sg.ArgumentError, "x and y"),
    bad("where with size and x", lambda s: sg.where(s.b, s.v, s.v, size=2), sg.ArgumentError, "size="),
    bad("boolean_mask without size", lambda s: sg.boolean_mask(s.v, s.b), sg.ShapeError, "size=", "sg.where"),
    bad("boolean_mask by integers", lambda s: sg.boolean_mask(s.v, s.i), sg.DTypeError, "booleans"),
    bad("boolean_mask of another shape", lambda s: sg.boolean_mask(s.u, s.b), sg.ShapeError, "[3]", "[4]"),
    bad(
        "boolean_mask, fill",
        lambda s: sg.boolean_mask(s.i, s.b, size=2, fill_value=0.5),
        sg.DTypeError,
        "sg.cast",
    ),
    bad("unique without size", lambda s: sg.unique(s.v), sg.ShapeError, "number of values", "size="),
    bad("unique of -1", lambda s: sg.unique(s.v, size=-1), sg.ShapeError, "unique", "negative"),
    bad("setdiff1d without size", lambda s: sg.setdiff1d(s.v, [1.0]), sg.ShapeError, "size="),
    bad("intersect1d of complex", lambda s: sg.intersect1d(s.z, s.z, size=2), sg.DTypeError, "real numbers"),
    bad("isin, invert", lambda s: sg.isin(s.v, s.v, False, "yes"), sg.ArgumentError, "invert", "'yes'"),
    bad("bincount without size", lambda s: sg.bincount(s.i), sg.ShapeError, "number of bins", "size="),
    bad("bincount of floats", lambda s: sg.bincount(s.v, size=3), sg.DTypeError, "integers"),
    bad("bincount, weights", lambda s: sg.bincount(s.i, s.u, size=3), sg.ShapeError, "weights", "[4]"),
    bad("bincount, axis", lambda s: sg.bincount(s.i, size=3, axis=2), sg.ArgumentError, "axis=2"),
    bad("confusion_matrix", lambda s: sg.confusion_matrix(s.i, s.i), sg.ShapeError, "num_classes="),
    bad("confusion_matrix of floats", lambda s: sg.confusion_matrix(s.v, s.i, 3), sg.DTypeError, "integers"),
    bad(
        "histogram, no range",
        lambda s: sg.histogram_fixed_width(s.v, [0.0]),
        sg.ShapeError,
        "lower and the upper",
    ),
    bad(
        "histogram, no bins",
        lambda s: sg.histogram_fixed_width(s.v, [0.0, 1.0], 0),
        sg.ArgumentError,
        "positive",
    ),
    bad("segment_sum without a number", lambda s: sg.segment_sum(s.v, s.i), sg.ShapeError, "num_segments="),
    bad(
        "segment_sum, falling", lambda s: sg.segment_sum(s.v, [1, 0, 0]), sg.ArgumentError, "unsorted_segment"
    ),
    bad("segment_max of complex", lambda s: sg.segment_max(s.z, [0, 0, 1]), sg.DTypeError, "real numbers"),
    bad("segment_sum by floats", lambda s: sg.segment_sum(s.v, s.v), sg.DTypeError, "integers"),
    bad(
        "unsorted_segment_sum, short",
        lambda s: sg.unsorted_segment_sum(s.u, s.i, 2),
        sg.ShapeError,
        "[4]",
        "[3]",
    ),
    bad("sequence_mask without maxlen", lambda s: sg.sequence_mask(s.i), sg.ShapeError, "maxlen="),
    bad(
        "count_nonzero, keepdims", lambda s: sg.count_nonzero(s.v, None, "yes"), sg.ArgumentError, "keepdims"
    ),
]

CASES = INDEXING + ALONG + TOGETHER + COUNTING


def test_there_are_many_cases_and_no_two_of_one_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 110


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_bad_input_is_refused_and_leaves_everything_as_it_was(case: Bad) -> None:
    check_refused(case)
