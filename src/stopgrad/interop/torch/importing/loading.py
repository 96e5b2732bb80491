"""PyTorch programs as graphs of ours, through ``torch.export``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    TensorArgument,
)

import stopgrad as sg
from stopgrad.base.errors import ArgumentError, GraphError
from stopgrad.graph.builder import Inside
from stopgrad.graph.public import guarded
from stopgrad.interop.imported import Model
from stopgrad.interop.shared.conversions import Refused
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.importing.aten.calling import array_of, dtype_from
from stopgrad.interop.torch.importing.exported_program import Program, Sizes, exported, scope_from, title_of
from stopgrad.interop.torch.importing.translating import Translator, draws

RANDOM = "random_key"
"""The parameter that random numbers are drawn from."""
UPDATED = "updated."
"""The prefix of the names of outputs that are new values of buffers."""

_HELD = (InputKind.PARAMETER, InputKind.BUFFER)
_WRITTEN = tuple([kind for kind in OutputKind if kind.name.endswith("_MUTATION")])


@guarded("load")
def load(
    program: Program, *example: np.ndarray[Any, Any] | torch.Tensor, dynamic_shapes: Sizes = None
) -> Model:
    """A PyTorch program as a graph of this library's operations, to differentiate, check, explain and run.

    The program goes through ``torch.export`` and its decomposition into core ATen operators, each of which
    becomes operations at the user's line, in a scope of names for its module. ``detach`` and what is computed
    under ``torch.no_grad`` are stopped by :func:`stopgrad.stop_gradient`, named ``detach`` and ``no_grad``.

    Parameters and buffers are the model's ``parameters``, by their names in the state dict, and keep the
    values that they have now; tied ones are one, by the first name. A buffer that the program writes
    (batch normalisation's statistics in training) is an output more, called ``"updated."`` and its name;
    so is an argument that it writes. Neither is changed. What a program draws at random (dropout in
    training) comes from one more parameter, ``"random_key"``: the same key gives the same numbers, another
    one, as in ``model.apply({"random_key": sg.random_key(7)}, x)``, others. They are not PyTorch's numbers.

    A ``torch.autograd.Function`` becomes a custom gradient, which computes what its ``backward`` does. At
    higher orders, results of its forward that ``backward`` uses are differentiated as the forward makes them.

    What ``torch.export`` drops is lost: hooks, and of a program that was exported already the backward of a
    ``torch.autograd.Function`` (its forward is differentiated instead); where that was decomposed, its
    ``no_grad`` regions, too.

    Args:
        program: a ``torch.nn.Module`` or a function of tensors; or a ``torch.export.ExportedProgram``.
        example: arguments to export it with, unless it is exported; only their types and shapes count.
        dynamic_shapes: which of their sizes are open, as ``torch.export.export`` takes it; they become
            symbolic sizes of the same names.

    Returns:
        A :class:`stopgrad.interop.imported.Model`, which takes the same arguments as arrays or outputs and
        returns the same structure.

    Raises:
        GraphError: ``torch.export`` does not export the program, or some of its operators have no
            translation; all of these are named at once, each with its line.

    References:
        https://docs.pytorch.org/docs/stable/export.html,
        https://docs.pytorch.org/docs/stable/torch.compiler_ir.html

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> layer = torch.nn.Linear(3, 2)
        >>> model = sgt.load(layer, torch.ones(4, 3))
        >>> model(np.ones((4, 3), np.float32)).shape, sorted(model.parameters)
        ((4, 2), ['bias', 'weight'])
    """
    exported_program = exported(program, example, dynamic_shapes)
    return _Loading(exported_program, _names_of_sizes(example, dynamic_shapes), title_of(program)).model()


def _names_of_sizes(example: tuple[Any, ...], dynamic_shapes: Sizes) -> list[dict[int, str]]:
    """For each tensor among the arguments, in order, the names that the user gave to its sizes."""
    if not isinstance(dynamic_shapes, (tuple, list)) or len(dynamic_shapes) != len(example):
        return []
    names: list[dict[int, str]] = []
    for x, sizes in zip(example, dynamic_shapes, strict=True):
        leaves = internals.trees.tree_leaves(x)
        per_leaf = [sizes] if isinstance(x, torch.Tensor) else [None] * len(leaves)
        names += [_names_in(leaf_sizes) for leaf_sizes in per_leaf]
    return names


def _names_in(sizes: object) -> dict[int, str]:
    if isinstance(sizes, (tuple, list)):
        sizes = dict(enumerate(sizes))
    if not isinstance(sizes, dict):
        return {}
    return {
        i: str(size.__name__) for i, size in sizes.items() if isinstance(i, int) and hasattr(size, "__name__")
    }


class _Loading:
    """A program that is being loaded."""

    def __init__(
        self, program: torch.export.ExportedProgram, names: Sequence[dict[int, str]], called: str
    ) -> None:
        self.program, self.called = program, called
        self.signature = program.graph_signature
        self.names = list(names)
        self.inputs: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self.shared: dict[Any, Any] = {}  # Parameters, by the memory that holds them.
        self.graph = sg.Graph()

    def model(self) -> Model:
        with self.graph.as_default():
            self.translator = Translator()
            operands = self._operands()
            if draws(self.program.graph_module):
                key = sg.parameter(np.array([0, 0], np.uint32), name=RANDOM)
                self.parameters[RANDOM] = key
                self.translator._key = key
            returned = self.translator.run(self.program.graph_module, operands)
            self._raise_for_refusals()
            outputs = self._outputs(returned, operands)
        return Model(
            self.graph,
            self.inputs,
            outputs,
            self.parameters,
            leaves=self._leaves,
            rebuild=self._rebuild,
            name=self.called,
        )

    # ------------------------------------------------------------------------------------------- inputs

    def _operands(self) -> list[Any]:
        nodes = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        self.input_names: list[str | None] = []  # In order; None for arguments that are no tensors.
        users = iter(self.names)
        for node, spec in zip(nodes, self.signature.input_specs, strict=True):
            if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
                for axis, name in next(users, {}).items():
                    self.translator.name_size(node.meta["val"].shape[axis], name)
        return [self._operand(*pair) for pair in zip(nodes, self.signature.input_specs, strict=True)]

    def _operand(self, node: torch.fx.Node, spec: Any) -> Any:
        if spec.kind is InputKind.TOKEN:
            return None
        if spec.kind in _HELD:
            return self._parameter(spec.target)
        if spec.kind is InputKind.CONSTANT_TENSOR:
            return sg.constant(array_of(self.program.constants[spec.target], spec.target))
        if spec.kind is not InputKind.USER_INPUT:
            raise GraphError(
                f"the program takes {spec.target or node.name}, an object that is no tensor "
                f"({spec.kind.name.lower()}); compute with tensors only"
            )
        if isinstance(spec.arg, ConstantArgument):
            self.input_names.append(None)
            return spec.arg.value
        if not isinstance(spec.arg, TensorArgument):
            raise GraphError(f"the argument {node.name} is an open number; give it as a tensor, or fix it")
        self.input_names.append(node.name)
        value = node.meta["val"]
        try:
            x = sg.placeholder(dtype_from(value.dtype), self.translator.shape(value), name=node.name)
        except Refused as error:
            raise GraphError(f"the argument {node.name}: {error}") from None
        self.inputs[node.name] = x
        return x

    def _parameter(self, name: str) -> Any:
        tensor = self.program.state_dict.get(name)
        if tensor is None:
            tensor = self.program.constants[name]
        shared = _memory(tensor)
        if shared is not None and shared in self.shared:  # Tied: one parameter, by its first name.
            return self.shared[shared]
        *_, last = name.split(".")
        with Inside(prefix=scope_from(name.rpartition(".")[0])):
            self.parameters[name] = sg.parameter(array_of(tensor, name), name=scope_from(last)[:-1])
        if shared is not None:
            self.shared[shared] = self.parameters[name]
        return self.parameters[name]

    # ------------------------------------------------------------------------------------------ outputs

    def _outputs(self, returned: Sequence[Any], operands: Sequence[Any]) -> dict[str, Any]:
        specs = self.signature.output_specs
        like = next((x for x in operands if isinstance(x, sg.Output)), None)
        paths = iter(_paths(self.program.call_spec.out_spec))
        outputs: dict[str, Any] = {}
        written: dict[str, Any] = {}
        self.returned: list[Any] = []  # Names of outputs, or constants that the program returns.
        for spec, value in zip(specs, returned, strict=True):
            if spec.kind is OutputKind.TOKEN:
                continue
            if spec.kind in _WRITTEN:
                written[UPDATED + spec.target] = self.translator.as_output(value, like)
                continue
            name = next(paths)
            if isinstance(spec.arg, ConstantArgument):
                self.returned.append((None, spec.arg.value))
                continue
            outputs[name] = self.translator.as_output(value, like)
            self.returned.append((name, None))
        outputs |= written
        self.output_names = list(outputs)
        return outputs

    def _raise_for_refusals(self) -> None:
        refusals = self.translator.refusals
        if refusals:
            lines = list(dict.fromkeys(str(refusal) for refusal in refusals))
            count = "1 call" if len(lines) == 1 else f"{len(lines)} calls"
            raise GraphError(
                f"{count} of {self.called} cannot be translated:\n  "
                + "\n  ".join(lines)
                + "\nwrite these with other operators; or, to see only where gradients go, use "
                "sgt.explain or sgt.watch, which take any code"
            )

    # ------------------------------------------------------------------------------------------- calling

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        expected = self.program.call_spec.in_spec
        names = internals.children_of(expected)[1].context or []
        if set(names) == set(kwargs):
            kwargs = {name: kwargs[name] for name in names}
        leaves, spec = internals.trees.tree_flatten((args, kwargs))
        if spec != expected:
            raise ArgumentError(
                f"{self.called} takes the arguments {_shown(expected)} as it was exported, not {_shown(spec)}"
            )
        arrays = []
        specs = [s for s in self.signature.input_specs if s.kind is InputKind.USER_INPUT]
        for name, value, spec_in in zip(self.input_names, leaves, specs, strict=True):
            if name is not None:
                arrays.append(array_of(value, name) if isinstance(value, torch.Tensor) else value)
            elif not _same(value, spec_in.arg.value):
                raise ArgumentError(
                    f"{self.called} was exported with {spec_in.arg.name} = {spec_in.arg.value!r}, "
                    f"not {value!r}; export it again for other values"
                )
        return arrays

    def _rebuild(self, values: Sequence[Any]) -> Any:
        by_name = dict(zip(self.output_names, values, strict=True))
        leaves = [by_name[name] if name is not None else value for name, value in self.returned]
        return internals.trees.tree_unflatten(leaves, self.program.call_spec.out_spec)


def _memory(x: torch.Tensor) -> Any:
    """A key that is equal for tensors that are the same memory; None if nothing is stored."""
    if x.device.type == "meta" or x.layout is not torch.strided or not x.numel():
        return None
    return x.data_ptr(), x.shape, x.stride(), x.dtype


def _same(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and not hasattr(a, "shape") and a == b)


def _shown(spec: Any) -> str:
    args, kwargs = internals.trees.tree_unflatten(["·"] * spec.num_leaves, spec)
    return "(" + ", ".join([*(str(a) for a in args), *(f"{k}={v}" for k, v in kwargs.items())]) + ")"


def _paths(spec: Any) -> list[str]:
    """Names for the results of a program: their paths in what it returns."""
    tree = internals.trees.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths, _ = internals.trees.tree_flatten_with_path(tree)
    return [".".join(str(_part(part)) for part in path) or "output" for path, _ in paths]


def _part(part: object) -> Any:
    for attribute in ("key", "idx", "name"):
        if hasattr(part, attribute):
            return getattr(part, attribute)
    return part
