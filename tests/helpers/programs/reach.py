"""Where the gradients of a program arrive, found from its description alone.

The program is run on sets of paths in the place of numbers. The paths of a value lead from it to what is
asked about. A step puts an edge before the paths of what it takes, and each edge is one of these:

    o    open: a gradient passes
    .    none: nothing is taken from the operand
    x    a wall: what is there has no derivative
    s    a wall: a stop
    l    the same, where values leave for Python
    u    a wall: asking for the gradient is an error
    w    open, and a stop while a condition holds
    g    a stop for the tensors that the statement names, open for others
    v    the same while a condition holds

Several of these one behind the other, from the result on, make a series (``"sos"`` is a stop of a stop); such
series beside each other are separated by ``|``. Nothing here knows how a library represents a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from programs.language import INPUTS, Form, Function, Program, Statement, is_smooth

OPEN, UNDEFINED, STOPPED, BLIND = range(4)
STATUSES = ("flows", "undefined", "stopped", "not differentiable")
WALLS = {"x": BLIND, "s": STOPPED, "l": STOPPED, "u": UNDEFINED}


class End(NamedTuple):
    """Where paths end: a statement, and what it does to gradients.

    Attributes:
        label: of the statement.
        level: what the end is.
        switched: whether a condition says so.
        why: of several ends of one statement, which: ``"named"`` (the question stops its result),
            ``"closed"`` (a function with a gradient of its own closes over it), ``"left"`` (values leave for
            Python).
    """

    label: str
    level: int
    switched: bool = False
    why: str = ""


class Way(NamedTuple):
    """Paths of one kind to what is asked about.

    Attributes:
        source: where they lead.
        first: their first end, or None.
        worst: the worst of all ends.
        rest: the worst of what lies behind the first.
    """

    source: str
    first: End | None
    worst: int
    rest: int


Ways = frozenset[Way]
Block = tuple[tuple[str, object], ...]
"""The blocks without gradients that something is inside of, outermost first."""


@dataclass(frozen=True)
class Tensor:
    """A value.

    Attributes:
        smooth: whether it carries a gradient.
        ways: its paths.
        known: the names of sources that it stands for.
        block: where it was made.
        self: what it is: a parameter of a function is what the function is given.
        requires: whether autograd notes what is done with it: 0, no; 1, yes; 2, and a gradient may be other
            than zero.
        functions: which of the users' functions autograd noted on the way to it, by their numbers.
    """

    smooth: bool
    ways: Ways
    known: frozenset[str] = frozenset()
    block: Block = ()
    self: object = field(default_factory=object)
    requires: int = 0
    functions: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Closure:
    """A function, with what is in sight where it is defined."""

    function: Function
    scope: Mapping[str, Tensor | Closure]


Scope = dict[str, "Tensor | Closure"]


@dataclass(frozen=True)
class Verdict:
    """What is true of one source.

    Attributes:
        status: of its gradient.
        cuts: where paths to it end first.
    """

    status: str
    cuts: frozenset[End]


class Model:
    """Runs a program on paths.

    Args:
        program: the program.
        forms: what its statements do.
        removed: an end that lets gradients pass.
    """

    def __init__(self, program: Program, forms: Mapping[str, Form], removed: End | None = None) -> None:
        self.program, self.forms, self.removed = program, forms, removed
        self.here: Block = ()
        self._functions = 0

    inputs: tuple[str, ...] = INPUTS

    def ways(self) -> Ways:
        """The paths from the program's results."""
        scope: Scope = {name: self._source(name) for name in self.inputs}
        self.run(self.program.statements, scope)
        self.results = [self.seen(scope[name]) for name in self.program.results]
        return frozenset().union(*[x.ways for x in self.results])

    def _source(self, name: str) -> Tensor:
        smooth = is_smooth(name)
        own = Way(name, None, OPEN if smooth else BLIND, OPEN)
        return Tensor(smooth, frozenset([own]), frozenset([name]))

    # ------------------------------------------------------------------------------------------- edges

    def behind(self, ways: Iterable[Way], end: End) -> Ways:
        """Paths behind an end."""
        level = OPEN if end == self.removed else end.level
        return frozenset([Way(w.source, end, max(level, w.worst), w.worst) for w in ways])

    def seen(self, x: Tensor | Closure) -> Tensor:
        """A value as it is used here: stopped by each block that it has left since it was made."""
        assert isinstance(x, Tensor)
        return self.left(x, self.here)

    def left(self, x: Tensor, here: Block) -> Tensor:
        """A value as it is used in a block."""
        while here[: len(x.block)] != x.block:
            label, _ = x.block[-1]
            ways = self.behind(x.ways, End(label, STOPPED)) if x.smooth else x.ways
            x = replace(x, ways=ways, known=frozenset(), block=x.block[:-1])
        return x

    def through(
        self, way: str, x: Tensor, smooth: bool, label: str, named: frozenset[str] = frozenset()
    ) -> Ways:
        """The paths of an operand behind an edge, to a result that is *smooth*."""
        found: set[Way] = set()
        for series in way.split("|"):
            if series == ".":
                continue
            if not x.smooth:
                found |= x.ways
                continue
            ways = x.ways
            for edge in reversed(series if smooth or set(series) - {"o"} else "x"):
                ways = self._edge(edge, ways, label, named)
            found |= ways
        return frozenset(found)

    def _edge(self, edge: str, ways: Ways, label: str, named: frozenset[str]) -> Ways:
        if edge == "o":
            return ways
        if edge in WALLS:
            return self.behind(ways, End(label, WALLS[edge], why="left" if edge == "l" else ""))
        acting = frozenset([w for w in ways if w.source in named]) if edge in "gv" else ways
        if edge == "g":
            return (ways - acting) | self.behind(acting, End(label, STOPPED))
        return ways | self.behind(acting, End(label, STOPPED, True))

    # -------------------------------------------------------------------------------------- statements

    def run(self, statements: Iterable[Statement], scope: Scope) -> None:
        for statement in statements:
            if statement.form == "block":
                outer = self.here
                self.here = (*outer, (statement.label, object()))
                self.run(statement.inside, scope)
                self.here = outer
                continue
            if statement.form == "define":
                for function in statement.functions:
                    scope[function.name] = Closure(function, scope)
                continue
            made = self._made(statement, scope)
            for name, x in zip(statement.makes, made, strict=True):
                scope[name] = x if self._functions else self._asked(name, x, statement.label)

    def _asked(self, name: str, x: Tensor, label: str) -> Tensor:
        """A value at which a question may be directed."""
        ways = x.ways
        if name in self.program.stops and x.smooth:
            ways = self.behind(ways, End(label, STOPPED, why="named"))
        if name in self.program.asked:
            ways |= self._source(name).ways
        return replace(x, ways=ways, known=x.known | {name})

    def _made(self, statement: Statement, scope: Scope) -> list[Tensor]:
        construct: Callable[..., list[Tensor]] | None = getattr(self, f"_{statement.form}", None)
        if statement.form == "call":
            return self._call(statement, scope)
        taken = [self.seen(scope[name]) for name in statement.takes]
        if construct is not None:
            return construct(statement, scope, taken)
        form = self.forms[statement.form]
        named = frozenset[str]().union(*[self.seen(scope[name]).known for name in statement.names])
        parts = frozenset[Way]().union(*[self.seen(scope[name]).ways for name in form.parts])
        return [
            Tensor(
                name[0] == "f",
                parts.union(
                    *[
                        self.through(way, x, name[0] == "f", statement.label, named)
                        for way, x in zip(ways, taken, strict=True)
                    ]
                ),
                frozenset(),
                self.here,
            )
            for name, ways in zip(statement.makes, form.ways, strict=True)
        ]

    def call(self, closure: Closure, given: Iterable[Tensor]) -> list[Tensor]:
        """What a function returns."""
        scope = dict(closure.scope)
        scope.update(zip(closure.function.takes, given, strict=True))
        self._functions += 1
        self.run(closure.function.statements, scope)
        self._functions -= 1
        found = [scope[name] for name in closure.function.gives]
        assert all(isinstance(x, Tensor) for x in found)
        return found  # type: ignore[return-value]

    def inside(self, function: Function, scope: Scope, given: Iterable[Tensor]) -> list[Tensor]:
        """What a body returns: its parameters stand for what it is given."""
        parameters = [replace(x, block=self.here) for x in given]
        found = [self.seen(y) for y in self.call(Closure(function, scope), parameters)]
        return [replace(y, known=frozenset(), block=self.here) for y in found]

    def fresh(self, *values: Tensor) -> Tensor:
        """A new tensor that may be any of some values."""
        return replace(either(*values), known=frozenset(), block=self.here, self=object())

    # -------------------------------------------------------------------------------------- constructs

    def _call(self, statement: Statement, scope: Scope) -> list[Tensor]:
        """A function uses of what it is given what it names."""
        closure = scope[statement.names[0]]
        assert isinstance(closure, Closure)
        given = [scope[name] for name in statement.takes]
        return self.call(closure, [x for x in given if isinstance(x, Tensor)])

    def _cond(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """Any of the functions runs; what decides is read, unless all of them return the same tensor."""
        chosen, *given = taken
        made = [self.inside(f, scope, given) for f in statement.functions]
        return [
            self.fresh(*some, *([] if len({y.self for y in some}) == 1 else [chosen]))
            for some in zip(*made, strict=True)
        ]

    _switch = _cond

    def _checkpoint(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        return list(map(self.fresh, self.inside(statement.functions[0], scope, taken)))

    def _map(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """The function runs on each of the first operands, which are one tensor; others are fixed."""
        rows, fixed = taken[: statement.count], taken[statement.count :]
        made = self.inside(statement.functions[0], scope, [self.fresh(*rows), *fixed])
        return list(map(self.fresh, made))

    _vmap = _map

    def _scan(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """What it carries goes from step to step; what it gives is collected of all steps."""
        (function,) = statement.functions
        count = statement.count
        carry, rows = taken[:count], taken[count:]
        known = [x.known for x in carry]
        given = [Tensor(name[0] == "f", frozenset(), block=self.here) for name in statement.makes[count:]]
        assert statement.number is not None
        for k in range(statement.number):
            made = self.inside(function, scope, [*carry, *self.row(rows, k)])
            carry = [replace(x, known=k) for x, k in zip(made[:count], known, strict=True)]
            given = [either(x, self.seen(y)) for x, y in zip(given, made[count:], strict=True)]
        return list(map(self.fresh, [*carry, *given]))

    _fori = _scan

    def row(self, rows: list[Tensor], k: int) -> list[Tensor]:
        """What the k-th step gets: a part of a tensor made of all rows."""
        return [self.fresh(*rows)] if rows else []

    def _while(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """It may end before each step; whether it does is asked of the carry before it."""
        condition, body = statement.functions
        state = total = [replace(x, block=self.here, self=object()) for x in taken]
        steps = 0
        while steps != statement.number:
            (goes_on,) = self.inside(condition, scope, state)
            made = self.inside(body, scope, state)
            new = [
                x if y.self is old.self else either(x, y, goes_on)
                for x, y, old in zip(total, made, state, strict=True)
            ]
            if statement.number is None and [x.ways for x in new] == [x.ways for x in total]:
                break
            after = new if statement.number is None else made
            state = [replace(old, ways=x.ways) for old, x in zip(state, after, strict=True)]
            total = new
            steps += 1
        return list(map(self.fresh, self._ended(statement, total)))

    def _ended(self, statement: Statement, total: list[Tensor]) -> list[Tensor]:
        """What a loop returns, if it has a gradient."""
        if statement.number is not None:
            return total
        end = End(statement.label, UNDEFINED)
        return [replace(x, ways=self.behind(x.ways, end)) if x.smooth else x for x in total]

    def _custom(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """Gradients pass as the function's own gradient says, and to nothing that it closes over."""
        reader, results = read_by(self, statement.functions[0], scope, taken)
        arguments = dict(zip(reader.marks, statement.passes, strict=False))
        made = []
        for r, (name, y) in enumerate(zip(statement.makes, results, strict=True)):
            read = {way.source for way in y.ways}
            ways: set[Way] = set()
            for mark, x in reader.marks.items():
                passed = arguments.get(mark)
                passes = r in passed if passed is not None else mark in read
                if not passes:
                    continue
                if passed is None and x.smooth:
                    ways |= self.stopped(x, statement.label, mark not in arguments)
                else:
                    ways |= x.ways
            made.append(Tensor(name[0] == "f", frozenset(ways), frozenset(), self.here))
        return made

    def stopped(self, x: Tensor, label: str, closed: bool) -> Ways:
        """The paths to an argument without a gradient, or to what a function with one closes over."""
        return self.behind(x.ways, End(label, STOPPED, why="closed" if closed else ""))


def read_by(
    outer: Model, function: Function, scope: Scope, taken: list[Tensor]
) -> tuple[Reader, list[Tensor]]:
    """What a function reads from outside, its arguments first; and its results, of which paths lead there."""
    kind: Any = type(outer)
    reader = (kind if issubclass(kind, Reader) else type("Reader", (Reader, kind), {}))(outer)
    given = [reader.mark(x) for x in taken]
    return reader, [reader.seen(y) for y in reader.call(Closure(function, scope), given)]


class Reader(Model):
    """Finds out which tensors from outside a function reads.

    Attributes:
        marks: these tensors.
    """

    def __init__(self, outer: Model) -> None:
        super().__init__(outer.program, outer.forms)
        self.here, self._functions, self._outer = outer.here, 1, outer
        self.marks: dict[str, Tensor] = {}
        self._found: dict[tuple[object, Ways], Tensor] = {}

    def mark(self, x: Tensor) -> Tensor:
        """What stands for a tensor from outside; its only path leads to itself."""
        name = f"{len(self.marks)} of {id(self)}"
        self.marks[name] = x
        return replace(
            x, ways=frozenset([Way(name, None, OPEN if x.smooth else BLIND, OPEN)]), block=self.here
        )

    def seen(self, x: Tensor | Closure) -> Tensor:
        assert isinstance(x, Tensor)
        if x.ways and not any(way.source in self.marks for way in x.ways):
            found = self._outer.seen(x)
            key = x.self, found.ways
            if key not in self._found:  # Once, or a loop of any length would not come to an end.
                self._found[key] = self.mark(found)
            return self._found[key]
        return super().seen(x)


def either(*values: Tensor) -> Tensor:
    """What may be any of some values; it is smooth if the first is."""
    first, *others = values
    requires = max(x.requires for x in values)
    return replace(
        first,
        ways=first.ways.union(*[x.ways for x in others]),
        requires=requires,
        functions=first.functions.union(*[x.functions for x in others]),
    )


def verdicts(program: Program, forms: Mapping[str, Form], model: type[Model] = Model) -> dict[str, Verdict]:
    """What is true of each source."""
    ways = model(program, forms).ways()
    found = {}
    for source in (*model.inputs, *program.asked):
        own = [way for way in ways if way.source == source]
        best = min([way.worst for way in own], default=None)
        cuts = frozenset([way.first for way in own if way.first is not None])
        if best is None:
            status = "disconnected"
        elif best == OPEN and cuts:
            status = "partly stopped"
        else:
            status = STATUSES[best]
        found[source] = Verdict(status, cuts)
    return found


def opened_by(
    program: Program, forms: Mapping[str, Form], end: End, model: type[Model] = Model
) -> frozenset[str]:
    """The sources that a gradient would reach through an end if that let it pass."""
    ways = model(program, forms, end).ways()
    return frozenset([way.source for way in ways if way.first == end and way.rest == OPEN])
