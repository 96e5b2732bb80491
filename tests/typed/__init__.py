"""What users write, for type checkers; mypy reads it with the package, and the tests run it."""
