"""Programs in JAX, and what their text uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from programs.forms import JAX
from programs.language import Function, Statement, Writer
from programs.reach import UNDEFINED, End, Model, Scope, Tensor, Ways, read_by
from programs.twin import Twin

__all__ = ["jax", "jnp", "lax", "scan_of", "summed"]


def scan_of(f: Callable[..., Any], count: int, carry: Sequence[Any], rows: Sequence[Any], length: int) -> Any:
    """What is carried through a scan, and the sums of what it gives."""

    def step(carried: Any, row: Any) -> Any:
        made = f(*carried, *(() if row is None else (row,)))
        return tuple(made[:count]), tuple(made[count:])

    last, given = lax.scan(step, tuple(carry), jnp.stack(rows) if rows else None, length=length)
    return (*last, *[jnp.sum(x, axis=0) for x in given])


def summed(results: Any) -> Any:
    """The sums of results over all examples."""
    return tuple([jnp.sum(x, axis=0) for x in results])


class Jax(Writer):
    """Writes programs in JAX."""

    module, library, forms = "programs.jaxes", "jax", JAX
    constructs = {
        "call": "{f0}({args})",
        "cond": "lax.cond(jnp.any({first}), {f0}, {f1}, {rest})",
        "switch": "lax.switch(jnp.max({first}), [{functions}], {rest})",
        "while": "lax.while_loop(lambda c: (c[0] < 4) & jnp.any({f0}(*c[1:])[0]), "
        "lambda c: (c[0] + 1, *{f1}(*c[1:])), (0, {args}))[1:]",
        "fori": "lax.fori_loop(0, {number}, lambda i, c: {f0}(*c), ({args}))",
        "scan": "scan_of({f0}, {count}, ({carried}), ({beside}), {number})",
        "map": "summed(lax.map(lambda r: {f0}(r), jnp.stack([{args}])))",
        "vmap": "summed(jax.vmap({f0}, in_axes=(0, {axes}))(jnp.stack([{carried}]), {beside}))",
        "checkpoint": "jax.checkpoint({f0})({args})",
        "jit": "jax.jit({f0})({args})",
        "custom": "{f0}_own({args})",
        "tangent": "{f0}_own({args})",
    }

    def put(self, statement: Statement) -> str:
        if statement.form == "while" and statement.number is not None:
            raise ValueError("JAX has no bounds for loops")
        return super().put(statement)

    def function(self, statement: Statement, function: Function) -> None:
        super().function(statement, function)
        name, count = function.name, len(function.gives)
        if statement.form == "custom":
            parts = [
                "None" if some is None else " + ".join([f"{r + 2.0} * h[{r}]" for r in some])
                for some in statement.passes
            ]
            self.line(f"{name}_own = jax.custom_vjp({name})")
            self.line(f"{name}_own.defvjp(lambda *x: ({name}(*x), ()), lambda k, h: ({', '.join(parts)},))")
        elif statement.form == "tangent":
            parts = [
                " + ".join(
                    [f"{r + 2.0} * t[{a}]" for a, some in enumerate(statement.passes) if r in (some or ())]
                )
                or "jnp.zeros(3)"
                for r in range(count)
            ]
            self.line(f"{name}_own = jax.custom_jvp({name})")
            self.line(f"{name}_own.defjvp(lambda x, t: ({name}(*x), ({', '.join(parts)},)))")


class JaxModel(Model):
    """What JAX does with gradients."""

    def _while(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """What a loop does not change takes no part in it."""
        body = statement.functions[1]
        given = [replace(x, self=object()) for x in taken]
        made = self.inside(body, scope, given)
        found = super()._while(replace(statement, number=None), scope, taken)
        same = [y.self is g.self for y, g in zip(made, given, strict=True)]
        return [x if unchanged else z for x, unchanged, z in zip(taken, same, found, strict=True)]

    def _scan(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """What a scan does not change takes no part in it either."""
        found, count = super()._scan(statement, scope, taken), statement.count
        given = [replace(x, self=object()) for x in taken[:count]]
        rows = [self.fresh(*taken[count:])] if taken[count:] else []
        made = self.inside(statement.functions[0], scope, [*given, *rows])
        same = [y.self is g.self for y, g in zip(made[:count], given, strict=True)]
        carry = [x if one else z for x, one, z in zip(taken[:count], same, found[:count], strict=True)]
        return [*carry, *found[count:]]

    _fori = _scan

    def _jit(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """An argument that a function hands on is what it was."""
        made, same = self.inside(statement.functions[0], scope, taken), {x.self for x in taken}
        return [y if y.self in same else self.fresh(y) for y in made]

    def _custom(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """What a function with a rule of its own closes over has no gradient: asking for it is an error."""
        reader, _ = read_by(self, statement.functions[0], scope, taken)
        marks = list(reader.marks.values())[len(taken) :]
        closed = {x.self: x for x in marks if x.smooth}
        made = super()._custom(statement, scope, taken)
        if not closed:
            return made
        refused = [self.behind(x.ways, End(statement.label, UNDEFINED)) for x in closed.values()]
        return [replace(y, ways=y.ways.union(*refused)) for y in made]

    def stopped(self, x: Tensor, label: str, closed: bool) -> Ways:
        """Without a gradient of its own, an argument is stopped; what is closed over is refused."""
        return frozenset() if closed else super().stopped(x, label, closed)

    _tangent = _custom


class JaxTwin(Twin):
    """Writes programs in JAX as their twins."""

    forms = JAX
    constructs = {
        **Twin.constructs,
        "jit": "checkpoint({f0})({args})",
        "while": "loop_in_jax({f0}, {f1}, ({args}), {number}, {held})",
        "tangent": "own({f0}, ({args}), {passes})",
    }
