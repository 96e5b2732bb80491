"""Operators of ``ai.onnx.ml`` for linear models, support vector machines, scalers and encoders.

Their numbers are attributes, and so constants. Where the standard leaves something open, results are those of
ONNX Runtime, with which exporters of scikit-learn, XGBoost and LightGBM compare theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Table

# ---------------------------------------------------------------------------------------------- scores


def floats(node: Call, name: str) -> np.ndarray[Any, Any]:
    """An attribute of numbers, as float32."""
    return np.asarray(node.attribute(name, []), np.float32)


def transformed(node: Call, x: sg.Output) -> sg.Output:
    """Scores [n, classes] after what the attribute ``post_transform`` says."""
    kind = node.attribute("post_transform", "NONE")
    if kind == "LOGISTIC":
        return sg.sigmoid(x)
    if kind == "SOFTMAX":
        return sg.softmax(x, axis=-1)
    if kind == "SOFTMAX_ZERO":  # Scores of 0 stay 0.
        top = sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True))
        exponentials = sg.where(sg.abs(x) > 1e-7, sg.exp(x - top), x * sg.exp(-top))
        return exponentials / sg.reduce_sum(exponentials, axis=-1, keepdims=True)
    if kind == "PROBIT":
        return math.sqrt(2.0) * sg.erfinv(2.0 * x - 1.0)
    if kind != "NONE":
        node.fail(f"its post_transform is {kind!r}, which does not exist")
    return x


def of_two(node: Call, score: sg.Output, *, negated: bool) -> sg.Output:
    """The scores of two classes, of which only that of the second is given, [n, 1]: -s or 1 - s, and s."""
    kind = node.attribute("post_transform", "NONE")
    if kind == "PROBIT":
        node.fail("nothing says what its post_transform PROBIT makes of one score for two classes")
    if kind == "LOGISTIC":
        return sg.sigmoid(sg.concat([-score, score], 1))
    return sg.concat([-score if negated else 1.0 - score, score], 1)


def labelled(node: Call, chosen: sg.Output) -> sg.Output | None:
    """The labels of classes, by their numbers; None where nobody asks for them."""
    if not node.wants(0):
        return None
    strings, numbers = (node.attribute(f"classlabels_{kind}") for kind in ("strings", "ints"))
    if numbers is None:
        numbers = node.attribute("classlabels_int64s")
    if strings and not numbers:
        node.fail("its labels are strings, which tensors here do not hold; ask for the scores alone")
    return sg.gather(sg.constant(np.asarray(numbers, np.int64)), chosen)


def labels_of(node: Call) -> int:
    """The number of classes."""
    names = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    return next((len(labels) for name in names if (labels := node.attribute(name))), 0)


def first_largest(x: sg.Output) -> sg.Output:
    """The number of the largest score of each row."""
    return sg.argmax(x, axis=1)


# --------------------------------------------------------------------------------------- linear models


def _affine(node: Call, x: sg.Output, count: int) -> sg.Output:
    weights, offsets = floats(node, "coefficients"), floats(node, "intercepts")
    if not count or weights.size % count:
        node.fail(f"{weights.size} coefficients are not those of {count} rows")
    if offsets.size not in (0, count):
        node.fail(f"it has {offsets.size} intercepts for {count} rows")
    rows = x if x.ndim == 2 else sg.expand_dims(x, 0)
    scores = sg.matmul(sg.cast(rows, sg.float32), sg.constant(weights.reshape(count, -1).T.copy()))
    return scores + offsets if offsets.size else scores


def _regression(node: Call, x: sg.Output) -> sg.Output:
    return transformed(node, _affine(node, x, int(node.attribute("targets", 1))))


def _classification(node: Call, x: sg.Output) -> tuple[sg.Output | None, sg.Output]:
    classes = labels_of(node)
    scores = _affine(node, x, len(floats(node, "intercepts")) or classes)
    if scores.shape[1] == 1:
        chosen = sg.cast(scores[:, 0] > 0.0, sg.int64)
        alone = classes != 2
        return labelled(node, chosen), transformed(node, scores) if alone else of_two(
            node, scores, negated=False
        )
    return labelled(node, first_largest(scores)), transformed(node, scores)


# --------------------------------------------------------------------------- support vector machines


def _kernel(node: Call, x: sg.Output, vectors: np.ndarray[Any, Any]) -> sg.Output:
    """The kernel of each row with each support vector, [n, vectors]."""
    kind = node.attribute("kernel_type", "LINEAR")
    gamma, offset, degree = (*floats(node, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        apart = sg.expand_dims(x, 1) - vectors[None]
        return sg.exp(-gamma * sg.reduce_sum(sg.square(apart), axis=-1))
    products = sg.matmul(x, sg.constant(vectors.T.copy()))
    if kind == "LINEAR":
        return products
    inner = gamma * products + offset
    if kind == "POLY":
        whole = int(degree) if float(degree).is_integer() else None
        return sg.pow(inner, degree) if whole is None else _power(inner, whole)
    if kind == "SIGMOID":
        return sg.tanh(inner)
    node.fail(f"its kernel_type is {kind!r}, which does not exist")


def _power(x: sg.Output, n: int) -> sg.Output:
    """x to a whole power, also of negative numbers."""
    power = sg.ones_like(x)
    for _ in range(n):
        power = power * x
    return power


def _vectors(node: Call, count: int) -> np.ndarray[Any, Any]:
    array = floats(node, "support_vectors")
    if count < 1 or array.size % count:
        node.fail(f"{array.size} numbers are not those of {count} support vectors")
    return array.reshape(count, -1)


def _svm_regression(node: Call, x: sg.Output) -> sg.Output:
    x, weights, rho = sg.cast(x, sg.float32), floats(node, "coefficients"), floats(node, "rho")
    count = int(node.attribute("n_supports", 0))
    rows = _kernel(node, x, _vectors(node, count) if count else weights[None])
    scores = sg.matmul(rows, sg.constant(weights[:, None])) if count else rows
    scores = scores + rho[:1]
    if node.attribute("one_class", 0):
        return sg.where(scores > 0.0, np.float32(1), np.float32(-1))
    return transformed(node, scores)


def _svm_classification(node: Call, x: sg.Output) -> tuple[sg.Output | None, sg.Output]:
    x, rho, classes = sg.cast(x, sg.float32), floats(node, "rho"), labels_of(node)
    counts = [int(n) for n in node.attribute("vectors_per_class", [])]
    if not counts:
        scores = _affine_svm(node, x, classes) + rho[:1]
        return labelled(node, first_largest(scores)), transformed(node, scores)
    if floats(node, "prob_a").size:
        node.fail(
            "its probabilities are found by an iteration over pairs of classes, which is not written here"
        )
    total = sum(counts)
    kernels = _kernel(node, x, _vectors(node, total))
    weights = floats(node, "coefficients")
    if len(counts) != classes or weights.size != (classes - 1) * total:
        node.fail(f"{weights.size} coefficients are not those of {total} vectors of {classes} classes")
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    starts = np.cumsum([0, *counts])
    table = np.zeros((total, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        table[starts[i] : starts[i + 1], p] = weights.reshape(classes - 1, total)[
            j - 1, starts[i] : starts[i + 1]
        ]
        table[starts[j] : starts[j + 1], p] = weights.reshape(classes - 1, total)[
            i, starts[j] : starts[j + 1]
        ]
    scores = sg.matmul(kernels, sg.constant(table)) + rho[: len(pairs)]
    wins = np.zeros((len(pairs), classes), np.float32)
    for p, (i, j) in enumerate(pairs):
        wins[p, i], wins[p, j] = 1.0, -1.0
    first = sg.cast(scores > 0.0, sg.float32)  # The votes of a class: pairs won, less pairs lost.
    votes = sg.matmul(first, sg.constant(np.maximum(wins, 0))) + sg.matmul(
        1.0 - first, sg.constant(np.maximum(-wins, 0))
    )
    chosen = first_largest(votes)
    if classes == 2:
        negated = node.attribute("post_transform", "NONE") == "NONE"
        return labelled(node, chosen), of_two(node, scores, negated=negated)
    return labelled(node, chosen), transformed(node, scores)


def _affine_svm(node: Call, x: sg.Output, classes: int) -> sg.Output:
    """The scores of a linear machine that keeps a row of weights for each class."""
    weights = floats(node, "coefficients")
    if not classes or weights.size % classes:
        node.fail(f"{weights.size} coefficients are not those of {classes} classes")
    return _kernel(node, x, weights.reshape(classes, -1))


# -------------------------------------------------------------------------------- scalers and imputers


def _scaled(node: Call, x: sg.Output) -> sg.Output:
    return (sg.cast(x, sg.float32) - floats(node, "offset")) * floats(node, "scale")


def _normalized(node: Call, x: sg.Output) -> sg.Output:
    x, kind = sg.cast(x, sg.float32), node.attribute("norm", "MAX")
    if kind == "MAX":
        size = sg.reduce_max(x, axis=-1, keepdims=True)
    elif kind == "L1":
        size = sg.reduce_sum(sg.abs(x), axis=-1, keepdims=True)
    elif kind == "L2":
        size = sg.sqrt(sg.reduce_sum(sg.square(x), axis=-1, keepdims=True))
    else:
        node.fail(f"its norm is {kind!r}, which does not exist")
    return x / sg.where(sg.equal(size, 0.0), np.float32(1), size)


def _imputed(node: Call, x: sg.Output) -> sg.Output:
    kind = "floats" if x.dtype.is_floating else "int64s"
    values = node.attribute(f"imputed_value_{kind}", [])
    missing = node.attribute(f"replaced_value_{kind[:-1]}", 0)
    if len(values) not in (1, x.shape[-1]):
        node.fail(f"it imputes {len(values)} values in rows of {x.shape[-1]}")
    lacking = sg.is_nan(x) if missing != missing else sg.equal(x, sg.constant(missing, x.dtype))
    return sg.where(lacking, sg.constant(np.asarray(values), x.dtype), x)


# -------------------------------------------------------------------------------------------- encoders


_NAN_IS_A_KEY = 4
"""The first version of LabelEncoder in which a NaN is found among the keys."""


def _one_hot(node: Call, x: sg.Output) -> sg.Output:
    if node.attribute("cats_strings"):
        node.fail("its categories are strings, which tensors here do not hold")
    categories = np.asarray(node.attribute("cats_int64s", []), np.int64)
    return sg.cast(sg.equal(sg.expand_dims(sg.cast(x, sg.int64), x.ndim), categories), sg.float32)


def _encoded(node: Call, x: sg.Output) -> sg.Output:
    keys, values = _table(node, "keys"), _table(node, "values")
    default = node.attribute("default_tensor")
    if default is None:
        floating = values.dtype.kind == "f"
        default = node.attribute("default_float" if floating else "default_int64", -0.0 if floating else -1)
    if len(keys) != len(values) or not len(keys):
        node.fail(f"it has {len(keys)} keys and {len(values)} values")
    hits = sg.equal(sg.expand_dims(x, x.ndim), sg.constant(keys, x.dtype))
    if node.opset >= _NAN_IS_A_KEY and keys.dtype.kind == "f" and np.isnan(keys).any():
        hits = sg.logical_or(hits, sg.logical_and(sg.is_nan(sg.expand_dims(x, x.ndim)), np.isnan(keys)))
    matched = sg.gather(sg.constant(values), sg.argmax(sg.cast(hits, sg.int32), axis=-1))
    otherwise = sg.constant(np.asarray(default).reshape(()).astype(values.dtype))
    return sg.where(sg.reduce_any(hits, axis=-1), matched, otherwise)


def _table(node: Call, name: str) -> np.ndarray[Any, Any]:
    """The keys or the values of a LabelEncoder, which have one attribute for each dtype."""
    if node.attribute(f"{name}_strings") is not None or node.attribute("classes_strings") is not None:
        node.fail(f"its {name} are strings, which tensors here do not hold")
    tensor = node.attribute(f"{name}_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    whole = node.attribute(f"{name}_int64s")
    return floats(node, f"{name}_floats") if whole is None else np.asarray(whole, np.int64)


def _vectorized(node: Call, *xs: sg.Output) -> sg.Output:
    sizes: Sequence[int] = node.attribute("inputdimensions", [])
    if sizes and len(sizes) != len(xs):
        node.fail(f"it has the sizes of {len(sizes)} inputs, and {len(xs)} inputs")
    rows = [sg.cast(x if x.ndim == 2 else sg.expand_dims(x, 1), sg.float32) for x in xs]
    return sg.concat([x[:, : int(n)] for x, n in zip(rows, sizes, strict=True)] if sizes else rows, 1)


def _unzipped(node: Call, x: sg.Output) -> sg.Output:
    """``ZipMap``, which makes a dict of each row: the rows themselves, a column for each class."""
    return x


_RULES: Table = {
    "LinearRegressor": _regression,
    "LinearClassifier": _classification,
    "SVMRegressor": _svm_regression,
    "SVMClassifier": _svm_classification,
    "Scaler": _scaled,
    "Normalizer": _normalized,
    "Imputer": _imputed,
    "OneHotEncoder": _one_hot,
    "LabelEncoder": _encoded,
    "FeatureVectorizer": _vectorized,
    "ZipMap": _unzipped,
}

CLASSICAL: Table = {f"ai.onnx.ml::{name}": rule for name, rule in _RULES.items()}
