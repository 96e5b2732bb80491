"""Random programs whose gradients are asked about, and what is true of them, found by walking.

A program is text, a statement to a line, so that each operation has a line of its own and a failure can be
read and run again. :class:`Walk` is the reference: it knows from a table which operations end paths, and
walks from ys, tensor by tensor, also into bodies, with all that has happened on the way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import stopgrad as sg
from stopgrad.graph.build import visible

OPEN, UNDEFINED, STOPPED, BLIND = range(4)
STATUSES = ("flows", "undefined", "stopped", "not differentiable")

PRELUDE = """\
def hold(t):
    return sg.stop_gradient(t)

def first_gradient(y, x):
    try:
        found = sg.gradients(y, [x])[0]
    except sg.GradientError:
        found = None
    return x if found is None else found

@sg.custom_gradient
def tripled(t):
    return t * t, lambda g: 3.0 * g

def tanh_tripled(t):
    return sg.tanh(tripled(t))

@sg.custom_gradient
def first_only(t, u):
    return t * u, lambda g: (2.0 * g, None)

@sg.custom_gradient
def crossed(t, u):
    return (t * u, t + u), lambda g, h: (2.0 * g, 4.0 * h)

def closing(t, u):
    return sg.custom_gradient(lambda s: (s * 1.5, lambda g: g * u))(t)

def taking(t, u):
    return sg.custom_gradient(lambda s: (s * hold(u), lambda g: 3.0 * sg.stop_gradient(g)))(t)  # taking()

def sharing(t, u):
    both = lambda s: ((s * 2.0, tanh_tripled(s) + u), lambda g, h: g + 5.0 * h)
    return sg.custom_gradient(both)(t)  # sharing()
"""

CUSTOM = {
    "tripled": {(0, 0): 3.0},
    "first_only": {(0, 0): 2.0},
    "crossed": {(0, 0): 2.0, (1, 1): 4.0},
    "taking": {(0, 0): 3.0},
    "sharing": {(0, 0): 1.0, (1, 0): 5.0},
}
"""From results and arguments of a custom gradient to the factor between their cotangents."""

APART = {"sharing": (0, 1)}
"""A result of a custom gradient, and what is closed over that it does not use: its number after arguments."""


# ------------------------------------------------------------------------------------------- programs


class Maker:
    """Writes a program. *r*: a source of random choices, such as :class:`random.Random`.

    Values are vectors of four: ``float64`` (kind ``"f"``), ``int32`` (``"i"``) and ``bool`` (``"b"``).
    """

    def __init__(self, r: Any, size: int, bodies: int = 0) -> None:
        self.r = r
        self.lines: list[str] = PRELUDE.splitlines()
        self.indent = ""
        self.values: dict[str, list[str]] = {"f": [], "i": [], "b": []}
        self.names = itertools.count()
        self.bodies = bodies
        for k in range(3):
            self._given("f", f"x{k}", f"sg.placeholder(sg.float64, [4], name='x{k}')")
        self._given("i", "n0", "sg.placeholder(sg.int32, [4], name='n0')")
        self._given("b", "b0", "sg.placeholder(sg.bool, [4], name='b0')")
        self.line("q0 = sg.placeholder(sg.bool, [], name='q0')")
        self.statements(size)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _given(self, kind: str, name: str, made: str) -> None:
        self.line(f"{name} = {made}")
        self.values[kind].append(name)

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def value(self, kind: str = "f") -> str:
        """One that is there; rather a late one."""
        known = self.values[kind]
        found: str = known[-1 - int(self.r.random() ** 2 * len(known))]
        return found

    def new(self, kind: str = "f") -> str:
        name = f"v{next(self.names)}"
        self.values[kind].append(name)
        return name

    def statements(self, count: int) -> None:
        for _ in range(count):
            self.statement()

    def statement(self) -> None:
        kinds = ["plain"] * 8 + ["gate"] * 6 + ["whole"] * 4 + ["several"] * 2 + ["block", "custom", "first"]
        if self.bodies > 0:
            kinds += ["loop"] * 3 + ["branch"] * 2 + ["once"] * 2
        getattr(self, f"_{self.r.choice(kinds)}")()

    def _let(self, kind: str, made: str) -> None:
        """The value is known only after its line."""
        name = f"v{next(self.names)}"
        self.line(f"{name} = {made}")
        self.values[kind].append(name)

    def _plain(self) -> None:
        v = self.value
        made = self.r.choice(
            ["tanh({})", "sin({})", "square({})", "add({}, {})", "multiply({}, {})", "sign({})"]
        )
        self._let("f", "sg." + made.format(v(), v()))

    def _gate(self) -> None:
        v = self.value
        which = self.r.randrange(12)
        made = [
            lambda: f"sg.stop_gradient({v()})",
            lambda: f"sg.stop_gradient({v()})",
            lambda: f"hold({v()})",
            lambda: f"sg.stop_gradient(sg.tanh(sg.stop_gradient({v()})))",
            lambda: f"sg.stop_gradient({v()}, wrt=[{v()}])",
            lambda: f"sg.stop_gradient({v()}, wrt=[{self.r.choice(['x0', 'x1'])}])",
            lambda: f"sg.stop_gradient({v()}, when=q0)",
            lambda: f"sg.stop_gradient({v()}, when=sg.reduce_any({v('b')}), wrt=[x0])",
            lambda: f"sg.stop_gradient({v()}, when={self.r.random() < 0.5})",
            lambda: f"sg.straight_through({v()}, {v()})",
            lambda: f"sg.prevent_gradient({v()}, 'not here')",
            lambda: self.r.choice(
                [f"sg.zero_gradient({v()})", f"sg.scale_gradient({v()}, 2.5)", f"sg.reverse_gradient({v()})"]
            ),
        ][which]()
        self._let("f", made)

    def _whole(self) -> None:
        """Integers, booleans, roundings: made of floats, of each other, and used."""
        v = self.value
        kind, made = self.r.choice(
            [
                ("f", lambda: f"sg.floor({v()})"),
                ("f", lambda: f"sg.round({v()})"),
                ("i", lambda: f"sg.cast({v()}, sg.int32)"),
                ("f", lambda: f"sg.cast({v('i')}, sg.float64)"),
                ("f", lambda: f"sg.cast(sg.cast({v()}, sg.float32), sg.float64)"),
                ("b", lambda: f"sg.greater({v()}, {v()})"),
                ("b", lambda: f"sg.less({v('i')}, {v('i')})"),
                ("f", lambda: f"sg.where({v('b')}, {v()}, {v()})"),
                ("f", lambda: f"{v()} * sg.cast(sg.argmax({v()}), sg.float64)"),
                ("f", lambda: f"sg.gather({v()}, sg.maximum(sg.minimum({v('i')}, 3), 0))"),
                ("i", lambda: f"sg.where({v('b')}, {v('i')}, {v('i')})"),
            ]
        )
        self._let(kind, made())

    def _several(self) -> None:
        v = self.value
        a, b = f"v{next(self.names)}", f"v{next(self.names)}"
        if self.r.random() < 0.5:
            self.line(f"{a}, {b} = [sg.concat([t, t * 1.5], 0) for t in sg.split({v()}, 2)]")
            self.values["f"] += [a, b]
        else:
            self.line(f"{a}, {b} = sg.top_k({v()}, 4)")
            self.values["f"].append(a)
            self.values["i"].append(b)

    def _block(self) -> None:
        self.line("with sg.no_gradient():")
        self.indent += "    "
        self.line("pass")
        self.statements(self.r.randrange(1, 4))
        self.indent = self.indent[:-4]

    def _custom(self) -> None:
        v = self.value
        name = self.r.choice(["tripled", "first_only", "crossed", "closing", "taking", "taking", "sharing"])
        if name in ("crossed", "sharing"):
            a, b = f"v{next(self.names)}", f"v{next(self.names)}"
            self.line(f"{a}, {b} = {name}({v()}, {v()})")
            self.values["f"] += [a, b]
        else:
            self._let("f", f"{name}({v()})" if name == "tripled" else f"{name}({v()}, {v()})")

    def _first(self) -> None:
        self._let("f", f"first_gradient({self.value()}, {self.value()})")

    # --------------------------------------------------------------------------------------- bodies

    def _function(self, floats: int, whole: bool, results: int) -> tuple[str, list[str]]:
        """A function of some floats, and perhaps integers, that returns as many, and more floats."""
        name, taken = f"f{next(self.names)}", [f"c{next(self.names)}" for _ in range(floats + whole)]
        self.line(f"def {name}({', '.join(taken)}):")
        outside = {kind: list(known) for kind, known in self.values.items()}
        self.indent += "    "
        self.bodies -= 1
        self.values["f"] += taken[:floats]
        self.values["i"] += taken[floats:]
        self.statements(self.r.randrange(1, 5))
        returned = [self.value() for _ in range(floats)] + [self.value("i")] * whole
        if floats > 1 and self.r.random() < 0.4:  # Carries that change places, perhaps through a gate.
            returned[:floats] = reversed(taken[:floats])
            if self.r.random() < 0.5:
                k = self.r.randrange(floats)
                gate = self.r.choice(["stop_gradient", "stop_gradient", "floor", "tanh", "zero_gradient"])
                returned[k] = f"sg.{gate}({returned[k]})"
        self.line(f"return [{', '.join(returned)}], [{', '.join(self.value() for _ in range(results))}]")
        self.bodies += 1
        self.indent = self.indent[:-4]
        self.values = outside
        return name, taken

    def length(self) -> int:
        """The steps of a loop."""
        return int(self.r.choice([0, 1, 1, 2, 2, 2, 3, 3, 7]))

    def _loop(self) -> None:
        v = self.value
        a, b, n = (f"v{next(self.names)}" for _ in "abn")
        if self.r.random() < 0.6:
            f, _ = self._function(2, True, 1)
            c = f"v{next(self.names)}"
            use = self.r.random() < 0.5
            length = self.length()
            rows = (
                f"sg.stack([{', '.join(v() for _ in range(max(length, 1)))}])[:{length}]" if use else "None"
            )
            carry = "c[0], c[1] + r, c[2]" if use else "*c"
            self.line(
                f"[{a}, {b}, {n}], [{c}] = sg.scan(lambda c, r: {f}({carry}), [{v()}, {v()}, {v('i')}], "
                f"{rows}, length={length})"
            )
            self.line(f"{c} = sg.reduce_sum({c}, axis=0)")
            self.values["f"] += [a, b, c]
        elif self.r.random() < 0.5:
            f, _ = self._function(2, True, 0)
            self.line(
                f"{a}, {b}, {n} = sg.fori_loop(0, {self.length()}, lambda i, c: {f}(*c)[0], "
                f"[{v()}, {v()}, {v('i')}])"
            )
            self.values["f"] += [a, b]
        else:
            f, _ = self._function(2, True, 0)
            self.line(
                f"{a}, {b}, {n} = sg.while_loop(lambda a, b, n: sg.reduce_sum(sg.abs(b)) < 20.0, "
                f"lambda *c: {f}(*c)[0], [{v()}, {v()}, {v('i')}], "
                f"maximum_iterations={self.r.choice([0, 1, 2, 3, 7, None])})"
            )
            self.values["f"] += [a, b]
        self.values["i"].append(n)

    def _branch(self) -> None:
        v = self.value
        fs = [self._function(1, False, 1)[0] for _ in range(self.r.randrange(2, 4))]
        given = v()
        a, b = f"v{next(self.names)}", f"v{next(self.names)}"
        if len(fs) == 2:
            self.line(f"[{a}], [{b}] = sg.cond(sg.reduce_any({v('b')}), {fs[0]}, {fs[1]}, {given})")
        else:
            index = f"sg.reduce_max({v('i')})"
            self.line(f"[{a}], [{b}] = sg.switch({index}, [{', '.join(fs)}], {given})")
        self.values["f"] += [a, b]

    def _once(self) -> None:
        v = self.value
        f, _ = self._function(1, False, 1)
        a, b = f"v{next(self.names)}", f"v{next(self.names)}"
        which = self.r.randrange(3)
        if which == 0:
            self.line(f"[{a}], [{b}] = sg.checkpoint({f})({v()})")
        elif which == 1:
            rows = f"sg.stack([{v()}, {v()}])"
            self.line(f"{a}, {b} = [sg.reduce_sum(t[0], axis=0) for t in sg.vmap({f})({rows})]")
        else:
            rows = f"sg.stack([{v()}, {v()}])"
            self.line(f"{a}, {b} = [sg.reduce_sum(t[0], axis=0) for t in sg.map_fn({f}, {rows})]")
        self.values["f"] += [a, b]


def op_wires(op: sg.Operation) -> list[Any]:
    return list(op.definition.wires(op))


def steps_of(op: sg.Operation) -> tuple[int, int | None]:
    """The least and the most runs of an operation's body; None if they are not bounded."""
    match op.type:
        case "Scan":
            return op.length, op.length
        case "While":
            return 0, None if op.limit < 0 else op.limit
    return 1, 1


def passed_on(wire: Any, m: int) -> bool:
    """Whether a loop never changes this carry."""
    return wire.body.outputs[m] is wire.body.inputs[wire.feedback[m]]


@dataclass
class Case:
    """A program that was run, and a question about its tensors."""

    text: str
    graph: sg.Graph
    named: dict[str, Any]
    ys: list[sg.Output]
    xs: list[sg.Output]
    stops: list[sg.Output]

    def __repr__(self) -> str:
        names = {t: name for name, t in self.named.items() if isinstance(t, sg.Output)}
        asked = [[names.get(t, t.name) for t in ts] for ts in (self.ys, self.xs, self.stops)]
        return f"{self.text}\n# ys {asked[0]}, xs {asked[1]}, stop_gradients {asked[2]}"


def run_program(text: str) -> tuple[sg.Graph, dict[str, Any]]:
    graph = sg.Graph()
    named: dict[str, Any] = {"sg": sg}
    with graph.as_default():
        exec(compile(text, "<program>", "exec"), named)
    return graph, named


def make_case(r: Any, size: int, bodies: int = 0) -> Case:
    made = Maker(r, size, bodies)
    graph, named = run_program(made.text)
    floats = [named[name] for name in made.values["f"]]
    every = [named[name] for known in made.values.values() for name in known]
    ys = [floats[-1], *(r.choice(every) for _ in range(r.choice([0, 0, 1, 2])))]
    xs = [named["x0"], named["x1"], *(r.choice(every) for _ in range(r.randrange(4)))]
    stops = [r.choice(every) for _ in range(r.choice([0, 0, 0, 1, 2]))]
    with graph.as_default():
        return Case(made.text, graph, named, [visible(y) for y in ys], xs, stops)


# ------------------------------------------------------------------------------------------- the walk

CLOSED = {
    "StopGradient": {0: STOPPED},
    "StopGradientTowards": {0: STOPPED},
    "StraightThrough": {0: STOPPED},
    "PreventGradient": {0: UNDEFINED},
    "Floor": {0: BLIND},
    "Round": {0: BLIND},
}
"""The inputs of operations at which paths end, though they are numbers with gradients."""

GATES = ("StopGradient", "StopGradientTowards", "StopGradientWhen", "StraightThrough", "PreventGradient")


class End(NamedTuple):
    """Where a path ended first, and what kind of end it is."""

    operation: sg.Operation
    level: int
    switched: bool = False
    named: bool = False
    """In ``stop_gradients``."""


class Arrival(NamedTuple):
    """Paths of one kind from ys to x: their first end, and the worst of what comes before and after it."""

    x: sg.Output
    first: End | None
    worst: int
    rest: int


class Step(NamedTuple):
    """An input of an operation, and what the way to it is: open, dark, or an end."""

    input: int
    end: End | None = None
    then: End | None = None
    """The operation's own end, behind that of ``stop_gradients``."""


Move = tuple[sg.Output, "Place", Sequence[End], int | None]
"""To a tensor, in which bodies, through which ends, and through which input of the operation left."""

Place = tuple[tuple[sg.Operation, int, "int | None"], ...]
"""The bodies that a tensor is inside of: for each the operation, which of its bodies, and in which run of it.

Runs are counted from 1. A condition is asked after so many runs. None: it is not known how many there are.
"""


def same_in_all(op: sg.Operation, wires: Sequence[Any], o: int) -> bool:
    """Whether an output is the same operand whichever branch runs."""
    returned = set()
    for wire in wires:
        y = wire.body.outputs[list(wire.outputs).index(o)]
        given = [i for i, x in zip(wire.operands, wire.body.inputs, strict=True) if x is y]
        returned.update([op.inputs[i] for i in given] or [None])
    return op.definition.alternatives and len(returned) == 1 and None not in returned


class Walk:
    """Walks from ys to xs, as the gradient of *x* would.

    *removed*: which ends count as open; *unseen*: as if these were not there.
    """

    def __init__(
        self, case: Case, removed: Callable[[End], bool] = lambda end: False, unseen: bool = False
    ) -> None:
        self.case, self.unseen = case, unseen
        self.stops = {t for t in case.stops if t.dtype.is_differentiable}
        self.removed = removed
        self.lines = case.text.splitlines()

    def steps(self, op: sg.Operation, o: int, x: sg.Output, place: Place) -> Iterator[Step]:
        """From an output of an operation without bodies."""
        y = op.outputs[o]
        if y in self.stops and not place:
            for step in self._steps(op, o, x, place):
                yield Step(step.input, End(op, STOPPED, named=True), step.end)
        else:
            yield from self._steps(op, o, x, place)

    def _steps(self, op: sg.Operation, o: int, x: sg.Output, place: Place) -> Iterator[Step]:
        y = op.outputs[o]
        selective = op.type in ("StopGradientTowards", "StopGradientWhen")
        named = op.inputs[2 if op.type == "StopGradientWhen" else 1 :] if selective else ()
        acts = not named or any(self._is(t, x, place) for t in named)
        for i, t in enumerate(op.inputs):
            if selective and i:
                continue
            if op.type == "CustomGradient":
                way = self._custom(op, o, i)
                if way is None:
                    continue
            else:
                way = CLOSED.get(op.type, {}).get(i, OPEN) if acts else OPEN
            if not t.dtype.is_differentiable:
                yield Step(i)
            elif way != OPEN:
                yield Step(i, End(op, way))
            elif not y.dtype.is_differentiable:
                yield Step(i, End(op, BLIND))
            else:
                yield Step(i)
                if op.type == "StopGradientWhen" and acts:
                    yield Step(i, End(op, STOPPED, True))

    def _is(self, t: sg.Output, x: sg.Output, place: Place) -> bool:
        """Whether a tensor is x, or hands its value on."""
        while t is not x:
            if t.op.type == "Identity":
                t = t.op.inputs[0]
                continue
            wire = self._wire(place)
            if wire is None or not any(t is p for p in wire.body.inputs):
                return False
            k = next(k for k, p in enumerate(wire.body.inputs) if p is t)
            t, place = place[-1][0].inputs[wire.operands[k]], place[:-1]
        return not place

    def _custom(self, op: sg.Operation, o: int, i: int) -> int | None:
        """Whether a gradient passes from a result to an argument; None where they have nothing in common."""
        count, kept = op.count, len(op.kept)
        if i < count or i >= count + kept:
            return None
        factors, pair = self.factors(op), (o, i - count)
        if APART.get(self._name_at(op)) == pair:
            return None
        if not any(argument == i - count for _, argument in factors):
            return STOPPED
        return OPEN if pair in factors else None

    def factors(self, op: sg.Operation) -> dict[tuple[int, int], float]:
        return CUSTOM.get(self._name_at(op), {(0, 0): 1.0})

    def _name_at(self, op: sg.Operation) -> str:
        text = self.lines[op.location.line - 1]
        return next((name for name in CUSTOM if re.search(rf"\b{name}\(", text)), "")

    @staticmethod
    def _wire(place: Place) -> Any:
        if not place:
            return None
        op, n, _ = place[-1]
        (*wires,) = op.definition.wires(op)
        if n < 0:  # The condition of a loop, before any run of the body.
            return wires[0]._replace(body=wires[0].condition, outputs=())
        return wires[n]

    def arrivals(self, x: sg.Output, ys: Sequence[sg.Output] | None = None) -> set[Arrival]:
        """How paths from ys arrive at one x."""
        found: set[Arrival] = set()
        for t, place, first, worst, rest in self.states(self.case.ys if ys is None else ys, x):
            if t is x and not place:
                if not x.dtype.is_differentiable:  # Others are made from floats, which is where paths end.
                    worst, rest = BLIND, rest if first is None else BLIND
                found.add(Arrival(x, first, worst, rest))
        return found

    def states(self, ys: Sequence[sg.Output], x: sg.Output) -> set[Any]:
        """All that the walk comes to: a tensor, the bodies it is inside of, the first end, and the worst."""
        stack = []
        for y in ys:
            level = OPEN if y.dtype.is_differentiable else BLIND
            stack.append((y, (), None, level, OPEN))
        seen = set(stack)
        while stack:
            t, place, first, worst, rest = stack.pop()
            for to, where, ends, _ in self._next(t, place, x):
                state = (to, where, *self._after(ends, first, worst, rest))
                if state not in seen:
                    seen.add(state)
                    stack.append(state)
        return seen

    def _after(
        self, ends: Sequence[End], first: End | None, worst: int, rest: int
    ) -> tuple[End | None, int, int]:
        """What has happened on the way, after one more step."""
        for end in ends:
            removed = self.removed(end)
            if not removed:
                worst = max(worst, end.level)
                rest = rest if first is None else max(rest, end.level)
            if not (removed and self.unseen):
                first = first or end
        return first, worst, rest

    def _next(self, t: sg.Output, place: Place, x: sg.Output) -> Iterator[Move]:
        op, wire = t.op, self._wire(place)
        if wire is not None and any(t is p for p in wire.body.inputs):
            k = next(k for k, p in enumerate(wire.body.inputs) if p is t)
            i, (loop, n, run) = wire.operands[k], place[-1]
            fed = [m for m, into in wire.feedback.items() if into == k]
            before = None if run is None else run - (n >= 0)  # The runs that what is here is made of.
            if not fed or not before:
                yield loop.inputs[i], place[:-1], (), i
            if fed and before != 0:
                body = op_wires(loop)[max(n, 0)].body
                yield body.outputs[fed[0]], (*place[:-1], (loop, max(n, 0), before)), (), None
            return
        wires = [] if op.type == "CustomGradient" else list(op.definition.wires(op))
        if not wires:
            for i, *ends in self.steps(op, t.index, x, place):
                yield op.inputs[i], place, [end for end in ends if end is not None], i
            return
        for to, where, _, i in self._inside(t, wires, place):
            ends = [End(op, STOPPED, named=True)] if t in self.stops and not place else []
            if op.type == "While" and op.limit < 0 and t.dtype.is_differentiable:
                ends.append(End(op, UNDEFINED))
            yield to, where, ends, i

    @staticmethod
    def _inside(t: sg.Output, wires: Sequence[Any], place: Place) -> Iterator[Move]:
        op = t.op
        wired = {i for wire in wires for i in wire.operands}
        for i, operand in enumerate(op.inputs):
            if i not in wired and not same_in_all(op, wires, t.index):
                assert not operand.dtype.is_differentiable
                yield operand, place, (), i
        for n, wire in enumerate(wires):
            for m, o in enumerate(wire.outputs):
                if o != t.index:
                    continue
                carried = m in wire.feedback
                least, most = steps_of(op)
                after: Sequence[int | None] = (
                    [None] if most is None else range(max(least, 1) if carried else 1, most + 1)
                )
                if wire.condition is not None and not passed_on(wire, m):
                    for run in [None] if most is None else range(most):
                        yield wire.condition.outputs[0], (*place, (op, -1, run)), (), None
                for run in after:
                    yield wire.body.outputs[m], (*place, (op, n, run)), (), None
                if carried and least == 0:
                    i = wire.operands[wire.feedback[m]]
                    yield op.inputs[i], place, (), i

    # --------------------------------------------------------------------------------------- paths

    def paths(self, x: sg.Output, limit: int) -> tuple[int, int] | None:
        """How many there are, and how many are cut, each walked; None where there are more than the limit."""
        every = cut = 0
        stack = [(y, not y.dtype.is_differentiable) for y in self.case.ys]
        for _ in range(limit):
            if not stack:
                return every, cut
            t, ended = stack.pop()
            if t is x:
                every, cut = every + 1, cut + ended
            stack += [(t.op.inputs[i], ended or closed) for i, closed in self._ways(t, x)]
        return None

    def _ways(self, t: sg.Output, x: sg.Output) -> list[tuple[int, bool]]:
        op = t.op
        if t in self.stops:
            behind = Walk(replace(self.case, stops=[]))
            return [(i, True) for i, _ in behind._ways(t, x)]
        if op.type == "CustomGradient" or not list(op.definition.wires(op)):
            steps = list(self.steps(op, t.index, x, ()))
            return [
                (s.input, s.end is not None or not op.inputs[s.input].dtype.is_differentiable) for s in steps
            ]
        return sorted(self._body_ways(t, x))

    def _body_ways(self, t: sg.Output, x: sg.Output) -> Collection[tuple[int, bool]]:
        """Through a body, at most an open way and a cut one to each input."""
        stack = [(t, (), t.dtype.is_differentiable)]
        seen = set(stack)
        found = set()
        while stack:
            to, where, lit = stack.pop()
            for new, there, ends, i in self._next(to, where, x):
                state = (new, there, lit and not ends and new.dtype.is_differentiable)
                if not there:
                    found.add((i, not state[2]))
                elif state not in seen:
                    seen.add(state)
                    stack.append(state)
        return found
