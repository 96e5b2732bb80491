"""Double DQN whose target is differentiated.

Symptom: leak
Seen in: fg91/Deep-Q-Learning #5 ("maybe the following code needs a stop_gradient?");
philtabor/Deep-Q-Learning-Paper-To-Code #16.

The target network's parameters are an argument of the loss. Where the whole of `params` is differentiated,
they are trained towards the prediction.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.online",)
HELD = ("params.target",)


def broken(params, s, a, r, s_next):
    best = jnp.argmax(s_next @ params["online"], axis=-1)
    q_next = (s_next @ params["target"])[jnp.arange(len(a)), best]
    y = r + 0.9 * q_next  # <- here
    return ((y - (s @ params["online"])[jnp.arange(len(a)), a]) ** 2).mean()


def cured(params, s, a, r, s_next):
    best = jnp.argmax(s_next @ params["online"], axis=-1)
    q_next = (s_next @ params["target"])[jnp.arange(len(a)), best]
    y = lax.stop_gradient(r + 0.9 * q_next)
    return ((y - (s @ params["online"])[jnp.arange(len(a)), a]) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    online, target, s, s_next, r = (
        rng.normal(size=n).astype("f4") for n in [(3, 2), (3, 2), (4, 3), (4, 3), 4]
    )
    return {"online": online, "target": target}, s, np.array([0, 1, 1, 0]), r, s_next
