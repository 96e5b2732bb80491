"""Faults that can be planted in a module: one small mistake in code that runs."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .blocks import Blocks, Function

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.LShift, ast.RShift)
# Their first two arguments cannot change places without a failure that says nothing, or without effect.
UNORDERED = {
    "isinstance",
    "issubclass",
    "getattr",
    "hasattr",
    "setattr",
    "max",
    "min",
    "cast",
    "TypeVar",
    "print",
}
# Told to people, or to those who read: no behaviour.
TOLD = {"samples", "extremes", "constraints", "references", "__all__", "__slots__", "summary", "description"}

Put = Callable[[ast.expr], None]


@dataclass(frozen=True)
class Fault:
    """One mistake.

    Attributes:
        id: from the function's name and the statement's text, so that it stays when the code moves.
        module: the dotted name of the module.
        line: where it is.
        function: the qualified name of the function or class inside the module; "" at the module's level.
        block: the block it is in, as ``blocks.Blocks`` names it.
        kind: what kind of mistake.
        statement: the statement that it is in.
        before: what is replaced.
        after: what takes its place.
    """

    id: str
    module: str
    line: int
    function: str
    block: str
    kind: str
    statement: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.kind} {_short(self.before)} -> {_short(self.after)}"

    def record(self) -> dict[str, Any]:
        """As it stands in a file of results."""
        return asdict(self)


def faults(module: str, source: str) -> list[Fault]:
    """All faults that can be planted in a module, in the order of its text."""
    return [fault for fault, _ in _Search(module, ast.parse(source)).found()]


def planted(fault: Fault, source: str, path: str) -> Any:
    """The module's code with one fault.

    Raises:
        LookupError: the module has no such place.
    """
    tree = ast.parse(source)
    for found, plant in _Search(fault.module, tree).found():
        if found.id == fault.id:
            plant()
            return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    raise LookupError(f"{fault} is not in {path}")


class _Search:
    """Walks over a module and notes every place for a fault, with what plants it."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self._module = module
        self._blocks = Blocks(module, tree)
        self._found: list[tuple[dict[str, Any], Callable[[], None]]] = []
        self._function = self._block = self._statement = ""
        self._body(tree.body, "")

    def found(self) -> Iterator[tuple[Fault, Callable[[], None]]]:
        """Each fault and what plants it."""
        seen: Counter[tuple[str, ...]] = Counter()
        for values, plant in self._found:
            key = tuple(values[name] for name in ("function", "kind", "statement", "before", "after"))
            seen[key] += 1
            identity = hashlib.sha1(repr((key, seen[key])).encode(), usedforsecurity=False).hexdigest()[:10]
            yield Fault(id=identity, **values), plant

    def _note(self, node: ast.AST, kind: str, before: str, after: str, plant: Callable[[], None]) -> None:
        values = {
            "module": self._module,
            "line": node.lineno,  # type: ignore[attr-defined]
            "function": self._function,
            "block": self._block,
            "kind": kind,
            "statement": self._statement,
            "before": before,
            "after": after,
        }
        self._found.append((values, plant))

    def _replacement(self, kind: str, node: ast.expr, new: ast.expr, put: Put) -> None:
        self._note(node, kind, ast.unparse(node), ast.unparse(new), lambda: put(ast.copy_location(new, node)))

    # -- statements

    def _body(self, body: list[ast.stmt], scope: str) -> None:
        for position, statement in enumerate(body):
            if not _is_idle(statement):
                self._in(statement, body, position, scope)

    def _in(self, statement: ast.stmt, body: list[ast.stmt], position: int, scope: str) -> None:
        self._function, self._block = scope, self._blocks.of[id(statement)]
        self._statement = _header(statement)
        if isinstance(statement, Function | ast.ClassDef):
            name = f"{scope}.{statement.name}" if scope else statement.name
            if isinstance(statement, Function):
                self._function, self._block = name, self._blocks.of[id(statement.body[0])]
                self._children(statement.args, ("defaults", "kw_defaults"))
            self._body(statement.body, name)
            return
        if _is_removable(statement):
            gone = ast.copy_location(ast.Pass(), statement)
            self._note(
                statement, "removed line", self._statement, "pass", lambda: body.__setitem__(position, gone)
            )
        if isinstance(statement, ast.If):
            self._condition(statement, "test")
        if not isinstance(statement, ast.Raise):
            self._children(statement, [name for name in statement._fields if name != "annotation"])
        for name in ("body", "orelse", "finalbody"):
            self._body(getattr(statement, name, None) or [], scope)
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            self._body(part.body, scope)

    # -- expressions

    def _children(self, node: ast.AST, names: Any = None) -> None:
        for name in names if names is not None else node._fields:
            value = getattr(node, name)
            if isinstance(value, ast.expr):
                self._expression(value, _setter(node, name))
            elif isinstance(value, list):
                for position, child in enumerate(value):
                    if isinstance(child, ast.expr):
                        self._expression(child, _item_setter(value, position))
                    elif isinstance(child, ast.keyword | ast.comprehension | ast.withitem):
                        self._children(child)

    def _expression(self, node: ast.expr, put: Put) -> None:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Lambda):
            outer, self._block = self._block, self._blocks.of[id(node)]
            self._children(node, ("body",))
            self._block = outer
            return
        for replaced in (self._operator, self._unary, self._comparison, self._constant, self._conditions):
            replaced(node, put)
        if isinstance(node, ast.Call):
            self._call(node)
        self._children(node)

    def _operator(self, node: ast.expr, put: Put) -> None:
        if not isinstance(node, ast.BinOp) or any(map(_is_text, (node.left, node.right))):
            return
        if type(node.op) in SIGNS:
            new = ast.BinOp(node.left, SIGNS[type(node.op)](), node.right)
            self._replacement(
                "sign" if isinstance(node.op, ast.Add | ast.Sub) else "operator", node, new, put
            )
        if isinstance(node.op, ORDERED) and ast.unparse(node.left) != ast.unparse(node.right):
            self._replacement("swapped operands", node, ast.BinOp(node.right, node.op, node.left), put)

    def _unary(self, node: ast.expr, put: Put) -> None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self._replacement("sign", node, node.operand, put)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._replacement("condition", node, node.operand, put)

    def _comparison(self, node: ast.expr, put: Put) -> None:
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            new = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
            self._replacement("comparison", node, new, put)

    def _constant(self, node: ast.expr, put: Put) -> None:
        if not isinstance(node, ast.Constant):
            return
        if isinstance(node.value, bool):
            self._replacement("constant", node, ast.Constant(not node.value), put)
        elif isinstance(node.value, int):
            self._replacement("off by one", node, ast.Constant(node.value + 1), put)
        elif isinstance(node.value, float):
            self._replacement("constant", node, ast.Constant(node.value * 2 or 1.0), put)

    def _conditions(self, node: ast.expr, put: Put) -> None:
        if isinstance(node, ast.BoolOp):
            for position in range(len(node.values)):
                rest = [value for index, value in enumerate(node.values) if index != position]
                new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
                self._replacement("condition", node, new, put)
        elif isinstance(node, ast.IfExp):
            self._condition(node, "test")
        for part in getattr(node, "generators", ()):
            for test in part.ifs:
                self._note(test, "condition", f"if {ast.unparse(test)}", "", _dropping(part.ifs, test))

    def _condition(self, node: ast.If | ast.IfExp, name: str) -> None:
        test = node.test
        if not isinstance(test, ast.Compare) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            self._replacement("condition", test, ast.UnaryOp(ast.Not(), test), _setter(node, name))

    def _call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        if len(node.args) < 2 or name in UNORDERED or any(isinstance(x, ast.Starred) for x in node.args[:2]):
            return
        first, second, *rest = node.args
        if ast.unparse(first) == ast.unparse(second) or _is_word(first) != _is_word(second):
            return
        new = ast.Call(node.func, [second, first, *rest], node.keywords)

        def plant() -> None:
            node.args[:2] = [second, first]

        self._note(node, "swapped operands", ast.unparse(node), ast.unparse(new), plant)


def _setter(node: ast.AST, name: str) -> Put:
    return lambda new: setattr(node, name, new)


def _item_setter(values: list[Any], position: int) -> Put:
    return lambda new: values.__setitem__(position, new)


def _dropping(values: list[Any], value: Any) -> Callable[[], None]:
    return lambda: values.remove(value)


def _is_idle(statement: ast.stmt) -> bool:
    """Whether a statement is no code that runs, or only tells."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    if isinstance(statement, ast.If):
        return any(name in ast.unparse(statement.test) for name in ("TYPE_CHECKING", "__name__"))
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(isinstance(target, ast.Name) and target.id in TOLD for target in targets)
    if isinstance(statement, Function | ast.ClassDef):
        marks = " ".join(map(ast.unparse, statement.decorator_list))
        bases = " ".join(map(ast.unparse, statement.bases)) if isinstance(statement, ast.ClassDef) else ""
        return "overload" in marks or "Protocol" in bases or "TypedDict" in bases
    return False


def _is_removable(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return isinstance(statement, ast.AugAssign | ast.Continue | ast.Break | ast.Raise | ast.Delete)


def _is_word(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp | ast.Dict)


def _header(statement: ast.stmt) -> str:
    """The statement's text; of one that holds others, its first line."""
    if isinstance(statement, Function | ast.ClassDef):
        return f"def {statement.name}"
    if not hasattr(statement, "body"):
        return ast.unparse(statement)
    empty = copy.copy(statement)
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        if hasattr(empty, name):
            setattr(empty, name, [ast.Pass()] if name == "body" else [])
    return ast.unparse(empty).partition("\n    pass")[0]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."
