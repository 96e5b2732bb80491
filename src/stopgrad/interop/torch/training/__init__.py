"""The audit of a training: what each backward pass and each step of an optimizer did to each parameter."""
