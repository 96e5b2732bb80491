"""The error for whoever asks a tensor for its value while the graph is built; imported when somebody does."""

from __future__ import annotations

from stopgrad.base.constructs import asked
from stopgrad.base.errors import GraphError
from stopgrad.base.source import capture
from stopgrad.graph.graph import Output, describe


def _no_value(x: Output, what: str) -> GraphError:
    return GraphError(
        f"{what} of {describe(x)} is not known while tracing: it is there when the graph runs, "
        f"where Session.run or the function returns it. {asked(capture())}"
    )


Output._no_value = _no_value
