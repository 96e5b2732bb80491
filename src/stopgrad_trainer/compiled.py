"""Compiles an optimiser's function of each element by numba, where that is installed.

ONNX Runtime computes one operation after another, each through the processor's cache; a compiled loop goes
once through memory. The operations are those that are rounded alike everywhere: both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stopgrad_trainer.contents import Port
from stopgrad_trainer.exported import open_plain
from stopgrad_trainer.needed import error, module

Kernel = Callable[..., None]
"""Renews its arrays in place; it is a function of C, within which no handler of a signal runs."""

_OPERATIONS = {
    "Abs": "abs({})",
    "Add": "{} + {}",
    "Div": "{} / {}",
    "Identity": "{}",
    "Max": "np.maximum({}, {})",
    "Min": "np.minimum({}, {})",
    "Mul": "{} * {}",
    "Neg": "-{}",
    "Sign": "np.sign({})",
    "Sqrt": "np.sqrt({})",
    "Sub": "{} - {}",
}
_DTYPES = ("float32", "float64")


def kernel(path: Path, inputs: Sequence[Port], outputs: Sequence[Port]) -> Kernel:
    """A function of each element, as machine code.

    Args:
        path: its graph, in a file of ONNX.
        inputs: of the graph: arrays of one axis, and scalars.
        outputs: of the graph, each of which renews an input.

    Returns:
        A function of arrays in the order of the inputs, scalars as arrays without an axis. It writes over
        those that are renewed.

    Raises:
        EngineError: numba is not installed, or the function is of another dtype than float32 and float64, or
            of other operations than those compiled here.
    """
    numba = module("numba", "a compiled step", "fast")
    dtype = inputs[0].dtype
    other = next((port.dtype for port in inputs if port.dtype != dtype or dtype not in _DTYPES), None)
    if other is not None:
        raise error("EngineError", f"{path}: {other} is not compiled; {' and '.join(_DTYPES)} are")
    names = {port.name: f"x{i}" for i, port in enumerate(inputs)}
    element = _element(path, names, np.dtype(dtype))
    missing = next((port.name for port in outputs if port.name not in element.names), None)
    if missing is not None:
        raise error("EngineError", f"{path}: there is no {missing!r:.80}")
    scalars = [names[port.name] for port in inputs if port.role == "scalar"]
    arrays = [names[port.name] for port in inputs if port.role != "scalar"]
    text = [f"def renew({', '.join(f'{name}_' for name in names.values())}):"]
    text += [f"    {name} = {name}_[()]" for name in scalars]
    text += [f"    for i in range({arrays[0]}_.size):"]
    text += [f"        {name} = {name}_[i]" for name in arrays]
    text += [f"        {line}" for line in element.statements]
    text += [f"        {names[port.updates]}_[i] = {element.names[port.name]}" for port in outputs]
    namespace = {"np": np, **element.constants}
    # The text holds names counted here and the operations above, and nothing of the file.
    exec(compile("\n".join(text), f"<{path.name}, compiled>", "exec"), namespace)  # noqa: S102
    kind = getattr(numba, dtype)
    types = [numba.types.Array(kind, int(port.role != "scalar"), "C") for port in inputs]
    compiled: Kernel = numba.njit(numba.void(*types), nogil=True, error_model="numpy")(namespace["renew"])
    return compiled


@dataclass
class _Element:
    """What is done with one element.

    Attributes:
        names: of all values, by those of the graph.
        statements: in order.
        constants: by name.
    """

    names: dict[str, str]
    statements: list[str]
    constants: dict[str, Any]

    def add(self, path: Path, node: Any, dtype: np.dtype[Any], array_of: Callable[[Any], Any]) -> None:
        """Take up one operation.

        Raises:
            EngineError: it is not compiled.
        """
        operands = [self.names.get(name, "") for name in node.input]
        template = "" if node.domain else _OPERATIONS.get(node.op_type, "")
        if node.op_type == "Constant" and [attribute.name for attribute in node.attribute] == ["value"]:
            array = array_of(node.attribute[0].t)
            if array.shape or array.dtype != dtype:
                raise error("EngineError", f"{path}: a constant is {array.dtype}{list(array.shape)}")
            self.names[node.output[0]] = name = f"y{len(self.names)}"
            self.constants[name] = dtype.type(array)
        elif template and all(operands) and template.count("{}") == len(operands):
            self.names[node.output[0]] = name = f"y{len(self.names)}"
            self.statements.append(f"{name} = {template.format(*operands)}")
        else:
            raise error("EngineError", f"{path}: {node.op_type:.80} is not compiled")


def _element(path: Path, inputs: dict[str, str], dtype: np.dtype[Any]) -> _Element:
    onnx = module("onnx", "a compiled step", "onnx")
    with open_plain(path) as stored:
        graph = onnx.load_model_from_string(stored.read()).graph
    element = _Element(dict(inputs), [], {})
    for node in graph.node:
        element.add(path, node, dtype, onnx.numpy_helper.to_array)
    return element
