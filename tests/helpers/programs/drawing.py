"""Draws random programs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from programs.forms import WRITES
from programs.language import INPUTS, Form, Function, Program, Statement

ALIASING = ("view", "call", "fori", "scan", "checkpoint")
"""The statements in PyTorch whose results may be what they were given."""
DEEPEST = 3
"""How deep functions are nested."""


class UnfitError(Exception):
    """There is nothing of which such a statement could be made."""


class Drawing:
    """A program in the making.

    Args:
        seed: what decides.
        forms: the statements without functions, by name.
        constructs: those with functions, by name, each with its weight.
        size: how many statements there are.
        alone: how many of the functions with gradients of their own use nothing from around them.
        bounds: how many steps a ``while`` takes at most; None for any number.
    """

    def __init__(
        self,
        seed: int,
        forms: Mapping[str, Form],
        constructs: Mapping[str, float],
        size: int | None = None,
        alone: float = 0.3,
        bounds: Sequence[int | None] = (0, 1, 2, 3, 3, None),
    ) -> None:
        self.random = r = random.Random(seed)
        self.forms = forms
        self.kinds = self._families(forms)
        self.alone, self.bounds = alone, bounds
        self.constructs = {name: weight for name, weight in constructs.items() if r.random() < 0.8}
        self.numbers = itertools.count(3)
        self.known: dict[str, list[str]] = {kind: [x for x in INPUTS if x[0] == kind] for kind in "fib"}
        self.functions: list[Function] = []
        self.shared: set[str] = set()  # What may be another name for a value.
        self.made: set[str] = set()  # What is not made in the line of its statement.
        self.aliases: set[str] = set()  # What may be another tensor's memory.
        self.depth = self.first = 0
        self.size = r.randint(3, 14) if size is None else size

    def _families(self, forms: Mapping[str, Form]) -> list[str]:
        """A program is made of some forms only, so that each meets each other often."""
        names = list(forms)
        some = self.random.sample(names, self.random.randint(min(8, len(names)), len(names)))
        return [name for name in names if name in set(some) or forms[name].weight > 1.0]

    def program(self, question: bool = False) -> Program:
        """The program. With *question*, values inside of it are asked about, too, and some are stopped."""
        statements = self.statements(self.size)
        r, floats = self.random, self.known["f"]
        results = dict.fromkeys([floats[-1], *[self.pick("f") for _ in range(r.choice([0, 0, 1, 2]))]])
        if not question:
            return Program(statements, tuple(results))
        every = [x for known in self.known.values() for x in known if x not in {*INPUTS, *self.shared}]
        if every and r.random() < 0.2:
            results |= {r.choice(every): None}
        asked = {r.choice(every) for _ in range(r.choice([0, 1, 2]))} if every else set()
        every = [x for x in every if x not in self.made]
        stops = {r.choice(every) for _ in range(r.choice([0, 0, 0, 1, 2]))} if every else set()
        return Program(statements, tuple(results), tuple(sorted(asked)), tuple(sorted(stops)))

    # ----------------------------------------------------------------------------------------- values

    def pick(self, kind: str) -> str:
        """A value; rather one of the latest."""
        known = self.known[kind]
        if not known:
            raise UnfitError
        return self.random.choice(known[-4:] if self.random.random() < 0.7 else known)

    def picks(self, kinds: str) -> tuple[str, ...]:
        return tuple([self.pick(kind) for kind in kinds])

    def new(self, kinds: str) -> tuple[str, ...]:
        """Names for values, which are there after the statement."""
        return tuple([f"{kind}{next(self.numbers)}" for kind in kinds])

    def keep(self, names: Sequence[str]) -> None:
        for name in names:
            self.known[name[0]].append(name)

    # ------------------------------------------------------------------------------------- statements

    def statements(self, count: int) -> tuple[Statement, ...]:
        found = []
        for _ in range(count):
            statement = self.statement()
            self.keep(statement.makes)
            if statement.form in ALIASING:
                self.aliases.update(statement.makes)
            if statement.form in ("scan", "map", "vmap"):
                self.made.update(statement.makes)
            found.append(statement)
        return tuple(found)

    def statement(self) -> Statement:
        while True:
            try:
                return self._drawn()
            except UnfitError:
                continue

    def _drawn(self) -> Statement:
        if self.depth < DEEPEST and self.constructs and self.random.random() < 0.3:
            name = self.random.choices(list(self.constructs), list(self.constructs.values()))[0]
            build: Callable[[], Statement] = getattr(self, f"_{name}")
            return build()
        name = self.random.choices(self.kinds, [self.forms[k].weight for k in self.kinds])[0]
        form = self.forms[name]
        takes = self.picks(form.takes)
        names = tuple([self._named() for _ in range(form.named and self.random.randint(1, form.named))])
        return Statement(name, self.new(form.makes), takes, tuple(dict.fromkeys(names)))

    def _named(self) -> str:
        inputs = [name for name in ("f0", "f1", "f2") if name in self.known["f"]]
        return self.random.choice(inputs) if inputs and self.random.random() < 0.6 else self.pick("f")

    def function(
        self, kinds: str, gives: str, most: int = 4, alike: bool = False, alone: bool = False
    ) -> Function:
        """A function of values of these kinds.

        Args:
            kinds: of what it takes.
            gives: of what it returns.
            most: how many statements it has at most.
            alike: whether the first that it returns may be what it takes, perhaps in another order.
            alone: whether it uses nothing from around it.
        """
        outside, inner = {kind: list(known) for kind, known in self.known.items()}, self.functions
        self.functions = [] if alone else list(inner)
        if alone:
            self.known = {kind: [] for kind in self.known}
        self.depth += 1
        try:
            takes = self.new(kinds)
            self.keep(takes)
            first, self.first = self.first, len(self.known["f"]) if self.first else 0
            statements = self.statements(self.random.randint(0 if alike else 1, most))
            self.first = first
            returned = self._returned(takes, gives, alike)
        finally:
            self.depth -= 1
            self.known, self.functions = outside, inner
        return Function(f"g{next(self.numbers)}", takes, statements, returned)

    def _returned(self, takes: Sequence[str], gives: str, alike: bool) -> tuple[str, ...]:
        returned = list(self.picks(gives))
        if alike and self.random.random() < 0.5:
            carried = [name for name in takes if name[0] == "f"]
            self.random.shuffle(carried)
            places = [k for k, kind in enumerate(gives) if kind == "f"]
            for k, name in zip(places, carried, strict=False):
                if self.random.random() < 0.7:
                    returned[k] = name
        return tuple(returned)

    # ------------------------------------------------------------------------------------- constructs

    def _define(self) -> Statement:
        """A function that may be called several times; a call, if there is one."""
        if self.functions and self.random.random() < 0.7:
            function = self.random.choice(self.functions)
            takes = self.picks("".join([name[0] for name in function.takes]))
            makes = self.new("".join([name[0] for name in function.gives]))
            self.shared.update(makes)
            return Statement("call", makes, takes, (function.name,))
        function = self.function("f" * self.random.randint(1, 2), "f" * self.random.randint(1, 2))
        self.functions.append(function)
        return Statement("define", functions=(function,))

    def _block(self) -> Statement:
        first, self.first = self.first, len(self.known["f"])
        inside = self.statements(self.random.randint(1, 4))
        self.first = first
        return Statement("block", inside=inside)

    def _cond(self) -> Statement:
        kinds, gives = self._signature()
        functions = (self.function(kinds, gives), self.function(kinds, gives))
        return Statement("cond", self.new(gives), self.picks("b" + kinds), functions=functions)

    def _switch(self) -> Statement:
        kinds, gives = self._signature()
        functions = tuple([self.function(kinds, gives, 2) for _ in range(self.random.randint(2, 3))])
        return Statement("switch", self.new(gives), self.picks("i" + kinds), functions=functions)

    def _signature(self) -> tuple[str, str]:
        return self.random.choice([("f", "f"), ("ff", "f"), ("f", "ff"), ("fi", "fi"), ("ff", "fb")])

    def _while(self) -> Statement:
        kinds = self._carry()
        functions = (self.function(kinds, "b", 2), self.function(kinds, kinds, alike=True))
        number = self.random.choice(self.bounds)
        return Statement("while", self.new(kinds), self.picks(kinds), functions=functions, number=number)

    def _carry(self) -> str:
        return self.random.choice(["f", "ff", "ff", "fff", "ffi"])

    def _fori(self) -> Statement:
        kinds = self._carry()
        function = self.function(kinds, kinds, alike=True)
        number = self.random.choice([0, 1, 2, 2, 3])
        takes = self.picks(kinds)
        count = len(kinds)
        return Statement("fori", self.new(kinds), takes, functions=(function,), number=number, count=count)

    def _scan(self) -> Statement:
        kinds, gives = self._carry(), "f" * self.random.randint(0, 2)
        rows = "f" * self.random.choice([0, 1, 2, 3])
        function = self.function(kinds + ("f" if rows else ""), kinds + gives, alike=True)
        number = len(rows) or self.random.choice([0, 1, 2, 3])
        return Statement(
            "scan",
            self.new(kinds + gives),
            self.picks(kinds + rows),
            functions=(function,),
            number=number,
            count=len(kinds),
        )

    def _map(self) -> Statement:
        rows, gives = self.random.randint(1, 3), "f" * self.random.randint(1, 2)
        function = self.function("f", gives)
        return Statement("map", self.new(gives), self.picks("f" * rows), functions=(function,), count=rows)

    def _vmap(self) -> Statement:
        rows, gives = self.random.randint(1, 3), "f" * self.random.randint(1, 2)
        fixed = "f" * self.random.choice([0, 0, 1])
        function = self.function("f" + fixed, gives)
        takes = self.picks("f" * rows + fixed)
        return Statement("vmap", self.new(gives), takes, functions=(function,), count=rows)

    def _checkpoint(self) -> Statement:
        kinds, gives = self._signature()
        function = self.function(kinds, gives)
        return Statement("checkpoint", self.new(gives), self.picks(kinds), functions=(function,))

    def _view(self) -> Statement:
        makes = self.new("f")
        self.shared.update(makes)
        return Statement("view", makes, self.picks("f"))

    def _write(self) -> Statement:
        """Something is written into a tensor that was computed, in the block in which that was."""
        name = self.random.choice(list(WRITES))
        left_out = {*INPUTS, *(self.aliases if self.first else ())}
        some = [x for x in self.known["f"][self.first :] if x not in left_out]
        if not some:
            raise UnfitError
        target = self.random.choice(some[-4:])
        takes = (target, *self.picks(WRITES[name][1]))
        if len(set(takes)) < len(takes):
            raise UnfitError
        return Statement("write", (), takes, (name, f"w{next(self.numbers)}"))

    def _jit(self) -> Statement:
        return replace(self._checkpoint(), form="jit")

    def _tangent(self) -> Statement:
        return replace(self._custom(), form="tangent")

    def _custom(self) -> Statement:
        kinds, gives = "f" * self.random.randint(1, 2), "f" * self.random.randint(1, 2)
        function = self.function(kinds, gives, alone=self.random.random() < self.alone)
        results = range(len(gives))
        passes = []
        for _ in kinds:
            some = tuple(sorted(self.random.sample(results, self.random.randint(1, len(gives)))))
            passes.append(None if self.random.random() < 0.25 else some)
        return Statement(
            "custom", self.new(gives), self.picks(kinds), functions=(function,), passes=tuple(passes)
        )
