"""Checks of PyTorch's own gradients: differences with constants held, and gradients without stops."""
