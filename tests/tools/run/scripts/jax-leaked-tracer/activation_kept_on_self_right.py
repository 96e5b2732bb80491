# The activation is returned from the jitted function.
# finds: nothing
import jax
import jax.numpy as jnp


class Model:
    def __init__(self):
        self.w1, self.w2, self.hidden = jnp.ones((3, 4)), jnp.ones(4), None

    def loss(self, params, x):
        w1, w2 = params
        hidden = jnp.tanh(x @ w1)
        return jnp.mean((hidden @ w2) ** 2), hidden

model = Model()
params = (model.w1, model.w2)
step = jax.jit(jax.grad(model.loss, has_aux=True))
for i in range(4):
    grads, model.hidden = step(params, jnp.ones((2, 3)) * i)
    params = tuple(p - 0.1 * g for p, g in zip(params, grads))
    print("mean activation", (model.hidden + 0).mean())
