# The iteration runs in lax.fori_loop with a fixed number of steps.
# finds: nothing
import jax
import jax.numpy as jnp
from jax import lax


def newton_sqrt(a):
    def body(i, y):
        return 0.5 * (y + a / y)

    return lax.fori_loop(0, 10, body, a)

def loss(a):
    return (newton_sqrt(a) - 3.0) ** 2

a = jnp.array(4.0)
for _ in range(4):
    a = a - 0.5 * jax.grad(loss)(a)
print(a)
