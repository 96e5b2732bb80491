"""NumPy's reductions, as nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.types import Dim, product
from stopgrad.engines.onnxruntime.nodes.kernels import computed_in, has_kernel
from stopgrad.engines.onnxruntime.nodes.node_writing import BOOL, INT64, Writing, writes
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.engines.onnxruntime.nodes.values import Value

Axes = int | Sequence[int] | None
"""One axis, several, or None for all."""
UINT8 = np.dtype(np.uint8)
FEW = 64
"""So many numbers are added by one operator: their errors are no more than those of a few roundings."""
_SIGNED: dict[Any, Any] = {np.dtype(np.uint32): np.dtype(np.int32), np.dtype(np.uint64): INT64}


def _sum_dtype(x: Array, dtype: npt.DTypeLike | None) -> Any:
    """The dtype of a sum or product: as in NumPy, 64 bits for integers unless a dtype is given."""
    if dtype is not None or x.dtype.kind not in "biu":
        return dtype
    return np.dtype(np.uint64) if x.dtype.kind == "u" else INT64


def _places(x: Value, axis: Axes) -> list[int]:
    """The axes of an array that are reduced, in order."""
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return sorted(int(a) % x.ndim for a in axes) if x.ndim else []


class Reducing(Writing):
    """Reductions."""

    def reduce(self, op_type: str, x: Value, axis: Axes, keepdims: bool) -> Value:
        """A reduction along axes; along all where *axis* is None."""
        axes = _places(x, axis)
        if not axes:
            return x
        within = computed_in(op_type, x.dtype)
        shape = [1 if a in axes else size for a, size in enumerate(x.shape) if keepdims or a not in axes]
        operands = [self.value(x, within), np.array(axes, np.int64)]
        return self.cast(self.node(op_type, operands, within, shape, keepdims=int(keepdims)), x.dtype)

    @writes
    def sum(
        self, x: Array, axis: Axes = None, keepdims: bool = False, dtype: npt.DTypeLike | None = None
    ) -> Any:
        if x.dtype.kind not in "biu":
            return self._in_parts(self.value(x, dtype), axis, keepdims)
        result = np.dtype(_sum_dtype(x, dtype) or x.dtype)
        if result.kind not in "iu":
            return self.reduce("ReduceSum", self.value(x, result), axis, keepdims)
        # The runtime adds integers as float64, which is exact up to 2⁵³.
        x = self.value(x)
        if 2.0 ** min(8 * x.dtype.itemsize, 8 * result.itemsize) * _most(x.size) < 2.0**53:
            return self.cast(self.reduce("ReduceSum", self.value(x, INT64), axis, keepdims), result)
        return self._exactly(self.value(x, result), axis, keepdims, self._row_sums)

    def _in_parts(self, x: Value, axis: Axes, keepdims: bool) -> Value:
        """A sum of which no operator adds more than a few numbers: runtimes add them one by one."""
        axes = _places(x, axis)
        if is_known([x.shape[a] for a in axes]):
            for a in axes:
                x = self._fewer(x, a)
            for a in reversed(axes[1:]):
                if product([x.shape[b] for b in axes]) > FEW:
                    x = self.reduce("ReduceSum", x, a, True)
        return self.reduce("ReduceSum", x, axes, keepdims)

    def _fewer(self, x: Value, axis: int) -> Value:
        """At most a few numbers along an axis, with the same sum."""
        while (size := x.shape[axis]) > FEW:
            part = next(n for n in range(FEW, 0, -1) if size % n == 0)
            if part < 8:
                part = FEW
                rest = [(0, -size % part if a == axis else 0) for a in range(x.ndim)]
                x = self.padded(x, rest)
            split = (*x.shape[:axis], x.shape[axis] // part, part, *x.shape[axis + 1 :])
            x = self.reduce("ReduceSum", self.reshape(x, split), axis + 1, False)
        return x

    @writes
    def prod(
        self, x: Array, axis: Axes = None, keepdims: bool = False, dtype: npt.DTypeLike | None = None
    ) -> Any:
        x = self.value(x, _sum_dtype(x, dtype))
        if x.dtype.kind not in "iu":
            return self.reduce("ReduceProd", x, axis, keepdims)
        return self._exactly(x, axis, keepdims, self._row_products)

    def _exactly(self, x: Value, axis: Axes, keepdims: bool, function: Callable[[Value], Value]) -> Value:
        """A reduction of integers modulo 2ⁿ. *function* reduces the rows of a matrix."""
        axes = _places(x, axis)
        if not axes:
            return x
        remaining = [a for a in range(x.ndim) if a not in axes]
        shape = [x.shape[a] for a in remaining]
        rows, columns = product(shape), product([x.shape[a] for a in axes])
        table = self.reshape(self.transpose(x, [*remaining, *axes]), (rows, columns))
        whole = [1 if a in axes else size for a, size in enumerate(x.shape)] if keepdims else shape
        return self.reshape(function(table), whole)

    def _row_sums(self, table: Value) -> Value:
        ones = self.full((table.shape[1], 1), 1, table.dtype)
        return self.node("MatMul", [table, ones], table.dtype, (table.shape[0], 1))

    def _row_products(self, table: Value) -> Value:
        """A Scan over the columns, with a column of ones in front, because it needs at least one."""
        rows = (table.shape[0],)
        one = self.full((*rows, 1), 1, table.dtype)
        table = self.concatenate([one, table], 1)
        kind = (table.dtype, rows)
        body = self.body([kind, kind], lambda before, column: [before * column])
        first = self.full(rows, 1, table.dtype)
        products = self.write(
            "Scan", [first, table], [kind], body=body, num_scan_inputs=1, scan_input_axes=[1]
        )
        return products[0]

    @writes
    def mean(
        self, x: Array, axis: Axes = None, keepdims: bool = False, dtype: npt.DTypeLike | None = None
    ) -> Any:
        x = self.value(x, dtype)
        sizes = [x.shape[a] for a in _places(x, axis)]
        if is_known(sizes) and product(sizes) > FEW:
            return self._in_parts(x, axis, keepdims) / np.asarray(product(sizes), x.dtype)
        return self.reduce("ReduceMean", x, axis, keepdims)

    @writes
    def all(self, x: Array, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._extreme("ReduceMin", self.value(x, BOOL), axis, keepdims, None)

    @writes
    def any(self, x: Array, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._extreme("ReduceMax", self.value(x, BOOL), axis, keepdims, None)

    # --------------------------------------------------------------------------------- what is ordered

    def ordered(self, operator: str, x: Value) -> tuple[Value, Any]:
        """Numbers in the same order, of a dtype that runtimes can compare; and the function back."""
        dtype, signed = x.dtype, _SIGNED.get(x.dtype)
        if signed is None or has_kernel(operator, dtype):
            return self.cast(x, computed_in(operator, dtype)), lambda y: self.cast(y, dtype)
        # With the first bit flipped, unsigned integers have the order of signed ones.
        first = np.array(np.iinfo(signed).min, signed)
        return self.cast(x, signed) ^ first, lambda y: self.cast(y ^ first, dtype)

    @writes
    def max(self, x: Value, axis: Axes = None, keepdims: bool = False, initial: float | None = None) -> Any:
        return self._extreme("ReduceMax", x, axis, keepdims, initial)

    @writes
    def min(self, x: Value, axis: Axes = None, keepdims: bool = False, initial: float | None = None) -> Any:
        return self._extreme("ReduceMin", x, axis, keepdims, initial)

    amax = max  # noqa: A003 - the methods above
    amin = min  # noqa: A003

    def _extreme(self, op_type: str, x: Value, axis: Axes, keepdims: bool, initial: float | None) -> Value:
        comparable, back = self.ordered(op_type, x)
        if comparable.dtype == INT64:
            of_rows = functools.partial(self._extreme_of_rows, op_type)
            return back(self._exactly(comparable, axis, keepdims, of_rows))
        extreme = back(self.reduce(op_type, comparable, axis, keepdims))
        if initial is not None and comparable.dtype != x.dtype and not _has_elements(x):
            # For no elements the runtime returns the limit of the wider dtype.
            none = np.asarray(initial, x.dtype)
            extreme = self.where(self._is_empty(x), none, extreme)
        if x.dtype.kind in "biu" or extreme is x:
            return extreme
        # Runtimes may miss a NaN, depending on its position.
        bad = self.any(self.isnan(x), axis, keepdims)
        return self.where(bad, np.asarray(np.nan, x.dtype), extreme)

    def _extreme_of_rows(self, op_type: str, table: Value) -> Value:
        """By ArgMax or ArgMin: onnxruntime's ReduceMax of int64 compares only some of the bits."""
        limits = np.iinfo(table.dtype)
        if not _has_elements(table):
            none = limits.min if op_type == "ReduceMax" else limits.max
            rest = self.full((table.shape[0], 1), none, table.dtype)
            table = self.concatenate([table, rest], 1)
        shape = (table.shape[0], 1)
        place = self.node(op_type.replace("Reduce", "Arg"), [table], INT64, shape, axis=1, keepdims=1)
        return self.node("GatherElements", [table, place], table.dtype, shape, axis=1)

    def _is_empty(self, x: Value) -> Any:
        return self.equal(self.value(x.size), 0)

    # ------------------------------------------------------------------------------------------- where

    @writes
    def argmax(self, x: Value, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._arg("ArgMax", x, axis, keepdims)

    @writes
    def argmin(self, x: Value, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._arg("ArgMin", x, axis, keepdims)

    def _arg(self, op_type: str, x: Value, axis: int | None, keepdims: bool) -> Value:
        """The position of the extreme, or of the first NaN if there is one."""
        if axis is None:
            x, axis = x.reshape(-1), 0
        axis %= x.ndim
        shape: list[int | Dim] = list(x.shape)
        shape[axis : axis + 1] = [1] if keepdims else []
        comparable = self.ordered(op_type, x)[0]
        position = self.node(op_type, [comparable], INT64, shape, axis=axis, keepdims=int(keepdims))
        if x.dtype.kind in "biu":
            return position
        bad = self.cast(self.isnan(x), UINT8)
        first = self.node(
            "ArgMax", [self.cast(bad, np.int32)], INT64, shape, axis=axis, keepdims=int(keepdims)
        )
        some = self.cast(self.reduce("ReduceMax", bad, axis, keepdims), BOOL)
        return self.where(some, first, position)


def _most(size: int | Dim) -> float:
    """An upper bound of a number of elements, as a float."""
    return 2.0**30 if isinstance(size, Dim) else float(size)


def _has_elements(x: Value) -> bool:
    """Whether an array is known to have elements."""
    return not any(isinstance(size, Dim) or size == 0 for size in x.shape)
