# The loss has one value for each sample; jax.grad wants a scalar-output function and raises TypeError.
# finds: jax-not-scalar
import jax
import jax.numpy as jnp


def loss_fn(params, x, y):
    pred = jnp.tanh(x @ params["w"]) + params["b"]
    return (pred - y) ** 2  # <computed>

def main():
    key = jax.random.PRNGKey(0)
    x = jax.random.normal(key, (8, 3))
    params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    for _ in range(4):
        grads = jax.grad(loss_fn)(params, x, x.sum(1))
        params = jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads)
    print(params)

main()
