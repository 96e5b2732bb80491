"""Special functions: gamma, error, incomplete gamma and beta, Bessel."""
