"""A function of NumPy in a loss that is traced.

Symptom: error
Seen in: jax-ml/jax PR #3160, whose message asks whether you might have `import numpy as np` instead of
`import jax.numpy as jnp`; PlasmaControl/DESC #1403, DifferentiableUniverseInitiative/jax_cosmo #91.

NumPy asks for the numbers. Were it given them, no gradient would come back from there.
"""

import jax.numpy as jnp
import numpy as np

LEARNS = ("w",)


def broken(w, x):
    h = np.maximum(np.asarray(x @ w), 0.0)  # <- here
    return jnp.sum(h**2)


def cured(w, x):
    h = jnp.maximum(x @ w, 0.0)
    return jnp.sum(h**2)


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2)).astype("f4"), rng.normal(size=(4, 3)).astype("f4")
