"""Finds the world in which a user's function is written, and asks it.

The world is found, in this order, from the arguments (what is PyTorch's or TensorFlow's decides); from the
names in the function's code, or else in its file, if they are of one world; and else by trying: it is the one
in which the function returns something that can be differentiated.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from stopgrad.base.errors import ArgumentError
from stopgrad.base.structure import flatten
from stopgrad.base.types import TensorType
from stopgrad.graph.arguments import parameters_of
from stopgrad.interop.value_worlds import (
    JAX,
    OURS,
    TENSORFLOW,
    TORCH,
    is_module,
    kind,
    kinds_in,
    named_worlds,
    worlds_among,
)
from stopgrad.tools.cli.annotations import evaluated
from stopgrad.tools.cli.call_arguments import Call, Wanted, given_to
from stopgrad.tools.cli.function_questions import Answer, Question, World, refuse_mixtures
from stopgrad.tools.cli.inputs import line_of, namespace
from stopgrad.tools.cli.on_jax import OnJax
from stopgrad.tools.cli.on_tensorflow import OnTensorflow
from stopgrad.tools.cli.on_torch import OnTorch
from stopgrad.tools.cli.ours import Ours, asked
from stopgrad.tools.cli.user_programs import Program

T = TypeVar("T")

WORLDS: dict[str, World] = {world.name: world for world in (Ours(), OnJax(), OnTorch(), OnTensorflow())}
"""The worlds in the order in which they are tried."""


def explained(program: Program, wanted: Wanted) -> Answer:
    """The report on where gradients of a program flow."""
    question = question_of(program, wanted)
    return _first_answer(question, lambda world: world.explain(question))


def computed(program: Program, wanted: Wanted, command: str, compute: Callable[[Call], Any]) -> Answer:
    """The report on a program of a library function that computes."""
    question = question_of(program, wanted)

    def answer(world: World) -> Answer:
        call = world.call(question, command)
        return Answer(asked(question, call, lambda: compute(call)), call.data)

    return _first_answer(question, answer)


def question_of(program: Program, wanted: Wanted) -> Question:
    """The question about a program, with a PyTorch module turned into a function; and its arguments."""
    if is_module(program.value):
        program = program._replace(value=_calling(program))
    return Question(program, wanted, given_to(program, wanted))


def _calling(program: Program) -> Any:
    """A function that calls a module, or an instance of a module class."""
    module = program.value
    if inspect.isclass(module):
        needed = [p.name for p in parameters_of(module) if p.default is p.empty and p.kind not in _OPEN]
        if needed:
            raise ArgumentError(
                f"{program.target} is a class whose instances need {', '.join(needed)}; make one in the file "
                f"(model = {module.__name__}(...)), and name that"
            )
        module = module()

    def forward(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    named: Any = forward
    named.__signature__ = inspect.signature(module.forward)
    named.__wrapped__ = module.forward
    named.__self__ = module
    return named


_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# ------------------------------------------------------------------------------------------- which world


def worlds_of(question: Question) -> list[World]:
    """The possible worlds of a function, the likeliest first; only one if it is certain."""
    program = question.program
    defaults = [p.default for p in parameters_of(program.value)]
    values = [argument.value for argument in question.arguments] + defaults
    refuse_mixtures(line_of(program), f"the arguments of {program.name}", values)
    target = kind(program.value) or kind(getattr(program.value, "__self__", None))
    if target:
        return [WORLDS[target]]
    held = [leaf for leaf in flatten(values)[0] if not isinstance(leaf, TensorType)]  # A type is of no world.
    used = kinds_in(held) | _annotated(program)
    for world in (TORCH, TENSORFLOW):
        if world in used:
            return [WORLDS[world]]
    evidence = used | set(named_worlds(program.value)) or worlds_among(program.names.values()) or {OURS}
    return [WORLDS[name] for name in WORLDS if name in evidence]


def _annotated(program: Program) -> set[str]:
    """The worlds in a function's annotations, such as ``x: torch.Tensor``, also in jaxtyping's."""
    annotated = set()
    for parameter in parameters_of(program.value):
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = evaluated(annotation, namespace(program))
        annotation = getattr(annotation, "array_type", annotation)
        if inspect.isclass(annotation) and annotation is not parameter.empty:
            annotated.add(kind(annotation))
    return annotated - {""}


_STAND_INS = {
    OURS: r"\bOutput\b|only when the graph runs|builds a graph",
    JAX: "Tracer",
    TORCH: r"\bTensor\b",
    TENSORFLOW: r"\bTensor\b",
}
"""Patterns of errors that a function raises if called with another world's stand-ins for arrays."""


def _first_answer(question: Question, answer: Callable[[World], T]) -> T:
    """The answer of the first world that can be asked; or the error of the likeliest."""
    errors: list[tuple[World, Exception]] = []
    worlds = worlds_of(question)
    for world in worlds:
        try:
            return answer(world)
        except Exception as error:
            if len(worlds) == 1:
                raise
            errors.append((world, error))
    own = [error for world, error in errors if not re.search(_STAND_INS[world.name], str(error))]
    raise (own or [error for _, error in errors])[0]
