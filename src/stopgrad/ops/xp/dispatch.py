"""NumPy's dispatch protocols: ``np.exp(x)`` and ``np.concatenate([x, y])`` on outputs build our operations.

NumPy passes its ufuncs to ``__array_ufunc__`` and other functions to ``__array_function__``; we find ours
by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Output
from stopgrad.ops.elementwise.arithmetic import abs, multiply
from stopgrad.ops.elementwise.composite import reduce_logsumexp, xlogy
from stopgrad.ops.elementwise.elementary import angle
from stopgrad.ops.elementwise.powers import cbrt, exp2, pow
from stopgrad.ops.elementwise.rounding import round, truncatemod
from stopgrad.ops.elementwise.trigonometric import acos, acosh, asin, asinh, atan, atan2, atanh
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.products import kron
from stopgrad.ops.neural.activations import log_sigmoid, sigmoid
from stopgrad.ops.reductions.cumulative import cummax, cummin, cumulative_logsumexp
from stopgrad.ops.shapes.moving import rot90, swapaxes
from stopgrad.ops.special.gamma import digamma, erf, erfc, erfinv, lgamma
from stopgrad.ops.xp import (
    creation,
    data_types,
    elementwise,
    fft,
    linalg,
    manipulation,
    numpy_shapes,
    numpy_values,
    sets,
    statistical,
)
from stopgrad.ops.xp.numpy_form import FORMS, without
from stopgrad.ops.xp.support import of_dtype

__all__ = ["array_function", "array_ufunc"]

_MODULES = (
    elementwise,
    statistical,
    manipulation,
    creation,
    data_types,
    sets,
    numpy_values,
    numpy_shapes,
)  # NumPy may call the functions of these modules; the last two add to FORMS.

_STANDARD: dict[str, Callable[..., Any]] = {
    name: getattr(module, name) for module in _MODULES for name in getattr(module, "__all__", ())
}
_STANDARD |= {
    f.__name__: f for f in (angle, kron, rot90, swapaxes, linalg.matrix_transpose, linalg.tensordot)
}
_STANDARD |= {f"linalg.{name}": getattr(linalg, name) for name in linalg.__all__}
_STANDARD |= {f"fft.{name}": getattr(fft, name) for name in fft.__all__}

_UFUNCS: dict[str, Callable[..., Any]] = {
    name: getattr(elementwise, name) for name in elementwise.__all__
} | {
    "absolute": abs,
    "arccos": acos,
    "arccosh": acosh,
    "arcsin": asin,
    "arcsinh": asinh,
    "arctan": atan,
    "arctan2": atan2,
    "arctanh": atanh,
    "cbrt": cbrt,
    "conjugate": elementwise.conj,
    "deg2rad": lambda x: multiply(x, math.pi / 180),
    "degrees": lambda x: multiply(x, 180 / math.pi),
    "divmod": lambda x, y: (elementwise.floor_divide(x, y), elementwise.remainder(x, y)),
    "exp2": exp2,
    "fabs": abs,
    "float_power": pow,
    "fmod": truncatemod,
    "invert": elementwise.bitwise_invert,
    "left_shift": elementwise.bitwise_left_shift,
    "matmul": matmul,
    "power": pow,
    "rad2deg": lambda x: multiply(x, 180 / math.pi),
    "radians": lambda x: multiply(x, math.pi / 180),
    "right_shift": elementwise.bitwise_right_shift,
    "rint": round,
    "vecdot": linalg.vecdot,
    # Of scipy.special:
    "digamma": digamma,
    "erf": erf,
    "erfc": erfc,
    "erfinv": erfinv,
    "expit": sigmoid,
    "gammaln": lgamma,
    "log_expit": log_sigmoid,
    "psi": digamma,
    "xlogy": xlogy,
}
"""Our functions by the names of ufuncs."""

_REDUCE: dict[str, Callable[..., Any]] = {
    "add": statistical.sum,
    "multiply": statistical.prod,
    "maximum": statistical.max,
    "minimum": statistical.min,
    "logical_and": statistical.all,
    "logical_or": statistical.any,
    "logaddexp": reduce_logsumexp,
}
_ACCUMULATE: dict[str, Callable[..., Any]] = {
    "add": statistical.cumulative_sum,
    "multiply": statistical.cumulative_prod,
    "maximum": cummax,
    "minimum": cummin,
    "logaddexp": cumulative_logsumexp,
}


def _unknown(what: str) -> ArgumentError:
    return ArgumentError(
        f"{what} is not there for outputs of a graph; dir(sg) and dir(sg.xp) say what is. Build it of those, "
        "or compute it with NumPy on a value that Session.run or sg.function returned"
    )


@d.reads_arguments
def array_ufunc(self: Output, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy's ``__array_ufunc__``: a ufunc, or a method of one, was called with an output."""
    name = ufunc.__name__
    for x in inputs:
        # Another library's arrays may know what to do with ours.
        if not isinstance(x, (Output, np.ndarray, np.generic)) and hasattr(type(x), "__array_ufunc__"):
            return NotImplemented
    if method == "__call__":
        function = _UFUNCS.get(name)
        if function is None:
            raise _unknown(f"np.{name}")
        if kwargs:
            dtype = kwargs.pop("dtype", None)
            inputs = tuple([of_dtype(x, dtype) for x in inputs])
            kwargs = without(name, kwargs)
        return function(*inputs, **kwargs)
    if method == "outer":
        function, (x, y) = _UFUNCS.get(name), inputs
        if function is None:
            raise _unknown(f"np.{name}.outer")
        without(name, kwargs)
        return function(manipulation.expand_dims(x, _last(x, y)), y)
    reduction = (_REDUCE if method == "reduce" else _ACCUMULATE if method == "accumulate" else {}).get(name)
    if reduction is None:
        if method == "at":
            raise ArgumentError(
                f"np.{name}.at changes an array, and outputs never change; x.at[i].add(v) is new"
            )
        raise _unknown(f"np.{name}.{method}")
    kwargs = without(name, kwargs)
    kwargs = {key: value for key, value in kwargs.items() if value is not None or key == "axis"}
    return reduction(*inputs, **{"axis": 0, **kwargs})


def _last(x: ArrayLike, y: ArrayLike) -> tuple[int, ...]:
    """The new last axes that *x* needs so that it broadcasts with *y* as an outer product."""
    return tuple([-1 - i for i in range(d.type_of(y).ndim)])


@d.reads_arguments
def array_function(
    self: Output,
    func: Callable[..., Any],
    types: Iterable[type],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """NumPy's ``__array_function__``: a NumPy function was called with an output."""
    if not all([issubclass(kind, (Output, np.ndarray)) for kind in types]):  # noqa: C419
        return NotImplemented
    module, name = func.__module__.partition(".")[2], func.__name__
    name = f"{module}.{name}" if module in ("linalg", "fft") else name
    function = FORMS.get(name)
    if function is not None:
        return function(*args, **kwargs)
    function = _STANDARD.get(name)
    if function is None:
        raise _unknown(f"np.{name}")
    return function(*args, **(without(name, kwargs) if kwargs else kwargs))
