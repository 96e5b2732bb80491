"""What is asked of every library, and how some answers are found."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import libraries
import numpy as np

QUESTIONS = {
    "reverse": "A stop in reverse mode: d/dx x·sg(x) = x",
    "forward": "A stop in forward mode",
    "higher": "A stop holds at every order: d²/dx² x²·sg(x) = 2x",
    "hidden": "Nothing is generated behind a stop",
    "graph": "The gradient is a graph, before any value is known",
    "absence": "No gradient: told apart why (stopped, not connected, not differentiable)",
    "explain": "The line that cut the gradient is named",
    "wrt": "A stop with respect to chosen tensors only",
    "switch": "A stop switched at run time, without building again",
    "argument": "Tensors held constant by an argument of the gradient call",
    "straight": "Straight-through with the exact forward value",
    "prevent": "A gate that makes asking for the gradient an error",
    "scale": "Gates that scale, reverse or clip a gradient",
    "nested": "A stop of a nested structure, other leaves untouched",
    "rewrite": "Gates survive rewriting before differentiating",
    "depth": "A chain of 10⁴ operations at Python's default recursion limit",
    "trace": "Compiled code holds no trace of a stop",
}
Answer = tuple[str, str]


def right(value: Any, expected: float, how: str) -> Answer:
    value = float(np.asarray(value))
    return ("yes" if value == expected else "no"), f"{how}: {value:g}"


def hidden(name: str) -> Answer:
    """How many operations the gradient of a chain of 1,000 with a stop behind the 900th takes.

    Compared with those for its live 100 alone.
    """
    library = libraries.LIBRARIES[name]()
    whole, alone = (library.measure(w(1_000), count=True) for w in (libraries.stopped, libraries.live_tenth))
    count, wanted = whole.made - whole.forward, alone.made - alone.forward
    return (
        "yes" if count <= 1.1 * wanted else "no"
    ), f"{count} operations for the gradient; the live part alone needs {wanted}"


def depth(name: str) -> Answer:
    library = libraries.LIBRARIES[name]()
    library.recursion_limit = sys.getrecursionlimit()
    library.measure(libraries.chain(10_000), count=False)
    return "yes", f"at a limit of {sys.getrecursionlimit()}"


def lacks(function: Callable[..., Any], name: str) -> Answer:
    parameters = list(inspect.signature(function).parameters)
    assert name not in parameters
    return "no", f"{function.__name__}({', '.join(parameters)})"


def inexact(common: Callable[[np.ndarray[Any, Any]], Any]) -> str:
    """How often the usual x + stop(hard(x) - x) misses the hard value, here a tenth of the sign."""
    x = np.random.default_rng(0).normal(0, 1, 10_000).astype(np.float32)
    wrong = np.mean(np.asarray(common(x)) != np.float32(0.1) * np.sign(x))
    return f"x + stop(h − x) misses h = 0.1·sign x in {wrong:.0%} of draws"
