"""Exit statuses of the command."""

OK, FAILED, ERROR, INTERRUPTED, LEFT = 0, 1, 2, 130, 141
"""All well; something was found or a check failed; it could not be done; interrupted; nobody reads on.

The last two are those of a shell, for a program that ends by the signal.
"""
