"""A critic whose loss is the advantage that was stopped for the actor.

Symptom: none
Seen in: jsboige/CoursIA PR #15256 ("dead critic, value loss detached from the graph, critic never trained");
tensorpack/tensorpack #358 answers why the two are written apart.

The stop belongs to one use of the advantage, the actor's; here it is part of its definition.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.critic",)


def broken(params, states, actions, returns):
    values = states @ params["critic"]
    advantages = lax.stop_gradient(returns - values)  # <- here
    log_p = jax.nn.log_softmax(states @ params["actor"])[jnp.arange(len(actions)), actions]
    return -(log_p * advantages).mean() + 0.5 * (advantages**2).mean()


def cured(params, states, actions, returns):
    values = states @ params["critic"]
    advantages = returns - values
    log_p = jax.nn.log_softmax(states @ params["actor"])[jnp.arange(len(actions)), actions]
    return -(log_p * lax.stop_gradient(advantages)).mean() + 0.5 * (advantages**2).mean()


def example():
    rng = np.random.default_rng(0)
    actor, critic, states, returns = (rng.normal(size=s).astype("f4") for s in [(3, 2), 3, (4, 3), 4])
    return {"actor": actor, "critic": critic}, states, np.array([0, 1, 1, 0]), returns
