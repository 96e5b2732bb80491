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
from stopgrad.interop.kinds import TORCH, comes_from, is_module, is_optimizer, kinds_in, referenced
from stopgrad.interop.shared.losses import losses_in
from stopgrad.tools.cli.asking import Answer, Question, require_tensors, trained_with
from stopgrad.tools.cli.calls import Call, chosen, with_data
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
        f, found, argnums = chosen(program, question.found, wanted.argnums)
        arrays, data = with_data(program, found, wanted.seed or 0)
        given = {one.parameter.name: value for one, value in zip(found, arrays, strict=True)}
        about = dict(referenced(program.value)) | given
        if argnums is not None:
            about = {name: given[name] for name in [found[n].parameter.name for n in argnums]}
        known = things(about)
        random = any(isinstance(leaf, TensorType) for one in found for leaf in flatten(one.value)[0])
        for one in found:
            given[one.parameter.name] = _with_tensors(torch, one, given[one.parameter.name], not known)
        with training.Training(leaves=True) as watched:
            made = f(*given.values())
        known = known or things({name: value for name, value in given.items() if name in about})
        again = functools.partial(f, *given.values())
        about = known or things(watched.leaves() | watched.modules())
        flow = _report(question, watched, made, about, again)
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
        f, found, argnums = chosen(program, question.found, wanted.argnums)
        arrays, data = with_data(program, found, wanted.seed or 0)
        given = {one.parameter.name: value for one, value in zip(found, arrays, strict=True)}
        about = dict(referenced(program.value)) | given
        if argnums is not None:
            about = {name: given[name] for name in [found[n].parameter.name for n in argnums]}
        known = things(about)
        for one in found:
            given[one.parameter.name] = _with_tensors(torch, one, given[one.parameter.name], not known)
        known = known or things({name: value for name, value in given.items() if name in about})

        @functools.wraps(f)
        def loss(*args: Any) -> Any:
            made = f(*args)
            return losses_in(made[0] if _is_pair(made) else made)

        return Call((loss, *given.values()), {"model": as_asked(known)}, data)


def _is_pair(made: Any) -> bool:
    """Whether a function returned its loss, and what is asked about."""
    return isinstance(made, tuple) and len(made) == 2 and _names_what_to_ask(made[1])


def _report(
    question: Question, watched: Training, made: Any, known: Mapping[str, Any], again: Callable[[], Any]
) -> Any:
    """The report on the returned loss, or else on the only ``backward()``, and the tensors asked about."""
    seen = watched.seen
    if not kinds_in(made) and seen.backward_calls:
        return _only_call(question, seen.backward_calls).explain(as_asked(known))
    if _is_pair(made):
        made, xs = made
        xs = watched.named(xs) if is_optimizer(xs) else xs
    else:
        xs = as_asked(known)
    require_tensors(question, made, TORCH)
    tensors = [leaf for leaf in flatten(losses_in(made))[0] if comes_from(leaf, "torch.Tensor")]
    flow = seen.explain(tensors or made, xs)
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
    found = {name: leaf for name, leaf in _leaves(about) if is_module(leaf) or _is_trained(leaf)}
    if not found:
        found = {name: leaf for name, leaf in _leaves(about) if is_optimizer(leaf)}
    inner = {
        id(part) for leaf in found.values() if is_module(leaf) for part in leaf.modules() if part is not leaf
    }
    inner |= {id(p) for leaf in found.values() if is_module(leaf) for p in leaf.parameters()}
    seen: set[int] = set()
    kept = {}
    for name, leaf in found.items():
        if id(leaf) not in inner and id(leaf) not in seen:
            kept[name] = leaf
        seen.add(id(leaf))
    return kept


def as_asked(known: Mapping[str, Any]) -> Any:
    """A single module itself, so that its parameters keep their names; several things by name."""
    values = list(known.values())
    if len(values) == 1 and is_module(values[0]):
        return values[0]
    return dict(known) if known else None


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
    made = [
        _tensor(torch, leaf, type, requires_grad) if isinstance(type, TensorType) else leaf
        for leaf, type in zip(flatten(value)[0], types, strict=True)
    ]
    return unflatten(spec, made)


def _tensor(torch: ModuleType, array: np.ndarray[Any, Any], type: TensorType, requires_grad: bool) -> Any:
    wide = array.astype("float32") if type.dtype.is_floating and array.dtype.itemsize < 4 else array
    made = torch.as_tensor(wide).to(getattr(torch, type.dtype.name))
    return made.requires_grad_() if requires_grad and type.dtype.is_floating else made
