"""Prepares exported programs for translation: operators in the graph say where gradients stop.

``torch.export`` keeps ``detach`` and ``no_grad`` regions, and its decomposition into core operators drops
both, since its result is meant for inference. So each is replaced by an operator of ours, :data:`STOP`,
before a program is decomposed.
"""

from __future__ import annotations

import copy
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram

from stopgrad.base.errors import ArgumentError, GraphError
from stopgrad.base.source import Location, is_internal
from stopgrad.graph.operands import shorten
from stopgrad.interop.torch.importing.autograd_functions import kept_gradients

Program: TypeAlias = torch.nn.Module | Callable[..., Any] | ExportedProgram
"""What can be loaded."""
Sizes: TypeAlias = dict[str, Any] | tuple[Any, ...] | list[Any] | None
"""The open sizes, as ``torch.export.export`` takes them for its *dynamic_shapes*."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@torch.library.custom_op("stopgrad::stop", mutates_args=())
def _stop(x: torch.Tensor, why: str) -> torch.Tensor:
    return x.clone()


@_stop.register_fake
def _(x: torch.Tensor, why: str) -> torch.Tensor:
    return torch.empty_like(x)


STOP = torch.ops.stopgrad.stop.default
"""The operator that marks where a gradient stops; its second argument says what stops it."""

_DETACH = frozenset({torch.ops.aten.detach.default, torch.ops.aten.detach_.default})
_WHOLE = (
    *("_safe_softmax", "scaled_dot_product_attention"),
    *("celu", "huber_loss", "log_sigmoid_forward", "logit", "mish", "sinc", "smooth_l1_loss", "softplus"),
    *("std.correction", "xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self"),
)
"""Operators that are not decomposed, since somewhere their parts have no gradient, or another one than they:
for rows that are masked entirely, at large numbers, at 0."""
_GRAD_REGION = "wrap_with_set_grad_enabled"
"""The name of the operator of a region in which gradients are on or off; releases before 2.7 make it late."""
_OUTSIDE = "stopgrad_no_grad"


class _Wrapped(torch.nn.Module):
    """A function as a module, which is what ``torch.export`` takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def exported(program: Program, example: tuple[Any, ...], dynamic_shapes: Sizes) -> ExportedProgram:
    """A module or function as a program of core operators, with stops marked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch warns about its own code.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "The tensor attribute.*_flat_weights")  # nn.LSTM's.
        if isinstance(program, ExportedProgram):
            if example or dynamic_shapes is not None:
                raise ArgumentError(
                    "an exported program has its shapes; give example arguments and dynamic_shapes to "
                    "torch.export.export"
                )
        elif isinstance(program, torch.nn.Module) or (callable(program) and not isinstance(program, type)):
            program = _export(program, example, dynamic_shapes)
        else:
            raise ArgumentError(
                f"takes a torch.nn.Module, with example arguments, or a torch.export.ExportedProgram; "
                f"got {shorten(program)}"
            )
        return _marked(program).run_decompositions(decompositions())


def decompositions() -> dict[Any, Any]:
    """How operators are made of others: those that are keys here have no translation of ours."""
    table: Any = torch.export.default_decompositions()
    for name in _WHOLE:
        packet, _, overload = name.partition(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload or "default"), None)
    return dict(table)


def title_of(program: Program) -> str:
    """What a module or function is called in messages."""
    if isinstance(program, torch.nn.Module):
        return type(program).__name__
    return str(getattr(program, "__name__", "the program"))


def _export(program: Program, example: tuple[Any, ...], dynamic_shapes: Sizes) -> ExportedProgram:
    try:
        module = program if isinstance(program, torch.nn.Module) else _Wrapped(program)
        with kept_gradients():
            return torch.export.export(module, example, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        summary = " ".join(lines[:2]) or type(error).__name__
        cure = (
            "what it cannot export (such as branches on values, .item(), .data, printing of numbers) has to "
            "be written with tensors (torch.where, torch.cond); or watch it run instead, with sgt.watch() or "
            "sgt.explain, which take any code"
        )
        if not example:
            cure = "give example arguments behind it: sgt.load(module, x)"
        raise GraphError(
            f"torch.export does not export {title_of(program)}: {summary}{_at(error)} — {cure}"
        ) from error


def _at(error: BaseException) -> str:
    """The innermost line outside of PyTorch that an error passed through."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not _is_between(frame.filename):
            place = f" (at {frame.filename}:{frame.lineno})"
    return place


# ------------------------------------------------------------------------------------------------ stops


def _marked(program: ExportedProgram) -> ExportedProgram:
    """A copy of a program in which stops are operators."""
    module = program.graph_module
    if not any(_says_stop(node) for node in _nodes(module)):
        return program
    # A shallow copy of the module, whose graph is copied.
    graph = torch.fx.Graph()
    old_to_new: dict[Any, Any] = {}
    returned = graph.graph_copy(module.graph, old_to_new)
    output = graph.output(returned)
    output.meta = dict(list(module.graph.nodes)[-1].meta)
    for old, new in old_to_new.items():
        new.name = old.name
        new.meta = copy.copy(old.meta)
    marked = torch.fx.GraphModule(module, graph)
    marked.meta.update(module.meta)
    _mark(marked, decomposed=program.dialect == "ATEN")
    return ExportedProgram(
        root=marked,
        graph=marked.graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _nodes(module: torch.fx.GraphModule) -> Iterator[Any]:
    """The nodes of a program, and of those that it calls."""
    waiting = [module]
    while waiting:
        here = waiting.pop()
        yield from here.graph.nodes
        waiting += [child for child in here.children() if isinstance(child, torch.fx.GraphModule)]


def _says_stop(node: torch.fx.Node) -> bool:
    return (
        node.target in _DETACH
        or str(node.target) == _GRAD_REGION
        or node.target is torch.ops.aten.alias.default
    )


def _mark(module: torch.fx.GraphModule, decomposed: bool) -> None:
    """Insert :data:`STOP` wherever gradients stop, in this module and those below it."""
    for child in module.children():
        if isinstance(child, torch.fx.GraphModule):
            _mark(child, decomposed)
    graph = module.graph
    while regions := [node for node in graph.nodes if str(node.target) == _GRAD_REGION]:
        for node in regions:
            _inlined(module, node)
    for node in list(graph.nodes):
        # A program that was already decomposed has aliases in place of its detached tensors.
        was_detach = decomposed and node.target is torch.ops.aten.alias.default and "detach" in _text(node)
        if node.target in _DETACH or was_detach:
            node.target = STOP
            node.args = (node.args[0], "detach")
        elif node.meta.get(_OUTSIDE) and isinstance(node.meta.get("val"), torch.Tensor):
            _stop_outside(graph, node)
    graph.lint()
    module.recompile()


def _text(node: torch.fx.Node) -> str:
    return str(node.meta.get("stack_trace") or "")


def _inlined(module: torch.fx.GraphModule, node: Any) -> None:
    """Inline a region, and mark its nodes if gradients are off in it."""
    enabled, inner, *operands = node.args
    region = getattr(module, inner.target)
    places = iter(operands)
    env: dict[Any, Any] = {}
    with module.graph.inserting_before(node):
        for part in region.graph.nodes:
            if part.op == "placeholder":
                env[part] = next(places)
            elif part.op == "output":
                results = torch.fx.node.map_arg(part.args[0], env.__getitem__)
            else:
                env[part] = _copied(module, region, part, env, bool(enabled))
    results = results if isinstance(results, (tuple, list)) else (results,)
    for user in list(node.users):
        user.replace_all_uses_with(_named_after(module.graph, user, results[user.args[1]]))
        module.graph.erase_node(user)
    module.graph.erase_node(node)


def _copied(
    module: torch.fx.GraphModule,
    region: torch.fx.GraphModule,
    part: Any,
    env: dict[Any, Any],
    enabled: bool,
) -> Any:
    if part.op == "get_attr":
        name = f"{part.name}_inside"
        while hasattr(module, name):
            name += "_"
        setattr(module, name, getattr(region, part.target))
        copied = module.graph.get_attr(name)
    else:
        copied = module.graph.node_copy(part, env.__getitem__)
    copied.meta = copy.copy(part.meta)
    copied.meta.setdefault(_OUTSIDE, not enabled)  # The innermost region counts.
    return copied


def _named_after(graph: torch.fx.Graph, user: torch.fx.Node, result: torch.fx.Node) -> Any:
    """An alias of a region's result under the name of *user*, which the program's signature may hold."""
    with graph.inserting_before(user):
        alias = graph.call_function(torch.ops.aten.alias.default, (result,))
    alias.meta = copy.copy(user.meta)
    name = user.name
    user.name = f"{name}_was"
    alias.name = name
    # The alias belongs to the node that computed the result.
    alias.meta[_OUTSIDE] = result.meta.get(_OUTSIDE, False) if isinstance(result, torch.fx.Node) else False
    return alias


def _stop_outside(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Insert stops between nodes computed without gradients and their users outside."""
    outside = [user for user in node.users if not user.meta.get(_OUTSIDE)]
    if not outside:
        return
    if node.target is torch.ops.aten.alias.default:
        node.target, node.args = STOP, (node.args[0], "no_grad")
        return
    with graph.inserting_after(node):
        stop = graph.call_function(STOP, (node, "no_grad"))
    stop.meta = copy.copy(node.meta)
    for user in outside:
        user.replace_input_with(node, stop)


# ------------------------------------------------------------------------------------------------ lines


def location_of(node: torch.fx.Node) -> Location | None:
    """The user's line that a node was recorded at: the last one outside of PyTorch."""
    frames = _FRAME.findall(_text(node))
    if not frames:
        return None
    own = [frame for frame in frames if not _is_between(frame[0])]
    file, line, function = (own or frames)[-1]
    return Location(file, int(line), function=function)


def _is_between(file: str) -> bool:
    """Whether a file is PyTorch's or ours, and so holds no line of the user's."""
    return is_internal(file) or file.startswith("<")


def scope_of(node: torch.fx.Node) -> str:
    """The module that a node belongs to, as a prefix of names: ``"layers/0/"``."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next((entry[0] for entry in reversed(list(stack.values()))), "")
    return scope_from(path.partition("@")[0])


def scope_from(path: str) -> str:
    """A dotted path as a prefix of names."""
    path = re.sub(r"^L\[.self.\]\.?|^L__self___?", "", path)
    parts = [re.sub(r"[^A-Za-z0-9_.\\>-]", "_", part).lstrip("_->\\") for part in path.split(".")]
    return "".join(f"{part}/" for part in parts if part)
