"""Runs the user's code once more without anybody noticing."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """What runs in here prints nothing, and leaves random states of Python and NumPy as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
