"""Discrete Fourier transforms. Their names are too general for ``sg``; they are in ``sg.xp.fft``."""
