"""Operations that run for what they do: they print values, or call a function of Python with them."""

from __future__ import annotations

import builtins
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.structure import Spec
from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    EngineError,
    Flags,
    Kind,
    Namespace,
    NumpyArray,
    Op,
    Operation,
    Output,
    Partly,
    Size,
    Tensor,
    TensorType,
)

__all__ = ["debug_callback", "print"]


class Calling:
    """A function of Python, which is called with values in the structure in which they were given."""

    __slots__ = ("function", "leaves", "raised", "spec", "what")

    function: Callable[..., object]
    what: str
    leaves: Sequence[object]
    spec: Spec

    def __init__(self, function: Callable[..., Any], what: str, leaves: Sequence[Any], spec: Any) -> None:
        self.function, self.what = function, what
        self.leaves, self.spec = leaves, spec  # With a mark in the place of each tensor.
        self.raised: EngineError | None = None  # For an engine to which an exception cannot pass.

    def __call__(self, values: Sequence[NumpyArray]) -> None:
        tensors = iter(values)
        args, kwargs = d.unflatten(self.spec, [next(tensors) if x is _TENSOR else x for x in self.leaves])
        try:
            self.function(*args, **kwargs)
        except Exception as error:
            raise EngineError(f"{self.what} raised {type(error).__name__}: {error}") from error

    def __repr__(self) -> str:
        return self.what


_TENSOR = object()


def _called(calling: Calling, depth: int, *arrays: NumpyArray) -> np.bool_:
    """Call the function for each example in turn; *depth* axes in front are those of examples."""
    for place in np.ndindex(arrays[0].shape[:depth] if depth else ()):
        calling([np.array(x[place]) for x in arrays])
    return np.True_


def _in_batch(op: Operation, operands: Sequence[Output], batched: Flags, size: Size) -> Partly:
    inputs = d.everywhere(operands, batched, size)
    return Partly(d.again(op, inputs, (op.calling, op.depth + 1)), (False,))


class DebugCallback(Op):
    """Calls a function of Python with the values of tensors; see :func:`debug_callback`.

    Args:
        tensors: what the function is given.
        calling: the function.
        depth: how many axes in front are those of examples, for each of which it is called.

    Returns:
        True.

    Examples:
        >>> sg.debug_callback(lambda x: print("x is", x), np.float32(2.0))
        x is 2.0
    """

    @staticmethod
    def infer(*tensors: TensorType, calling: Calling, depth: int) -> TensorType:
        return d.tensor_type(d.bool_, ())

    kinds = {"calling": Kind.FUNCTION}
    gradient: d.Gradient = d.not_differentiable("a callback returns nothing")
    samples: d.Samples = ()
    cached = False
    merged = False
    acts = True
    batch = _in_batch
    onnx = d.unsupported(
        "ONNX cannot call Python in a loop or branch: print what comes out of it, "
        "or take engine='numpy' or engine='xla'"
    )

    @staticmethod
    def lower(xp: Namespace, *tensors: NumpyArray, calling: Calling, depth: int) -> Any:
        return _called(calling, depth, *map(np.asarray, tensors))

    @staticmethod
    def xla(xp: Namespace, *tensors: Array, calling: Calling, depth: int) -> Array:
        kinds = [(x.dtype, x.shape) for x in tensors]

        def host(*arrays: NumpyArray) -> np.bool_:
            typed = zip(arrays, kinds, strict=True)
            try:
                if calling.raised is None:
                    _called(calling, depth, *[_from_words(x, *kind) for x, kind in typed])
            except EngineError as error:
                calling.raised = error
            return np.True_

        token = xp.jax.ShapeDtypeStruct((), np.bool_)
        words = [_words(xp, x) for x in tensors]
        return xp.experimental.io_callback(host, token, *words, ordered=True)


def _words(xp: Namespace, x: Array) -> Array:
    """64-bit numbers as pairs of words: where JAX calls back, it may narrow them."""
    if x.dtype == np.complex128:
        x = xp.stack([x.real, x.imag], -1)
    wide = x.dtype.itemsize == 8 and x.dtype.kind != "c"
    return xp.lax.bitcast_convert_type(x, np.uint32).reshape(*x.shape[:-1], -1) if wide else x


def _from_words(x: NumpyArray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NumpyArray:
    return np.ascontiguousarray(x).view(dtype).reshape(shape)


def _callback(
    function: Callable[..., object], what: str, args: Sequence[object], kwargs: dict[str, object]
) -> Tensor:
    leaves, spec = d.flatten((tuple(args), kwargs))
    tensors = [x for x in leaves if d.is_tensor(x)]
    calling = Calling(function, what, [_TENSOR if d.is_tensor(x) else x for x in leaves], spec)
    return d.apply(DebugCallback, tensors, (calling, 0))


@d.guarded("debug_callback")
def debug_callback(callback: Callable[..., object], *args: object, **kwargs: object) -> None:
    """Calls a function of Python with the values of tensors, when they are there.

    It is called each time that what is traced here runs: in each step of a loop, only in the branch that is
    taken, and under :func:`vmap` for each example. Calls keep their order. In a :class:`Session`, it is
    called by each run that is fed what the tensors need. Where a gradient runs a loop again, as that of
    :func:`while_loop` does, it is called again. No gradient passes through it.

    Args:
        callback: what it returns is ignored; an exception ends the run.
        args: what it is called with: nested structures, in which tensors become NumPy arrays.
        kwargs: likewise, by name.

    Raises:
        EngineError: the callback raised an exception, which is its cause.

    References:
        ``jax.debug.callback``, with ``ordered=True``.

    Examples:
        >>> seen = []
        >>> @sg.function
        ... def double(x):
        ...     sg.debug_callback(seen.append, x)
        ...     return x * 2.0
        >>> double(1.0), double(5.0)
        (array(2., dtype=float32), array(10., dtype=float32))
        >>> seen
        [array(1., dtype=float32), array(5., dtype=float32)]
    """
    if not callable(callback):
        raise ArgumentError(f"takes a function and what it is called with, not {callback!r:.60}")
    name = getattr(callback, "__name__", type(callback).__name__)
    _callback(callback, f"the callback {name}", args, kwargs)


d.publish(DebugCallback, debug_callback)


@d.guarded("print")
def print(fmt: object = "", /, *args: object, ordered: bool = True, **kwargs: object) -> None:
    """Prints values when they are there: in a traced function, each time that it runs.

    When and how often is as for :func:`debug_callback`. Outside of a graph it prints at once.

    Args:
        fmt: a text with fields in braces, as ``str.format`` has them: ``"x is {x:.2f}"``. Without a field, it
            is printed before the other arguments, as by Python's ``print``.
        args: tensors and nested structures of them, and all else, for the fields ``{}`` and ``{0}``.
        ordered: True: lines keep their order.
        kwargs: the same for fields with a name.

    Raises:
        ArgumentError: a field has no value, or there is a value for no field.

    References:
        ``jax.debug.print``, ``tf.print``.

    Examples:
        >>> @sg.function
        ... def half(x):
        ...     sg.print("x is {x:.2f}", x=x)
        ...     return x / 2.0
        >>> half(3.0)
        x is 3.00
        array(1.5, dtype=float32)
        >>> _ = sg.scan(lambda total, x: (total + x, sg.print("sum", total + x)), 0.0, np.array([1.0, 2.0]))
        sum 1.0
        sum 3.0
    """
    d.flag(ordered, "ordered")
    plain = not isinstance(fmt, str) or not any(field is not None for _, field, *_ in _fields(fmt))
    if plain:
        if kwargs:
            name = next(iter(kwargs))
            raise ArgumentError(f"there is no field {{{name}}} in {fmt!r:.60}")
        _callback(builtins.print, "sg.print", [fmt, *args] if fmt != "" or args else [], {})
        return
    text = str(fmt)
    _check_fields(text, len(args), kwargs)

    def show(*values: object, **named: object) -> None:
        shown = [_by_elements(x) for x in values], {name: _by_elements(x) for name, x in named.items()}
        builtins.print(text.format(*shown[0], **shown[1]))

    _callback(show, "sg.print", args, kwargs)


def _fields(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(string.Formatter().parse(text))
    except ValueError as error:
        raise ArgumentError(f"{text!r:.60} is no format: {error}; write {{{{ for a brace") from None


def _check_fields(text: str, count: int, kwargs: Mapping[str, object]) -> None:
    """Raise unless each field has a value, and each value a field."""
    names = [_name(field) for _, field, *_ in _fields(text) if field is not None]
    automatic = sum(name == "" for name in names)
    used = {str(i) for i in range(automatic)} | {name for name in names if name}
    available = {str(i) for i in range(count)} | kwargs.keys()
    for name in sorted(used - available):
        raise ArgumentError(f"the field {{{name}}} of {text!r:.60} has no value; give it one")
    for name in sorted(available - used):
        what = f"argument {name}" if name.isdigit() else f"{name}="
        raise ArgumentError(f"{what} has no field in {text!r:.60}; write {{}} where it shall stand")


def _name(field: str) -> str:
    """The name of a field, without the attributes and items that are read of it."""
    return field.partition(".")[0].partition("[")[0]


class _Elements:
    """An array whose elements are formatted one by one."""

    __slots__ = ("array",)

    def __init__(self, array: NumpyArray) -> None:
        self.array = array

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __getitem__(self, index: Any) -> object:
        return _by_elements(self.array[index])

    def __str__(self) -> str:
        return str(self.array)

    def __repr__(self) -> str:
        return repr(self.array)

    def __format__(self, form: str) -> str:
        if not form:
            return str(self.array)
        return np.array2string(self.array, formatter={"all": lambda x: format(x, form)})


def _by_elements(x: object) -> object:
    """What a field shows: an array with axes element by element."""
    return _Elements(x) if isinstance(x, np.ndarray) and x.ndim else x
