"""Ensembles of decision trees: all trees are walked at once, a level a time, by gathers and comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Table
from stopgrad.interop.onnx.operators.classical import (
    first_largest,
    floats,
    labelled,
    labels_of,
    of_two,
    transformed,
)

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""As the numbers of TreeEnsemble count them; a leaf is at none."""

_COMPARED: dict[str, Any] = {
    "BRANCH_LEQ": sg.less_equal,
    "BRANCH_LT": sg.less,
    "BRANCH_GTE": sg.greater_equal,
    "BRANCH_GT": sg.greater,
    "BRANCH_EQ": sg.equal,
    "BRANCH_NEQ": sg.not_equal,
}

_DEEPEST = 4096
"""The most levels of a tree."""


@dataclass
class Forest:
    """All nodes of all trees, by number. A leaf leads to itself.

    Attributes:
        features: the column that a node compares.
        values: what it is compared with.
        modes: the names of the comparisons.
        ways: the numbers of the nodes that follow where the comparison holds, and where not: [2, nodes].
        tracks: whether a NaN goes where the comparison holds.
        roots: the first node of each tree.
        weights: what a leaf adds to each target: [nodes, targets].
        members: what BRANCH_MEMBER nodes look for, [nodes, most]; filled up with NaN.
    """

    features: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    modes: list[str]
    ways: np.ndarray[Any, Any]
    tracks: np.ndarray[Any, Any]
    roots: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]
    members: np.ndarray[Any, Any] | None = None

    def depth(self, node: Call) -> int:
        """The most comparisons on the way to a leaf."""
        here, depth = np.unique(self.roots), 0
        while True:
            after = np.unique(self.ways[:, here])
            after = after[~((self.ways[0, after] == after) & (self.ways[1, after] == after))]
            if not len(after):
                return depth + 1
            here, depth = after, depth + 1
            if depth > _DEEPEST:
                node.fail("a tree leads back to a node above")

    def leaves(self, node: Call, x: sg.Output) -> sg.Output:
        """The leaf of each row in each tree, [n, trees]."""
        kinds = sorted({mode for mode in self.modes if mode != "LEAF"})
        readable = {*_COMPARED} if self.members is None else {*_COMPARED, "BRANCH_MEMBER"}
        wrong = next((mode for mode in kinds if mode not in readable), None)
        if wrong is not None:
            node.fail(f"its nodes have the mode {wrong!r}, which is not read")
        if len(self.values) and int(self.features.max()) >= int(x.shape[1]):
            node.fail(f"it compares column {int(self.features.max())} of {x.shape[1]}")
        first = np.zeros((1, len(self.roots)), np.int64) + self.roots
        rows = sg.cast(sg.zeros_like(x[:, :1]), sg.int64)
        here = rows + first
        for _ in range(self.depth(node)):
            column = sg.gather(sg.constant(self.features), here)
            value = sg.gather(x, column, axis=1, batch_dims=1)
            limit = sg.gather(sg.constant(self.values), here)
            holds = self._holds(kinds, value, limit, here)
            if self.tracks.any():
                tracks = sg.gather(sg.constant(self.tracks), here)
                holds = sg.logical_or(holds, sg.logical_and(tracks, sg.is_nan(value)))
            yes, no = (sg.gather(sg.constant(way), here) for way in self.ways)
            here = sg.where(holds, yes, no)
        return here

    def _holds(self, kinds: list[str], value: sg.Output, limit: sg.Output, here: sg.Output) -> sg.Output:
        if not kinds:
            return sg.zeros_like(value, dtype=sg.bool_)
        holds = self._compared(kinds[0], value, limit, here)
        for kind in kinds[1:]:
            of_kind = sg.gather(sg.constant(np.array([mode == kind for mode in self.modes])), here)
            holds = sg.where(of_kind, self._compared(kind, value, limit, here), holds)
        return holds

    def _compared(self, kind: str, value: sg.Output, limit: sg.Output, here: sg.Output) -> sg.Output:
        if kind != "BRANCH_MEMBER" or self.members is None:
            return _COMPARED[kind](value, limit)
        members = sg.gather(sg.constant(self.members), here)
        return sg.reduce_any(sg.equal(sg.expand_dims(value, value.ndim), members), axis=-1)

    def scores(self, node: Call, x: sg.Output) -> sg.Output:
        """What the leaves of each row say together, [n, targets]."""
        kind = node.attribute("aggregate_function", "SUM")
        kind = ("AVERAGE", "SUM", "MIN", "MAX")[kind] if isinstance(kind, int) else kind
        outputs = sg.gather(sg.constant(self.weights), self.leaves(node, x))
        reductions = {
            "SUM": sg.reduce_sum,
            "AVERAGE": sg.reduce_sum,
            "MIN": sg.reduce_min,
            "MAX": sg.reduce_max,
        }
        if kind not in reductions:
            node.fail(f"its aggregate_function is {kind!r}, which does not exist")
        total = reductions[kind](outputs, axis=1)
        return total / float(len(self.roots)) if kind == "AVERAGE" else total


def _read(node: Call, leaf: str, targets: int) -> tuple[Forest, np.ndarray[Any, Any]]:
    """The trees of an ensemble of before opset 5, and which targets each of its leaves names."""
    trees, numbers = ([int(n) for n in node.attribute(f"nodes_{key}", [])] for key in ("treeids", "nodeids"))
    places = {key: i for i, key in enumerate(zip(trees, numbers, strict=True))}
    count = len(places)
    modes = list(node.attribute("nodes_modes", []))
    lists = {key: node.attribute(f"nodes_{key}", []) for key in ("featureids", "truenodeids", "falsenodeids")}
    values = _numbers(node, "nodes_values")
    if count != len(trees) or any(len(entries) != count for entries in (modes, values, *lists.values())):
        node.fail("its lists of nodes are not all of one length, or name a node twice")
    ways = np.tile(np.arange(count), (2, 1))
    for i, (tree, mode) in enumerate(zip(trees, modes, strict=True)):
        if mode != "LEAF":
            for k, key in enumerate(("truenodeids", "falsenodeids")):
                ways[k, i] = _place(node, places, (tree, int(lists[key][i])))
    weights, has = np.zeros((count, targets), values.dtype), np.zeros((count, targets), bool)
    parts = [node.attribute(f"{leaf}_{key}", []) for key in ("treeids", "nodeids", "ids")]
    for tree, number, target, weight in zip(*parts, _numbers(node, f"{leaf}_weights"), strict=True):
        if not 0 <= target < targets:
            node.fail(f"a leaf names target {target} of {targets}")
        position = _place(node, places, (tree, number))
        weights[position, target] += weight
        has[position, target] = True
    first = dict(reversed([(tree, i) for i, tree in enumerate(trees)]))
    tracks = np.asarray(node.attribute("nodes_missing_value_tracks_true", []), bool)
    forest = Forest(
        np.where(np.array(modes) == "LEAF", 0, np.asarray(lists["featureids"], np.int64)),
        values,
        modes,
        ways,
        tracks if len(tracks) else np.zeros(count, bool),
        np.array(sorted(first.values())),
        weights,
    )
    return forest, has[np.array(modes) == "LEAF"]


def _numbers(node: Call, name: str) -> np.ndarray[Any, Any]:
    """Numbers that newer versions may give as a tensor of float64."""
    tensor = node.attribute(f"{name}_as_tensor")
    return floats(node, name) if tensor is None else np.asarray(tensor).reshape(-1)


def _place(node: Call, places: dict[tuple[int, int], int], key: tuple[int, int]) -> int:
    if key not in places:
        node.fail(f"tree {key[0]} has no node {key[1]}")
    return places[key]


def _regression(node: Call, x: sg.Output) -> sg.Output:
    targets = int(node.attribute("n_targets", 1))
    forest, has = _read(node, "target", targets)
    if not has.all() and node.attribute("aggregate_function", "SUM") in ("MIN", "MAX"):
        node.fail("a leaf says nothing of a target, of which the least or the greatest is asked")
    scores = forest.scores(node, _rows(x, forest))
    base = _numbers(node, "base_values")
    scores = scores + base.astype(forest.values.dtype) if len(base) else scores
    return sg.cast(transformed(node, scores), sg.float32)


def _rows(x: sg.Output, forest: Forest) -> sg.Output:
    return sg.cast(x, sg.float64 if forest.values.dtype == np.float64 else sg.float32)


def _classification(node: Call, x: sg.Output) -> sg.Output | tuple[sg.Output | None, sg.Output]:
    classes = labels_of(node)
    forest, has = _read(node, "class", max(classes, 1))
    scores, base = forest.scores(node, _rows(x, forest)), _numbers(node, "base_values")
    if classes == 2 and not has.all():
        if has[:, 1].any() or len(base) > 1:
            node.fail("of two classes, leaves name one and another, or it has two base values for one score")
        return _of_one_class(node, forest, scores[:, :1], base)
    if len(base):
        scores = scores + base.astype(forest.values.dtype)
    return labelled(node, first_largest(scores)), sg.cast(transformed(node, scores), sg.float32)


def _of_one_class(
    node: Call, forest: Forest, score: Any, base: np.ndarray[Any, Any]
) -> tuple[sg.Output | None, sg.Output]:
    """Two classes, of which the leaves name one: probabilities if no weight is negative, else margins."""
    if len(base):
        score = score + base.astype(forest.values.dtype)[-1:]
    positive = bool((forest.weights >= 0).all())
    chosen = sg.cast(score[:, 0] > (0.5 if positive else 0.0), sg.int64)
    return labelled(node, chosen), sg.cast(of_two(node, score, negated=not positive), sg.float32)


def _ensemble(node: Call, x: sg.Output) -> sg.Output:
    """``TreeEnsemble``: nodes and leaves are numbered apart, and roots are named."""
    features = np.asarray(node.attribute("nodes_featureids", []), np.int64)
    values = np.asarray(node.attribute("nodes_splits")).reshape(-1)
    modes = [_MODES[int(m)] for m in np.asarray(node.attribute("nodes_modes")).reshape(-1)]
    inner, weights = len(features), np.asarray(node.attribute("leaf_weights")).reshape(-1)
    targets = np.asarray(node.attribute("leaf_targetids", []), np.int64)
    count = inner + len(weights)
    ways = np.tile(np.arange(count), (2, 1))
    for k, key in enumerate(("true", "false")):
        to = np.asarray(node.attribute(f"nodes_{key}nodeids", []), np.int64)
        leaf = np.asarray(node.attribute(f"nodes_{key}leafs", []), bool)
        if len(to) != inner or len(leaf) != inner or len(modes) != inner or len(values) != inner:
            node.fail("its lists of nodes are not all of one length")
        ways[k, :inner] = np.where(leaf, to + inner, to)
    if len(targets) != len(weights) or (ways < 0).any() or (ways >= count).any():
        node.fail("a node leads to no node, or a leaf has no target")
    table = np.zeros((count, int(node.attribute("n_targets", 1))), weights.dtype)
    table[inner + np.arange(len(weights)), targets] = weights
    tracks = np.zeros(count, bool)
    tracked = node.attribute("nodes_missing_value_tracks_true", [])
    tracks[: len(tracked)] = np.asarray(tracked, bool)
    forest = Forest(
        np.concatenate([features, np.zeros(len(weights), np.int64)]),
        np.concatenate([values, np.zeros(len(weights), values.dtype)]),
        [*modes, *["LEAF"] * len(weights)],
        ways,
        tracks,
        np.asarray(node.attribute("tree_roots", []), np.int64),
        table,
        _members(node, modes, values.dtype),
    )
    kind = node.attribute("post_transform", 0)
    node.attributes["post_transform"] = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[int(kind)]
    return transformed(node, forest.scores(node, _rows(x, forest)))


def _members(node: Call, modes: list[str], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The sets of the nodes of the mode BRANCH_MEMBER, which stand one after another, each ended by a NaN."""
    sets: list[list[float]] = [[]]
    for x in np.asarray(node.attribute("membership_values", [])).reshape(-1).tolist():
        sets.append([]) if math.isnan(x) else sets[-1].append(x)
    asking = [i for i, mode in enumerate(modes) if mode == "BRANCH_MEMBER"]
    if len(asking) > len(sets):
        node.fail(f"{len(asking)} of its nodes ask for members of a set, and it has {len(sets)} sets")
    table = np.full((len(modes), max(map(len, sets)) or 1), np.nan, dtype)
    for i, members in zip(asking, sets, strict=False):
        table[i, : len(members)] = members
    leaves = len(node.attribute("leaf_targetids", []))
    return np.concatenate([table, np.full((leaves, table.shape[1]), np.nan, dtype)])


TREE_ENSEMBLES: Table = {
    "ai.onnx.ml::TreeEnsembleRegressor": _regression,
    "ai.onnx.ml::TreeEnsembleClassifier": _classification,
    "ai.onnx.ml::TreeEnsemble": _ensemble,
}
