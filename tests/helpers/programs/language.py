"""Programs as data: what a program does, apart from the library in which it is written.

Each value is a vector of three, and its name begins with its kind: ``f`` for floating-point numbers, ``i``
for integers, ``b`` for booleans. A name is given once, so that it also names the statement that gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

INPUTS = ("f0", "f1", "f2", "i0", "b0")
"""The arguments of each program."""


@dataclass(frozen=True)
class Function:
    """A function of a program; it also uses what is in sight where it is defined."""

    name: str
    takes: tuple[str, ...]
    statements: tuple[Statement, ...]
    gives: tuple[str, ...]


@dataclass(frozen=True)
class Statement:
    """A statement.

    Attributes:
        form: what it does: a name in a table of forms, or of a construct that calls functions.
        makes: the values that it gives names to.
        takes: the values that it uses, or those to which it applies its functions.
        names: the tensors that it names without using them; of a call, the name of the function; of a
            write, what is written, and a name of its own.
        functions: the functions that it defines.
        inside: the statements of a block.
        number: how many steps a loop takes; of a ``while``, how many at most, None for any number.
        count: of a scan how many values it carries; of a map or batch over how many it goes.
        passes: of a function with a gradient of its own, for each argument the results from whose cotangents
            it is computed; None for an argument without gradient.
    """

    form: str
    makes: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    functions: tuple[Function, ...] = ()
    inside: tuple[Statement, ...] = ()
    number: int | None = None
    count: int = 0
    passes: tuple[tuple[int, ...] | None, ...] = ()

    @property
    def label(self) -> str:
        """The name of the statement."""
        if self.makes:
            return self.makes[0]
        if self.form == "write":
            return f"{self.names[0]}:{self.names[1]}"
        first = self.inside[0].label if self.inside else self.functions[0].name if self.functions else ""
        return f"{self.form}:{first or ','.join(self.takes)}"


@dataclass(frozen=True)
class Program:
    """A program, and a question about it.

    Attributes:
        statements: what it does.
        results: what it returns, which is differentiated.
        asked: what is asked about besides the inputs.
        stops: the tensors that the question stops (``stop_gradients``).
    """

    statements: tuple[Statement, ...]
    results: tuple[str, ...]
    asked: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()


def free_names(function: Function) -> frozenset[str]:
    """What a function uses from around it."""
    used: set[str] = set(function.gives)
    known: set[str] = set(function.takes)
    for statement in everything(function.statements):
        used.update(statement.takes, statement.names)
        known.update(statement.makes)
        for inner in statement.functions:
            used.update(inner.gives)
            known.update(inner.takes, [inner.name])
    return frozenset(used - known)


def is_smooth(name: str) -> bool:
    """Whether a value carries a gradient: the parameters of modules have a dot in their names."""
    return name[0] == "f" or "." in name


def everything(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """Statements, and those inside of them."""
    for statement in statements:
        yield statement
        yield from everything(statement.inside)
        for function in statement.functions:
            yield from everything(function.statements)


# --------------------------------------------------------------------------------------------- changing


def changed(program: Program, label: str, change: Callable[[Statement], tuple[Statement, ...]]) -> Program:
    """A program with other statements in the place of one."""

    def each(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for statement in statements:
            if statement.label == label:
                found += change(statement)
            elif statement.inside or statement.functions:
                functions = tuple([replace(f, statements=each(f.statements)) for f in statement.functions])
                found.append(replace(statement, inside=each(statement.inside), functions=functions))
            else:
                found.append(statement)
        return tuple(found)

    return replace(program, statements=each(program.statements))


def renamed(program: Program, new: Mapping[str, str]) -> Program:
    """A program that uses other values in the place of some."""

    def names(some: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([new.get(name, name) for name in some])

    def each(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(
            [
                replace(
                    s,
                    takes=names(s.takes),
                    names=names(s.names),
                    inside=each(s.inside),
                    functions=tuple(
                        [replace(f, statements=each(f.statements), gives=names(f.gives)) for f in s.functions]
                    ),
                )
                for s in statements
            ]
        )

    keep = lambda some: tuple([name for name in some if name not in new])
    return Program(
        each(program.statements),
        tuple(dict.fromkeys(names(program.results))),
        keep(program.asked),
        keep(program.stops),
    )


@dataclass(frozen=True)
class Form:
    """A statement without functions.

    Attributes:
        takes, makes: the kinds of the values.
        ways: for each result and operand, how a gradient passes; see :mod:`programs.reach`.
        text: by library, the source, with a place ``{0}`` for each operand.
        opened: by library, the source where all its walls are gone.
        named: how many tensors it names, at ``{names}``.
        weight: how often it is drawn.
        parts: the parameters of modules that each of its results depends on, too.
    """

    takes: str
    makes: str
    ways: tuple[tuple[str, ...], ...]
    text: Mapping[str, str]
    opened: Mapping[str, str] = field(default_factory=dict)
    named: int = 0
    weight: float = 1.0
    parts: tuple[str, ...] = ()

    @property
    def walls(self) -> bool:
        """Whether it ends any paths."""
        return any(set(way) - set("o|.") for result in self.ways for way in result)


# ---------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True)
class Written:
    """A program as text.

    Attributes:
        text: the source; it defines ``program``.
        lines: the line of each statement, by its label.
    """

    text: str
    lines: Mapping[str, int]


class Writer:
    """Writes programs for a library; subclasses say how.

    Attributes:
        module: what the text imports.
        library: whose text of forms is written.
        forms: the statements without functions.
        constructs: the text of statements that call functions, by their forms.
        sight: the values that are in sight.
    """

    module = library = ""
    forms: Mapping[str, Form] = {}
    constructs: Mapping[str, str] = {}
    inputs: tuple[str, ...] = INPUTS

    def __init__(self, program: Program, opened: str | None = None) -> None:
        self.program = program
        self.opened = opened
        self._lines: list[str] = []
        self._where: dict[str, int] = {}
        self._indent = self._functions = 0
        self.sight: list[str] = list(self.inputs)

    def written(self) -> Written:
        """The program."""
        self.line(f"from {self.module} import *")
        self.line(f"def program({', '.join(self.inputs)}):")
        self._indent += 1
        self.begin()
        for statement in self.program.statements:
            self.statement(statement)
        self.line(self.end())
        return Written("\n".join(self._lines) + "\n", self._where)

    def line(self, text: str) -> None:
        self._lines += ["    " * self._indent + part for part in text.split("\n")]

    def statement(self, statement: Statement) -> None:
        """Write a statement, after the functions that it calls."""
        for function in statement.functions:
            self.function(statement, function)
        self._where[statement.label] = len(self._lines) + 1
        if statement.form == "block":
            self.block(statement)
        elif statement.form != "define":
            self.line(self.put(statement))
            self.sight += statement.makes
            if not self._functions:
                self.made(statement)

    def function(self, statement: Statement, function: Function) -> None:
        self.line(f"def {function.name}({', '.join(function.takes)}):")
        outer, self.sight = self.sight, [*self.sight, *function.takes]
        self._indent += 1
        self._functions += 1
        for inner in function.statements:
            self.statement(inner)
        self.line(f"return {self.returned(statement, function)}")
        self._functions -= 1
        self._indent -= 1
        self.sight = outer

    def block(self, statement: Statement) -> None:
        self.line(self.opening(statement))
        self._indent += 1
        for inner in statement.inside:
            self.statement(inner)
        self._indent -= 1

    def put(self, statement: Statement) -> str:
        """A statement that is no block."""
        text = self.constructs.get(statement.form)
        if text is None:
            made = ", ".join(statement.makes)
            text = self.text_of(statement)
            return f"{made} = {text}" if made else text
        functions = {f"f{k}": f.name for k, f in enumerate(statement.functions)}
        if statement.form == "call":
            functions = {"f0": statement.names[0]}
        filled = text.format(
            **functions,
            functions=", ".join([f.name for f in statement.functions]),
            first=statement.takes[0] if statement.takes else "",
            args="".join([f"{name}, " for name in statement.takes]),
            rest=", ".join(statement.takes[1:]),
            carried="".join([f"{name}, " for name in statement.takes[: statement.count]]),
            beside="".join([f"{name}, " for name in statement.takes[statement.count :]]),
            axes="None, " * (len(statement.takes) - statement.count),
            count=statement.count,
            number=statement.number,
            total=len(statement.makes),
            held=statement.number is None and statement.label != self.opened,
            passes=repr(statement.passes),
        )
        return f"{''.join([f'{name}, ' for name in statement.makes])[:-1]} = {filled}"

    # -------------------------------------------------------------------------------- what libraries say

    def begin(self) -> None:
        """Write what comes before all statements."""

    def made(self, statement: Statement) -> None:
        """Write what comes after a statement that stands in no function."""

    def end(self) -> str:
        """The last line."""
        named = dict.fromkeys((*self.program.asked, *self.program.stops))
        asked = "".join([f"{name!r}: {name}, " for name in named])
        return f"return ({''.join([f'{name}, ' for name in self.program.results])}), {{{asked}}}"

    def returned(self, statement: Statement, function: Function) -> str:
        return f"({''.join([f'{name}, ' for name in function.gives])})"

    def opening(self, statement: Statement) -> str:
        """The first line of a block."""
        raise NotImplementedError

    def text_of(self, statement: Statement) -> str:
        """The right side of a statement without functions."""
        form = self.forms[statement.form]
        texts = form.opened if statement.label == self.opened else form.text
        return texts[self.library].format(*statement.takes, names=", ".join(statement.names))
