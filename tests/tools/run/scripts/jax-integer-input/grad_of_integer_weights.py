# The initial weights are integers, and jax.grad requires real- or complex-valued inputs: TypeError.
# finds: jax-integer-input
import jax
import jax.numpy as jnp

x = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
y = jnp.array([1.0, 2.0, 3.0])
w = jnp.array([0, 0])  # <made>

def loss(w):
    return jnp.mean((x @ w - y) ** 2)

for _ in range(4):
    w = w - 0.01 * jax.grad(loss)(w)  # <called>
print(w)
