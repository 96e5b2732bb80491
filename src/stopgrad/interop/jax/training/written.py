"""What the user's source says at a line: the names that it reads, where these are assigned."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from stopgrad.base.source import Location

_NOTHING = object()


@functools.lru_cache(64)
def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def tree_of(file: str) -> ast.Module | None:
    """The syntax tree of a file; None if it cannot be read."""
    return _parsed("".join(linecache.getlines(file)))


def location_of(file: str, node: ast.expr | ast.stmt) -> Location:
    """The place of a part of a file."""
    return Location(file, node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def names_at(location: Location) -> list[str]:
    """The variables, attributes and elements that an expression reads, the longest first at each place."""
    tree = tree_of(location.file)
    if tree is None:
        return []
    names: dict[str, None] = {}
    for node in _expressions(tree, location):
        for part in ast.walk(node):
            if isinstance(part, (ast.Attribute, ast.Subscript, ast.Name)):
                names[ast.unparse(part)] = None
    return list(names)


def _expressions(tree: ast.AST, location: Location) -> Iterator[ast.AST]:
    """The expression at a place, then the statement around it."""
    statement: ast.stmt | None = None
    for node in ast.walk(tree):
        if not isinstance(node, (ast.expr, ast.stmt)):
            continue
        begins, ends = node.lineno, node.end_lineno or node.lineno
        if isinstance(node, ast.expr) and (begins, ends, node.col_offset, node.end_col_offset) == (
            location.line,
            location.end_line,
            location.column,
            location.end_column,
        ):
            yield node
        if isinstance(node, ast.stmt) and begins <= location.line <= ends:
            statement = node  # The walk meets the outer ones first.
    if statement is not None:
        yield from _own_expressions(statement)


def _own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement, without those of statements inside of it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield child


def value_of(name: str, frame: FrameType) -> object:
    """What a variable, an attribute or an element holds in a frame, without calling the user's code."""
    try:
        return _value(ast.parse(name, mode="eval").body, frame)
    except (SyntaxError, ValueError):
        return None


def _value(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        return getattr(owner, "__dict__", {}).get(node.attr)
    if isinstance(node, ast.Subscript):
        owner, key = _value(node.value, frame), _constant(node.slice, frame)
        if type(owner) in (list, tuple, dict) and key is not _NOTHING:
            try:
                return owner[key]
            except (KeyError, IndexError, TypeError):
                return None
    return None


def _constant(node: ast.expr, frame: FrameType) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        pass
    value = _value(node, frame)
    return value if type(value) in (int, str) else _NOTHING


# -------------------------------------------------------------------------------------------- statements


def _scope_at(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, or the module."""
    scope: ast.AST = tree
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if node.lineno <= line <= (node.end_lineno or line):
            scope = node
    return scope


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """All parts of a function or module, without functions inside of it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _within(child)


def assigned_at(location: Location, name: str) -> Location | None:
    """The assignment to a variable in the function around a line; None if there are several."""
    tree = tree_of(location.file)
    if tree is None:
        return None
    values = []
    for node in _within(_scope_at(tree, location.line)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        names = {ast.unparse(part) for target in targets for part in _targets(target)}
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or name not in names:
            continue
        if not node.lineno <= location.line <= (node.end_lineno or node.lineno):
            values.append(node.value)
    return location_of(location.file, values[0]) if len(values) == 1 else None


def _targets(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _targets(part)
    else:
        yield target


def returned_at(code: CodeType) -> Location | None:
    """The expression that a function returns, if it has only one ``return``."""
    node = _definition(code)
    if isinstance(node, ast.Lambda):
        return location_of(code.co_filename, node.body)
    parts = () if node is None else _within(node)
    returned = [part.value for part in parts if isinstance(part, ast.Return) and part.value is not None]
    return location_of(code.co_filename, returned[0]) if len(returned) == 1 else None


def read_at(code: CodeType, name: str) -> Location | None:
    """Where a function reads a variable first."""
    node = _definition(code)
    for part in () if node is None else ast.walk(node):
        if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load):
            return location_of(code.co_filename, part)
    return None


def _definition(code: CodeType) -> ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition of a function in its file."""
    tree = tree_of(code.co_filename)
    lambdas = []
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            lambdas.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
            continue
        if (
            min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
            == code.co_firstlineno
        ):
            return node
    return lambdas[0] if len(lambdas) == 1 else None
