"""What the tests of bad input share: a case, where it happens, and what must hold of its error."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

ARRAY = np.ones(3, np.float32)


class Setting:
    """A graph with a tensor of every kind, another graph, and a session that has already run."""

    def __init__(self, engine: str = "numpy") -> None:
        self.graph = sg.Graph()
        with self.graph.as_default():
            self.x = sg.placeholder(sg.float32, ["n", 3], name="x")
            self.y = sg.placeholder(sg.float32, ["m", 3], name="y")
            self.sum = self.x + self.y  # n and m are taken for equal here
            self.v = sg.placeholder(sg.float32, [3], name="v")
            self.u = sg.placeholder(sg.float32, [4], name="u")
            self.m = sg.placeholder(sg.float32, [2, 3], name="m")
            self.k = sg.placeholder(sg.float32, [4, 5], name="k")
            self.d = sg.placeholder(sg.float64, [3], name="d")
            self.i = sg.placeholder(sg.int32, [3], name="i")
            self.small = sg.placeholder(sg.int8, [2], name="small")
            self.b = sg.placeholder(sg.bool, [3], name="b")
            self.z = sg.placeholder(sg.complex64, [3], name="z")
            self.s = sg.placeholder(sg.float32, [], name="s")
            self.mask = sg.greater(self.v, 0.0, name="mask")
            self.half = sg.cast(self.v, sg.float16, name="half")
            self.nowhere = sg.zeros(["q"], name="nowhere")
            self.sixth = self.x[5]
            self.mirrored = sg.pad(self.x, [[3, 0], [0, 0]], mode="REFLECT")
            self.largest = sg.argmax(self.x, axis=0)
            self.parts, _ = sg.split(self.x, [2, 1])
            (self.slope,) = sg.gradients(self.parts, [self.x], name="early")
            self.none = sg.zeros([0], name="none")
            self.start = self.d[0]
            self.halves = sg.split(self.u, 2, name="halves")
            self.w = sg.parameter(np.array([1.0, 2.0, 3.0], np.float32), name="w")
            self.step = sg.assign(self.w, self.w * 2.0, name="step")
            self.reset = sg.assign(self.w, sg.zeros_like(self.w), name="reset")
            self.doubled = sg.multiply(self.v, 2.0, name="doubled")
            self.loss = sg.reduce_sum(self.v * self.v, name="loss")
            self.rounded = sg.round(self.v, name="rounded")
            self.barred = sg.prevent_gradient(self.v * 3.0, "use the other loss", name="barred")
        self.other = sg.Graph()
        with self.other.as_default():
            self.a = sg.placeholder(sg.float32, [3], name="a")
            self.c = sg.parameter(np.zeros(3, np.float32), name="c")
        self.session = sg.Session(self.graph, engine=engine)
        self.before = self.state()

    def state(self) -> list[Any]:
        return [
            len(self.graph),
            [op.name for op in self.graph.operations],
            len(self.other),
            [op.name for op in self.other.operations],
            self.session.value(self.w).tolist(),
        ]

    def run(self, fetches: Any, **feeds: Any) -> Any:
        return self.session.run(fetches, {getattr(self, name): value for name, value in feeds.items()})

    def check_unharmed(self) -> None:
        """Everything is as it was, and new operations get the names that they would have had."""
        assert self.state() == self.before
        np.testing.assert_array_equal(
            self.run(self.doubled, v=[1.0, -2.0, 0.5]), np.array([2.0, -4.0, 1.0], np.float32)
        )
        with self.graph.as_default():
            fresh = sg.exp(self.v)
            (slope,) = sg.gradients(fresh, [self.v])
        assert fresh.name == "Exp:0"
        assert slope is not None
        assert slope.name.startswith("gradients/")
        np.testing.assert_allclose(self.run(slope, v=[0.0, 1.0, 2.0]), np.exp([0.0, 1.0, 2.0]), rtol=1e-6)


@dataclass(frozen=True)
class Bad:
    """A wrong use: what it raises, and what the message must hold."""

    name: str
    wrong: Callable[[Setting], Any]
    error: type[Exception]
    builtin: type[Exception]
    says: tuple[str, ...]
    blames: tuple[str, ...] = field(default=())
    """Tensors of the setting of which the message gives the line that built them."""

    def __repr__(self) -> str:
        return self.name


def bad(
    name: str, wrong: Callable[[Setting], Any], error: type[Exception], *says: str, blames: str = ""
) -> Bad:
    builtin = {sg.DTypeError: TypeError, sg.EngineError: RuntimeError}.get(error, ValueError)
    return Bad(name, wrong, error, builtin, says, tuple(blames.split()))


def inside(f: Callable[[Setting], Any]) -> Callable[[Setting], Any]:
    """The same, with the setting's graph as the default."""

    def wrong(s: Setting) -> Any:
        with s.graph.as_default():
            return f(s)

    wrong.__wrapped__ = f  # type: ignore[attr-defined]
    return wrong


def lines_of(f: Any) -> set[int]:
    """The lines of this file that a case's function stands on, functions inside it too."""
    codes, found = [getattr(f, "__wrapped__", f).__code__], set()
    while codes:
        code = codes.pop()
        found |= {line for _, _, line in code.co_lines() if line is not None}
        codes += [c for c in code.co_consts if hasattr(c, "co_code")]
    return found


def refused(s: Setting, case: Bad) -> str:
    with pytest.raises(case.error) as caught:
        case.wrong(s)
    assert type(caught.value) is case.error
    assert isinstance(caught.value, sg.StopgradError)
    assert isinstance(caught.value, case.builtin)
    return str(caught.value)


def check_refused(case: Bad) -> None:
    """Refused with an error that names the line of the test or of the setting; nothing has changed."""
    s = Setting()
    message = refused(s, case)
    missing = [part for part in case.says if part not in message]
    assert not missing, message
    run = {(inspect.getfile(Setting), line) for line in lines_of(Setting.run)}
    here = inspect.getfile(inspect.unwrap(case.wrong))
    named = {(file, int(line)) for file, line in re.findall(r"at (\S+):(\d+)", message)}
    assert named & ({(here, line) for line in lines_of(case.wrong)} | run), message
    for tensor in case.blames:
        built = getattr(s, tensor)
        assert f"{built.op.location.file}:{built.op.location.line}" in message, (tensor, message)
    assert f"{sg.__path__[0]}" not in message, message
    s.check_unharmed()
