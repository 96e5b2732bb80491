"""Graphs as text, with one operation per line, which can be read back.

::

    x: float32[n, 3] = Placeholder(dtype=float32, shape=(n, 3))
    Exp: float32[n, 3] = Exp(x)
    gradients/Mul: float32[n, 3] = Mul(gradients/Fill, Exp) for Exp

An operand is the name of an operation, with ``:i`` if it is not the first output. Small constants are in the
line; large ones are ``array("name")``, with the array in the file. Operations of a ``no_gradient`` block say
so (``inside no_gradient 1``, and ``1/2`` for a block 2 inside it). The graphs of bodies are written before
the operation that runs them::

    graph 1 {
      h: float32[] = Placeholder(dtype=float32, shape=())
      Exp: float32[] = Exp(h)
    }
    While: float32[] = While(x, body=body(1, ("h",), ("Exp",)))

An operation of a gradient names its forward operation (``for Exp``; ``for 1:Exp`` if that is in graph 1).
Unknown sizes are numbered anew in each text (``_1``): they equal no size of any other graph.
:mod:`stopgrad.graph.text.grammar` has the grammar of values.
"""

from __future__ import annotations

from collections.abc import Mapping

from stopgrad.base.coercion import flag
from stopgrad.base.errors import GraphError
from stopgrad.base.types import TensorType
from stopgrad.graph.files import check_array
from stopgrad.graph.graph import Graph
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.text.text_reader import Reader
from stopgrad.graph.text.text_writer import Writer


def to_text(graph: Graph) -> str:
    """The graph as text, with one operation per line, without locations and the values of large constants.

    Raises:
        GraphError: names the first operation that cannot be written, with its line.
    """
    return "".join([f"{line}\n" for line in Writer().lines(graph)])


def from_text(text: str, arrays: Mapping[str, NumpyArray] | None = None, *, trusted: bool = False) -> Graph:
    """The graph that :func:`to_text` wrote.

    The text may come from anywhere: nothing in it is executed, and the cost of reading is bounded by its
    length.

    Args:
        text: as :func:`to_text` writes it.
        arrays: the values of large constants, by their names in the text.
        trusted: whether programs of JAX that the text brings may run: native code, which can do anything.

    Raises:
        GraphError: names the line that cannot be read, or whose types do not follow from its operands.

    Examples:
        >>> graph = sg.Graph.from_text('x: float32[n] = Placeholder(dtype=float32, shape=(n,))')
        >>> graph.operations
        (<Placeholder 'x'>,)
    """
    mapping = {} if arrays is None else arrays

    def array(name: str, type: TensorType) -> NumpyArray:
        if name not in mapping:
            raise GraphError(
                f"the array {name[:60]!r} is not in the text; it is in the file that Graph.save writes"
            )
        check_array(mapping[name].dtype, mapping[name].shape, type, "the mapping", f"the array {name[:60]!r}")
        return mapping[name]

    return Reader(array, flag(trusted, "from_text: trusted")).read(text)


Graph.to_text = to_text  # type: ignore[method-assign, assignment]
Graph.from_text = staticmethod(from_text)  # type: ignore[method-assign]
