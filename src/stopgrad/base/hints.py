"""Hints for names of TensorFlow, JAX, NumPy and PyTorch that this package does not have (``hints.json``)."""

from __future__ import annotations

import difflib
import json
import pkgutil
from collections.abc import Collection
from typing import Any


def _read() -> dict[str, Any]:
    hints: dict[str, Any] = json.loads(pkgutil.get_data(__name__, "hints.json") or b"")
    return hints


def _split(texts: dict[str, str]) -> dict[str, str]:
    """The text for each of the names that share one."""
    return {name: text for names, text in texts.items() for name in names.split()}


_TABLES = _read()
"""By ours, what others call it; and what to write instead of other names, and of attributes of outputs."""
HINTS = _split({theirs: f"sg.{ours}" for ours, theirs in _TABLES["names"].items()}) | _split(
    _TABLES["advice"]
)
"""What to write instead of a name that does not exist."""
OF_OUTPUTS = _split(_TABLES["outputs"])
"""What to use instead of attributes that outputs do not have."""


def advice(text: str, name: str) -> str | None:
    """A message with what to write instead of a name of another library; None if the name is not known."""
    replacement = HINTS.get(name)
    if replacement is None:
        return None
    return f"{text}; it is {replacement}" if replacement.startswith("sg.") else f"{text}: {replacement}"


def hint_for(name: str, names: Collection[str]) -> str:
    """The message for a name that this package does not have.

    Args:
        name: the name that was asked for.
        names: the names that exist.

    Examples:
        >>> hint_for("sum", ["reduce_sum"])
        "stopgrad has no 'sum'; it is sg.reduce_sum"
        >>> hint_for("redcue_sum", ["reduce_sum"])
        "stopgrad has no 'redcue_sum'; did you mean sg.reduce_sum?"
    """
    text = f"stopgrad has no {name!r}"
    message = advice(text, name)
    if message is not None:
        return message
    close = difflib.get_close_matches(name, list(names), 3, 0.75)
    if close:
        return f"{text}; did you mean {' or '.join(f'sg.{similar}' for similar in close)}?"
    close = difflib.get_close_matches(name, HINTS, 1, 0.75)
    if close and HINTS[close[0]].startswith("sg."):
        return f"{text}; did you mean {close[0]}? It is {HINTS[close[0]]}"
    return f"{text}; dir(sg) lists what it has, and 'stopgrad ops' what each operation does"


def hint_for_output(name: str) -> str | None:
    """The message for an attribute that outputs do not have; None if there is no hint.

    Examples:
        >>> hint_for_output("detach")
        "an output has no 'detach'; it is sg.stop_gradient(x)"
    """
    replacement = OF_OUTPUTS.get(name)
    return None if replacement is None else f"an output has no {name!r}; it is {replacement}"
