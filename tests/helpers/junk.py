"""What is given to every argument in turn, to see what the error says."""

from __future__ import annotations

from typing import Any

import numpy as np

JUNK: list[Any] = [
    "junk",
    None,
    object(),
    -1,
    1.5,
    [1, [2]],
    (),
    {},
    np.array(["a"]),
    np.zeros((7, 7, 7)),
    True,
    10**30,
    float("nan"),
    lambda: 0,
]
