"""The blocks of a module: what runs whole or not at all; and modules that note which of theirs are run."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

COMPOUND = (
    ast.If,
    ast.For,
    ast.While,
    ast.Try,
    ast.TryStar,
    ast.With,
    ast.Match,
    ast.AsyncFor,
    ast.AsyncWith,
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.ClassDef


class Blocks:
    """The blocks of one module, in the order of its text.

    Attributes:
        of: each statement's and each lambda's block, by the node's ``id``.
        starts: where each block of a function begins, as (body, position, block).
        lambdas: each lambda and its block.
        names: all blocks of functions: what a module runs when it is imported is in none.
    """

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.of: dict[int, str] = {}
        self.starts: list[tuple[list[ast.stmt], int, str]] = []
        self.lambdas: list[tuple[ast.Lambda, str]] = []
        self._module = module
        self._counts: Counter[str] = Counter()
        self._body(tree.body, "", within=False)

    @property
    def names(self) -> list[str]:
        """All blocks that a function or a lambda runs."""
        return [block for _, _, block in self.starts] + [block for _, block in self.lambdas]

    def _new(self, scope: str) -> str:
        self._counts[scope] += 1
        return f"{self._module}:{scope}#{self._counts[scope] - 1}"

    def _body(self, body: list[ast.stmt], scope: str, *, within: bool) -> None:
        """Blocks of statements; ``within`` a function, where they are noted when they run."""
        block = self._begin(body, 0, scope, within=within)
        for position, statement in enumerate(body):
            self.of[id(statement)] = block
            for expression in _expressions(statement):
                self._lambdas(expression, scope)
            if isinstance(statement, Scope):
                name = f"{scope}.{statement.name}" if scope else statement.name
                self._body(statement.body, name, within=isinstance(statement, Function))
                continue
            for inner in _bodies(statement):
                self._body(inner, scope, within=within)
            if isinstance(statement, COMPOUND) and position + 1 < len(body):
                block = self._begin(body, position + 1, scope, within=within)

    def _begin(self, body: list[ast.stmt], position: int, scope: str, *, within: bool) -> str:
        block = self._new(scope)
        if within:
            self.starts.append((body, position, block))
        return block

    def _lambdas(self, expression: ast.AST, scope: str) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.Lambda):
                self.of[id(node)] = block = self._new(f"{scope}.<lambda>" if scope else "<lambda>")
                self.lambdas.append((node, block))


def noting(module: str, tree: ast.Module, first: int) -> list[str]:
    """Have a module note in ``mutants_reached`` which of its blocks run.

    Args:
        module: its dotted name.
        tree: changed in place.
        first: the number of its first block.

    Returns:
        The names of its blocks, numbered from ``first``.
    """
    blocks = Blocks(module, tree)
    names = blocks.names
    number = {name: first + index for index, name in enumerate(names)}
    # From the back, so that positions stay true.
    for body, position, block in reversed(blocks.starts):
        if position == 0 and _is_docstring(body[0]):
            position = 1
        note = ast.parse(f"mutants_reached[{number[block]}] = 1").body[0]
        line = body[min(position, len(body) - 1)]
        for node in ast.walk(note):
            ast.copy_location(node, line)
        body.insert(position, note)
    for node, block in blocks.lambdas:
        call = ast.parse(f"mutants_reached.__setitem__({number[block]}, 1)", mode="eval").body
        for part in ast.walk(call):
            ast.copy_location(part, node.body)
        node.body = ast.copy_location(ast.BoolOp(ast.Or(), [call, node.body]), node.body)
    return names


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement itself evaluates, without the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.ExceptHandler):
            if child.type is not None:
                yield child.type
        elif isinstance(child, ast.match_case):
            yield child.pattern
            if child.guard is not None:
                yield child.guard
        elif not isinstance(child, ast.stmt):
            yield child


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if inner := getattr(statement, name, None):
            yield inner
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
