"""Calls of a function of PyTorch's again and again: with constants held, in double precision, without stops.

What autograd takes for a constant (a detached tensor, what a ``no_grad`` block computes, a number read by
``.item()``) has the value of the first call in all later ones: then what changes is the function of which
the gradient is the derivative. The forward of an ``autograd.Function`` is no constant, though autograd does
not look into it: its backward claims to be its derivative.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode, resolve_name

from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import RawLocation, decode
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.forwards import forwards_around
from stopgrad.interop.torch.recording.places import Entry, place_of, user_frame

Tensor = torch.Tensor
_Tensor: Any = torch.Tensor
_DETACHES = {_Tensor.detach, _Tensor.detach_, torch.detach, _Tensor.data.__get__}
_CONVERSIONS = {
    _Tensor.item, _Tensor.tolist, _Tensor.__float__, _Tensor.__int__, _Tensor.__bool__, _Tensor.__index__,
    _Tensor.__complex__, _Tensor.numpy, _Tensor.__array__, torch.equal, torch.allclose,
}  # fmt: skip
_WIDE = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex32: torch.complex128, torch.complex64: torch.complex128,
}  # fmt: skip
_NARROWING = {_Tensor.float: _Tensor.double, _Tensor.half: _Tensor.double, _Tensor.bfloat16: _Tensor.double}

_CHECKPOINT = "torch.utils.checkpoint"
"""Where the function is whose backward runs its forward again, so that stops in it stop."""
_DEEPEST = 20
"""The most functions of ``torch.func`` around each other that are looked through."""

Mark = tuple[str, "RawLocation | None"]
Opens = Callable[[str, "RawLocation | None"], bool]
"""Whether a stop, by how it is written and where, is taken out."""


class Calls(TorchFunctionMode):
    """Sees calls of PyTorch's functions while a function of the user's runs, and changes what they return.

    Args:
        holds: whether constants are held.
        wide: for each leaf that moves, by identity, what is used in its place, in double precision; then all
            that is computed is. None to compute as it is.
        opens: which stops are taken out.

    Attributes:
        stops: the stops that were seen in the first call: how they are written, and where.
        idle: those of tensors that require no gradient.
        custom: the functions with a backward of their own.
        dtypes: the names of the dtypes that were computed.
    """

    holds: bool
    wide: Mapping[int, Tensor] | None
    opens: Opens | None

    def __init__(
        self, holds: bool = True, wide: Mapping[int, Tensor] | None = None, opens: Opens | None = None
    ) -> None:
        super().__init__()
        self.holds, self.wide, self.opens = holds, wide, opens
        self.stops: list[Mark] = []
        self.idle: list[Mark] = []
        self.custom: list[Mark] = []
        self.dtypes: set[str] = set()
        self._values: list[Any] = []
        self._next = 0
        self._is_first = True
        self._block: Mark | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """The user's function is called while this lasts."""
        self._next, self._block = 0, None
        with self:
            yield
        self._is_first = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is computed while this lasts holds nothing."""
        before, self.holds = self.holds, False
        try:
            yield
        finally:
            self.holds = before

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func is internals.set_grad_enabled:
            return self._switched(args[0])
        if self.opens is not None and func in _DETACHES:
            place = place_of(user_frame(sys._getframe(1)))
            if self.opens("detach", place):
                return args[0]
        if func in _DETACHES and all_tensors(args):
            self._note(_name_of(func), self.stops if args[0].requires_grad else self.idle)
        if self.wide is not None:
            func, args, named = _NARROWING.get(func, func), self._widened(args, func), self._widened(named)
        result = func(*args, **named)
        if func in _CONVERSIONS:
            if any(_is_float(x) and x.requires_grad for x in all_tensors(args)):
                self._note(f"Tensor.{func.__name__.strip('_')}")
            return self._hold(result, args, func)
        if not isinstance(result, (Tensor, tuple, list)):
            return result
        floats = [y for y in all_tensors(result) if _is_float(y)]
        self.dtypes |= {str(y.dtype).removeprefix("torch.") for y in floats}
        if any(map(internals.is_functorch_wrapped_tensor, floats)):
            self._require_held(func, args)
            return result
        if all(y.requires_grad for y in floats):
            return result
        within = "" if torch.is_grad_enabled() else self._function_around(sys._getframe(1))
        if within and not (within == _CHECKPOINT and func in _DETACHES):
            return result
        operands = (*all_tensors(args), *all_tensors(list(named.values())))
        if func not in _DETACHES and any(x.requires_grad for x in operands):
            self._note(_name_of(func))
        return self._hold(result, args, func)

    def _require_held(self, func: Callable[..., Any], args: Sequence[Any]) -> None:
        """Raise if a stop is inside of a function of ``torch.func``, where its value cannot be replaced."""
        stops = func in _DETACHES or not torch.is_grad_enabled()
        if self.holds and stops and any(_is_moved(x) for x in all_tensors(args)):
            place = place_of(user_frame(sys._getframe(2)))
            where = "" if place is None else f", at {decode(place)!r}"
            raise ArgumentError(
                "check_gradients: a stop inside of a function of torch.func cannot be held at its value"
                f"{where}; ask about the function inside"
            )

    def _switched(self, on: bool) -> None:
        """Gradients are switched on or off."""
        entry = Entry(sys._getframe(2))
        if not on and self.opens is not None and self.opens("no_grad", entry.place):
            on = True
        internals.set_grad_enabled(on)
        self._block = None if on else (entry.why, entry.place)

    def _note(self, what: str, among: list[Mark] | None = None) -> None:
        """Note a stop in the first call."""
        if not self._is_first:
            return
        mark = self._block
        if torch.is_grad_enabled() or mark is None:
            mark = what, place_of(user_frame(sys._getframe(2)))
        (self.stops if among is None else among).append(mark)

    def _function_around(self, frame: FrameType | None) -> str:
        """The module of the ``autograd.Function`` whose forward this is in; empty if it is in none."""
        around = forwards_around(frame)
        if not around:
            return ""
        kind, forward = around[0]
        module = str(getattr(kind, "__module__", "")) or "?"
        if self._is_first and not module.startswith("torch."):
            mark = f"{getattr(kind, '__name__', 'Function')}.apply", place_of(user_frame(forward.f_back))
            if mark not in self.custom:
                self.custom.append(mark)
        return module

    def _hold(self, result: Any, args: Sequence[Any], func: Callable[..., Any]) -> Any:
        """A constant: in the first call it is kept, in later ones its value of the first."""
        if not self.holds:
            return result
        if self._is_first:
            with internals.DisableTorchFunction():
                self._values.append(_copied(result))
            return result
        if self._next == len(self._values):
            raise ArgumentError(
                "check_gradients: the function takes another way when its inputs are moved a little, with "
                "more constants than before; it cannot be compared with differences there"
            )
        constant = self._values[self._next]
        self._next += 1
        with internals.DisableTorchFunction(), torch.no_grad():
            if func in _DETACHES and result is not args[0]:
                return constant.clone()  # A detached tensor shares its memory with the other.
            return _replaced(result, constant, [x for x in all_tensors(args) if x.requires_grad])

    def _widened(self, tree: Any, func: Any = None) -> Any:
        """Arguments in double precision; not what a function changes in place."""
        if isinstance(tree, Tensor):
            return self._wide(tree)
        if isinstance(tree, torch.dtype):
            return _WIDE.get(tree, tree)
        if isinstance(tree, dict):
            return {key: self._widened(part) for key, part in tree.items()}
        if type(tree) in (list, tuple):
            changes = func is not None and _is_in_place(func)
            parts = [part if changes and i == 0 else self._widened(part) for i, part in enumerate(tree)]
            return type(tree)(parts)
        return tree

    def _wide(self, x: Tensor) -> Tensor:
        assert self.wide is not None
        wide = self.wide.get(id(x))
        if wide is not None or x.dtype not in _WIDE:
            return x if wide is None else wide
        return x.to(_WIDE[x.dtype])


def all_tensors(tree: Any) -> list[Tensor]:
    """The tensors in lists, tuples and dicts."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [x for part in tree for x in all_tensors(part)] if isinstance(tree, (list, tuple)) else []


def _is_float(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _is_moved(x: Tensor) -> bool:
    """Whether a tensor of ``torch.func`` depends on one that requires a gradient outside of it."""
    for _ in range(_DEEPEST):
        if not internals.is_functorch_wrapped_tensor(x):
            break
        x = internals.get_unwrapped(x)
    return x.requires_grad


def _is_in_place(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__set__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def _name_of(func: Any) -> str:
    name = (resolve_name(func) or getattr(func, "__name__", "")).removesuffix(".__get__")
    return name.replace("torch.Tensor.", "Tensor.").removeprefix(internals.BUILT_IN)


def _copied(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.detach().clone()
    if isinstance(result, np.ndarray):
        return result.copy()  # It shares its memory with the tensor.
    return type(result)(map(_copied, result)) if type(result) in (list, tuple) else result


def _replaced(result: Any, constant: Any, moving: Sequence[Tensor]) -> Any:
    """What a function returned, with the values that were kept, unless it requires a gradient."""
    if not isinstance(result, Tensor):
        if type(result) in (list, tuple) and len(result) == len(constant):
            return type(result)([_replaced(y, k, moving) for y, k in zip(result, constant, strict=True)])
        return constant
    if result.requires_grad or not _is_float(result) or torch.equal(result, constant):
        return result
    if result.shape != constant.shape:
        raise ArgumentError(
            "check_gradients: the function takes another way when its inputs are moved a little, with "
            "constants of other shapes; it cannot be compared with differences there"
        )
    shared = any(_memory(x) == _memory(result) for x in moving)
    if shared or (result.numel() > 1 and 0 in result.stride()):
        return constant.clone()
    return result.copy_(constant)  # In place, so that what it is a view of changes, too.


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage().data_ptr()) if x.layout is torch.strided else 0
