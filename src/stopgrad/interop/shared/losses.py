"""What is differentiated of what a function returns."""

from __future__ import annotations

from typing import Any


def losses_in(made: Any) -> Any:
    """The part of a function's result that is differentiated.

    Of a dict or an object with attributes, that is what is called loss; of a tuple, the scalars at its
    beginning, so that metrics and activations after a loss are left out; otherwise, the whole result.
    """
    if isinstance(made, dict) and "loss" in made:
        return made["loss"]
    if not isinstance(made, (dict, list, tuple)) and getattr(made, "loss", None) is not None:
        return made.loss
    if isinstance(made, (list, tuple)):
        if getattr(made, "loss", None) is not None:  # A named tuple.
            return made.loss  # type: ignore[union-attr]
        scalars = []
        for one in made:
            if getattr(one, "shape", None) is None or tuple(one.shape) != ():
                break
            scalars.append(one)
        return scalars or made
    return made
