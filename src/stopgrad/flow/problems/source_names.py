"""The names that the user's source gives to values."""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Iterator

from stopgrad.base.source import Location


def variable_at(location: Location | None, index: int = 0) -> str:
    """The variable to which a result of the expression at a place is assigned; empty if there is none.

    Args:
        location: the place of an expression that is the whole right side of an assignment.
        index: which of several results; all have names where they are unpacked.

    Examples:
        >>> variable_at(None)
        ''
    """
    if location is None:
        return ""
    targets = _assigned("".join(linecache.getlines(location.file))).get((location.line, location.column), ())
    if len(targets) == 1:
        index = 0
    return targets[index] if index < len(targets) else ""


@functools.lru_cache(64)
def _assigned(source: str) -> dict[tuple[int, int | None], tuple[str, ...]]:
    """The targets of a source's assignments, by line and column of the assigned expression."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return {(value.lineno, value.col_offset): tuple(_names(target)) for target, value in _assignments(tree)}


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _names(part)
    else:
        name = ast.unparse(target)
        yield name if re.fullmatch(r"[\w.]+(\[[\w'\"]+\])?", name) else ""


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield node.targets[0], node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield node.target, node.value
