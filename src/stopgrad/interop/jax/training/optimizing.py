"""Follows what optax does with gradients: whether updates are used, and what they move."""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import linecache
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import jax
import numpy as np

from stopgrad.base.source import RawLocation, decode
from stopgrad.interop.jax.tracing import path_of
from stopgrad.interop.jax.training.gradient_calls import LEAVES, user_frame
from stopgrad.interop.jax.training.traced_values import are_kept_zero, changed_among, is_traced, zeros_among

LOOKED = 5
"""So many calls at one place are looked at, from the first on."""
PLACES = 50
"""The most places at which updates are looked at."""


@dataclass
class Applied:
    """A place where updates are applied.

    Attributes:
        place: the line.
        point: where the gradient was asked for before, by its key.
        paths, tails: of the parameters.
        shapes: of the parameters.
        calls: how often it was called.
        looked: how many of the calls were looked at with values.
        zero: in how many of these all updates were exactly zero.
        same: in how many of these updates that were not zero changed no element.
        moved: for each parameter, in how many it changed.
        raw: the parameters whose update was their gradient itself, in all calls.
        untouched: the parameters whose update was a constant of zero, in all calls.
        dropped: whether the result is thrown away by the statement.
        accumulates: whether optax collects gradients over several calls.
        dtypes: of the parameters.
    """

    place: RawLocation
    point: Any
    paths: list[str]
    tails: list[str]
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    calls: int = 0
    looked: int = 0
    zero: int = 0
    same: int = 0
    moved: dict[int, int] = field(default_factory=dict)
    raw: set[int] | None = None
    untouched: set[int] | None = None
    dropped: bool = False
    accumulates: bool = False


class Updates:
    """Follows ``optax.apply_updates``, as soon as optax has been imported.

    Args:
        latest: at which program point a gradient was asked for last, and what that call returned.
        applied: is told of each call outside of traces.
    """

    def __init__(
        self, latest: Callable[[], tuple[Any, list[weakref.ref[Any]]]], applied: Callable[[], None]
    ) -> None:
        self.places: dict[Any, Applied] = {}
        self.unknown: dict[str, None] = {}
        self._latest, self._applied = latest, applied
        self._thread = threading.get_ident()
        self._original: Any = None
        self._ours: Any = None
        self._is_open = True

    def begin(self) -> None:
        """Follow it from now on, if optax is there."""
        optax: Any = sys.modules.get("optax")
        if self._original is not None or not self._is_open or not hasattr(optax, "apply_updates"):
            return
        original = self._original = optax.apply_updates

        @functools.wraps(original)
        def apply_updates(params: Any, updates: Any) -> Any:
            result = original(params, updates)
            if self._is_open and threading.get_ident() == self._thread:
                try:
                    self._look(user_frame(sys._getframe(1)), sys._getframe(1), params, updates, result)
                except Exception as error:
                    self.unknown[f"updates could not be looked at ({type(error).__name__}: {error})"] = None
            return result

        self._ours = apply_updates
        optax.apply_updates = apply_updates

    def close(self) -> None:
        """Put optax's function back."""
        self._is_open = False
        optax: Any = sys.modules.get("optax")
        if optax is not None and self._ours is not None and optax.apply_updates is self._ours:
            optax.apply_updates = self._original

    def _look(
        self, frame: FrameType | None, caller: FrameType, params: Any, updates: Any, result: Any
    ) -> None:
        if frame is None:
            return
        place = frame.f_code, frame.f_lasti
        point, latest = self._latest()
        key = place, point
        leaves = jax.tree_util.tree_leaves(params)
        if key not in self.places and len(self.places) < PLACES and len(leaves) <= LEAVES:
            self.places[key] = self._applied_at(place, frame, caller, params)
        applied = self.places.get(key)
        update_leaves = jax.tree_util.tree_leaves(updates)
        result_leaves = jax.tree_util.tree_leaves(result)
        if applied is None or not len(leaves) == len(update_leaves) == len(result_leaves) == len(
            applied.paths
        ):
            return
        applied.calls += 1
        traced = any(map(is_traced, [*leaves, *update_leaves]))
        if applied.calls <= LOOKED:
            self._note_untreated(applied, latest, update_leaves)
            self._look_at(applied, leaves, update_leaves, result_leaves, frame)
        if not traced:
            self._applied()

    def _applied_at(self, place: RawLocation, frame: FrameType, caller: FrameType, params: Any) -> Applied:
        located, _ = jax.tree_util.tree_flatten_with_path(params)
        tails = [path_of("", path) for path, _ in located]
        shapes = [np.shape(leaf) for _, leaf in located]
        dtypes = [str(getattr(leaf, "dtype", type(leaf).__name__)) for _, leaf in located]
        applied = Applied(place, self._latest()[0], tails, tails, shapes, dtypes)
        applied.dropped = frame is caller and (_is_dropped(frame) or _is_never_read(place))
        return applied

    def _note_untreated(
        self, applied: Applied, latest: Sequence[weakref.ref[Any]], updates: Sequence[Any]
    ) -> None:
        """Note which updates are gradients themselves, and not zero, and which are zero whatever arrives."""
        raw: list[int] = []
        if len(latest) == len(updates):
            raw = [i for i, (ref, x) in enumerate(zip(latest, updates, strict=True)) if ref() is x]
        zeros = zeros_among([updates[i] for i in raw])
        unscaled = {i for i, is_zero in zip(raw, zeros, strict=True) if not is_zero}
        applied.raw = unscaled if applied.raw is None else applied.raw & unscaled
        untouched = {i for i, is_kept in enumerate(are_kept_zero(updates)) if is_kept}
        applied.untouched = untouched if applied.untouched is None else applied.untouched & untouched

    def _look_at(
        self,
        applied: Applied,
        before: Sequence[Any],
        updates: Sequence[Any],
        after: Sequence[Any],
        frame: FrameType,
    ) -> None:
        changed = changed_among(before, after)
        if not changed or None in changed:
            return
        applied.looked += 1
        for i, differs in enumerate(changed):
            applied.moved[i] = applied.moved.get(i, 0) + bool(differs)
        if not any(changed):
            zeros = all(zeros_among(updates))
            applied.zero += zeros
            applied.same += not zeros
            applied.accumulates = applied.accumulates or _accumulates(frame)


# ------------------------------------------------------------------------------- what becomes of a result


def _is_dropped(frame: FrameType) -> bool:
    """Whether the call that a frame executes is a statement of its own, whose result nobody gets."""
    after = [
        instruction
        for instruction in dis.get_instructions(frame.f_code)
        if instruction.offset > frame.f_lasti
    ]
    return bool(after) and after[0].opname == "POP_TOP"


def _is_never_read(place: RawLocation) -> bool:
    """Whether the call's result is assigned to a variable whose name its file reads nowhere."""
    location = decode(place)
    try:
        tree = ast.parse("".join(linecache.getlines(location.file)))
    except (SyntaxError, ValueError, RecursionError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        if (node.value.lineno, node.value.col_offset) == (location.line, location.column):
            target = node.targets[0]
            if len(node.targets) != 1 or not isinstance(target, ast.Name):
                return False
            return not _is_read(tree, target.id)
    return False


def _is_read(tree: ast.AST, name: str) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return True
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("locals", "globals", "vars", "eval", "exec"):
            return True
    return False


def _accumulates(frame: FrameType) -> bool:
    """Whether a variable of a frame holds the state of an optimizer that collects gradients over steps."""
    optax = sys.modules.get("optax")
    kinds = tuple(
        kind
        for name in ("MultiStepsState", "ApplyEvery", "MultiSteps")
        if isinstance(kind := getattr(optax, name, None), type)
    )

    def is_one(x: object) -> bool:
        return isinstance(x, kinds) or type(x).__name__ == "ApplyEvery"

    for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
        with contextlib.suppress(Exception):
            if any(map(is_one, jax.tree_util.tree_leaves(value, is_leaf=is_one))):
                return True
    return False
