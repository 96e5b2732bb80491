"""Errors of PyTorch's whose cause is the call itself: what it did, where its tensor was made, the cure."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

import torch

from stopgrad.flow.problems.cutting import cutting
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.explaining.context import Context, sites, variable_of
from stopgrad.interop.torch.recording.autograd_nodes import kind_of, node_of
from stopgrad.interop.torch.recording.graphs import report_of
from stopgrad.interop.torch.recording.record import Kind, Value, above

Tensor = torch.Tensor


class Misuse(NamedTuple):
    """An error whose cause is the call that raised it.

    Attributes:
        kind: of the finding.
        pattern: what PyTorch's message contains.
        message: the fact; ``{what}`` stands for the tensor's name.
        cure: what helps.
        origin: what the line that made the tensor did; empty if that plays no part.
        role: the part of the line that raised the error.
        here: the same for readers.
    """

    kind: str
    pattern: str
    message: str
    cure: str
    origin: str = "made here"
    role: str = "called"
    here: str = "refused here"


MISUSES = (
    Misuse(
        "leaf-written",
        r"^a leaf Variable that requires grad is being used in an in-place operation",
        "{what} is a leaf that requires a gradient, and is written into while gradients are on",
        "update it under torch.no_grad() (with torch.no_grad(): {what} -= ...), or let an optimizer step",
        role="written",
        here="written into here",
    ),
    Misuse(
        "leaf-written",
        r"a view of a leaf Variable that requires grad is being used in an in-place operation",
        "{what} is a view of a leaf that requires a gradient, and is written into while gradients are on",
        "write under torch.no_grad(), or into a copy: {what} = {what}.clone()",
        role="written",
        here="written into here",
    ),
    Misuse(
        "view-written",
        r"is a view and is being modified inplace|is a view and its base or another view",
        "{what} is a view that autograd does not let anybody write into",
        "write into a copy, {what}.clone(), or into the tensor that it is a view of",
        role="written",
        here="written into here",
    ),
    Misuse(
        "inference-tensor",
        r"[Ii]nference tensors? cannot be saved for backward|Inplace update to inference tensor|"
        r"requires_grad=True on inference tensor|Cannot set version_counter for inference tensor",
        "{what} was made in torch.inference_mode(), and such tensors take no part in training",
        "use torch.no_grad() in place of torch.inference_mode() where it is made, or clone() it outside",
        origin="made here, in inference mode",
    ),
    Misuse(
        "not-scalar",
        r"grad can be implicitly created only for scalar outputs",
        "{what} has {count} elements, and backward() without arguments takes one",
        "reduce it to a scalar, {what}.mean() or {what}.sum(), before backward()",
        origin="made here, and not reduced",
        role="second",
        here="this backward needs a scalar",
    ),
    Misuse(
        "not-real",
        r"grad can be (computed|implicitly created) only for real scalar outputs",
        "{what} is complex, and only a real loss has a gradient",
        "take {what}.abs() or {what}.real",
        role="second",
        here="this backward needs a real loss",
    ),
    Misuse(
        "not-real",
        r"only [Tt]ensors of floating point( and complex)? dtype can require gradients",
        "{what} holds integers or booleans, which have no gradient",
        "convert it first: {what}.float().requires_grad_()",
        role="called",
    ),
    Misuse(
        "non-leaf",
        r"you can only change requires_grad flags of leaf variables",
        "{what} is the result of an operation, whose requires_grad is not to be changed",
        "detach it: {what} = {what}.detach()",
    ),
    Misuse(
        "leaves-graph",
        r"Can't call numpy\(\) on Tensor that requires grad",
        "{what} requires a gradient, and NumPy would not pass one on",
        "for a number to look at, {what}.detach().numpy(); in the loss, the same function of torch",
        role="cut",
        here="leaves for NumPy here",
    ),
    Misuse(
        "leaves-graph",
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol",
        "{what} is the result of an operation, and copy.deepcopy copies no graph",
        "keep {what}.detach() in what is copied, and compute it in forward",
    ),
    Misuse(
        "hook-refused",
        r"cannot register a hook on a tensor that doesn't require gradient",
        "{what} requires no gradient, and a hook on it would never run",
        "register it on a tensor between a parameter and the loss, outside of torch.no_grad()",
    ),
    Misuse(
        "grad-refused",
        r"assigned grad has (data of a different|a layout|dtype)|assigned grad has",
        "the gradient assigned to {what} does not fit it",
        "assign a tensor of the same shape, dtype and device, or None",
    ),
    Misuse(
        "grad-refused",
        r"Mismatch in shape: grad_output\[\d+\] has a shape|gradients argument and the number of tensors",
        "the gradient given for {what} does not have its shape",
        "give a tensor of the same shape, such as torch.ones_like({what})",
        role="second",
        here="this backward is given another shape",
    ),
    Misuse(
        "no-derivative",
        r"functions with out=\.\.\. arguments don't support automatic differentiation",
        "a function that writes into out=... has no derivative, and {what} requires one",
        "assign the result in place of out=...; under torch.no_grad() where no gradient is meant",
        role="cut",
        here="called with out= here",
    ),
    Misuse(
        "no-derivative",
        r"does not support automatic differentiation for outputs with complex dtype|"
        r"is not differentiable with respect to argument",
        "this operation has no derivative with respect to {what}",
        "detach() what is not to be trained, or use an operation that has a derivative",
        role="cut",
        here="no derivative here",
    ),
    Misuse(
        "transformed-requires",
        r"attempting to call Tensor\.(requires_grad_|retain_grad)\(\)",
        "a function of torch.func asks for gradients of its own tensors, which the transform does itself",
        "leave out requires_grad_() and backward(): torch.func.grad differentiates with respect to arguments",
        origin="",
    ),
    Misuse(
        "transformed-write",
        r"During a grad \(vjp, jvp, grad, etc\) transform, the function provided attempted to call in-place|"
        r"vmap: inplace arithmetic\(self, \*extra_args\) is not possible",
        "a function of torch.func writes in place into {what}, which comes from outside of it",
        "write the out-of-place form, {what} = {what} + ..., or copy it inside of the function",
        role="written",
        here="written into here",
    ),
    Misuse(
        "checkpoint-differs",
        r"torch.utils.checkpoint: (A different number of tensors|Recomputed values|trying to save)",
        "the function in a checkpoint computes something else when it runs again for the backward pass",
        "let it depend on its arguments and on PyTorch's random numbers alone, not on what has changed since",
        origin="",
        role="second",
        here="this backward runs the checkpoint again",
    ),
    Misuse(
        "scaler-misused",
        r"No inf checks were recorded for this optimizer",
        "the GradScaler found no gradient of this optimizer's parameters",
        "call scaler.scale(loss).backward() before, on a loss that its parameters take part in",
        origin="",
    ),
    Misuse(
        "scaler-misused",
        r"unscale_\(\) (has already|is being called after step)|step\(\) has already been called",
        "the GradScaler's methods are called out of order for this optimizer",
        "once per step: scale(loss).backward(), unscale_(optimizer), step(optimizer), then update()",
        origin="",
    ),
    Misuse(
        "scaler-misused",
        r"Attempting to unscale FP16 gradients",
        "the weights themselves are float16, and a GradScaler scales gradients of float32 weights",
        "keep the weights in float32 and use torch.autocast, or train in bfloat16 without a scaler",
        origin="",
    ),
)
"""The errors, by what their messages contain."""


def misuse(context: Context) -> Problem | None:
    """The finding about an error whose cause is the call itself."""
    for misuse in MISUSES:
        if re.search(misuse.pattern, context.message):
            return _problem(context, misuse)
    return None


def _problem(context: Context, misuse: Misuse) -> Problem:
    tensor = _subject(context, misuse)
    value = None if tensor is None else value_of(context, tensor)
    name = "" if tensor is None else context.name_of(tensor) or ("" if value is None else variable_of(value))
    what = name or "it"
    places: list[Site] = []
    if misuse.origin and value is not None:
        places += made_at(value, misuse.origin)
    places += context.here(misuse.role, misuse.here)
    count = 0 if tensor is None else tensor.numel()
    message = misuse.message.format(what=name or "a tensor", count=count)
    return Problem(
        misuse.kind, message, places, [name] if name else [], {}, misuse.cure.format(what=what, count=count)
    )


def _subject(context: Context, misuse: Misuse) -> Tensor | None:
    """The tensor that the message is about: mostly the first; of those of inference mode, the one that is."""
    tensors = context.tensors
    if misuse.kind == "inference-tensor":
        tensors = [x for x in tensors if x.is_inference()] or tensors
    return tensors[0] if tensors else None


def value_of(context: Context, tensor: Tensor) -> Value | None:
    """What the record knows of a tensor; None if nothing."""
    recorder, node = context.recorder, node_of(tensor)
    if node is not None:
        return recorder.nodes.value_at(node, tensor.output_nr)
    noted = recorder.memory.held(tensor)
    return None if noted is None else noted.value


def made_at(value: Value, text: str) -> list[Site]:
    """The line that made a value."""
    event = value.event
    while event.kind in (Kind.FROZEN, Kind.WRITTEN) and event.inputs:
        event = event.inputs[0].event
    return sites("made", text, event.place)


# ------------------------------------------------------------------------------- what is no leaf, or no part


def non_leaf(context: Context) -> Problem | None:
    """An optimizer is given the result of an operation: the line that made it one."""
    places: list[Site] = []
    names: list[str] = []
    for tensor in _parameters(context.args):
        value = value_of(context, tensor)
        if tensor.is_leaf or value is None:
            continue
        name = context.name_of(tensor)
        names += [name] if name else []
        text = f"{value.event.call.removeprefix('torch.')} makes a new tensor, no parameter"
        places += sites("made", text, value.event.place)
    places += context.here("called", "the optimizer is made here")
    what = " and ".join(dict.fromkeys(names)) or "what is to be trained"
    return Problem(
        "non-leaf",
        f"{what} is the result of an operation: gradients go to what it was made of, and it would not move",
        places,
        names,
        {},
        f"convert first, then make it the leaf: nn.Parameter(...), or {what}.detach().requires_grad_()",
    )


def _parameters(args: object) -> list[Tensor]:
    """The tensors that an optimizer was given, in groups or not, named or not."""
    tensors: list[Tensor] = []
    stack: list[Any] = [args]
    while stack:
        x = stack.pop()
        if isinstance(x, Tensor):
            tensors.append(x)
        elif isinstance(x, dict):
            stack += reversed(list(x.values()))
        elif isinstance(x, (list, tuple)):
            stack += reversed(x)
    return tensors


def no_parameters(context: Context) -> Problem:
    """An optimizer is given nothing: modules and parameters that lie in lists and dicts, if any are found."""
    hidden = hidden_in(context)
    exhausted = any(inspect.isgenerator(arg) for arg in context.args)
    names = [name for name, _ in hidden]
    if hidden:
        message = f"{names[0]} lies in a {hidden[0][1]} of Python, where PyTorch does not look for parameters"
        cure = "put it into nn.ModuleList, nn.ModuleDict or nn.ParameterList"
    elif exhausted:
        message = "the generator that the optimizer was given is empty"
        cure = "call model.parameters() again for each use, or keep list(model.parameters()); a module that "
        cure += "assigns no nn.Module or nn.Parameter to self has none"
    else:
        message = "the list that the optimizer was given is empty"
        cure = "give it model.parameters() of a module that assigns its layers to self"
    return Problem(
        "no-parameters", message, context.here("called", "the optimizer is made here"), names, {}, cure
    )


def hidden_in(context: Context) -> list[tuple[str, str]]:
    """What lies in lists and dicts of modules among the user's variables: name, and in what."""
    hidden: list[tuple[str, str]] = []
    frame = inspect.currentframe()
    depth = 0
    while frame is not None and depth < 200:
        if not frame.f_code.co_filename.startswith((_HERE, _TORCH)):
            for name, value in list(frame.f_locals.items()):
                if isinstance(value, torch.nn.Module):
                    hidden += hidden_parts(name, value)
        frame, depth = frame.f_back, depth + 1
    return list(dict.fromkeys(hidden))


_HERE = __file__.rpartition("interop")[0]
_TORCH = torch.__file__.rpartition("__init__")[0]


def hidden_parts(name: str, module: torch.nn.Module) -> list[tuple[str, str]]:
    """The attributes of a module, and of those inside, that hold parameters in containers of Python."""
    hidden = []
    for path, part in module.named_modules():
        for key, container in vars(part).items():
            if key.startswith("_") or not isinstance(container, (list, tuple, dict)):
                continue
            values = container.values() if isinstance(container, dict) else container
            if any(isinstance(x, (torch.nn.Module, torch.nn.Parameter)) for x in values):
                whole = ".".join(filter(None, [name, path, key]))
                hidden.append((whole, type(container).__name__))
    return hidden


def unused_input(context: Context) -> Problem | None:
    """``torch.autograd.grad`` is asked about a tensor that plays no part in the result."""
    inputs = context.args[1] if len(context.args) > 1 else ()
    listed = [inputs] if isinstance(inputs, Tensor) else list(_parameters(inputs))
    reached = {id(node.variable) for node in context.nodes() if hasattr(node, "variable")}
    nodes = set(context.nodes())
    unused = [x for x in listed if id(x) not in reached and (x.grad_fn is None or x.grad_fn not in nodes)]
    names = [name for x in unused if (name := context.name_of(x))]
    what = " and ".join(names) or "a tensor"
    requires = all(x.requires_grad for x in unused)
    targets = {context.name_of(x) or f"x{i}": context.recorder.target(x) for i, x in enumerate(unused)}
    losses = context.recorder.backwards[-1].losses if context.recorder.backwards else ()
    places = (
        cutting(report_of(losses, targets, context.recorder.departures.remembered()), targets)
        if losses
        else []
    )
    places += [
        site
        for x in unused
        if (value := value_of(context, x)) is not None
        for site in made_at(value, "this one is asked about")
    ]
    places += context.here("second", "its derivative is asked for here")
    return Problem(
        "unused-input",
        f"{what} {'plays no part in what is differentiated' if requires else 'requires no gradient'}",
        places,
        names,
        {},
        "let the result depend on it, on the tensor itself and not on a copy or detach(); or "
        "allow_unused=True, which returns None"
        if requires
        else f"{what}.requires_grad_() before it is used",
    )


# ---------------------------------------------------------------------------------------- custom functions


def wrong_gradient(context: Context) -> Problem | None:
    """A custom function's backward returns what does not fit: the function, and the line that applied it."""
    match = re.search(
        r"(?:Function )?(\w+?)(?:Backward\d*)?"
        r"(?:: expected Tensor| returned an? (?:invalid gradient|incorrect))",
        context.message,
    )
    if match is None:
        return None
    name = match[1]
    places: list[Site] = []
    for node in context.nodes():
        if kind_of(node).removesuffix("Backward") == name:
            function = internals.function_of(node)
            value = next(iter(context.recorder.values_at(node).values()), None)
            if value is not None:
                places += sites("called", f"{name} is applied here", value.event.place)
            code = getattr(getattr(function, "backward", None), "__code__", None)
            if code is not None:
                places += sites("made", "its backward returns what does not fit", (code, 0))
            break
    places += context.here("second", "this backward needs it")
    return Problem(
        "wrong-gradient",
        f"the backward of {name} returns {context.message.partition('returned ')[2] or 'no tensor'}",
        places,
        [name],
        {},
        "return one gradient for each argument of forward, in its shape and dtype; None for no tensor",
    )


def not_twice(context: Context) -> Problem | None:
    """A derivative that is differentiated has none."""
    match = re.search(r"derivative for (?:aten::)?(\w+)|function (\w+)|(\w+Backward\d*)", context.message)
    name = "" if match is None else next(filter(None, match.groups()), "")
    once = "once_differentiable" in context.message
    places: list[Site] = []
    for node in context.nodes():
        function = internals.function_of(node)
        if function is not None if once else name.removesuffix("_backward") in kind_of(node).lower():
            name = function.__qualname__ if once else name
            value = next(iter(context.recorder.values_at(node).values()), None)
            places += [] if value is None else sites("called", f"{name} is applied here", value.event.place)
            break
    calls = context.recorder.backwards
    for event in above(calls[-2].losses) if once and len(calls) > 1 else ():
        if event.kind is Kind.OPERATION and not event.call.startswith("torch."):
            name = event.call
            places += sites("called", f"{name} is applied here", event.place)
    if once and not places:
        name = ""
    places += context.here("second", "its derivative is asked for here")
    return Problem(
        "not-twice",
        f"{name or 'a derivative'} has no derivative of its own",
        places,
        [],
        {},
        "write its backward in differentiable operations (without @once_differentiable), use another form of "
        "the operation, or leave out create_graph=True where no second derivative is meant",
    )
