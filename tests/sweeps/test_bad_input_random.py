"""Bad input to random functions: each gets an error that names the function, the user's line and the cure.

All are called immediately, with arrays, and in a graph, with placeholders, where nothing is left behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import stopgrad.errors
from together import together

import stopgrad as sg

HERE = __file__
F32 = np.ones(3, np.float32)
C64 = np.ones(3, np.complex64)
KEYS = np.ones((3, 2), np.uint32)
A, D, S = sg.ArgumentError, sg.DTypeError, sg.ShapeError
AXIS = stopgrad.errors.AxisError

# What is called with a key k and a float32 tensor x of shape [3], the error, and what its message holds.
Row = tuple[Callable[[Any, Any], Any], type[sg.StopgradError], tuple[str, ...]]
ROWS: dict[str, Row] = {}


def bad(name: str, wrong: Callable[[Any, Any], Any], error: type[sg.StopgradError], *says: str) -> None:
    assert name not in ROWS
    ROWS[name] = wrong, error, says


TWICE = "behind a key come"
SEED = "a key in the place of a seed: key=sg.random_key(seed)"
MADE = "made by sg.random_key(seed)"

# ------------------------------------------------------------------------------ a key in the wrong place

bad("key first, normal", lambda k, x: sg.random_normal(k, [3], "float32", 0.0), A, "RandomNormal", TWICE)
bad("key first, twice", lambda k, x: sg.random_bits(k, [3], shape=[3]), A, "shape, dtype, once each")
bad("key first, gamma", lambda k, x: sg.random_gamma(k, x, [3], "float32", 2.0), A, "alpha, shape, dtype")
bad("key first, dropout", lambda k, x: sg.dropout(k, 0.5, key=x), D, "dropout", "(C1)", MADE)
bad("key second, fold in", lambda k, x: sg.random_fold_in(3, k), D, "RandomFoldIn", "(C1)", MADE)

# -------------------------------------------------------------------------------------- no key, or no such

bad("seed by name", lambda k, x: sg.random_uniform([3], seed=5), A, "RandomUniform", SEED)
bad("seed by name, dropout", lambda k, x: sg.dropout(x, 0.5, seed=5), A, "dropout", SEED)
bad("seed by name, shuffle", lambda k, x: sg.random_shuffle(x, seed=5), A, "random_shuffle", SEED)
bad("seed by name, gamma", lambda k, x: sg.random_gamma([3], alpha=x, seed=5), A, "random_gamma", SEED)
bad("a seed for a key", lambda k, x: sg.random_normal([3], 5), A, "a key", MADE, "not 5")
bad("two seeds for a key", lambda k, x: sg.random_normal([3], [1, 2]), A, "a key", MADE, "[1, 2]")
bad("parameters for a key", lambda k, x: sg.random_uniform([3], 0.0, 1.0), A, "behind the key")
bad("no key", lambda k, x: sg.random_uniform([3]), A, "RandomUniform", "'key'", "help(sg.random_uniform)")
bad("None for a key", lambda k, x: sg.random_normal([3], None), A, "key=sg.random_key(seed)")
bad("no key for dropout", lambda k, x: sg.dropout(x, 0.5), A, "dropout", "key=sg.random_key(seed)")
bad("text for a key", lambda k, x: sg.random_gumbel([3], "key"), A, "random_gumbel", MADE)
bad("floats for a key", lambda k, x: sg.random_uniform([3], x), D, "(C1)", MADE, "float32[3]")
bad("signed key", lambda k, x: sg.random_uniform([3], np.ones(2, np.int32)), D, "(C1)", MADE, "int32[2]")
bad("key of three", lambda k, x: sg.random_uniform([3], np.ones(3, np.uint32)), S, "(C1)", "uint32[3]")
bad("several keys", lambda k, x: sg.random_uniform([3], KEYS), S, "(C1)", "take one, as in keys[0]")
bad("several keys, split", lambda k, x: sg.random_split(KEYS), S, "RandomSplit", "(C1)", "keys[0]")
bad("several keys, gamma", lambda k, x: sg.random_gamma([3], KEYS, x), S, "random_gamma", "(C1)")
bad("a key of JAX", lambda k, x: sg.random_normal([3], jax.random.key(0)), D, "RandomNormal", "key_data")
bad("float seed", lambda k, x: sg.random_key(0.5), D, "random_key", "a seed is an integer", "float32")
bad("text for a seed", lambda k, x: sg.random_key("0"), D, "random_key", "text")
bad("None for a seed", lambda k, x: sg.random_key(None), D, "random_key", "Python objects")
bad("flag for a seed", lambda k, x: sg.random_key(True), D, "random_key", "a seed is an integer", "bool")
bad("several seeds", lambda k, x: sg.random_key([1, 2]), D, "random_key", "int32[2]")
bad("float folded in", lambda k, x: sg.random_fold_in(k, 1.5), D, "RandomFoldIn", "(C2)", "float32")
bad("several folded in", lambda k, x: sg.random_fold_in(k, [1, 2]), S, "RandomFoldIn", "(C2)", "int32[2]")
bad("None folded in", lambda k, x: sg.random_fold_in(k, None), D, "RandomFoldIn", "Python objects")
bad("split in shape", lambda k, x: sg.random_split(k, [2, 3]), S, "RandomSplit", "one number", "[2, 3]")
bad("split in None", lambda k, x: sg.random_split(k, None), S, "RandomSplit", "one number", "None")
bad("split in halves", lambda k, x: sg.random_split(k, 0.5), S, "RandomSplit", "0.5")
bad("split in less than nothing", lambda k, x: sg.random_split(k, -1), S, "RandomSplit", "-1", "negative")

# ---------------------------------------------------------------------------------------------- shapes

bad("negative size", lambda k, x: sg.random_normal([2, -1], k), S, "RandomNormal", "-1 is negative")
bad("size of a half", lambda k, x: sg.random_uniform([2.5], k), S, "RandomUniform", "2.5")
bad("flag for a size", lambda k, x: sg.random_uniform([True], k), S, "RandomUniform", "True")
bad("shape of floats", lambda k, x: sg.random_gumbel(np.ones(2), k), S, "random_gumbel", "no size")
bad("too many", lambda k, x: sg.random_bits([2**20, 2**20], k), S, "RandomBits", "(C2)", "split the key")
bad(
    "parameters wider than the shape",
    lambda k, x: sg.random_normal([2], k, x),
    S,
    *("RandomNormal", "(C4) mean and stddev of shape [3]", "to the shape [2]", "draw that of the result"),
)
bad("parameters with more axes", lambda k, x: sg.random_uniform([], k, 0.0, x), S, "(C4)", "[3]", "[]")
bad("parameters that disagree", lambda k, x: sg.random_beta(None, k, x, np.ones(4)), S, "[3] and [4]")
bad("rates wider than the shape", lambda k, x: sg.random_poisson([1], k, x), S, "random_poisson", "(C4)")
bad("p wider than the shape", lambda k, x: sg.random_bernoulli([2], k, x), S, "random_bernoulli", "(C4) p")
bad("limits wider", lambda k, x: sg.random_integers([2], k, 0, KEYS[:, 0]), S, "(C4)", "[3]", "[2]")
bad("no vector for Dirichlet", lambda k, x: sg.random_dirichlet([2], k, 1.0), S, "alpha", "last axis")
bad("Dirichlet's front", lambda k, x: sg.random_dirichlet([2], k, F32[:, None]), S, "(C4)", "[3]")

# ---------------------------------------------------------------------------------------- dtypes, values

bad(
    "integer normal",
    lambda k, x: sg.random_normal([3], k, dtype="int32"),
    D,
    "(C3)",
    "a floating-point dtype",
)
bad(
    "boolean uniform", lambda k, x: sg.random_uniform([3], k, dtype=bool), D, "(C3)", "a floating-point dtype"
)
bad("complex gamma", lambda k, x: sg.random_gamma([3], k, x, dtype="complex64"), D, "(C3)", "complex64")
bad("complex mean", lambda k, x: sg.random_normal([3], k, 1j), D, "mean is a real number", "sg.real")
bad("complex alpha", lambda k, x: sg.random_gamma([3], k, C64), D, "alpha", "sg.real")
bad("text for a mean", lambda k, x: sg.random_normal([3], k, "0"), D, "RandomNormal", "text")
bad("None for a scale", lambda k, x: sg.random_laplace([3], k, 0.0, None), D, "Python objects")
bad("no such dtype", lambda k, x: sg.random_normal([3], k, dtype="float31"), D, "float31")
bad("bits of floats", lambda k, x: sg.random_bits([3], k, "float32"), D, "(C3)", "uint32")
bad("floats for integers", lambda k, x: sg.random_integers([3], k, 0, 9.5), D, "maxval", "float32")
bad("float integers", lambda k, x: sg.random_integers([3], k, 0, 9, "float32"), D, "sg.random_uniform")
bad("integers without end", lambda k, x: sg.random_uniform([3], k, 5, dtype="int32"), A, "minval", "maxval")
bad("integers of none", lambda k, x: sg.random_integers([3], k, 5, 5), A, "minval=5", "maxval=5")
bad("integers backwards", lambda k, x: sg.random_integers([3], k, 5, 1), A, "less than maxval=1")
bad("too large for int8", lambda k, x: sg.random_integers([3], k, 0, 300, "int8"), A, "int8", "-128", "128")
bad("counts of Booleans", lambda k, x: sg.random_poisson([3], k, x, bool), D, "random_poisson", "bool")
bad("no rate", lambda k, x: sg.random_poisson([3], k), A, "random_poisson", "'lam'")
bad("logits of a number", lambda k, x: sg.random_categorical(1.0, 2, k), AXIS, "random_categorical", "(C1)")
bad("no such axis", lambda k, x: sg.random_categorical(x, 2, k, axis=1), AXIS, "(C1)", "axis 1")
bad("samples in a shape", lambda k, x: sg.random_categorical(x, [2], k), S, "num_samples", "[2]")
bad("negative samples", lambda k, x: sg.random_categorical(x, -2, k), S, "-2 is negative")
bad("floating classes", lambda k, x: sg.random_categorical(x, 2, k, "float32"), D, "float32")
bad("complex logits", lambda k, x: sg.random_categorical(C64, 2, k), D, "logits", "sg.real")
bad("a number shuffled", lambda k, x: sg.random_shuffle(3.0, k), S, "random_shuffle", "at least one axis")
bad("negative permutation", lambda k, x: sg.random_permutation(-3, k), S, "-3 is negative")
bad("permutation of no axis", lambda k, x: sg.random_permutation(x, k, axis=1), AXIS, "axis 1")
bad("more than there are", lambda k, x: sg.random_choice([4], k, x, False), S, "(C1)", "cannot choose 4 of 3")
bad("one of none", lambda k, x: sg.random_choice([1], k, 0), S, "(C1)", "cannot choose 1 of 0")
bad("weights for others", lambda k, x: sg.random_choice([1], k, x, p=[0.5, 0.5]), S, "(C3)", "each of 3")
bad("weights in a matrix", lambda k, x: sg.random_choice([1], k, 3, p=np.ones((3, 1))), S, "(C3)")
bad("replace in words", lambda k, x: sg.random_choice([1], k, x, "no"), A, "replace is True or False", "'no'")
bad("choice of no axis", lambda k, x: sg.random_choice([1], k, x, axis=2), AXIS, "(C2)", "axis 2")
bad("rate above 1", lambda k, x: sg.dropout(x, 1.5, key=k), A, "dropout", "(C2)", "[0, 1]", "1.5")
bad("rate below 0", lambda k, x: sg.dropout(x, -0.1, key=k), A, "(C2)", "-0.1")
bad("rate of NaN", lambda k, x: sg.dropout(x, np.nan, key=k), A, "(C2)", "nan")
bad("rate in text", lambda k, x: sg.dropout(x, "0.5", key=k), D, "dropout", "text")
bad("rate of None", lambda k, x: sg.dropout(x, None, key=k), D, "dropout", "Python objects")
bad("several rates", lambda k, x: sg.dropout(x, x, key=k), A, "(C2)", "one number", "float32[3]")
bad("flag for a rate", lambda k, x: sg.dropout(x, True, key=k), A, "(C2)", "bool")
bad("noise of another shape", lambda k, x: sg.dropout(x, 0.5, [2], k), S, "(C3)", "[2]", "[3]")
bad("noise of more axes", lambda k, x: sg.dropout(x, 0.5, [2, 3], k), S, "(C3)", "[2, 3]")
bad("dropout of complex", lambda k, x: sg.dropout(C64, 0.5, key=k), D, "x", "sg.real")
bad("complex igamma", lambda k, x: sg.igamma(C64, x), D, "Igamma", "(C1)")
bad("igamma of two shapes", lambda k, x: sg.igamma(x, np.ones(4)), S, "Igamma", "(C2)", "[4]")
bad("betainc of text", lambda k, x: sg.betainc(x, x, "x"), D, "Betainc", "text")
bad("betainc of three shapes", lambda k, x: sg.betainc(x, x, np.ones(2)), S, "Betainc", "(C2)", "[2]")
bad("lbeta of a number", lambda k, x: sg.lbeta(2.0), S, "lbeta", "sg.stack")


def test_there_are_many_rows() -> None:
    assert len(ROWS) >= 85


@together("name", ROWS)
def test_bad_input_is_refused(name: str) -> None:
    wrong, error, says = ROWS[name]
    graph = sg.Graph()
    with graph.as_default():
        given = sg.placeholder(sg.uint32, [2]), sg.placeholder(sg.float32, [3])
    length = len(graph)

    def in_graph() -> None:
        with graph.as_default():
            wrong(*given)

    for call in (lambda: wrong(sg.random_key(1), F32), in_graph):
        with pytest.raises(error) as caught:
            call()
        message = str(caught.value)
        assert type(caught.value) is error, message
        missing = [part for part in says if part not in message]
        assert not missing, message
        named = {int(line) for line in re.findall(re.escape(HERE) + r":(\d+)", message)}
        lines = {line for _, _, line in wrong.__code__.co_lines() if line is not None}
        assert named & lines, message
        assert sg.__path__[0] not in message, message
        assert len(graph) == length


def test_a_shape_that_is_known_only_when_the_graph_runs() -> None:
    with sg.Graph().as_default():
        x, key = sg.placeholder(sg.float32, ["n", 3]), sg.placeholder(sg.uint32, [2])
        with pytest.raises(sg.ArgumentError, match=r"RandomNormal: .*x\.shape.*\n.*test_bad_input_random.py"):
            sg.random_normal(sg.placeholder(sg.int32, [2]), key)
        assert sg.random_normal(x.shape, key).shape == x.shape
