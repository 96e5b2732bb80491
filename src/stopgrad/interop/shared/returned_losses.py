"""What is differentiated of what a function returns."""

from __future__ import annotations

from typing import Any


def losses_in(result: Any) -> Any:
    """The part of a function's result that is differentiated.

    Of a dict or an object with attributes, that is what is called loss; of a tuple, the scalars at its
    beginning, so that metrics and activations after a loss are left out; otherwise, the whole result.
    """
    if isinstance(result, dict) and "loss" in result:
        return result["loss"]
    if not isinstance(result, (dict, list, tuple)) and getattr(result, "loss", None) is not None:
        return result.loss
    if isinstance(result, (list, tuple)):
        if getattr(result, "loss", None) is not None:  # A named tuple.
            return result.loss  # type: ignore[union-attr]
        scalars = []
        for value in result:
            if getattr(value, "shape", None) is None or tuple(value.shape) != ():
                break
            scalars.append(value)
        return scalars or result
    return result
