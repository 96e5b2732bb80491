"""Calls of keys, draws, and the incomplete gamma and beta functions."""

from __future__ import annotations

import numpy as np

from calls import call

RNG = np.random.default_rng(8)
KEY = np.array([7, 11], np.uint32)
F64, F32 = RNG.uniform(0.3, 3.0, (2, 3)), RNG.uniform(0.3, 3.0, 3).astype(np.float32)
INTS = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
EMPTY = np.zeros((0, 3), np.float32)
SCALE = np.array([0.5, 1.0, 2.0])

LOCATED = [
    call([2, 3], KEY),
    call([], KEY),
    call([0, 3], KEY, dtype="float64"),
    call([4], KEY, 1, 2, "float16"),
    call((2, 3), KEY, F32, 0.5, dtype="bfloat16"),
    call(None, KEY, F64, F32),
    call([2, 3], KEY, INTS, SCALE),
    call(shape=[3], key=KEY, loc=F32, scale=SCALE, dtype="float64", name="drawn"),
]
NORMAL = [
    *LOCATED[:-1],
    call(shape=[3], key=KEY, mean=F32, stddev=SCALE, dtype="float64", name="drawn"),
]

CALLS = {
    "random_key": [call(3), call(-1), call(np.array(-5, np.int32)), call(np.array(2**40 + 3)), call(seed=2)],
    "random_split": [call(KEY), call(KEY, 5), call(key=KEY, num=0, name="keys")],
    "random_fold_in": [
        call(KEY, 3),
        call(KEY, np.array(-2, np.int64)),
        call(key=KEY, data=np.array(7, np.uint8)),
    ],
    "random_bits": [call([2, 3], KEY), call([], KEY, "uint64"), call(shape=[0], key=KEY, dtype="uint8")],
    "random_uniform": [
        call([2, 3], KEY),
        call([2, 3], KEY, 0.1, 2.0, "float64"),
        call([4], KEY, -1, 1, "bfloat16"),
        call(None, KEY, F64, 5),
        call([2, 3], KEY, F32, INTS),
        call([6], KEY, 0, 10, "int32"),
        call([6], KEY, None, None, "uint64"),
        call([0], KEY, 3, 4, "int8"),
        call([2, 3], KEY, INTS, 9, "int64"),
        call(shape=[3], key=KEY, minval=F32, maxval=4.0, dtype="float32", name="drawn"),
    ],
    "random_normal": NORMAL,
    "random_truncated_normal": [*NORMAL, call([3], KEY, lower=F32 - 3.0, upper=SCALE, dtype="float32")],
    "random_gumbel": LOCATED,
    "random_laplace": LOCATED,
    "random_logistic": LOCATED,
    "random_cauchy": LOCATED,
    "random_exponential": [
        call([2, 3], KEY),
        call([0], KEY, 2),
        call(None, KEY, F64),
        call([2, 3], KEY, rate=INTS, dtype="float16"),
    ],
    "random_gamma": [
        call([2, 3], KEY, 0.5),
        call(None, KEY, F64),
        call(None, KEY, F32, 2.0),
        call([0], KEY, 2, 3),
        call([2, 3], KEY, INTS, F32, "float32"),
        call(shape=[3], key=KEY, alpha=F32, beta=SCALE, dtype="bfloat16", name="drawn"),
    ],
    "random_beta": [
        call([2, 3], KEY, 0.5, 2),
        call(None, KEY, F64, F32),
        call([2, 3], KEY, alpha=INTS, beta=F32, dtype="float16"),
    ],
    "random_dirichlet": [
        call(None, KEY, F64),
        call([4, 2], KEY, F32),
        call([], KEY, [1, 2.5], "float64"),
        call([0], KEY, alpha=INTS[0], dtype="float32"),
    ],
    "random_poisson": [
        call([2, 3], KEY, 3),
        call(None, KEY, F64 * 20),
        call([2, 3], KEY, INTS, "float32"),
        call([0], KEY, lam=F32[0], dtype="int64"),
    ],
    "random_bernoulli": [call([2, 3], KEY), call(None, KEY, F64 - 0.5), call([2, 3], KEY, p=F32)],
    "random_categorical": [
        call(F64, 4, KEY),
        call(F64, None, KEY, "int32"),
        call(F32, 0, KEY),
        call(INTS, 2, KEY, axis=0),
        call(logits=F64, num_samples=2, key=KEY, dtype="int64", name="drawn"),
    ],
    "random_integers": [
        call([6], KEY, 0, 10),
        call([2, 3], KEY, INTS, 10, "int8"),
        call(None, KEY, minval=-INTS, maxval=INTS, dtype="int64"),
        call([0], KEY, None, None, "uint16"),
    ],
    "random_permutation": [call(5, KEY), call(F64, KEY), call(value=F64, key=KEY, axis=-1), call(EMPTY, KEY)],
    "random_shuffle": [call(F32, KEY), call(value=INTS, key=KEY), call(EMPTY, KEY)],
    "random_choice": [
        call([2, 2], KEY, 5),
        call([4], KEY, 5, False),
        call([3], KEY, F64, axis=1),
        call([], KEY, F32, p=SCALE),
        call([2], KEY, F32, False, SCALE),
        call(shape=[0], key=KEY, a=EMPTY, replace=True),
    ],
    "dropout": [
        call(F64, 0.3, key=KEY),
        call(F32, np.array(0.3, np.float32), key=KEY),
        call(F32.astype(np.float16), np.array(0.25), None, KEY),
        call(INTS, 0, key=KEY),
        call(F64, 1, key=KEY),
        call(F64, np.array(1), key=KEY),
        call(x=F64, rate=0.5, noise_shape=[None, 1], key=KEY, name="dropped"),
        call(EMPTY, 0.5, [3], KEY),
    ],
    "igamma": [call(F64, F32), call(2, F64), call(a=INTS, x=F32), call(F32, EMPTY)],
    "igammac": [call(F64, F32), call(2.0, F64), call(a=F32.astype(np.float16), x=2)],
    "betainc": [
        call(F64, F32, 0.3),
        call(2, 3, F64 / 4),
        call(a=INTS, b=F32, x=np.array([0.0, 0.5, 1.0])),
    ],
    "lbeta": [call(F64), call([1, 2, 3]), call(x=INTS), call(EMPTY)],
}
