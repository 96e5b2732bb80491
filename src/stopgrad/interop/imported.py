"""A program of another framework as a graph of ours: what each framework's ``load`` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.errors import ArgumentError, DTypeError, ShapeError
from stopgrad.base.types import Dim
from stopgrad.graph.build import constant_in, graph_for, inline
from stopgrad.graph.builder import default_graph
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.interpreter import interpret
from stopgrad.graph.operands import NumpyArray, as_array, is_tensor, shorten
from stopgrad.graph.public import guarded
from stopgrad.rewrite import rewrite
from stopgrad.run.feeds import sizes_of


class Model:
    """An imported program: a graph, and a function of it.

    Called with arrays, it computes with NumPy; called with outputs, or while a graph is being built, it
    builds its operations there, gates included. So everything that takes a function takes it: :func:`grad`,
    :func:`function`, :func:`explain`.

    Attributes:
        graph: the program.
        inputs: its arguments, which are placeholders, by name.
        parameters: its parameters, tensors of the graph, by name; :meth:`values` are their arrays, which
            ``sg.grad(f)(model.values())`` takes, and :meth:`apply`.
        outputs: its results, by name.
        dequantized: matrices that are computed from stored whole numbers, by the names of these.

    Args:
        graph, inputs, parameters, outputs: the same.
        leaves: turns the positional and keyword arguments of a call into the values of the inputs, in order;
            raises an ArgumentError if they are not what the program takes.
        rebuild: turns the values of the outputs into what the program returns.
    """

    inputs: dict[str, Output]
    outputs: dict[str, Output]
    parameters: dict[str, Output]
    dequantized: dict[str, Output]

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Output],
        outputs: Mapping[str, Output],
        parameters: Mapping[str, Output] | None = None,
        *,
        leaves: Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]],
        rebuild: Callable[[Sequence[Any]], Any],
        name: str = "the program",
        dequantized: Mapping[str, Output] | None = None,
    ) -> None:
        self.graph = graph
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self.parameters = dict(parameters or {})
        self.dequantized = dict(dequantized or {})
        self.__name__ = name
        self._leaves, self._rebuild = leaves, rebuild

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """What the program returns for these arguments, with the parameters' stored values."""
        return self.apply({}, *args, **kwargs)

    def values(self) -> dict[str, NumpyArray]:
        """The stored values of the parameters."""
        return {name: x.op.value.array for name, x in self.parameters.items()}

    @guarded("apply")
    def apply(self, parameters: Mapping[str, Any], /, *args: object, **kwargs: object) -> Any:
        """What the program returns with other values of its parameters.

        Args:
            parameters: values by name, arrays or outputs; those left out keep what is stored.
            args, kwargs: the program's arguments.

        Raises:
            ArgumentError: a parameter is unknown, or the arguments are not those that the program takes.
            DTypeError, ShapeError: one of them does not fit.
        """
        unknown = [name for name in parameters if name not in self.parameters]
        if unknown:
            raise ArgumentError(
                f"{self.__name__} has no parameter {unknown[0]!r}; it has {shorten(list(self.parameters))}"
            )
        feeds = dict(zip(self.inputs.values(), self._leaves(args, kwargs), strict=True))
        for name, x in self.parameters.items():
            feeds[x] = parameters.get(name, x.op.value.array)
        names = {x: name for name, x in (self.inputs | self.parameters).items()}
        values = {x: self._fitting(value, x, names[x]) for x, value in feeds.items()}
        return self._rebuild(self._computed(values))

    def _computed(self, values: Mapping[Output, Output | NumpyArray]) -> Sequence[Any]:
        """The outputs: built, if values belong to a graph or one is being built; else computed."""
        symbolic = next((x for x in values.values() if isinstance(x, Output)), None)
        graph = default_graph() if symbolic is None else graph_for(symbolic)
        xs, ys = self._sized(values)
        if graph is None:
            return interpret(ys, dict(zip(xs, cast("Any", values.values()), strict=True))) if ys else []
        held = [x if isinstance(x, Output) else constant_in(graph, x) for x in values.values()]
        built: dict[Output, Output] = {}
        results = inline(ys, dict(zip(xs, held, strict=True)), built)
        for old, new in built.items():  # Reports are about the program's own lines.
            if old.op not in {x.op for x in xs}:
                new.op._place, new.op._instruction = old.op._place, old.op._instruction
        return results

    def _sized(
        self, values: Mapping[Output, Output | NumpyArray]
    ) -> tuple[Sequence[Output], Sequence[Output]]:
        """The inputs and outputs of the program, specialised to the sizes of the arguments."""
        xs, ys = list(values), list(self.outputs.values())
        shapes = [tuple(value.shape) for value in values.values()]
        if all(x.shape == shape for x, shape in zip(xs, shapes, strict=True)):
            return xs, ys
        for x, shape in zip(xs, shapes, strict=True):
            if x.shape != shape and any(isinstance(size, Dim) for size in shape):
                raise ShapeError(
                    f"{self.__name__}: {describe(x)} is given a tensor of shape {list(shape)}; "
                    "give one whose sizes are known, or have the names that the program has for them"
                )
        binding = sizes_of(xs, shapes, lambda x: f"{self.__name__}: {describe(x)} was given an array")
        done = rewrite(ys, xs, binding=binding)
        return done.inputs, done.outputs

    def _fitting(self, value: ArrayLike | Operation, x: Output, name: str) -> Output | NumpyArray:
        if isinstance(value, Operation):
            value = value.as_output()
        if not isinstance(value, Output):
            value = as_array(value, None if is_tensor(value) else x.dtype)
        if value.dtype != (x.dtype if isinstance(value, Output) else x.dtype.numpy):
            raise DTypeError(
                f"{self.__name__} takes {name} as {x.dtype.name}, not {value.dtype}; convert it first"
            )
        return value

    def __repr__(self) -> str:
        return f"<Model {self.__name__}: {len(self.graph)} operations, {len(self.parameters)} parameters>"
