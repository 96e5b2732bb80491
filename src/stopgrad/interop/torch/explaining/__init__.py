"""Errors of PyTorch's, explained by what was recorded: the cause, at both ends, in the user's lines."""
