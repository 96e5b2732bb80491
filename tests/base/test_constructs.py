"""Python's constructs that ask a traced tensor for its value: the error names place, construct and cure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base import constructs


def branch(x: Any) -> Any:
    if x > 0:
        return x
    return -x


def both(x: Any) -> Any:
    if x > 0 and not x > 5:
        return x
    return -x


def repeat(x: Any) -> Any:
    while x < 10:
        x = x * 2
    return x


def check(x: Any) -> Any:
    assert x > 0, "negative"
    return x


def match(x: Any) -> Any:
    match x:
        case 1.0:
            return x
    return -x


def filtered(x: Any) -> Any:
    return [y for y in [1.0, 2.0] if x > y]


def whole(x: Any) -> Any:
    return sg.cast(x, sg.int32)


CASES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "if": (branch, "In branch, ", "'if' asks for it now: use sg.cond"),
    "if and": (both, "In both, ", "'if' asks for it now: use sg.cond"),
    "while": (repeat, "In repeat, ", "'while' asks for it now: use sg.while_loop"),
    "assert": (check, "In check, ", "'assert' asks for it now: use sg.debug_callback"),
    "match": (match, "In match, ", "'match' asks for it now: use sg.switch"),
    "comprehension": (filtered, "In filtered, ", "'if' asks for it now: use sg.cond"),
    "if-else": (lambda x: 1.0 if x > 0 else x, "In a lambda, ", "'if-else' asks for it now: use sg.where"),
    "and": (lambda x: x > 0 and x, "", "'and' asks for it now: use sg.logical_and"),
    "or": (lambda x: x > 0 or x, "", "'or' asks for it now: use sg.logical_or"),
    "not": (lambda x: not x, "", "'not' asks for it now: use sg.logical_not"),
    "chain": (lambda x: 0 < x < 1, "", "a chained comparison asks for it now: use sg.logical_and"),
    "in": (lambda x: x in [1.0, 2.0], "", "'in' asks for it now: use sg.reduce_any"),
    "in a tensor": (lambda x: 3.0 in sg.stack([x]), "", "'in' asks for it now: use sg.reduce_any"),
    "max": (lambda x: max(x, 0.0), "", "max() asks for it now: use sg.maximum"),
    "min": (lambda x: min([x, 2.0 * x]), "", "min() asks for it now: use sg.minimum"),
    "any": (lambda x: any([x > 0]), "", "any() asks for it now: use sg.reduce_any(x)"),
    "sorted": (lambda x: sorted([x, 2.0 * x]), "", "sorted() asks for it now: use sg.sort(x)"),
    "float": (lambda x: float(x), "", "float() asks for it now: use x itself"),
    "int": (lambda x: int(x), "", "int() asks for it now: use x itself, or sg.cast(x, sg.int32)"),
    "bool": (lambda x: bool(x), "", "bool() asks for it now: use x itself"),
    "item": (lambda x: x.item(), "", "x.item() asks for it now: use x itself"),
    "np.float32": (lambda x: np.float32(x), "", "np.float32() asks for it now: use sg.cast(x, sg.float32)"),
    "asarray": (lambda x: np.asarray(x), "", "np.asarray() asks for it now: use x itself"),
    "zeros": (lambda x: np.zeros(whole(x)), "", "np.zeros() asks for it now: use a size that is known"),
    "range": (lambda x: range(whole(x)), "", "range() asks for it now: use sg.fori_loop"),
    "index": (lambda x: [1.0, 2.0][whole(x)], "", "an index of a list, a tuple or an array asks"),
    "index of an array": (lambda x: np.ones(3)[whole(x)], "", "use sg.gather(values, i)"),
    "exp": (lambda x: math.exp(x), "", "math.exp() asks for it now: use sg.exp(x)"),
    "floor": (lambda x: math.floor(x), "", "math.floor() asks for it now: use sg.floor(x)"),
    "f-string": (lambda x: f"{x:.2f}", "", 'an f-string asks for it now: use sg.print("x is {x:.2f}", x=x)'),
    "percent": (lambda x: "%.2f" % x, "", "'%' asks for it now: use sg.print"),  # noqa: UP031
    "format": (lambda x: "{:.2f}".format(x), "", "format() asks for it now: use sg.print"),  # noqa: UP032
    "a function of others": (lambda x: pow(2, 3, x) if callable(x) else hash_of(x), "", "use an operation"),
}


def hash_of(x: Any) -> Any:
    return bytearray(whole(x))


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_function_line_construct_and_cure(name: str) -> None:
    f, where, says = CASES[name]
    with pytest.raises(sg.GraphError) as caught:
        sg.function(f)(2.0)
    text = str(caught.value)
    assert "is not known while tracing" in text
    assert where in text
    assert says in text
    line = int(re.findall(r"In [^\n]*?line (\d+)", text)[0])
    assert 0 <= line - f.__code__.co_firstlineno <= 2 or name == "a function of others"
    assert f"{__file__}:{line}" in text


def test_cures_exist() -> None:
    for text in [*constructs._STATEMENTS.values(), *constructs._FUNCTIONS.values()]:
        for name in re.findall(r"\bsg\.(\w+)", text):
            assert hasattr(sg, name), text


def test_without_the_source_the_error_is_shorter() -> None:
    space: dict[str, Any] = {}
    exec("def f(x):\n    return 1.0 if x > 0 else x", space)
    with pytest.raises(sg.GraphError, match=r"In f, line 2, something asks for it now: use an operation"):
        sg.function(space["f"])(1.0)


def test_in_a_graph_at_the_top_of_a_module_no_function_is_named() -> None:
    code = compile("if x > 0: pass", "<module>", "exec")
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [])
        with pytest.raises(sg.GraphError, match=r"\. In line 1, "):
            exec(code, {"x": x})
