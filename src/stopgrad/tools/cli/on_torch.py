"""Functions written with PyTorch, and its modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.base.structure import flatten, paths, unflatten
from stopgrad.base.types import TensorType
from stopgrad.flow.source_lines import place
from stopgrad.interop.shared.returned_losses import losses_in
from stopgrad.interop.value_worlds import TORCH, comes_from, is_module, is_optimizer, kinds_in, referenced
from stopgrad.tools.cli.call_arguments import Call, chosen, with_data
from stopgrad.tools.cli.function_questions import Answer, Question, require_tensors, trained_with
from stopgrad.tools.cli.inputs import Argument, line_of

if TYPE_CHECKING:
    from stopgrad.interop.torch.training_checks import Training


class OnTorch:
    """The world of PyTorch: the function is called and watched."""

    name = TORCH

    def explain(self, question: Question) -> Answer:
        """The report on what a function returns, or on the ``backward()`` that it calls itself."""
        purpose = "explaining a PyTorch function"
        torch = require("torch", purpose, "torch")
        training = require("stopgrad.interop.torch.training_checks", purpose, "torch")
        program, wanted = question.program, question.wanted
        f, arguments, argnums = chosen(program, question.arguments, wanted.argnums)
        arrays, data = with_data(program, arguments, wanted.seed or 0)
        values = {argument.parameter.name: value for argument, value in zip(arguments, arrays, strict=True)}
        about = dict(referenced(program.value)) | values
        if argnums is not None:
            about = {name: values[name] for name in [arguments[n].parameter.name for n in argnums]}
        subjects = things(about)
        random = any(
            isinstance(leaf, TensorType) for argument in arguments for leaf in flatten(argument.value)[0]
        )
        for argument in arguments:
            values[argument.parameter.name] = _with_tensors(
                torch, argument, values[argument.parameter.name], not subjects
            )
        with training.Training(leaves=True) as watched:
            result = f(*values.values())
        subjects = subjects or things({name: value for name, value in values.items() if name in about})
        again = functools.partial(f, *values.values())
        about = subjects or things(watched.leaves() | watched.modules())
        flow = _report(question, watched, result, about, again)
        if not len(flow):
            raise ArgumentError(
                f"{line_of(program)}{program.name} makes its loss of nothing that is known here and requires "
                'grad; return (loss, model), or (loss, {"w": w}) with the tensors that you mean'
            )
        return Answer(flow, data if random else "")

    def call(self, question: Question, command: str) -> Call:
        """The function itself, with tensors as arguments, and with respect to what it is differentiated."""
        torch = require("torch", f"{command} of a PyTorch function", "torch")
        program, wanted = question.program, question.wanted
        f, arguments, argnums = chosen(program, question.arguments, wanted.argnums)
        arrays, data = with_data(program, arguments, wanted.seed or 0)
        values = {argument.parameter.name: value for argument, value in zip(arguments, arrays, strict=True)}
        about = dict(referenced(program.value)) | values
        if argnums is not None:
            about = {name: values[name] for name in [arguments[n].parameter.name for n in argnums]}
        subjects = things(about)
        for argument in arguments:
            values[argument.parameter.name] = _with_tensors(
                torch, argument, values[argument.parameter.name], not subjects
            )
        subjects = subjects or things({name: value for name, value in values.items() if name in about})

        @functools.wraps(f)
        def loss(*args: Any) -> Any:
            result = f(*args)
            return losses_in(result[0] if _is_pair(result) else result)

        return Call((loss, *values.values()), {"model": as_asked(subjects)}, data)


def _is_pair(result: Any) -> bool:
    """Whether a function returned its loss, and what is asked about."""
    return isinstance(result, tuple) and len(result) == 2 and _names_what_to_ask(result[1])


def _report(
    question: Question, watched: Training, result: Any, subjects: Mapping[str, Any], again: Callable[[], Any]
) -> Any:
    """The report on the returned loss, or else on the only ``backward()``, and the tensors asked about."""
    seen = watched.seen
    if not kinds_in(result) and seen.backward_calls:
        return _only_call(question, seen.backward_calls).explain(as_asked(subjects))
    if _is_pair(result):
        result, xs = result
        xs = watched.named(xs) if is_optimizer(xs) else xs
    else:
        xs = as_asked(subjects)
    require_tensors(question, result, TORCH)
    tensors = [leaf for leaf in flatten(losses_in(result))[0] if comes_from(leaf, "torch.Tensor")]
    flow = seen.explain(tensors or result, xs)
    trained = trained_with(question)
    if not trained:
        return flow
    if "grad" in trained:
        raise ArgumentError("--grad is for JAX; PyTorch has one gradient function")
    asking = require("stopgrad.interop.torch.asking", "an update of PyTorch", "torch")
    return asking.with_updates("explain", flow, trained["optimizer"], tensors, again, xs)


def _only_call(question: Question, calls: Sequence[Any]) -> Any:
    """The only call; of several at one line, as in a loop, the last."""
    lines = dict.fromkeys(place(call.location) for call in calls if call.location is not None)
    if len(lines) > 1:
        program = question.program
        raise ArgumentError(
            f"{line_of(program)}{program.name} returns no tensor and calls backward() {len(calls)} times "
            f"({', '.join(lines)}); return the loss that you mean"
        )
    return calls[-1]


# --------------------------------------------------------------------------------------- what is asked about


def things(about: Mapping[str, Any]) -> dict[str, Any]:
    """Modules and tensors that require grad, by name; or optimizers, if there are none."""
    named = {name: leaf for name, leaf in _leaves(about) if is_module(leaf) or _is_trained(leaf)}
    if not named:
        named = {name: leaf for name, leaf in _leaves(about) if is_optimizer(leaf)}
    inner = {
        id(part) for leaf in named.values() if is_module(leaf) for part in leaf.modules() if part is not leaf
    }
    inner |= {id(p) for leaf in named.values() if is_module(leaf) for p in leaf.parameters()}
    seen: set[int] = set()
    outermost = {}
    for name, leaf in named.items():
        if id(leaf) not in inner and id(leaf) not in seen:
            outermost[name] = leaf
        seen.add(id(leaf))
    return outermost


def as_asked(subjects: Mapping[str, Any]) -> Any:
    """A single module itself, so that its parameters keep their names; several things by name."""
    values = list(subjects.values())
    if len(values) == 1 and is_module(values[0]):
        return values[0]
    return dict(subjects) if subjects else None


def _leaves(about: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The instances among values, also inside of dicts and lists."""
    for name, value in about.items():
        held = value if isinstance(value, (dict, list, tuple)) else [value]
        if isinstance(value, (dict, list, tuple)):
            for path, leaf in zip(paths(held), flatten(held)[0], strict=True):
                yield f"{name}.{path}", leaf
        elif not isinstance(value, type):
            yield name, value


def _is_trained(value: Any) -> bool:
    """Whether a value is a leaf tensor that requires grad."""
    return comes_from(value, "torch.Tensor") and bool(value.requires_grad and value.is_leaf)


def _names_what_to_ask(value: object) -> bool:
    """Whether the second part of a function's result names the subjects, rather than being a metric."""
    if is_module(value) or is_optimizer(value):
        return True
    return any(_is_trained(leaf) or is_module(leaf) for leaf in flatten(value)[0])


# --------------------------------------------------------------------------------------------- data


def _with_tensors(torch: ModuleType, argument: Argument, value: object, requires_grad: bool) -> Any:
    """An argument's value with tensors in place of arrays, where only a type was known."""
    types, spec = flatten(argument.value)
    if not any(isinstance(leaf, TensorType) for leaf in types):
        return value
    tensors = [
        _tensor(torch, leaf, type, requires_grad) if isinstance(type, TensorType) else leaf
        for leaf, type in zip(flatten(value)[0], types, strict=True)
    ]
    return unflatten(spec, tensors)


def _tensor(torch: ModuleType, array: np.ndarray[Any, Any], type: TensorType, requires_grad: bool) -> Any:
    wide = array.astype("float32") if type.dtype.is_floating and array.dtype.itemsize < 4 else array
    tensor = torch.as_tensor(wide).to(getattr(torch, type.dtype.name))
    return tensor.requires_grad_() if requires_grad and type.dtype.is_floating else tensor
