"""Which construct of Python asked for the value of a tensor that has none yet, and what to write instead.

The user's instruction is known; its place in the source leads to the statement or the call around it.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
from collections.abc import Iterator
from types import CodeType

from stopgrad.base.source import Location, RawLocation, decode

_IN_TEXT = 'sg.print("x is {x:.2f}", x=x), which prints when the value is there'
_BRANCH = "sg.cond(condition, true_function, false_function, *operands), or sg.where(condition, x, y)"
_STATEMENTS = {
    "if": _BRANCH,
    "if-else": "sg.where(condition, x, y), or sg.cond where only one side may be computed",
    "while": "sg.while_loop(condition_function, body_function, carry)",
    "assert": "sg.debug_callback(check, x), where check gets arrays; shapes can be asserted as here",
    "and": "sg.logical_and(x, y), or x & y",
    "or": "sg.logical_or(x, y), or x | y",
    "not": "sg.logical_not(x), or ~x",
    "chained comparison": "sg.logical_and(low < x, x < high)",
    "in": "sg.reduce_any(sg.equal(x, value))",
    "f-string": _IN_TEXT,
    "%": _IN_TEXT,
    "match": "sg.switch(index, functions, *operands), or sg.cond",
    "index": "sg.gather(values, i), or sg.switch(i, functions, *operands) for one of several functions",
}
"""What to use instead of a statement or an operator, by what it is called."""

_SAME = """
    acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 floor lgamma log log10
    log1p log2 sin sinh sqrt tan tanh trunc
"""
_OF_ONE = {
    **{name: name for name in _SAME.split()},
    **{"fabs": "abs", "isfinite": "is_finite", "isinf": "is_inf", "isnan": "is_nan", "prod": "reduce_prod"},
    **{"any": "reduce_any", "all": "reduce_all", "sorted": "sort"},
}
"""Functions of Python and of the modules ``math`` and ``cmath``, and ours."""

_SHOWN = "; sg.print shows it when it is there"
_FUNCTIONS = {
    **{name: f"sg.{ours}(x)" for name, ours in _OF_ONE.items()},
    **{"atan2": "sg.atan2(y, x)", "pow": "sg.pow(x, y)", "fmod": "sg.truncatemod(x, y)"},
    **{"hypot": "sg.sqrt(x * x + y * y)", "dist": "sg.norm(x - y)"},
    **{"degrees": "x * (180 / math.pi)", "radians": "x * (math.pi / 180)"},
    "max": "sg.maximum(x, y), or sg.reduce_max(x) of the elements of one tensor",
    "min": "sg.minimum(x, y), or sg.reduce_min(x) of the elements of one tensor",
    **dict.fromkeys(("float", "item", "tolist"), f"x itself, or sg.cast(x, sg.float32){_SHOWN}"),
    "int": f"x itself, or sg.cast(x, sg.int32){_SHOWN}",
    "complex": "x itself, or sg.cast(x, sg.complex64)",
    "bool": "x itself, as in sg.where(x, a, b)",
    **{f"{kind}{bits}": f"sg.cast(x, sg.{kind}{bits})" for kind in ("float", "int") for bits in (16, 32, 64)},
    "range": "sg.fori_loop(0, n, body, init)",
    "format": _IN_TEXT,
    **dict.fromkeys(("array", "asarray"), "x itself, which NumPy's functions take, or sg.stack of a list"),
    **dict.fromkeys(("zeros", "ones", "full", "empty"), "a size that is known, as those in x.shape are"),
}
"""What to use instead of a call, by the function's name."""

_OTHERWISE = "an operation, such as sg.where or sg.cond, in the place of what asks for it"


def asked(place: RawLocation | None) -> str:
    """Who asked for a value: the construct, the function, the line, and what to use instead."""
    if place is None:
        return f"Use {_OTHERWISE}"
    location = decode(place)
    what, cure = _construct(place, location) or ("something", _OTHERWISE)
    return f"In {_function(place)}line {location.line}, {what} asks for it now: use {cure}"


def _function(place: RawLocation) -> str:
    """The function of an instruction, before its line; empty for a module."""
    code = place[0]
    names = code.co_qualname.split(".") if isinstance(code, CodeType) else [decode(place).function]
    if names[-1] == "<lambda>":
        return "a lambda, "
    named = [name for name in names if name and name[0] != "<"]
    return f"{named[-1]}, " if named else ""


def _construct(place: RawLocation, location: Location) -> tuple[str, str] | None:
    """What the construct is called, and what to write in its place; None if it is not known."""
    around = _around(location)
    if not around:
        return None
    operation = _operation(place)
    if "CALL" in operation:
        call = next((node for node in around if isinstance(node, ast.Call)), None)
        if call is None:
            return None
        name = ast.unparse(call.func)
        cure = _FUNCTIONS.get(name.rpartition(".")[2])
        return f"{name if len(name) < 40 else name.rpartition('.')[2]}()", cure or _OTHERWISE
    name = _statement(around, operation)
    return (_ARTICLES.get(name, f"'{name}'"), _STATEMENTS[name]) if name else None


_ARTICLES = {
    "f-string": "an f-string",
    "chained comparison": "a chained comparison",
    "index": "an index of a list, a tuple or an array",
}


def _statement(around: list[ast.AST], operation: str) -> str:
    """The kind of the innermost statement or operator that asks for a value of one of its parts."""
    if operation.startswith("CONTAINS"):
        return "in"
    if operation.startswith("FORMAT") or operation == "BUILD_STRING":
        return "f-string"
    for child, node in zip([None, *around], around, strict=False):
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return "chained comparison"
        if isinstance(node, ast.JoinedStr):
            return "f-string"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return "%"
        if isinstance(node, ast.Subscript) and child is not node.value:
            return "index"
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)) and child in (None, node.test):
            return _BY_TEST[type(node)]
        if isinstance(node, ast.comprehension) and child in node.ifs:
            return "if"
        if isinstance(node, ast.match_case):
            return "match"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and not _tests(around, node):
            return "not"
        if isinstance(node, ast.BoolOp) and not _tests(around, node):
            return "and" if isinstance(node.op, ast.And) else "or"
        if isinstance(node, ast.stmt):
            return ""
    return ""


_BY_TEST = {ast.If: "if", ast.While: "while", ast.Assert: "assert", ast.IfExp: "if-else"}


def _tests(around: list[ast.AST], node: ast.AST) -> bool:
    """Whether a node is what a statement decides by; then that statement is what is named."""
    start = around.index(node)
    for child, parent in zip(around[start:], around[start + 1 :], strict=False):
        if not isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
            return getattr(parent, "test", None) is child
    return False


def _operation(place: RawLocation) -> str:
    """The name of the instruction that asked."""
    code, at = place
    if not isinstance(code, CodeType) or at < 0:
        return ""
    instructions = code.co_code[: at + 1 : 2]
    while instructions and dis.opname[instructions[-1]] == "CACHE":  # They follow the instruction.
        instructions = instructions[:-1]
    return dis.opname[instructions[-1]] if instructions else ""


def _around(location: Location) -> list[ast.AST]:
    """The nodes of the syntax tree around an expression, the innermost first; empty without the source."""
    if location.column is None or location.end_line is None or location.end_column is None:
        return []
    tree = _parsed(location.file, "".join(linecache.getlines(location.file)))
    if tree is None:
        return []
    begin, end = (location.line, location.column), (location.end_line, location.end_column)
    return list(_inside(tree, begin, end))[::-1]


Place = tuple[int, int]


def _inside(node: ast.AST, begin: Place, end: Place) -> Iterator[ast.AST]:
    """The nodes that contain a range of the source, from the outermost on."""
    inner: ast.AST | None = node
    while inner is not None:
        yield inner
        inner = next((child for child in ast.iter_child_nodes(inner) if _contains(child, begin, end)), None)


def _contains(node: ast.AST, begin: Place, end: Place) -> bool:
    if isinstance(
        node, (ast.comprehension, ast.match_case, ast.withitem)
    ):  # They have no place of their own.
        return any(_contains(child, begin, end) for child in ast.iter_child_nodes(node))
    if not hasattr(node, "lineno"):
        return False
    ends = (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))
    return (node.lineno, getattr(node, "col_offset", 0)) <= begin and end <= ends


@functools.lru_cache(8)
def _parsed(file: str, text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError):
        return None
