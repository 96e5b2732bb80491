"""Connectionist temporal classification: the loss of labels that are not aligned with their input."""

from __future__ import annotations

import math

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Output, ShapeError, Size, Tensor
from stopgrad.ops.composing import FLOATING, positions, zeros_beside
from stopgrad.ops.elementwise.arithmetic import add, maximum, multiply, negative, subtract
from stopgrad.ops.elementwise.compare import equal, greater, greater_equal, less, logical_and, not_equal
from stopgrad.ops.elementwise.composite import log_softmax, logaddexp
from stopgrad.ops.elementwise.convert import cast, where, wide
from stopgrad.ops.indexing.gather import take_along_axis
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.shapes.join import concat, pad, stack
from stopgrad.ops.shapes.reshape import broadcast_to, expand_dims, reshape, squeeze, transpose
from stopgrad.ops.structural.sources import size_as
from stopgrad.transforms.control.scans import scan

__all__ = ["ctc_loss"]


@d.guarded("ctc_loss")
def ctc_loss(
    labels: ArrayLike,
    logits: ArrayLike,
    label_length: ArrayLike,
    logit_length: ArrayLike,
    logits_time_major: bool = True,
    unique: None = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """-log of the probability of a sequence of labels, summed over all its alignments with the input.

    An alignment has a label or the blank for each step; repeated labels are merged and then blanks are
    removed to give the sequence.

    Args:
        labels: [batch, labels], integers; those after label_length are ignored.
        logits: [time, batch, classes], logarithms of probabilities, which may be unnormalised.
        label_length: [batch], the number of labels of each sequence; None for all.
        logit_length: [batch], the number of steps of each sequence; None for all.
        logits_time_major: False for logits of shape [batch, time, classes].
        unique: None; a hint with which TensorFlow's computation is faster.
        blank_index: the class that is the blank, negative ones counted from the end; None for 0.
        name: of the result.

    Returns:
        The losses, [batch]; ∞, with a gradient of 0, where there are too few steps for the labels.

    Raises:
        ShapeError, DTypeError, ArgumentError: the shapes do not fit; labels or lengths are no integers.

    References:
        Graves, Fernández, Gomez and Schmidhuber 2006, "Connectionist temporal classification".

    Examples:
        >>> sg.ctc_loss(np.array([[1]]), np.zeros((2, 1, 2)), np.array([1]), np.array([2]))
        array([0.28768207])
    """
    if unique is not None:
        raise ArgumentError("unique has no use here; leave it out")
    (x,) = d.together(logits, promotes=FLOATING)
    kind, label_kind = d.type_of(x), d.type_of(labels)
    d.check_dtype(label_kind, d.is_integer, "integers as labels")
    if kind.ndim != 3 or label_kind.ndim != 2:
        raise ShapeError(
            f"takes labels [batch, labels] and logits of three axes, not {label_kind!r}, {kind!r}"
        )
    x = wide(x) if d.flag(logits_time_major) else transpose(wide(x), (1, 0, 2))
    steps, batch, classes = d.type_of(x).shape
    if not d.same_size(label_kind.shape[0], batch):
        raise ShapeError(f"there are labels for {label_kind.shape[0]} sequences, and logits for {batch}")
    blank = _blank(blank_index, classes)
    count = label_kind.shape[1]
    lengths = _lengths(label_length, count, batch, x, "label_length")
    ends = _lengths(logit_length, steps, batch, x, "logit_length")
    states, skips = _states(cast(labels, d.int32), blank)
    return cast(negative(_forward(_emitted(x, states, blank), skips, lengths, ends)), kind.dtype, name)


def _emitted(x: Output, states: Output, blank: int) -> Tensor:
    """The logarithm of the probability of each state at each step, [time, batch, states]."""
    steps, batch, classes = d.type_of(x).shape
    # A label that is no class has probability 0, which matters only before the end of the labels.
    is_class = logical_and(greater_equal(states, 0), less(states, size_as(classes, d.int32, x)))
    places = expand_dims(where(is_class, states, blank), 0)
    shape = (steps, batch, d.type_of(states).shape[1])
    return where(is_class, take_along_axis(log_softmax(x, -1), broadcast_to(places, shape), -1), -math.inf)


def _blank(blank_index: int | None, classes: Size) -> int:
    index = 0 if blank_index is None else d.whole(blank_index)
    if isinstance(classes, int) and not -classes <= index < classes:
        raise ArgumentError(f"blank_index={index} is none of {classes} classes")
    if index < 0 and not isinstance(classes, int):
        raise ArgumentError(f"blank_index={index} needs a number of classes that is known, not {classes}")
    return index if index >= 0 else index + int(classes)


def _lengths(lengths: ArrayLike | None, most: Size, batch: Size, like: ArrayLike, what: str) -> Tensor:
    """The lengths of sequences as int32, [batch]."""
    if lengths is None:
        return broadcast_to(size_as(most, d.int32, like), (batch,))
    kind = d.type_of(lengths)
    d.check_dtype(kind, d.is_integer, f"integers as {what}")
    if kind.ndim != 1 or not d.same_size(kind.shape[0], batch):
        raise ShapeError(f"{what} must be [{batch}], not {kind!r}")
    return cast(lengths, d.int32)


def _states(labels: ArrayLike, blank: int) -> tuple[Tensor, Tensor]:
    """The labels with blanks around each, and which of these states a path may enter by skipping a blank.

    Those are the labels that differ from the label before.
    """
    batch, count = d.type_of(labels).shape
    blanks = add(multiply(labels, 0), np.int32(blank))
    both = reshape(stack([blanks, labels], 2), (batch, 2 * count))
    states = concat([both, broadcast_to(np.full((1, 1), blank, np.int32), (batch, 1))], 1)
    before = pad(states, [(0, 0), (2, 0)], constant_values=-1)
    before = part_of(before, 1, 0, 2 * count + 1)
    return states, logical_and(not_equal(states, before), not_equal(states, np.int32(blank)))


def _forward(emitted: ArrayLike, skips: ArrayLike, lengths: ArrayLike, ends: ArrayLike) -> Tensor:
    """The logarithms of the probabilities of all alignments, [batch], by the forward algorithm."""
    steps, _, count = d.type_of(emitted).shape
    places = positions(count, emitted)
    # Before the first step, a path is at the first blank.
    first = where(equal(places, 0), zeros_beside(d.type_of(emitted).shape[1:], emitted), -math.inf)
    alive = greater(ends, expand_dims(positions(steps, emitted), 1))

    def shifted(a: ArrayLike, by: int) -> Tensor:
        return part_of(pad(a, [(0, 0), (by, 0)], constant_values=-math.inf), 1, 0, count)

    def step(a: Output, part: tuple[Output, Output]) -> tuple[Tensor, None]:
        logs, here = part
        past = where(skips, shifted(a, 2), -math.inf)
        updated = add(logaddexp(logaddexp(a, shifted(a, 1)), past), logs)
        return where(expand_dims(here, 1), updated, a), None

    last, _ = scan(step, first, (emitted, alive))
    final = multiply(lengths, 2)
    at_blank = take_along_axis(last, expand_dims(final, 1), 1)
    at_label = take_along_axis(last, expand_dims(maximum(subtract(final, 1), 0), 1), 1)
    at_label = where(expand_dims(greater(lengths, 0), 1), at_label, -math.inf)
    return squeeze(logaddexp(at_blank, at_label), 1)
