"""Follows NaNs and infinities through each operation that PyTorch runs, forwards and in the backward pass.

A mode sees every ATen operation, with its operands and results; autograd says which node it runs now, whose
number is that of the operation that made the node. Marks are kept beside the memory of tensors, so that views
have them, too.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

from stopgrad.base.source import BETWEEN, OWN, RawLocation, called, kind_of, outward
from stopgrad.base.structure import flatten, map_leaves
from stopgrad.interop.shared.nan_cures import KINDS
from stopgrad.interop.shared.nans import (
    MOST,
    Array,
    Events,
    Forward,
    Made,
    apart,
    first_index,
    first_of,
    least,
)
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.autograd_nodes import is_user_made, kind_of as kind_of_node

Tensor = torch.Tensor
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_EMPTY = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"])
"""What gives memory in which nothing has been written yet."""
_MOVING = frozenset(
    [
        "cat",
        "clone",
        "constant_pad_nd",
        "copy",
        "copy_",
        "diag_embed",
        "embedding",
        "flip",
        "gather",
        "index",
        "index_select",
        "masked_fill",
        "masked_fill_",
        "masked_select",
        "repeat",
        "roll",
        "select_backward",
        "select_scatter",
        "slice_backward",
        "slice_scatter",
        "stack",
        "take",
        "tril",
        "triu",
        "unfold_backward",
        "where",
    ]
)
"""Operations that move elements, and can be done to marks as well."""
_REDUCING = frozenset(["sum", "mean", "amax", "amin"])
_CHOOSING = frozenset(["where", "masked_fill"])
FUNCTION = "autograd.Function"
"""The beginning of the key of a user's own function."""


class Followed(internals.DispatchMode):
    """A mode that looks at the values of all operations that run.

    Args:
        until: the code that calls the user's function, and autograd; what is around it is not the user's.

    Attributes:
        events: what was made.
        ran: the number of operations.
    """

    events: Events
    ran: int

    def __init__(self, until: Collection[CodeType]) -> None:
        super().__init__()
        self.events = Events()
        self.ran = 0
        self._until = until
        self._shadows: dict[int, tuple[Any, int, Tensor]] = {}
        self._forwards: dict[int, Forward] = {}
        self._forward_events: dict[Any, int] = {}
        self._chosen: dict[int, tuple[weakref.ref[Tensor], RawLocation]] = {}
        self._names: dict[int, tuple[Tensor, str, str]] = {}

    def introduce(self, tensor: Tensor, source: str, name: str) -> None:
        """A tensor is given, by its name, and may hold NaNs and infinities itself."""
        self._names[id(tensor)] = tensor, source, name

    def name_of(self, tensor: Tensor) -> str:
        """The name of a tensor that is given; empty for others."""
        return self._names[id(tensor)][2] if id(tensor) in self._names else ""

    # -------------------------------------------------------------------------------------- marks

    def marks(self, tensor: Tensor) -> Array | None:
        """The marks of a tensor; None if it is finite, or cannot be looked at."""
        if not _is_plain(tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
            return None
        view = self._shadow(tensor)
        if view is None:
            return self._first_met(tensor)
        marks = view.cpu().numpy()
        return marks if marks.any() else None

    def _shadow(self, tensor: Tensor) -> Tensor | None:
        """The marks beside a tensor's memory."""
        shadow = self._shadows.get(_memory_of(tensor))
        if shadow is None or shadow[1] != tensor.element_size():
            return None
        return shadow[2].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def _note(self, tensor: Tensor, marks: Array | None) -> None:
        """Write a tensor's marks beside its memory."""
        view = self._shadow(tensor)
        if view is None:
            if marks is None:
                return
            storage, size = tensor.untyped_storage(), tensor.element_size()
            flat = torch.zeros(storage.nbytes() // size, dtype=torch.int32)
            self._shadows[_memory_of(tensor)] = storage, size, flat
            view = self._shadow(tensor)
        assert view is not None
        numbers = np.zeros(tuple(tensor.shape), np.int32) if marks is None else marks
        view.copy_(torch.from_numpy(np.ascontiguousarray(numbers)).reshape(view.shape))

    def _first_met(self, tensor: Tensor) -> Array | None:
        """The marks of a tensor that was made before."""
        if not _any_bad(tensor):
            return None
        _, source, name = self._names.get(id(tensor), (None, "constant", "a tensor made before"))
        values = numbers(tensor)

        def new(kind: str, mask: Array, parent: int) -> Made:
            index, count = first_index(mask), int(mask.sum())
            return Made((source, name), name, kind, index, count, None, source=source, result=values)

        nothing = np.zeros((), np.int32)
        marks = self.events.settled(values, nothing, nothing, new)
        self._note(tensor, marks)
        return marks

    # ---------------------------------------------------------------------------------- operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.ran += 1
        name = _name(func)
        inputs = [x for x in flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        node = internals.current_node()
        try:
            place = self._place(sys._getframe(1))
            marked = [(x, self.marks(x)) for x in inputs]
            before = [x.detach().clone() for x in inputs] if func._schema.is_mutable else inputs
            self._take(name, inputs, place, node)
        except Exception:  # What cannot be looked at is not followed; the program goes on.
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        try:
            self._look(func, name, (args, kwargs), (inputs, before, marked), result, place, node)
        except Exception:
            return result
        return result

    def _take(self, name: str, inputs: Sequence[Tensor], place: RawLocation | None, node: Any) -> None:
        """Note by its node's number what an operation took that is going to be differentiated."""
        number = internals.next_node() - 1
        if node is None and number not in self._forwards:
            arrays = [numbers(x) for x in inputs if _is_plain(x)] if name in KINDS else []
            self._forwards[number] = Forward((place, name), called_as(name), place, arrays)

    def _look(
        self,
        func: Any,
        name: str,
        arguments: Any,
        operands: tuple[list[Tensor], list[Tensor], list[tuple[Tensor, Array | None]]],
        result: Any,
        place: RawLocation | None,
        node: Any,
    ) -> None:
        """Look at what an operation made."""
        inputs, before, marked = operands
        if node is not None and name in _CHOOSING:
            self._chooses(result, node)
        memories = {_memory_of(x) for x in inputs if _is_plain(x)}
        for y in [y for y in flatten(result)[0] if isinstance(y, torch.Tensor)]:
            if name in _EMPTY or not _is_plain(y) or not (y.is_floating_point() or y.is_complex()):
                continue
            if not func._schema.is_mutable and _memory_of(y) in memories:
                continue  # A view.
            if not _any_bad(y):
                self._note(y, None)
                continue
            values = numbers(y)
            nans, infs = self._into(func, name, arguments, before, marked, values)
            maker = self._maker(name, arguments, before, inputs, values, place, node)
            self._note(y, self.events.settled(values, nans, infs, maker))

    def _into(
        self,
        func: Any,
        name: str,
        arguments: Any,
        before: Sequence[Tensor],
        marked: Sequence[tuple[Tensor, Array | None]],
        values: Array,
    ) -> tuple[Array, Array]:
        """The marks of the NaNs and of the infinities that go into the elements of a result."""
        nothing = np.zeros((), np.int32)
        parts = [
            (nothing, nothing) if marks is None else apart(numbers(x), marks)
            for x, (_, marks) in zip(before, marked, strict=True)
        ]
        if all(marks is None for _, marks in marked):
            return nothing, nothing
        if name in _MOVING:
            try:
                moved = [_moved(func, arguments, [p[i] for p in parts], values.shape) for i in (0, 1)]
                return moved[0], moved[1]
            except Exception:  # noqa: S110 - integers do not go with its other operands: it counts as a whole.
                pass
        if torch.Tag.pointwise in func.tags:
            try:
                both = first_of([p[0] for p in parts]), first_of([p[1] for p in parts])
                if all(np.broadcast_shapes(m.shape, values.shape) == values.shape for m in both):
                    return both
            except ValueError:
                pass
        all_marks = np.unique(np.concatenate([np.ravel(m) for p in parts for m in p]))
        for _, marks in marked:
            if marks is not None:
                self.events.together(marks, all_marks)
        axes = _axes(name, arguments, parts[0][0].ndim)
        if axes is not None:
            of_nans, of_infs = [least(m, axes).reshape(values.shape) for m in parts[0]]
            return of_nans, of_infs
        return first_of([least(p[0]) for p in parts]), first_of([least(p[1]) for p in parts])

    def _maker(
        self,
        name: str,
        arguments: Any,
        before: Sequence[Tensor],
        inputs: Sequence[Tensor],
        result: Array,
        place: RawLocation | None,
        node: Any,
    ) -> Callable[[str, Any, int], Made]:
        number = _number_in(arguments)
        source = "constant" if number is not None else None
        forward = None if node is None else self._differentiated(node)
        key = place, name

        def new(kind: str, mask: Array, parent: int) -> Made:
            is_kept = len(self.events.made) < MOST and source is None
            earlier = None if node is None else self._forward_events.get((key, kind))
            event = Made(
                key if forward is None or place is not None else (forward.key, name),
                called_as(name) if source is None else str(number),
                kind,
                first_index(mask),
                int(mask.sum()),
                place if place is not None or forward is None else forward.place,
                parent,
                [self.name_of(x) for x in inputs],
                [numbers(x) for x in before if _is_plain(x)] if is_kept else (),
                result,
                source=source,
                gradient=node is not None and earlier is None,
                forward=None if earlier is not None else forward,
                more=self._choice(inputs),
            )
            if node is None:
                self._forward_events.setdefault((key, kind), len(self.events.made) + 1)
            return event

        return new

    def _chooses(self, result: Tensor, node: Any) -> None:
        """Note a gradient of which a ``where`` has put 0 in places, and the line of that."""
        forward = self._differentiated(node)
        if forward is not None and forward.place is not None:
            self._chosen[id(result)] = weakref.ref(result), forward.place

    def _choice(self, inputs: Sequence[Tensor]) -> RawLocation | None:
        """The line of the ``where`` from which one of these comes."""
        for x in inputs:
            ref, place = self._chosen.get(id(x), (None, None))
            if ref is not None and ref() is x:
                return place
        return None

    def _differentiated(self, node: Any) -> Forward | None:
        """What a node differentiates."""
        forward = self._forwards.get(internals.number_of(node))
        if is_user_made(node):
            name = kind_of_node(node).removesuffix("Backward")
            return Forward((FUNCTION, name), name, None)
        return forward

    def _place(self, frame: FrameType | None) -> RawLocation | None:
        """The first line of the user's, or of a library, that led here; None in autograd's own backward."""
        while frame is not None and frame.f_code not in self._until:
            kind = kind_of(frame.f_code.co_filename)
            if kind < BETWEEN:
                place = frame.f_code, frame.f_lasti
                return place if kind == OWN else called(*place, outward(frame.f_back))
            frame = frame.f_back
        return None


# ------------------------------------------------------------------------------------------- parts


def numbers(x: Tensor) -> Array:
    """A tensor's values as an array of NumPy's."""
    plain = x.detach()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    if plain.dtype is torch.bfloat16 or (plain.dtype.itemsize == 1 and plain.is_floating_point()):
        plain = plain.float()
    return plain.cpu().numpy()


def _is_plain(x: Tensor) -> bool:
    return type(x) in _PLAIN and x.layout is torch.strided and not x.is_meta and not x.is_quantized


def _any_bad(x: Tensor) -> bool:
    return bool(x.numel()) and not bool(torch.isfinite(x).all())


def _memory_of(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _name(func: Any) -> str:
    """The name of an ATen operation, without its overload."""
    name: str = func._schema.name.rpartition("::")[2]
    return name


def called_as(name: str) -> str:
    """An operation as users call it."""
    plain = name.lstrip("_").removesuffix("_") if not name.endswith("__") else name
    if plain.startswith("linalg_") and hasattr(torch.linalg, plain[7:]):
        return f"torch.linalg.{plain[7:]}"
    if plain in ("softmax", "log_softmax") or (
        not hasattr(torch, plain) and hasattr(torch.nn.functional, plain)
    ):
        return f"torch.nn.functional.{plain}"
    return f"torch.{plain}" if hasattr(torch, plain) else f"torch.ops.aten.{name}"


def _moved(func: Any, arguments: Any, marks: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Marks moved as an operation moves the elements of its operands."""
    rest: Iterator[Array] = iter(marks)

    def replaced(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            mark = next(rest)
            if not (x.is_floating_point() or x.is_complex()):
                return x
            return torch.from_numpy(
                np.ascontiguousarray(np.broadcast_to(mark, tuple(x.shape)), np.int32)
            ).clone()
        return 0 if isinstance(x, (float, complex)) else x

    args, kwargs = map_leaves(replaced, arguments)
    moved = func(*args, **{key: x for key, x in kwargs.items() if key != "dtype"})
    return np.asarray(moved.numpy()).reshape(shape)


def _axes(name: str, arguments: Any, count: int) -> tuple[int, ...] | None:
    """The axes along which an operation reduces; None if it is another."""
    if name not in _REDUCING:
        return None
    args, kwargs = arguments
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    if dims is None or dims == []:
        return tuple(range(count))
    return tuple([d % count for d in ([dims] if isinstance(dims, int) else dims)]) if count else ()


def _number_in(arguments: Any) -> float | complex | None:
    """The number that is infinite or NaN among what an operation is given itself; None for none."""
    for x in flatten(arguments)[0]:
        if isinstance(x, (float, complex)) and not math.isfinite(abs(x)):
            return x
    return None
