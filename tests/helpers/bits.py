"""Arrays with every kind of bits that an element type has."""

from __future__ import annotations

from typing import Any

import numpy as np

import stopgrad as sg


def bits_of_every_kind(dtype: sg.base.types.DType) -> np.ndarray[Any, Any]:
    """Every 8- or 16-bit pattern, and random ones; NaNs of all kinds among them."""
    size = dtype.itemsize
    if dtype.is_bool:
        return np.array([True, False, True])
    if size <= 2:
        return np.arange(256**size, dtype=f"u{size}").view(dtype.numpy)
    part = dtype.real.itemsize
    random = np.random.default_rng(size).integers(0, 256, 64 * part, np.uint8).tobytes()
    special = {4: [0x7FC00000, 0x7F800001, 0xFFC00001, 0x80000000, 1, 0xFF800000], 8: []}[part]
    special = special or [0x7FF8 << 48, (0x7FF0 << 48) + 1, (0xFFF8 << 48) + 1, 1 << 63, 1, 0xFFF0 << 48]
    whole = np.frombuffer(np.array(special, f"u{part}").tobytes() + random, dtype.real.numpy)
    return whole[: len(whole) // 2 * 2].view(dtype.numpy)
