"""Random polynomial programs with selective gates, and a model of their derivatives that shares no code.

A gate is its operand as a polynomial in which the variables that it names are other letters, of the same
value, with respect to which nobody differentiates. So derivatives of every order are those of a polynomial,
exact in whole numbers. A tensor inside a program is a variable, too: what is added to it, which is 0.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import cached_property

import stopgrad as sg

VALUES = (2, 3, -1)
"""The values of the inputs."""


class Polynomial(Counter):
    """Coefficients by monomials, which are sorted tuples of variables."""

    def __add__(self, other):
        return Polynomial({m: self[m] + other[m] for m in {**self, **other}})

    def __mul__(self, other):
        found = Polynomial()
        for a, p in self.items():
            for b, q in other.items():
                found[tuple(sorted(a + b))] += p * q
        return found

    def derivative(self, variable):
        found = Polynomial()
        for m, c in self.items():
            if variable in m:
                k = m.index(variable)
                found[m[:k] + m[k + 1 :]] += c * m.count(variable)
        return found

    def value(self):
        at = lambda kind, k, _: VALUES[k] if kind == "in" else 0
        return sum(c * math.prod(at(*variable) for variable in m) for m, c in self.items())


class Program:
    """A list of steps; each takes earlier ones by their numbers. The inputs are the first."""

    def __init__(self, seed: int, bodies: bool = True) -> None:
        self.random = r = random.Random(seed)
        self.steps = [("in", k) for k in range(len(VALUES))]
        kinds = ["mul", "mul", "add", "gate", "gate", *(["body"] if bodies else [])]
        for _ in range(r.randint(3, 6)):
            self.steps.append(self._step(kinds))
        self.steps.append(("mul", len(self.steps) - 1, r.randrange(len(self.steps))))
        self.xs = [*range(len(VALUES)), r.randrange(len(VALUES), len(self.steps))]

    def _step(self, kinds):
        r, count = self.random, len(self.steps)
        kind = r.choice(kinds)
        some = lambda: count - 1 - min(r.randrange(count), r.randrange(count))  # Rather a late one.
        if kind == "gate":
            return "gate", some(), self._names(), self._when()
        if kind == "body":
            first, how = some(), self._how()
            return "body", first, how, self._tree(3, None if how == "vmap" else first)
        return kind, some(), some()

    def _names(self, carry=None):
        """Steps; in a body also what it is run on: -1 - n where that is step n."""
        names = self.random.sample(range(len(self.steps)), self.random.choice([1, 1, 2]))
        return (*names, *([-1 - carry] if carry is not None and not self.random.randrange(3) else []))

    def _when(self):
        return self.random.choice([None, None, None, True, False])

    def _how(self):
        return self.random.choice(["scan", "while", "cond", "checkpoint", "vmap"])

    def _tree(self, depth, carry):
        """An expression in a body, of what the body is run on and of steps outside."""
        r = self.random
        kind = r.choice(["mul", "add", "gate", "gate", *["body"] * (depth == 2)]) if depth else "leaf"
        if kind == "leaf":
            return r.choice([("carry",), ("carry",), ("outer", r.randrange(len(self.steps)))])
        if kind == "gate":
            return "gate", self._tree(depth - 1, carry), self._names(carry), self._when()
        if kind == "body":
            first, how = self._tree(0, carry), self._how()
            known = carry if first[0] == "carry" else first[1]
            return "body", first, how, self._tree(2, None if how == "vmap" else known)
        return kind, self._tree(depth - 1, carry), self._tree(0, carry)

    # ------------------------------------------------------------------------------------- the model

    @cached_property
    def model(self) -> Polynomial:
        known = {}

        def variable(kind, k, held):
            return Polynomial({((kind, k, k in held),): 1})

        def value(n, held):
            if (n, held) not in known:
                kind, *parts = self.steps[n]
                if kind == "in":
                    return variable("in", n, held)
                known[n, held] = combined(kind, parts, value, held)
                if n in self.xs:
                    known[n, held] = known[n, held] + variable("added", n, held)
            return known[n, held]

        def combined(kind, parts, at, held):
            if kind == "add":
                return at(parts[0], held) + at(parts[1], held)
            if kind == "mul":
                return at(parts[0], held) * at(parts[1], held)
            if kind == "gate":
                named = {n if n >= 0 else -1 - n for n in parts[1]}
                return at(parts[0], held if parts[2] is False else held | named)
            first, how, tree = parts

            def run(held, carry):
                def at(tree, held):
                    if tree[0] == "carry":
                        return carry(held)
                    if tree[0] == "outer":
                        return value(tree[1], held)
                    return combined(tree[0], tree[1:], at, held)

                return at(tree, held)

            once = lambda held: run(held, lambda held: at(first, held))
            if how in ("scan", "while"):
                return run(held, once)
            if how == "vmap":
                return once(held) + run(held, lambda held: value(0, held))
            return once(held)

        return value(len(self.steps) - 1, frozenset())

    def expected(self, *numbers):
        found = self.model
        for n in numbers:
            found = found.derivative(("in" if n < len(VALUES) else "added", n, False))
        return found.value()

    # ------------------------------------------------------------------------------------- the program

    def build(self, *inputs):
        """The program's tensors."""
        made = list(inputs)
        for kind, *parts in self.steps[len(inputs) :]:
            made.append(self._applied(made, kind, parts, made.__getitem__))
        return made

    def _applied(self, made, kind, parts, at):
        if kind == "body":
            return self._run(list(made), at(parts[0]), *parts[1:])
        if kind == "gate":
            when = parts[2] if parts[2] is None else sg.identity(sg.constant(parts[2]))
            named = [made[n] if n >= 0 else at(("carry",)) for n in parts[1]]
            return sg.stop_gradient(at(parts[0]), wrt=named, when=when)
        a, b = map(at, parts)
        return a * b if kind == "mul" else a + b

    def _run(self, outer, x, how, tree):
        def body(carry):
            def at(tree):
                if tree[0] == "carry":
                    return sg.identity(carry)
                return outer[tree[1]] if tree[0] == "outer" else self._applied(outer, tree[0], tree[1:], at)

            return at(tree)

        if how == "scan":
            return sg.scan(lambda c, _: (body(c), None), x, None, 2)[0]
        if how == "while":
            return sg.while_loop(
                lambda i, c: i < 2, lambda i, c: (i + 1, body(c)), (0, x), maximum_iterations=3
            )[1]
        if how == "cond":
            return sg.cond(sg.identity(sg.constant(True)), body, lambda c: c, x)
        if how == "checkpoint":
            return sg.checkpoint(body)(x)
        return sg.reduce_sum(sg.vmap(body)(sg.stack([x, outer[0]])))

    def loss(self, *inputs):
        return self.build(*inputs)[-1]
