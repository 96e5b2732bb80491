"""Functions of one example applied to a batch: vmap, and with it jacobian and hessian."""
