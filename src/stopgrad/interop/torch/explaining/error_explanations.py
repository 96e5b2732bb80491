"""Which explanation belongs to which of PyTorch's errors, and how it is added to the exception."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.base.source import RawLocation
from stopgrad.flow.problems.notes import note, problem_of
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.explaining.again import second
from stopgrad.interop.torch.explaining.context import Context
from stopgrad.interop.torch.explaining.cuts import no_graph
from stopgrad.interop.torch.explaining.misuse import (
    misuse,
    no_parameters,
    non_leaf,
    not_twice,
    unused_input,
    wrong_gradient,
)
from stopgrad.interop.torch.explaining.modified_in_place import modified
from stopgrad.interop.torch.explaining.parallel import ready_twice, unfinished
from stopgrad.interop.torch.recording.recorder import Recorder

Explains = Callable[[Context], Problem | None]
RULES: tuple[tuple[str, Explains], ...] = (
    (r"modified by an inplace operation", modified),
    (r"Trying to backward through the graph a second time", second),
    (r"does not require grad and does not have a grad_fn", no_graph),
    (r"can't optimize a non-leaf Tensor", non_leaf),
    (r"optimizer got an empty parameter list", no_parameters),
    (r"appears to not have been used in the graph|One of the differentiated Tensors does not", unused_input),
    (
        r"returned an (invalid gradient|incorrect number of gradients)|expected Tensor or tuple",
        wrong_gradient,
    ),
    (r"once_differentiable|is not implemented.*derivative|derivative for .* is not implemented", not_twice),
    (r"Expected to have finished reduction in the prior iteration", unfinished),
    (r"Expected to mark a variable ready only once", ready_twice),
    (r"", misuse),
)
"""What explains an error, by what its message contains; the first that does is asked."""


def explain(recorder: Recorder, error: BaseException, place: RawLocation | None, args: Sequence[Any]) -> None:
    """Add a note to an error if its cause is known. Whatever fails in here, the error passes on as it was."""
    if problem_of(error) is not None:
        return
    try:
        with internals.DisableTorchFunction():
            problem = explanation(Context(recorder, error, place, args))
        if problem is not None:
            note(error, problem)
    except Exception:  # The user's error is what counts.
        return


def explanation(context: Context) -> Problem | None:
    """The explanation of an error; None if its cause is not known."""
    if context.is_raised_by_the_user:
        return None
    for pattern, explains in RULES:
        if re.search(pattern, context.message):
            return explains(context)
    return None
