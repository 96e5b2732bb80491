"""Discrete Fourier transforms. Their names are too general for ``sg``; they stand in ``sg.xp.fft``."""
