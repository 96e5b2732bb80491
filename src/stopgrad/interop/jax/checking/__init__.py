"""Checks of JAX's own derivatives: differences with stops held, and gradients without the stops of a line."""
