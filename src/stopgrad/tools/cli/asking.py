"""What a command asks about a function of the user's, and what each world answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from stopgrad.base.errors import ArgumentError
from stopgrad.base.structure import flatten
from stopgrad.tools.cli.calls import Call, Wanted
from stopgrad.tools.cli.inputs import Argument, line_of
from stopgrad.tools.cli.kinds import JAX, TORCH, kinds_in
from stopgrad.tools.cli.programs import Program


class Question(NamedTuple):
    """A function, what the command line says of its inputs, and what these are."""

    program: Program
    wanted: Wanted
    found: Sequence[Argument]


class Answer(NamedTuple):
    """A report, and on which data it was made, in words; empty where nothing was computed."""

    report: Any
    data: str = ""


class World(Protocol):
    """stopgrad, PyTorch or JAX: how functions written with it are asked about."""

    name: str

    def explain(self, question: Question) -> Answer:
        """Where the gradients of a function flow."""

    def call(self, question: Question, command: str) -> Call:
        """What the functions of the library that compute are called with, for a command."""


def losses_in(made: Any) -> Any:
    """What is differentiated, of what a function returns.

    That which is called loss, of a dict or of an object with attributes; of a tuple the scalars that it
    begins with, so that metrics and activations behind a loss are left out. Anything else as it is.
    """
    if isinstance(made, dict) and "loss" in made:
        return made["loss"]
    if not isinstance(made, (dict, list, tuple)) and getattr(made, "loss", None) is not None:
        return made.loss
    if isinstance(made, (list, tuple)):
        if getattr(made, "loss", None) is not None:  # Of a named tuple.
            return made.loss  # type: ignore[union-attr]
        scalars = []
        for one in made:
            if getattr(one, "shape", None) is None or tuple(one.shape) != ():
                break
            scalars.append(one)
        return scalars or made
    return made


def refuse_mixtures(where: str, what: str, tree: object) -> None:
    """Raise where a structure holds objects of both PyTorch and JAX."""
    if {TORCH, JAX} <= kinds_in(tree):
        raise ArgumentError(
            f"{where}{what}: objects of both PyTorch and JAX, between which no gradient passes; ask about a "
            "function of one of them"
        )


def require_tensors(question: Question, made: object, world: str) -> None:
    """Raise unless what a function returned holds tensors of its world, and none of another."""
    program = question.program
    refuse_mixtures(line_of(program), f"what {program.name} returns", made)
    if world not in kinds_in(made):
        shown = ", ".join(dict.fromkeys(type(leaf).__name__ for leaf in flatten(made)[0])) or "nothing"
        raise ArgumentError(
            f"{line_of(program)}{program.name} returns {shown}, and no tensor of {world}; return the loss "
            "itself, not what .item() or float() makes of it"
        )
