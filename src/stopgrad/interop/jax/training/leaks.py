"""Finds where a traced value was kept beyond its trace: who holds it, and the line that gave it to them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from stopgrad.base.source import Location
from stopgrad.interop.jax.training.traced_values import is_traced
from stopgrad.interop.jax.training.written import location_of, tree_of

ADDING = ("append", "add", "extend", "insert", "update", "setdefault", "appendleft")
"""Methods that put something into a container."""
MOST = 10_000
"""The most objects that are looked at."""


class Kept(NamedTuple):
    """A line that keeps a value, and the name under which it does."""

    name: str
    location: Location


def _reachable(frame: FrameType) -> Iterator[tuple[str, Any, str]]:
    """What the variables of a frame hold, and what is in these: a name, the value, its holder."""
    budget = MOST
    for name, value in (*frame.f_locals.items(), *frame.f_globals.items()):
        if name.startswith("__"):
            continue
        yield name, value, name
        parts: list[tuple[str, Any]] = []
        if type(value) in (list, tuple, set):
            parts = [(name, element) for element in list(value)[:budget]]
        elif type(value) is dict:
            parts = [(name, element) for element in list(value.values())[:budget]]
        elif not isinstance(value, type) and hasattr(value, "__dict__") and not hasattr(value, "__spec__"):
            for attribute, element in list(vars(value).items())[:budget]:
                parts.append((f"{name}.{attribute}", element))
                if type(element) in (list, tuple):
                    parts += [(f"{name}.{attribute}", inner) for inner in list(element)[:budget]]
                elif type(element) is dict:
                    parts += [(f"{name}.{attribute}", inner) for inner in list(element.values())[:budget]]
        for holder, element in parts:
            budget -= 1
            yield holder, element, holder
        if budget <= 0:
            return


def holder_of(frame: FrameType) -> tuple[str, Any]:
    """The traced value that the variables of a frame hold, if there is only one, and its holder."""
    holders = {id(value): (holder, value) for _, value, holder in _reachable(frame) if is_traced(value)}
    return next(iter(holders.values())) if len(holders) == 1 else ("", None)


def kept_at(
    name: str, tracer: Any, frame: FrameType, files: Sequence[str], origin: Location | None
) -> Kept | None:
    """The line that keeps a value.

    Args:
        name: under which it was read.
        tracer: the value.
        frame: that read it.
        files: where such a line may be.
        origin: the line that made it, which is preferred if it keeps it.
    """
    holders = [holder for _, value, holder in _reachable(frame) if value is tracer and tracer is not None]
    lasting = [holder for holder in holders if holder not in frame.f_locals or "." in holder] or holders
    for holder in dict.fromkeys([name, *lasting]):
        tail = holder.partition("[")[0].rpartition(".")[2]
        if not tail:
            continue
        for file in dict.fromkeys(files):
            tree = tree_of(file)
            places = (
                [] if tree is None else [location_of(file, statement) for statement in _keeping(tree, tail)]
            )
            same = [place for place in places if origin is not None and _covers(place, origin)]
            if same or len(places) == 1:
                return Kept(holder.partition("[")[0], (same or places)[0])
    return None


def _covers(outer: Location, inner: Location) -> bool:
    return outer.file == inner.file and outer.line <= inner.line <= (outer.end_line or outer.line)


def _keeping(tree: ast.Module, tail: str) -> Iterator[ast.stmt]:
    """The statements inside of functions that put something into a variable or attribute of a name."""
    seen: set[int] = set()
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or scope.name == "__init__":
            continue
        outer = {
            name
            for node in ast.walk(scope)
            if isinstance(node, (ast.Global, ast.Nonlocal))
            for name in node.names
        }
        for node in ast.walk(scope):
            if isinstance(node, ast.stmt) and id(node) not in seen and _keeps(node, tail, outer):
                seen.add(id(node))
                yield node


def _keeps(node: ast.stmt, tail: str, outer: set[str]) -> bool:
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(_is_kept_in(target, tail, outer) for target in targets)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in ADDING:
            return _tail(function.value) == tail
    return False


def _is_kept_in(target: ast.expr, tail: str, outer: set[str]) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_is_kept_in(part, tail, outer) for part in target.elts)
    if isinstance(target, ast.Subscript):
        return _tail(target.value) == tail
    if isinstance(target, ast.Attribute):
        return target.attr == tail
    return isinstance(target, ast.Name) and target.id == tail and tail in outer


def _tail(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
