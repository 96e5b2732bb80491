"""An actor's loss that trains the critic through the advantage.

Symptom: leak
Seen in: coreylynch/async-rl #8 ("Took me a while to figure this out in my own code, too"),
keras-team/keras-io #194, icoxfog417/baby-steps-of-rl-ja #16.

The advantage weighs the policy's gradient. Differentiated, it teaches the critic to find bad whatever was
done.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.actor",)
HELD = ("params.critic",)


def broken(params, states, actions, returns):
    advantages = returns - jnp.tanh(states @ params["critic"])  # <- here
    log_p = jax.nn.log_softmax(states @ params["actor"])
    chosen = jnp.take_along_axis(log_p, actions[:, None], axis=-1)[:, 0]
    return -(chosen * advantages).mean()


def cured(params, states, actions, returns):
    advantages = lax.stop_gradient(returns - jnp.tanh(states @ params["critic"]))
    log_p = jax.nn.log_softmax(states @ params["actor"])
    chosen = jnp.take_along_axis(log_p, actions[:, None], axis=-1)[:, 0]
    return -(chosen * advantages).mean()


def example():
    rng = np.random.default_rng(0)
    actor, critic, states, returns = (rng.normal(size=s).astype("f4") for s in [(3, 2), 3, (4, 3), 4])
    return {"actor": actor, "critic": critic}, states, np.array([0, 1, 1, 0]), returns
