# The jitted step converts the loss by float() to log it: ConcretizationTypeError.
# finds: jax-concrete
import jax
import jax.numpy as jnp

history = []

def loss_fn(w, x):
    return jnp.mean((x @ w - 1.0) ** 2)

@jax.jit
def step(w, x):
    loss, grad = jax.value_and_grad(loss_fn)(w, x)  # <computed>
    history.append(float(loss))  # <read>
    return w - 0.1 * grad

w = jnp.zeros(2)
for i in range(4):
    w = step(w, jnp.ones((5, 2)) + i / 10)
print(history)
