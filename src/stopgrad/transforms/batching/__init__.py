"""Functions of one example for many, and what follows from it: vmap, jacobian, hessian."""
