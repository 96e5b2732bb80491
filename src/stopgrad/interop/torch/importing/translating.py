"""Walks over an exported program: each operator becomes operations of ours, at the user's line."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

import stopgrad as sg
from stopgrad.base.sizes import Dim
from stopgrad.graph.build import emit
from stopgrad.graph.builder import Inside
from stopgrad.interop.shared.conversions import Refused, Value
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.importing.aten import ABSENT, TRANSLATIONS
from stopgrad.interop.torch.importing.aten.calling import Call, array_of, dtype_from, results_of
from stopgrad.interop.torch.importing.aten.control import CONTROL
from stopgrad.interop.torch.importing.aten.drawing import DRAWING
from stopgrad.interop.torch.importing.aten.size_arithmetic import SIZES
from stopgrad.interop.torch.importing.autograd_functions import OWNED
from stopgrad.interop.torch.importing.exported_program import STOP, location_of, scope_of
from stopgrad.ops.gates.custom import CustomGradient, Untraced
from stopgrad.ops.structural.sources import size_as

Node = torch.fx.Node


class Refusal:
    """A call that cannot be translated: its operator, its line, and the reason."""

    name: str
    location: Any

    def __init__(self, node: Node, why: str) -> None:
        self.name = name_of(node)
        self.location = location_of(node)
        self.why = why

    def __str__(self) -> str:
        place = "" if self.location is None else f" at {self.location.describe()}"
        return f"{self.name}{place}: {self.why}"


def name_of(node: Node) -> str:
    """What a node calls, such as ``"aten.add.Tensor"``."""
    target = node.target
    if isinstance(target, internals.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def draws(module: torch.fx.GraphModule) -> bool:
    """Whether a program, or one that it calls, uses random numbers."""
    waiting = [module]
    while waiting:
        here = waiting.pop()
        if any(_is_random(node) for node in here.graph.nodes if node.op == "call_function"):
            return True
        waiting += [child for child in here.children() if isinstance(child, torch.fx.GraphModule)]
    return False


def _is_random(node: Node) -> bool:
    if node.target is torch.ops.aten.scaled_dot_product_attention.default:
        return bool(node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p"))
    return name_of(node) in DRAWING


class Translator:
    """Translates programs into the graph that is being built.

    Attributes:
        refusals: what has no translation, in the order of the program.
    """

    def __init__(self, key: sg.Output | None = None, sizes: Mapping[str, Any] | None = None) -> None:
        self.refusals: list[Refusal] = []
        self._key: Any = key
        self._drawn = 0
        self._sizes = dict(sizes or {})

    # ------------------------------------------------------------------------------------------- sizes

    def size(self, size: Any) -> Any:
        """A size of PyTorch's as a number or a :class:`stopgrad.Dim`."""
        if isinstance(size, int):
            return size
        expression = getattr(getattr(size, "node", None), "expr", size)
        dims = {}
        for symbol in getattr(expression, "free_symbols", ()):
            if str(symbol).startswith(("u", "zuf")):
                raise Refused("a size is known only when the program runs, from values of tensors")
            dims[symbol] = self._sizes.setdefault(str(symbol), sg.dim(str(symbol)))
        if not dims:
            return int(expression)
        return sympy_interp(PythonReferenceAnalysis, dims, expression)

    def name_size(self, size: torch.SymInt, name: str) -> None:
        """Name a size after the user's name for it, if it is a single symbol."""
        expression = getattr(getattr(size, "node", None), "expr", None)
        if expression is not None and getattr(expression, "is_symbol", False):
            self._sizes.setdefault(str(expression), sg.dim(name))

    def shape(self, value: torch.Tensor) -> list[Any]:
        """The sizes of a tensor that PyTorch recorded."""
        return [self.size(size) for size in value.shape]

    # --------------------------------------------------------------------------------------- programs

    def run(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> Any:
        """Build a program for these values of its placeholders; what it returns."""
        waiting = iter(operands)
        env: dict[Node, Any] = {}
        live = _live(module.graph)
        inner = [node for node in module.graph.nodes if node.op not in ("placeholder", "output")]
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(waiting)
        self._translate(module, [node for node in inner if node in live], env, live)
        returned = next(node for node in reversed(module.graph.nodes) if node.op == "output")
        return torch.fx.node.map_arg(returned.args[0], env.get)

    def _translate(
        self,
        module: torch.fx.GraphModule,
        nodes: Sequence[Node],
        env: dict[Node, Any],
        live: Container[Node],
    ) -> None:
        """Translate nodes, and note in *env* what each is."""
        pullbacks = {node: _pullback_nodes(node, nodes) for node in nodes if node.target is OWNED}
        apart = {node for pullback in pullbacks.values() for node in pullback}
        for node in nodes:
            if node in pullbacks and node not in apart:
                env[node] = self._owned(module, node, pullbacks[node], env, live)
            elif node not in apart:
                env[node] = self._translated(module, node, env, live)

    def _owned(
        self,
        module: torch.fx.GraphModule,
        node: Node,
        pullback: Sequence[Node],
        env: Mapping[Node, Any],
        live: Container[Node],
    ) -> list[Any]:
        """The results of a user's ``autograd.Function``, whose ``backward`` other nodes compute."""
        args: Any = node.args
        ys, xs, cotangents, gradients, positions = args

        def gradient(*gs: sg.Output) -> list[Any]:
            inside = {**env, **dict(zip(cotangents, gs, strict=True))}
            self._translate(module, [part for part in pullback if part not in inside], inside, live)
            by_position = {k: inside[g] for k, g in zip(positions, gradients, strict=True)}
            return [by_position.get(k) for k in range(len(xs))]

        with self._inside(node):
            results, arguments = [env[y] for y in ys], [env[x] for x in xs]
            differentiable = tuple(k for k, x in enumerate(arguments) if x.type.differentiable)
            operands = (*results, *[arguments[k] for k in differentiable])
            op = emit(
                CustomGradient, operands, (len(results), Untraced(gradient), len(xs), differentiable), None
            )
            CustomGradient.settle(op)  # At once, since the operation may be copied into other graphs.
        return list(op.outputs)

    def _translated(
        self, module: torch.fx.GraphModule, node: Node, env: Mapping[Node, Any], live: Container[Node]
    ) -> Any:
        if node.op == "get_attr":
            path = str(node.target)
            attribute = _attribute(module, path)
            return (
                sg.constant(array_of(attribute, path)) if isinstance(attribute, torch.Tensor) else attribute
            )
        args: Any = torch.fx.node.map_arg(node.args, env.__getitem__)
        kwargs: Any = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
        if node.target is operator.getitem:
            return args[0][args[1]]
        with self._inside(node):
            try:
                return self._called(node, args, kwargs, live)
            except (Refused, sg.StopgradError) as error:
                self.refusals.append(Refusal(node, getattr(error, "message", None) or str(error)))
                return self._stand_ins(node)

    @staticmethod
    def _inside(node: Node) -> Inside:
        """The scope and the line of a node."""
        location = location_of(node)
        place = {} if location is None else {"place": (location, 0)}
        return Inside(prefix=scope_of(node), **place)

    def _called(
        self, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], live: Container[Node]
    ) -> Any:
        if node.target is STOP:
            return sg.stop_gradient(args[0], name=args[1])
        if name_of(node) in CONTROL:
            return CONTROL[name_of(node)](self, *args, **kwargs)
        translation = translation_of(node)
        if translation is None:
            raise Refused(ABSENT.get(name_of(node), "this operator has no translation"))
        call = Call(node, self._next_key, self.size, live)
        return translation(call, *args, **kwargs)

    def _next_key(self) -> Any:
        self._drawn += 1
        return sg.random_fold_in(self._key, self._drawn)

    def _stand_ins(self, node: Node) -> Dim | sg.Output | tuple[Dim | sg.Output, ...]:
        """Placeholders of the right types, so that the nodes that follow are checked, too."""
        stand_ins = [self._stand_in(value) for value in results_of(node.meta.get("val"))]
        return stand_ins[0] if not isinstance(node.meta.get("val"), (tuple, list)) else tuple(stand_ins)

    def _stand_in(self, value: object) -> Dim | sg.Output:
        if not isinstance(value, torch.Tensor):
            return sg.dim()
        try:
            return sg.placeholder(dtype_from(value.dtype), self.shape(value))
        except Refused:
            return sg.placeholder(dtype_from(value.dtype), [None] * value.ndim)

    def as_output(self, x: Value, like: sg.Output | None) -> Any:
        """A result of a program as a tensor, also if it is a number or a size."""
        if isinstance(x, sg.Output):
            return x
        if isinstance(x, sg.Dim):
            return size_as(x, sg.int64, like)
        return sg.constant(x)


def translation_of(node: Node) -> Callable[..., Any] | None:
    """The translation of what a node calls, or None."""
    translation: Callable[..., Any] | None = TRANSLATIONS.get(name_of(node)) or SIZES.get(node.target)
    return translation


def _attribute(module: torch.fx.GraphModule, path: str) -> Any:
    attribute = module
    for part in path.split("."):
        attribute = getattr(attribute, part)
    return attribute


def _pullback_nodes(owned: Node, nodes: Sequence[Node]) -> list[Node]:
    """The nodes of a function's ``backward`` that depend on cotangents of the function's results."""
    args: Any = owned.args
    dependents = dict.fromkeys(args[2])
    for node in nodes:
        if node is not owned and any(operand in dependents for operand in node.all_input_nodes):
            dependents[node] = None
    return list(dependents)


def _live(graph: torch.fx.Graph) -> set[Node]:
    """The nodes that the results depend on, without checks and what only these use."""
    live: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in live:
            live.update([operand for operand in node.all_input_nodes if not _is_token(operand)])
    return live


def _is_token(node: Any) -> bool:
    """Whether a node is a token, which only keeps checks in their order."""
    return node.target is operator.getitem and node.args[1] == 0 and name_of(node.args[0]) == "with_effects"
