"""What the translations share: how an operator of PyTorch's is called, and how a table is filled.

A translation is a function of a :class:`Call` and of the arguments that the operator got in the program, with
tensors as outputs of the graph that is being built, and sizes as numbers or :class:`stopgrad.Dim`. It returns
an output, or a tuple of them where the operator has several results.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np
import torch

import stopgrad as sg
from stopgrad.base.types import DType, Size, dtype_of
from stopgrad.graph.operands import NumpyArray
from stopgrad.interop.shared.conversions import Refused
from stopgrad.interop.torch import internals

Translation = Callable[..., object]
Table = dict[str, Translation]


class Call:
    """One call of an operator in a program.

    Attributes:
        node: the node of the program's graph.
        dtypes: the element types of the results.
    """

    values: tuple[Any, ...]

    def __init__(
        self, node: torch.fx.Node, key: Callable[[], Any], sizes: Callable[[Any], Any], live: Container[Any]
    ) -> None:
        self.node = node
        self._live = live
        self.values = results_of(node.meta.get("val"))
        self._key = key
        self._sizes = sizes

    @property
    def dtype(self) -> DType:
        """The element type of the (first) result."""
        return dtype_from(self.values[0].dtype)

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes of the (first) result, as numbers and :class:`stopgrad.Dim`."""
        return tuple(self._sizes(size) for size in self.values[0].shape)

    def key(self) -> sg.Output:
        """A key for random numbers, another one for each call."""
        return self._key()

    def uses(self, result: int) -> bool:
        """Whether the program reads a result."""
        return any(user.args[1] == result for user in self.node.users if user in self._live)

    def common(self, *positions: int) -> DType:
        """The element type to which PyTorch promotes the arguments at these positions."""
        values = [value_of(self.node.args[i]) for i in positions]
        first = values[0]
        if len(values) == 1:
            return dtype_from(
                first.dtype if isinstance(first, torch.Tensor) else torch.result_type(first, first)
            )
        return dtype_from(torch.result_type(values[0], values[1]))

    def scale(self, position: int) -> Any:
        """An argument as PyTorch recorded it, for its strides and its storage."""
        return value_of(self.node.args[position])


def value_of(argument: object) -> Any:
    """An argument as PyTorch recorded it: a tensor without values, a size, or the number itself."""
    value = argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
    return value


def results_of(value: object) -> tuple[Any, ...]:
    """The results of a call as a tuple, also if there is only one."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def dtype_from(dtype: torch.dtype) -> DType:
    """The element type of the same name as PyTorch's."""
    name = str(dtype).removeprefix("torch.")
    try:
        return dtype_of(name)
    except sg.StopgradError:
        raise Refused(f"there is no element type {name} here; convert to another one before") from None


def array_of(x: torch.Tensor, name: str) -> NumpyArray:
    """The values of a tensor as a NumPy array."""
    if x.device.type == "meta" or isinstance(x, internals.FakeTensor):
        raise sg.GraphError(
            f"{name} has no values: it is on the device {x.device}; give the model its weights"
        )
    if x.layout is not torch.strided:
        raise sg.GraphError(f"{name} is a sparse tensor; make it dense, with .to_dense()")
    x = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        dtype = dtype_from(x.dtype)
    except Refused as error:
        raise sg.GraphError(f"{name}: {error}") from None
    if dtype is sg.bfloat16:
        array: NumpyArray = x.view(torch.int16).numpy(force=True).view(dtype.numpy)
        return array
    return np.array(x.numpy(force=True))


def dtype_or(dtype: torch.dtype | None, otherwise: DType) -> DType:
    """The element type that an argument gives, or *otherwise* if it is None."""
    return otherwise if dtype is None else dtype_from(dtype)


def table(*rows: dict[str, Translation] | tuple[str, Translation]) -> Iterator[tuple[str, Translation]]:
    """The rows of a table, with names such as ``"add.Tensor"``, as ``"aten.add.Tensor"``.

    Several overloads of one translation are written with spaces between them: ``"add.Tensor add.Scalar"``.
    """
    for row in rows:
        for names, translation in row.items() if isinstance(row, dict) else (row,):
            for name in names.split():
                yield f"aten.{name}" if "." in name else f"aten.{name}.default", translation
