# The step returns the loss and the loop converts it.
# finds: nothing
import jax
import jax.numpy as jnp

history = []

def loss_fn(w, x):
    return jnp.mean((x @ w - 1.0) ** 2)

@jax.jit
def step(w, x):
    loss, grad = jax.value_and_grad(loss_fn)(w, x)
    return w - 0.1 * grad, loss

w = jnp.zeros(2)
for i in range(4):
    w, loss = step(w, jnp.ones((5, 2)) + i / 10)
    history.append(float(loss))
print(history)
