"""Functions of JAX's that cannot be traced, imported or asked about: an error that says what to do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stopgrad.jax")

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

import stopgrad as sg
import stopgrad.jax as sgj

X = np.ones((2, 3), np.float32)


def decides(x: Any) -> Any:
    if x.sum() > 0:  # decides
        return x
    return -x


def loops(x: Any) -> Any:
    while x.sum() < 10.0:  # loops
        x = x * 2.0
    return x


def leaves_for_python(x: Any) -> Any:
    return x * float(x.sum())  # leaves


def leaves_by_item(x: Any) -> Any:
    return x * x.sum().item()  # item


def leaves_for_numpy(x: Any) -> Any:
    return x * np.tanh(np.asarray(x))  # numpy


def picks_by_mask(x: Any) -> Any:
    return x[x > 0.0].sum()  # mask


def counts(x: Any) -> Any:
    return jnp.zeros(x.sum().astype(int)).sum()  # counts


def indexes(x: Any) -> Any:
    return [1.0, 2.0, 3.0][x.astype(int)[0, 0]] * x  # indexes


def writes(x: Any) -> Any:
    x[0] = 0.0  # writes
    return x


KEPT: list[Any] = []


def keeps(x: Any) -> Any:
    """Its value is used after it was traced."""
    if KEPT:
        return x * KEPT.pop()  # keeps
    KEPT.append(x)
    return x


def kept_twice(x: Any) -> Any:
    KEPT.clear()
    jax.make_jaxpr(keeps)(x)
    return sgj.explain(keeps, x)


def theirs(x: Any) -> Any:
    raise ValueError("theirs")


def wrong_sizes(x: Any) -> Any:
    return x @ x


def talks(x: Any) -> Any:
    io_callback(print, None, x)
    return x


@dataclass(frozen=True)
class Refused:
    """Something that must fail.

    Attributes:
        does: the mistake.
        says: what the message must hold: what is wrong, and what to do.
        line: the comment on the user's line that it must name; of this file anyway.
    """

    does: Callable[[], Any]
    says: tuple[str, ...]
    line: str = ""


REFUSED = {
    "Python decides by a traced value": Refused(
        lambda: sgj.load(decides, X), ("decides", "jax.lax.cond", "jnp.where"), "decides"
    ),
    "Python loops by a traced value": Refused(lambda: sgj.load(loops, X), ("loops", "while_loop"), "loops"),
    "a traced value leaves for Python": Refused(
        lambda: sgj.explain(leaves_for_python, X), ("float(x)", "functools.partial"), "leaves"
    ),
    "a traced value leaves by item": Refused(lambda: sgj.load(leaves_by_item, X), ("x.item()",), "item"),
    "NumPy is called on a traced value": Refused(
        lambda: sgj.load(leaves_for_numpy, X), ("jax.numpy",), "numpy"
    ),
    "an index of booleans": Refused(lambda: sgj.load(picks_by_mask, X), ("booleans", "jnp.where"), "mask"),
    "a shape that is computed": Refused(lambda: sgj.load(counts, X), ("shape",), "counts"),
    "a traced value as an index of a list": Refused(
        lambda: sgj.load(indexes, X), ("whole number", "jnp.take"), "indexes"
    ),
    "a value that left its function": Refused(lambda: kept_twice(X), ("return it instead",)),
    "a function inside another that cannot be traced": Refused(
        lambda: sgj.explain(jax.jit(lambda x: decides(x) * 2.0), X), ("jax.lax.cond",), "decides"
    ),
    "no function": Refused(lambda: sgj.explain(3.0, X), ("takes a function", "3.0")),
    "no function to load": Refused(lambda: sgj.load("f", X), ("takes a function",)),
    "no function to call": Refused(lambda: sgj.callable(3.0), ("function",)),
    "a function that returns nothing": Refused(lambda: sgj.explain(lambda x: None, X), ("no array",)),
    "a function that returns a name": Refused(lambda: sgj.explain(lambda x: "loss", X), ("no array",)),
    "an argument that is not there": Refused(
        lambda: sgj.explain(lambda x: x, X, argnums=3), ("argnums", "3")
    ),
    "an argument called by its name": Refused(lambda: sgj.explain(lambda x: x, X, argnums="x"), ("argnums",)),
    "an assertion of an argument that is not there": Refused(
        lambda: sgj.assert_flows(lambda params: params["w"], {"w": X}, to="params.v"),
        ("params.v", "params.w"),
    ),
    "an assertion by a line where nothing is": Refused(
        lambda: sgj.assert_blocked(lambda x: jax.lax.stop_gradient(x), X, to="x", by="nowhere.py:3"),
        ("nowhere.py:3",),
    ),
    "another structure than was loaded": Refused(
        lambda: sgj.load(lambda p: p["w"], {"w": X})({"v": X}), ("structure",)
    ),
    "other sizes than were loaded": Refused(lambda: sgj.load(lambda x: x * 2.0, X)(X[:1]), ("[1, 3]",)),
    "another type than was loaded": Refused(
        lambda: sgj.load(lambda x: x * 2.0, X)(np.ones((2, 3), np.int32)), ("int32", "float32")
    ),
    "a function that acts on the world": Refused(lambda: sgj.load(talks, X), ("io_callback", "take it out")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_told(name: str) -> None:
    case = REFUSED[name]
    with pytest.raises(sg.StopgradError) as caught:
        case.does()
    message = str(caught.value)
    for words in case.says:
        assert words in message, message
    assert Path(__file__).name in message, message
    if case.line:
        lines = Path(__file__).read_text().splitlines()
        number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {case.line}"))
        assert f"{Path(__file__).name}:{number}" in message, message
    assert not isinstance(caught.value, sg.InternalError)


@pytest.mark.parametrize("ask", [sgj.explain, sgj.load])
def test_what_the_function_itself_raises_is_handed_on(ask: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"^theirs"):
        ask(theirs, X)
    with pytest.raises(TypeError, match="dot_general"):
        ask(wrong_sizes, X)


def test_after_a_mistake_the_next_call_works() -> None:
    for does in (lambda: sgj.load(decides, X), lambda: sgj.explain(leaves_for_numpy, X)):
        with pytest.raises(sg.StopgradError):
            does()
    assert sgj.explain(lambda x: (x * x).sum(), X)["x"].status == "flows"
    assert not isinstance(jnp.ones(3) * 2.0, jax.core.Tracer)


def test_what_a_mistake_asks_for_works() -> None:
    """The cures that the messages name."""

    def chosen(x: Any) -> Any:
        return jax.lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x)

    def by_flag(flag: bool, x: Any) -> Any:
        return x if flag else -x

    assert sgj.explain(chosen, X)["x"].arrives
    assert sgj.explain(functools.partial(by_flag, True), X)["x"].arrives
