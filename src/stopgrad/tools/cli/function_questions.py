"""Questions of commands about a user's function, and the answers of each world."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from stopgrad.base.errors import ArgumentError
from stopgrad.base.structure import flatten
from stopgrad.interop.value_worlds import OURS, kinds_in
from stopgrad.tools.cli.call_arguments import Call, Wanted
from stopgrad.tools.cli.inputs import Argument, line_of
from stopgrad.tools.cli.user_programs import Program


class Question(NamedTuple):
    """A function, what the command line says about its inputs, and the inputs."""

    program: Program
    wanted: Wanted
    arguments: Sequence[Argument]


def trained_with(question: Question) -> dict[str, Any]:
    """The optimizer and the gradient function that the command line names, as options of ``explain``.

    Raises:
        ArgumentError: the file has no such name.
    """
    options: dict[str, Any] = {}
    for option, text in question.wanted.trained_with.items():
        parts = [_value_named(question.program, option, name.strip()) for name in text.split(",")]
        options[option] = parts[0] if len(parts) == 1 else tuple(parts)
    return options


def _value_named(program: Program, option: str, name: str) -> Any:
    """What the file calls so; attributes follow dots."""
    first, *rest = name.split(".")
    if first not in program.names:
        close = difflib.get_close_matches(first, [one for one in program.names if one[:1] != "_"], 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ArgumentError(f"--{option}: the file of {program.target} has no {first!r}{hint}")
    value = program.names[first]
    for part in rest:
        if not hasattr(value, part):
            raise ArgumentError(f"--{option}: {first} has no attribute {part!r}")
        value = getattr(value, part)
    return value


class Answer(NamedTuple):
    """A report, and a description of its data; empty if nothing was computed."""

    report: Any
    data: str = ""


class World(Protocol):
    """stopgrad, PyTorch, JAX or TensorFlow: answers questions about functions written with it."""

    name: str

    def explain(self, question: Question) -> Answer:
        """The report on where the gradients of a function flow."""

    def call(self, question: Question, command: str) -> Call:
        """The arguments for the library's functions that compute, for a command."""


def refuse_mixtures(where: str, what: str, tree: object) -> None:
    """Raise if a structure holds objects of two worlds other than ours."""
    worlds = sorted(kinds_in(tree) - {OURS})
    if len(worlds) > 1:
        raise ArgumentError(
            f"{where}{what}: objects of both {worlds[1]} and {worlds[0]}, between which no gradient passes; "
            "ask about a function of one of them"
        )


def require_tensors(question: Question, result: object, world: str) -> None:
    """Raise unless a function's result holds tensors of its own world and of no other."""
    program = question.program
    refuse_mixtures(line_of(program), f"what {program.name} returns", result)
    if world not in kinds_in(result):
        shown = ", ".join(dict.fromkeys(type(leaf).__name__ for leaf in flatten(result)[0])) or "nothing"
        raise ArgumentError(
            f"{line_of(program)}{program.name} returns {shown}, and no tensor of {world}; return the loss "
            "itself, not what .item() or float() makes of it"
        )
