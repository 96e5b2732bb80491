"""A tree of parameters is stopped, and the function goes on with the one that is not.

Symptom: leak
Seen in: jax-ml/jax PR #892, of a time when `stop_gradient` of a tree did nothing either: "otherwise it is
silently a no-op".

Arrays of JAX do not change. `stop_gradient` gives back new ones, and here nobody takes them.
"""

import jax
import numpy as np
from jax import lax

LEARNS = ("params.student",)
HELD = ("params.teacher.w", "params.teacher.b")


def broken(params, x):
    teacher = params["teacher"]
    lax.stop_gradient(teacher)
    wanted = jax.nn.softmax(x @ teacher["w"] + teacher["b"])  # <- here
    return -(wanted * jax.nn.log_softmax(x @ params["student"])).sum(-1).mean()


def cured(params, x):
    teacher = lax.stop_gradient(params["teacher"])
    wanted = jax.nn.softmax(x @ teacher["w"] + teacher["b"])
    return -(wanted * jax.nn.log_softmax(x @ params["student"])).sum(-1).mean()


def example():
    rng = np.random.default_rng(0)
    w, b, student, x = (rng.normal(size=s).astype("f4") for s in [(3, 2), 2, (3, 2), (4, 3)])
    return {"teacher": {"w": w, "b": b}, "student": student}, x
