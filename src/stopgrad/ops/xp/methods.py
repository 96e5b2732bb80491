"""The methods and attributes of arrays on outputs, with NumPy's parameters.

Installed here because the graph cannot import the operations; :mod:`stopgrad.base.arrays` declares them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from stopgrad.base.hints import OF_OUTPUTS, hint_for_output
from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, DTypeLike, GraphError, Output, Tensor
from stopgrad.ops import xp
from stopgrad.ops.shapes import moving
from stopgrad.ops.xp.dispatch import array_function, array_ufunc
from stopgrad.ops.xp.numpy_form import FORMS, without
from stopgrad.ops.xp.support import CPU, check_device, flat

__all__: list[str] = []


@d.guarded("reshape")
def reshape(self: Output, *shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
    """The elements in another shape: ``x.reshape(2, 3)`` or ``x.reshape((2, 3))``."""
    without("reshape", {"order": order})
    return xp.reshape(self, shape[0] if len(shape) == 1 else shape, copy)


@d.guarded("transpose")
def transpose(self: Output, *axes: Any) -> Tensor:
    """The axes in another order: ``x.transpose(1, 0)`` or ``x.transpose((1, 0))``; without any, reversed."""
    if not axes or axes[0] is None:
        return xp.permute_dims(self, tuple(range(self.ndim))[::-1])
    return xp.permute_dims(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


@d.guarded("astype")
def astype(
    self: Output,
    dtype: DTypeLike,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
) -> Tensor:
    """The elements in another dtype."""
    without("astype", {"order": order, "casting": casting, "subok": subok})
    return xp.astype(self, dtype, copy=False)


@d.guarded("clip")
def clip(
    self: Output, min: ArrayLike | None = None, max: ArrayLike | None = None, out: None = None
) -> Tensor:
    """The elements, raised to *min* if below it and lowered to *max* if above it."""
    without("clip", {"out": out})
    return xp.clip(self, min, max)


@d.guarded("flatten")
def flatten(self: Output, order: str = "C") -> Tensor:
    """The elements in a tensor with one axis."""
    without("flatten", {"order": order})
    return flat(self)


@d.guarded("to_device")
def to_device(self: Output, device: str, /, *, stream: object = None) -> Tensor:
    """The output itself: the engine decides where it is computed."""
    check_device(device)
    return self


@d.guarded("__array_namespace__")
def array_namespace(self: Output, /, *, api_version: str | None = None) -> ModuleType:
    """The namespace of the array API that takes this output: :mod:`stopgrad.xp`."""
    if api_version not in (None, *xp.VERSIONS):
        raise ArgumentError(
            f"the version {api_version!r:.60} of the array API is not there; it has {', '.join(xp.VERSIONS)}"
        )
    return xp


_FROM_NUMPY = (
    "all", "any", "argmax", "argmin", "argsort", "copy", "cumprod", "cumsum", "diagonal", "dot", "max",
    "mean", "min", "prod", "ravel", "round", "sort", "std", "sum", "take", "trace", "var",
)  # fmt: skip
_FROM_STANDARD = ("conj", "nonzero", "repeat", "searchsorted", "squeeze")

_METHODS: dict[str, Callable[..., Tensor]] = {
    "reshape": reshape,
    "transpose": transpose,
    "astype": astype,
    "clip": clip,
    "flatten": flatten,
    "to_device": to_device,
    "conjugate": xp.conj,
    "swapaxes": moving.swapaxes,
    "__array_namespace__": array_namespace,
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__round__": lambda self, digits=0: FORMS["round"](self, digits),
    "__divmod__": lambda self, other: (self // other, self % other),
    "__rdivmod__": lambda self, other: (other // self, other % self),
}
_METHODS |= {name: FORMS[name] for name in _FROM_NUMPY}
_METHODS |= {name: getattr(xp, name) for name in _FROM_STANDARD}

_ATTRIBUTES: dict[str, Callable[[Output], Any]] = {
    "mT": xp.matrix_transpose,
    "real": xp.real,
    "imag": xp.imag,
    "size": lambda self: self.type.size,
    "itemsize": lambda self: self.dtype.itemsize,
    "nbytes": lambda self: self.type.size * self.dtype.itemsize,
    "device": lambda self: CPU,
}

# ------------------------------------------------------------------------------------------ what cannot be


def _without_value(what: str) -> Callable[..., NoReturn]:
    @d.reads_arguments
    def method(self: Output, *_: object, **__: object) -> NoReturn:
        raise self._no_value(what)

    return method


def _immutable(name: str, cure: str) -> Callable[..., NoReturn]:
    @d.reads_arguments
    def method(self: Output, *_: object, **__: object) -> NoReturn:
        raise GraphError(f"{name} would change an array in place, and outputs never change; {cure}")

    return method


_VALUES = {
    "item": "the number",
    "tolist": "the numbers",
    "tobytes": "the bytes",
    "tofile": "the bytes",
    "dump": "the bytes",
    "dumps": "the bytes",
    "__index__": "the integer value",
    "__complex__": "the complex value",
    "__dlpack__": "the memory",
    "__dlpack_device__": "the memory",
}
_IN_PLACE = {
    "fill": "sg.full_like(x, value) is new",
    "put": "x.at[indices].set(values) is new",
    "partition": "x.sort() is new",
    "resize": "x.reshape(shape) is new",
    "setfield": "x.at[indices].set(values) is new",
    "setflags": "there is nothing to set",
    "byteswap": "there are no bytes yet",
    "__setitem__": "x.at[index].set(value) is new",
    "__delitem__": "take what stays",
}


class _Elsewhere:
    """Stands for an attribute that other libraries' tensors have; its error says what to write instead.

    There is one for each name: a ``__getattr__`` would make every attribute of every output slow.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, output: Output | None, owner: type[Output]) -> NoReturn:
        raise AttributeError(hint_for_output(self.name), name=self.name, obj=output)


for _name, _method in _METHODS.items():
    setattr(Output, _name, _method)
for _name, _getter in _ATTRIBUTES.items():
    setattr(Output, _name, property(_getter, doc=_getter.__doc__))
for _name, _what in _VALUES.items():
    setattr(Output, _name, _without_value(_what))
for _name, _cure in _IN_PLACE.items():
    setattr(Output, _name, _immutable(_name, _cure))
for _name in OF_OUTPUTS:
    setattr(Output, _name, _Elsewhere(_name))


def _names(self: Output) -> list[str]:
    return [name for name in object.__dir__(self) if name not in OF_OUTPUTS]


Output.__dir__ = _names  # type: ignore[assignment]
