# Newton's iteration runs in lax.while_loop, which reverse mode cannot differentiate: ValueError.
# finds: jax-while-loop
import jax
import jax.numpy as jnp
from jax import lax


def newton_sqrt(a):
    def cond(state):
        i, _ = state
        return i < 10

    def body(state):
        i, y = state
        return i + 1, 0.5 * (y + a / y)

    return lax.while_loop(cond, body, (0, a))[1]  # <needed>

def loss(a):
    return (newton_sqrt(a) - 3.0) ** 2
a = jnp.array(4.0)
for _ in range(4):
    a = a - 0.5 * jax.grad(loss)(a)  # <called>
print(a)
