"""Functions of functions: gradients, batching, control flow. They build operations and compute nothing."""
