"""Which ``autograd.Function`` a watch says that something happened in: told by the frames of forwards."""

from __future__ import annotations

import functools
import linecache
import operator
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
Function = torch.autograd.Function
HIDDEN = torch.ones(3, requires_grad=True)


class Plain(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * HIDDEN

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


def decorated(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def around(*args: Any) -> Any:
        return forward(*args)

    return around


class First(Plain):
    forward = staticmethod(decorated(lambda ctx, x: x * HIDDEN))


class Second(Plain):
    forward = staticmethod(decorated(lambda ctx, x: x + HIDDEN))


class Apart(Function):
    @staticmethod
    @decorated
    def forward(x: Any) -> Any:
        return x * HIDDEN

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


class AlsoApart(Apart):
    @staticmethod
    @decorated
    def forward(x: Any) -> Any:
        return x + HIDDEN


class Inherits(Plain):
    pass


class Supers(Plain):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return Plain.forward(ctx, x)


class SupersApart(Apart):
    @staticmethod
    def forward(x: Any) -> Any:
        return Apart.forward(x)


class Calls(Plain):
    """Its forward calls that of another function, which is not applied."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return Second.forward(None, x)


class Counts(Plain):
    """A forward of whose frames there is none when its context is made."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.more = HIDDEN * 2.0


class Classed(Plain):
    @classmethod
    def forward(cls, ctx: Any, x: Any) -> Any:
        return x * HIDDEN


class Later(Plain):
    """Its forward is replaced."""


class Called:
    def __call__(self, ctx: Any, x: Any) -> Any:
        return x * HIDDEN


class Object(Plain):
    forward = Called()


class Partial(Plain):
    forward = staticmethod(functools.partial(lambda more, ctx, x: x * HIDDEN, 1))


def made(factor: float) -> Any:
    class Made(Plain):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * HIDDEN * factor

    return Made


FUNCTIONS = [
    Plain,
    First,
    Second,
    Apart,
    AlsoApart,
    Inherits,
    Supers,
    SupersApart,
    Calls,
    Classed,
    Object,
    Partial,
]


def cut(f: Callable[[Any], Any]) -> Any:
    """The one cut that is found of a hidden tensor."""
    with sgt.watch() as seen:
        loss = f(torch.ones(3, requires_grad=True)).sum()
    flow = seen.explain(loss, {"hidden": HIDDEN})
    (found,) = flow["hidden"].cuts
    return found


def line_of(found: Any) -> str:
    return linecache.getline(found.location.file, found.location.line)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_the_function_that_is_applied_is_named_at_the_line_that_applies_it(function: Any) -> None:
    for apply in (function.apply, lambda x: function.apply(x)):
        found = cut(lambda x, apply=apply: apply(x))
        assert found.reason == f"inside {function.__qualname__}.forward"
        assert found.location.file == __file__
        assert "apply" in line_of(found)


def test_of_classes_that_one_function_makes_it_is_the_one_that_is_applied() -> None:
    first, second = made(1.0), made(2.0)
    for one in (first, second):
        assert cut(one.apply).reason == f"inside {one.__qualname__}.forward"


def test_a_forward_that_was_replaced_is_found() -> None:
    assert cut(Later.apply).reason == "inside Later.forward"

    def forward(ctx: Any, x: Any) -> Any:
        return x + HIDDEN

    Later.forward = staticmethod(forward)
    assert cut(Later.apply).reason == "inside Later.forward"


def test_a_function_that_is_applied_in_the_forward_of_another_is_named() -> None:
    class Around(Plain):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return Second.apply(Plain.apply(x))

    found = cut(lambda x: Around.apply(x))
    assert found.reason == "inside Second.forward"
    assert "Second.apply" in line_of(found)


def test_in_no_grad_it_is_no_grad_that_stops() -> None:
    def f(x: Any) -> Any:
        with torch.no_grad():
            y = Plain.apply(x)
        return y * x

    assert cut(f).reason == "torch.no_grad()"


def test_a_forward_that_is_implemented_in_c_leaves_what_follows_as_it_is() -> None:
    class Native(Plain):
        forward = staticmethod(operator.mul)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, None

    def f(x: Any) -> Any:
        return Plain.apply(Native.apply(x, torch.ones(3)))

    assert cut(f).reason == "inside Plain.forward"
    with sgt.watch() as seen:
        x = torch.ones(3, requires_grad=True)
        loss = Native.apply(x, torch.ones(3)).sum()
    assert seen.explain(loss, {"x": x})["x"].status == "flows"
