"""What vmap refuses: the message names vmap, the rule and the cure, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

A, B = np.ones((3, 2)), np.ones((4, 2))

CASES: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("no function", lambda: sg.vmap(3), sg.ArgumentError, r"vmap: takes a function, not 3"),
    (
        "unequal numbers of examples",
        lambda: sg.vmap(lambda x, y: x)(A, B),
        sg.ShapeError,
        r"vmap: argument 0 has 3 examples and argument 1 has 4.*give all the same number, or None",
    ),
    (
        "unequal inside a structure",
        lambda: sg.vmap(lambda t: t["a"])({"a": A, "b": [B]}),
        sg.ShapeError,
        r"argument 0 at 'a' has 3 examples and argument 0 at 'b.0' has 4",
    ),
    (
        "a keyword argument",
        lambda: sg.vmap(lambda x, y: x)(A, y=B),
        sg.ShapeError,
        r"argument 'y' has 4",
    ),
    (
        "an axis that is none",
        lambda: sg.vmap(lambda x: x, "x")(A),
        sg.ArgumentError,
        r"in_axes='x' is no axis",
    ),
    ("a bool", lambda: sg.vmap(lambda x: x, True)(A), sg.ArgumentError, r"in_axes=True is no axis"),
    (
        "too many entries",
        lambda: sg.vmap(lambda x: x, (0, 1))(A),
        sg.ArgumentError,
        r"in_axes has 2 entries for 1 positional arguments; give one each",
    ),
    (
        "another structure",
        lambda: sg.vmap(lambda t: t, ({"b": 0},))({"a": A}),
        sg.ArgumentError,
        r"vmap: in_axes=\{'b': 0\} does not fit the argument.*give it the same structure, or one axis",
    ),
    (
        "no axis inside a structure",
        lambda: sg.vmap(lambda t: t, ({"a": 1.5},))({"a": A}),
        sg.ArgumentError,
        r"in_axes holds 1.5, which is no axis; take an integer or None",
    ),
    (
        "an axis that does not exist",
        lambda: sg.vmap(lambda x: x, 2)(A),
        sg.ArgumentError,
        r"vmap: in_axes says axis 2 for argument 0, which is float64\[3, 2\]; name an axis that it",
    ),
    (
        "a scalar",
        lambda: sg.vmap(lambda x, y: x)(A, np.float64(1.0)),
        sg.ArgumentError,
        r"axis 0 for argument 1, which is float64\[\]",
    ),
    (
        "a number",
        lambda: sg.vmap(lambda x, y: x)(A, 2.0),
        sg.ArgumentError,
        r"argument 1 is the number 2.0, which has no axis of examples; give None for it in in_axes",
    ),
    ("nothing mapped", lambda: sg.vmap(lambda x: x, None)(A), sg.ArgumentError, r"no argument is mapped"),
    ("nothing given", lambda: sg.vmap(lambda: 1.0)(), sg.ArgumentError, r"no argument is mapped"),
    (
        "None for a result that differs",
        lambda: sg.vmap(lambda x: x * 2.0, out_axes=None)(A),
        sg.ArgumentError,
        r"vmap: out_axes is None for a result that differs from example to example",
    ),
    (
        "a result without that axis",
        lambda: sg.vmap(lambda x: x, out_axes=2)(A),
        sg.ArgumentError,
        r"vmap: out_axes=2 does not exist in a result of 2 dimensions.*take -2 to 1",
    ),
    (
        "another structure of the result",
        lambda: sg.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(A),
        sg.ArgumentError,
        r"out_axes=\(0, 0, 0\) does not fit the result",
    ),
    (
        "a parameter inside",
        lambda: sg.vmap(lambda x: x * sg.parameter(np.ones(2)))(A),
        sg.GraphError,
        r"a parameter cannot be made inside vmap; make it outside",
    ),
    (
        "an error of one example",
        lambda: sg.vmap(lambda x: x @ np.ones((3, 3)))(A),
        sg.ShapeError,
        r"MatMul: \(C2\) the inner sizes 2 and 3 differ",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), [pytest.param(*c[1:], id=c[0]) for c in CASES])
def test_bad_calls_say_what_is_wrong(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        call()
    assert __file__ in str(raised.value)


@pytest.mark.parametrize(("call", "error", "message"), [pytest.param(*c[1:], id=c[0]) for c in CASES])
def test_bad_calls_leave_nothing_behind(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    graph = sg.Graph()
    with graph.as_default():
        sg.placeholder(sg.float32)
        with pytest.raises(error):
            call()
        assert len(graph) == 1
        assert sg.exp(graph.operations[0]).op.name == "Exp"


def test_symbolic_numbers_of_examples_are_held_against_each_other_when_fed() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x, y = sg.placeholder(sg.float64, [None, 2]), sg.placeholder(sg.float64, [None, 2])
        z = sg.vmap(lambda a, b: sg.reduce_sum(a * b))(x, y)
    with sg.Session(graph) as session:
        np.testing.assert_array_equal(session.run(z, {x: A, y: A}), np.full(3, 2.0))
        with pytest.raises(sg.StopgradError, match=r"3.*4"):
            session.run(z, {x: A, y: B})
