"""Linear algebra: products, solvers, factorizations, determinants, spectra, norms."""
