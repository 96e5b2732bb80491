"""Functions written with TensorFlow or with Keras on it."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.base.structure import flatten, map_leaves
from stopgrad.base.types import TensorType
from stopgrad.graph.operands import is_tensor
from stopgrad.interop.shared.returned_losses import losses_in
from stopgrad.interop.value_worlds import TENSORFLOW, kind, kinds_in
from stopgrad.tools.cli.call_arguments import Call, chosen, with_data
from stopgrad.tools.cli.function_questions import Answer, Question, trained_with


class OnTensorflow:
    """The world of TensorFlow: the function is called once, under a tape."""

    name = TENSORFLOW

    def explain(self, question: Question) -> Answer:
        """The report on what a function returns, or on the gradients that it asks for itself."""
        purpose = "explaining a TensorFlow function"
        tensorflow = require("tensorflow", purpose)
        sgtf = require("stopgrad.tensorflow", purpose)
        program, wanted = question.program, question.wanted
        f, arguments, _ = chosen(program, question.arguments, wanted.argnums)
        arrays, data = with_data(program, arguments, wanted.seed or 0)
        values = [map_leaves(lambda x: _tensor(tensorflow, x), tree) for tree in arrays]
        random = any(
            isinstance(leaf, TensorType) for argument in arguments for leaf in flatten(argument.value)[0]
        )
        returned: list[Any] = []

        @functools.wraps(f)
        def loss(*args: Any) -> Any:
            returned.append(losses_in(f(*args)))
            return returned[0]

        with sgtf.watch() as seen:
            try:
                flow = sgtf.explain(loss, *values, **trained_with(question))
            except ArgumentError:
                if not returned or TENSORFLOW in kinds_in(returned) or not seen.gradient_calls:
                    raise
                flow = seen.gradient_calls[-1].explain()
        return Answer(flow, data if random else "")

    def call(self, question: Question, command: str) -> Call:
        """The function itself, with tensors as arguments."""
        program = question.program
        f, arguments, _ = chosen(program, question.arguments, question.wanted.argnums)
        arrays, data = with_data(program, arguments, question.wanted.seed or 0)
        tensorflow = require("tensorflow", f"{command} of a TensorFlow function")
        values = [map_leaves(lambda x: _tensor(tensorflow, x), tree) for tree in arrays]

        @functools.wraps(program.value)  # Whose the function is, its own code says, and not this one's.
        def loss(*args: Any) -> Any:
            return losses_in(f(*args))

        return Call((loss, *values), {}, data)


def _tensor(tensorflow: ModuleType, x: Any) -> Any:
    return tensorflow.convert_to_tensor(x) if is_tensor(x) and not kind(x) else x
