# A Python if asks for the truth of a traced norm inside jit: TracerBoolConversionError.
# finds: jax-concrete
import jax
import jax.numpy as jnp


@jax.jit
def update(w, x, y):
    grad = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    norm = jnp.linalg.norm(grad)  # <computed>
    if norm > 1.0:  # <read>
        grad = grad / norm
    return w - 0.1 * grad

x = jax.random.normal(jax.random.PRNGKey(0), (16, 3))
y = x @ jnp.array([3.0, -2.0, 1.0])
w = jnp.zeros(3)
for _ in range(5):
    w = update(w, x, y)
print(w)
