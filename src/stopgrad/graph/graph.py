"""Graphs: append-only lists of operations. The id of an operation is its position.

So ids are a topological order, and sets of operations can be byte arrays. Names are made only when they are
needed; locations are decoded only when they are printed. An operation holds its definition (a subclass of
:class:`stopgrad.graph.op.Op`), but this module knows little more of a definition than its ``type``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from threading import get_ident
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from stopgrad.base.arrays import ArrayMethods
from stopgrad.base.errors import ArgumentError, GraphError, ShapeError
from stopgrad.base.later import Later
from stopgrad.base.locks import exclusive
from stopgrad.base.source import Called, Location, RawLocation, decode
from stopgrad.base.types import Dim, DType, Shape, TensorType
from stopgrad.graph.builder import Block, Region, current
from stopgrad.graph.names import Names

if TYPE_CHECKING:
    import numpy as np


@runtime_checkable
class Operand(Protocol):
    """Anything that stands for one output: an :class:`Output`, or an :class:`Operation` that has just one."""

    def as_output(self) -> Output: ...


class Definition(Protocol):
    """What graphs need to know of an operation's definition."""

    type: str
    attributes: tuple[str, ...]
    slots: dict[str, tuple[str, int | slice]]
    acts: bool
    has_bodies: bool
    may_act: bool


class Output(ArrayMethods):
    """A symbolic tensor: one output of an operation. It is made by building operations, never directly.

    Python's operators and indexing build operations, also ``==`` and ``!=``. Outputs are hashed by identity,
    so that they can be keys of a feed_dict.
    """

    __slots__ = ("index", "op", "type")

    op: Operation
    index: int
    type: TensorType

    def __init__(self, op: Operation, index: int, type: TensorType) -> None:
        self.op = op
        self.index = index
        self.type = type

    @property
    def name(self) -> str:
        """The operation's name and the position among its outputs: ``"operation:index"``."""
        return f"{self.op.name}:{self.index}"

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return self.type.ndim

    def as_output(self) -> Output:
        return self

    def __repr__(self) -> str:
        return f"<{self.name} {self.type!r}>"

    _repr_html_: Any = Later("stopgrad.flow.shown")
    _no_value: Any = Later("stopgrad.graph.no_value")

    def __bool__(self) -> bool:
        raise self._no_value("the truth value")

    def __int__(self) -> int:
        raise self._no_value("the integer value")

    def __float__(self) -> float:
        raise self._no_value("the floating-point value")

    def __format__(self, form: str) -> str:
        if form:
            raise self._no_value(f"the text in the form {form!r}")
        return str(self)

    if not TYPE_CHECKING:  # To type checkers, it is no array.

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise self._no_value("the array")

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ArgumentError(
                f"{describe(self)} is 0-dimensional: it has no length and nothing to iterate over"
            )
        size = self.shape[0]
        if isinstance(size, Dim):
            raise ShapeError(
                f"{describe(self)} has no length yet: the size {size} of its first axis is known when a "
                "value is fed; sg.size gives it then"
            )
        return size

    def __contains__(self, _: object) -> bool:
        raise self._no_value("the elements")

    def __iter__(self) -> Iterator[Output]:
        return (self[i] for i in range(len(self)))


class Operation:
    """A node of a graph.

    Its operands, attributes and outputs can also be read by the names that its definition gives them
    (``op.x``, ``op.axis``, ``op.result``), which is how gradient rules are written.
    """

    __slots__ = (
        "_instruction",
        "_label",
        "_place",
        "definition",
        "graph",
        "id",
        "inputs",
        "origin",
        "outputs",
        "values",
    )

    definition: Any
    graph: Graph
    id: int
    inputs: tuple[Output, ...]
    outputs: tuple[Output, ...]
    values: tuple[Any, ...]
    origin: Operation | None
    _place: CodeType | Called | Location | None

    def __init__(
        self,
        graph: Graph,
        definition: Definition,
        inputs: tuple[Output, ...],
        values: tuple[Any, ...],
        types: tuple[TensorType, ...],
        label: str = "",
        location: RawLocation | tuple[CodeType | Called | Location | None, int] | None = None,
        origin: Operation | None = None,
        region: Region | None = None,
    ) -> None:
        self.graph = graph
        self.definition = definition
        self.inputs = inputs
        self.values = values
        self._label = label
        # Two slots instead of a tuple: garbage collection dominates the building of large graphs.
        self._place, self._instruction = (None, 0) if location is None else location
        self.origin = origin
        self.outputs = (
            (Output(self, 0, types[0]),)
            if len(types) == 1
            else tuple([Output(self, i, t) for i, t in enumerate(types)])
        )
        if region is not None:
            graph.careful = True
            graph._hidden[self] = region
        if definition.may_act and self.acts:
            graph._acting.append(self)
        operations, thread = graph._operations, get_ident()
        id = -1
        if graph._author == thread:
            self.id = id = len(operations)
            operations.append(self)
        if graph._author != thread:  # Another thread built here last, or has begun to build.
            graph._join(self, id)

    @classmethod
    def like(
        cls,
        old: Operation,
        graph: Graph,
        inputs: tuple[Output, ...],
        types: tuple[TensorType, ...],
        values: tuple[Any, ...] | None = None,
        definition: Definition | None = None,
        label: str | None = None,
    ) -> Operation:
        """An operation with the name, line, origin and ``no_gradient`` block of an old one.

        Unless others are given, also with its attributes and definition.
        """
        hidden = old.graph._hidden
        return cls(
            graph,
            old.definition if definition is None else definition,
            inputs,
            old.values if values is None else values,
            types,
            old._label if label is None else label,
            (old._place, old._instruction),
            old.origin,
            hidden.get(old) if hidden else None,
        )

    @property
    def type(self) -> str:
        return self.definition.type

    @property
    def acts(self) -> bool:
        """Whether it runs for what it does, or for what an operation in one of its bodies does."""
        if self.definition.acts or not self.definition.has_bodies:
            return bool(self.definition.acts)
        bodies = [body for value in self.values for body in (value if isinstance(value, tuple) else (value,))]
        graphs = [getattr(body, "graph", None) for body in bodies]
        return any([graph is not None and bool(graph.acting) for graph in graphs])  # noqa: C419 - faster

    @property
    def name(self) -> str:
        """The unique name in the graph: the given name or the type, with a number if that is taken."""
        return self.graph.names.of(self)

    @property
    def attributes(self) -> Mapping[str, Any]:
        return MappingProxyType(dict(zip(self.definition.attributes, self.values, strict=True)))

    @property
    def location(self) -> Location | None:
        """The user's line that built this operation, or for a gradient its forward operation."""
        op: Operation | None = self
        while op is not None:
            if op._place is not None:
                return op._place if isinstance(op._place, Location) else decode((op._place, op._instruction))
            op = op.origin
        return None

    def output(self, i: int = 0) -> Output:
        return self.outputs[i]

    def as_output(self) -> Output:
        if len(self.outputs) != 1:
            raise GraphError(f"{describe(self)} has {len(self.outputs)} outputs; choose one with .output(i)")
        return self.outputs[0]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"an operation of type {self.definition.type} has no {name!r}")

    def __dir__(self) -> Iterable[str]:
        return [*COMMON, *self.definition.slots]

    def __repr__(self) -> str:
        return f"<{title(self)}>"

    def __reduce__(self) -> NoReturn:
        raise GraphError("an operation cannot be pickled; save its graph with Graph.save")


COMMON = frozenset(dir(Operation))
"""What every operation has, whatever its definition."""


def read_by(name: str) -> None:
    """Let operands, attributes and results be read by a name, from operations whose definition has it.

    Gradient rules read little else, so this is a property: Python calls ``__getattr__`` only after it has
    made an AttributeError, which takes five times longer.
    """

    def read(op: Operation) -> Any:
        try:
            where, i = op.definition.slots[name]
        except KeyError:  # Python then asks __getattr__, which says so.
            raise AttributeError(name) from None
        return getattr(op, where)[i]

    if not hasattr(Operation, name):
        setattr(Operation, name, property(read))


by_id: attrgetter[int] = attrgetter("id")
"""A key that sorts operations in the order in which they were built."""


def title(op: Operation) -> str:
    """An operation's kind and name; only the kind if it was imported, because its name is then ours."""
    kind = op.definition.called(op)
    return f"{kind} {op.name!r}" if kind == op.type else kind


def describe(x: Operation | Output) -> str:
    """The name, type and line of an operation or output, as messages print them."""
    op, type_text = (x, "") if isinstance(x, Operation) else (x.op, f" {x.type!r}")
    location = op.location
    what = f"{title(op)}{type_text}"
    if op.origin is not None:
        what = f"{what} (made for the gradient of {title(op.origin)})"
    return f"{what} built at {location.describe()}" if location else what


def needed(outputs: Iterable[Output], provided: Container[Output] = frozenset()) -> list[Operation]:
    """The operations that must be computed, in order, if some outputs are given."""
    reached = {y.op for y in outputs if y not in provided}
    stack = [*reached]
    while stack:
        for x in stack.pop().inputs:
            op = x.op
            if op not in reached and x not in provided:
                reached.add(op)
                stack.append(op)
    return sorted(reached, key=by_id)


class Graph:
    """An append-only list of operations.

    Examples:
        >>> graph = Graph()
        >>> with graph.as_default():
        ...     x = sg.placeholder(sg.float32, [None], name="x")
        ...     y = sg.exp(x)
        >>> [op.name for op in graph.operations]
        ['x', 'Exp']
    """

    names: Names

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._hidden: dict[Operation, Region] = {}
        self._acting: list[Operation] = []
        self._body_of: str | None = None  # The construct whose body this is, if it is one.
        # Whether what looks like one operation may be several: where a tensor leaves a no_gradient block, or
        # is used in a body.
        self.careful = False
        # The thread that built last, and the position from which on it was the only one.
        self._author = 0
        self._authored_from = 0
        # Derived from the operations, when it was last needed. It may lag behind, and its entries for
        # operations that were taken back do not count.
        self.names = Names(self._operations)
        self._scalars: dict[Any, Output] = {}  # By thread, because a failed build takes back its own.
        self._exits: dict[tuple[Output, int], Output] = {}

    # ------------------------------------------------------------------------------------- reading

    @property
    def operations(self) -> Sequence[Operation]:
        """All operations, in the order they were built."""
        return tuple(self._operations)

    def operation(self, name: str) -> Operation | None:
        """The operation of this name, or None."""
        if not isinstance(name, str):
            raise GraphError(f"operations are found by their names, not by {name!r:.60}")
        return self.names.find(name)

    def operation_or_raise(self, name: str) -> Operation:
        op = self.operation(name)
        if op is None:
            names = self.names.all()
            close = difflib.get_close_matches(str(name), names, 3)
            some = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            hint = (
                f"did you mean {' or '.join(map(repr, close))}?" if close else f"it has {some or 'none yet'}"
            )
            raise GraphError(f"the graph has no operation named {name!r}; {hint}")
        return op

    def output(self, name: str) -> Output:
        """The output called ``"operation:index"``, or the only output of ``"operation"``."""
        operation, _, index = name.partition(":") if isinstance(name, str) else (name, "", "")
        op = self.operation_or_raise(operation)
        if not index:
            return op.as_output()
        if not index.isdigit() or int(index) >= len(op.outputs):
            raise GraphError(f"{name!r}: {describe(op)} has outputs 0 to {len(op.outputs) - 1}")
        return op.outputs[int(index)]

    def subgraph_to(self, targets: Iterable[Operand]) -> list[Operation]:
        """The operations from which the targets are computed, with the targets, in order."""
        return needed([op.outputs[0] for op in self._members(targets)])

    def subgraph_from(self, sources: Iterable[Operand]) -> list[Operation]:
        """The operations that are computed from the sources, with the sources, in order."""
        marks = bytearray(len(self._operations))
        for op in self._members(sources):
            marks[op.id] = 1
        for op in self._operations[: len(marks)]:
            for x in op.inputs:
                if marks[x.op.id]:
                    marks[op.id] = 1
                    break
        return [op for op in self._operations[: len(marks)] if marks[op.id]]

    @property
    def acting(self) -> list[Operation]:
        """The operations that run for what they do, such as printing, in order."""
        return sorted([op for op in self._acting if self.holds(op)], key=by_id) if self._acting else []

    def holds(self, op: Operation) -> bool:
        """Whether an operation is in this graph and was not taken back after a failed build."""
        operations = self._operations
        return op.id < len(operations) and operations[op.id] is op

    def is_plain(self, *operands: Output) -> bool:
        """Whether what looks like one operation on these operands is one here, in a careful graph, too."""
        builder = current()
        here, hidden = builder.region, self._hidden
        for x in operands:
            if hidden.get(x.op, here) is not here:
                return False
        return builder.tracing is None

    def _members(self, operands: Iterable[Operand]) -> list[Operation]:
        members = []
        for x in operands if isinstance(operands, Iterable) else [operands]:
            if not hasattr(x, "as_output"):
                raise GraphError(f"takes a list of outputs of the graph, not {x!r:.60}")
            op = x.as_output().op
            if op.graph is not self:
                raise GraphError(f"{describe(op)} belongs to another graph")
            members.append(op)
        return members

    def __len__(self) -> int:
        return len(self._operations)

    def __repr__(self) -> str:
        return f"<Graph of {len(self)} operations>"

    _repr_html_: Any = Later("stopgrad.flow.shown")

    if TYPE_CHECKING:

        def add_gradients(
            self, ys: object, xs: object, grad_ys: object = None, prefix: str | None = None
        ) -> Any: ...
        def to_text(self) -> str: ...
        @staticmethod
        def from_text(text: str, *, trusted: bool = False) -> Graph: ...
        def save(self, path: str | os.PathLike[str]) -> None: ...
        @staticmethod
        def load(path: str | os.PathLike[str], *, trusted: bool = False) -> Graph: ...

    else:
        add_gradients = Later("stopgrad.transforms.gradients.reverse")
        to_text = Later("stopgrad.graph.text")
        from_text = Later("stopgrad.graph.text")
        save = Later("stopgrad.graph.text")
        load = Later("stopgrad.graph.text")

    # ------------------------------------------------------------------------------------ building

    def as_default(self) -> DefaultGraph:
        """A context in which operations that have no outputs as operands are built in this graph."""
        return DefaultGraph(self)

    @exclusive
    def truncate(self, length: int) -> None:
        """Forget the operations from position *length* on, after a failed build.

        If another thread has built among them, they stay, unused.
        """
        removed = self._operations[length:]
        if not removed or self._authored_from > length or self._author != get_ident():
            return
        # What is derived from them goes first, so that a second try can complete an interrupted one.
        self.names.forget(length, removed)
        for op in removed:
            self._hidden.pop(op, None)
        for built in (self._scalars, self._exits):
            for key in [key for key, x in list(built.items()) if x.op.id >= length]:
                built.pop(key, None)
        del self._operations[length:]

    def atomic(self) -> Atomic:
        """A context in which either everything is built or, after an error, nothing.

        If another thread has built in the meantime, what was built stays, unused.
        """
        return Atomic(self)

    @exclusive
    def _join(self, op: Operation, id: int) -> None:
        """Settle the position of an operation if several threads build; *id* is its position so far, or -1.

        A lock for each operation would be too slow. The thread that built last needs none, if it is still the
        last one afterwards. If not, the other thread may even have taken this operation back with its own.
        """
        if self._author != get_ident():
            self._author, self._authored_from = get_ident(), len(self._operations)
        operations = self._operations
        if id < 0 or op not in operations[id:]:
            id = len(operations)
            operations.append(op)
        op.id = operations.index(op, id)  # A thread that needs no lock may have come first.


class DefaultGraph(Block):
    """The context manager that :meth:`Graph.as_default` returns."""

    __slots__ = ("graph",)

    graph: Graph

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def changes(self) -> dict[str, Any]:
        return {"graph": self.graph}

    def __enter__(self) -> Graph:
        self._begin()
        return self.graph


class Atomic:
    """The context manager that :meth:`Graph.atomic` returns."""

    __slots__ = ("_lengths", "graph")

    graph: Graph

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._lengths: list[int] = []

    def __enter__(self) -> None:
        self._lengths.append(len(self.graph))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        length = self._lengths.pop()
        if kind is not None:
            try:
                self.graph.truncate(length)
            except BaseException:  # An interrupt.
                self.graph.truncate(length)
                raise
