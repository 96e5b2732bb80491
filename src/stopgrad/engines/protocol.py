"""The protocol of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.errors import DistributedError, EngineError, StopgradError
from stopgrad.base.later import Later
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.interpreter import lowering
from stopgrad.graph.op import Lowering, Op, Unsupported
from stopgrad.graph.sharding import Spec
from stopgrad.rewrite import Forming, Pass, Rule
from stopgrad.scale.processes import process_count

if TYPE_CHECKING:
    from stopgrad.scale.meshes import Mesh

Compiled = Callable[[Sequence[Any]], Sequence[Any]]
"""Maps the values of the inputs to those of the outputs."""


class Variant(NamedTuple):
    """A way in which an engine can run a graph.

    Attributes:
        name: what reports call it.
        forms: rules that rewrite a graph for it.
        passes: functions of the whole graph that run after the rules.
    """

    name: str
    forms: Sequence[Rule] = ()
    passes: Sequence[Pass] = ()


PLAIN = Variant("plain")
"""Runs every operation as defined, one after the other."""


class Engine(ABC):
    """Compiles prepared graphs: no gates, and inputs that are placeholders.

    Attributes:
        name: the name by which users choose it. A definition's own form for it is its attribute of this name.
        form: the name of that attribute, if it is another one.
        priority: ``"auto"`` takes the engine of the highest priority that is installed and can run the graph.
        needs: the modules without which it is not installed. They are imported when the engine is made, or
            when it first needs them.
        keeps_sizes: whether it compiles graphs with symbolic sizes once for all sizes; else it compiles for
            each, and gets numbers.
        reuses: whether what it compiles writes results into the inputs given up by *donate*. Sessions then
            give it, beside the values, arrays that they no longer need.
        unusable: why it cannot compute in this process, although it is installed; None if it can.
        checks: whether what it compiles raises a TypeError or ValueError, and computes nothing, for arrays of
            other shapes than it compiled for, for arrays of its own type of other dtypes, unless that is
            NumPy's, and for objects of other types.
        slow_to_call: whether a call of what it compiled takes longer than a few operations take NumPy. With
            ``"auto"``, NumPy computes these.
        variants: the ways in which it can run a graph, the preferred first; the last is :data:`PLAIN`.
        meshes: whether it runs graphs on a mesh of devices: :meth:`on_mesh` then makes it with the mesh.
        mesh: the mesh; None if it computes on one device.
        forms: its own lowerings of operations whose definitions do not know the engine, or
            :func:`stopgrad.graph.op.unsupported`.
    """

    name: str
    form: ClassVar[str] = ""
    priority: int
    needs: ClassVar[Sequence[str]] = ()
    keeps_sizes: ClassVar[bool] = False
    reuses: ClassVar[bool] = False
    unusable: ClassVar[str | None] = None
    checks: bool = False
    slow_to_call: ClassVar[bool] = False
    meshes: ClassVar[bool] = False
    mesh: Mesh | None = None
    variants: Sequence[Variant] = (PLAIN,)
    forms: ClassVar[Mapping[type[Op], Lowering]] = {}

    @classmethod
    def on_mesh(cls, mesh: Mesh) -> Engine:
        """An engine of this kind that computes on a mesh."""
        kind: Any = cls
        engine: Engine = kind(mesh)
        return engine

    if TYPE_CHECKING:

        @staticmethod
        def mesh_of(mesh: object) -> Mesh:
            """Our mesh from one of ours or of another library."""

    else:
        mesh_of = Later("stopgrad.engines.meshes")

    @classmethod
    def form_of(cls, definition: type[Op]) -> Lowering:
        """A definition's form for this engine, or else its lowering over array namespaces."""
        return lowering(definition, cls.form or cls.name)

    def unsupported(self, operations: Sequence[Operation]) -> str | None:
        """Why the engine cannot run these operations and those in their bodies; None if it can."""
        for op in walk(operations):
            form = self.form_of(op.definition)
            if isinstance(form, Unsupported):
                return f"cannot compute {describe(op)}: {form.reason}"
        return None

    @abstractmethod
    def compile(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        donate: Sequence[int] = (),
        variant: Variant = PLAIN,
    ) -> Compiled:
        """Compile a function of the inputs' values, which may overwrite inputs at the positions in *donate*.

        The graph is in the variant's form already. On a mesh, the operations of inputs and outputs say how
        these are divided; if they do not, each device has the whole input, and the engine divides outputs.

        Its results share no memory with the other inputs, nor with each other. They may not be computed yet;
        :meth:`finish` waits for them.
        """

    def compile_form(self, forming: Forming, donate: Sequence[int], variant: Variant) -> Compiled:
        """Like :meth:`compile`, for a graph whose form is made when the engine asks for it."""
        return self.compile(forming.inputs, forming.outputs, donate, variant)

    @abstractmethod
    def hold(self, array: npt.ArrayLike) -> Array:
        """The engine's own copy of an array, which nobody else can change."""

    @abstractmethod
    def is_native(self, x: object) -> bool:
        """Whether *x* is an array of the engine's own type."""

    def spec_of(self, value: object) -> Spec:
        """How an array is divided over the engine's mesh; ``()`` if it is not on that mesh."""
        return ()

    def spread(self, array: npt.ArrayLike, spec: Spec) -> Array:
        """Like :meth:`hold`, for an array that all processes have; on a mesh it is divided by *spec*."""
        return self.hold(array)

    def place(self, value: Array, spec: Spec) -> Array:
        """An array on the engine's mesh, made of the part of a value that each process has."""
        return value

    def layout(self, spec: Spec) -> object:
        """The array library's own object for *spec* on the mesh; None without a mesh."""
        return None

    def fetched(self, value: npt.ArrayLike) -> np.ndarray[Any, Any]:
        """The whole of a result, as a NumPy array."""
        return np.asarray(value)

    def taken(self, values: Sequence[Any]) -> Sequence[Any]:
        """Results as NumPy arrays, which their caller may write into, when they are computed."""
        self.finish(values)
        return [*map(self.fetched, values)]

    def finished(self, values: Sequence[Any]) -> Sequence[Any]:
        """Results as they are, when they are computed."""
        self.finish(values)
        return values

    def agree(self, what: str, lines: Callable[[], Sequence[str]]) -> None:  # noqa: B027 - nobody to ask
        """Check that lines are the same in all processes of the run.

        Raises:
            DistributedError: they differ.
        """

    def finish(self, values: Iterable[Any]) -> None:  # noqa: B027 - most engines have nothing to wait for
        """Wait until values are computed; before that, only the engine itself can use them.

        Errors of their computation are raised here at the latest.
        """


_LOST = ("Gloo", "Connection reset by peer", "Connection closed by peer", "NCCL")
"""Parts of the messages of JAX's errors after another process has ended."""


def fail(engine: Engine, what: Sequence[Output], error: Exception) -> NoReturn:
    """Raise an error of an engine, while it compiled or computed outputs, as one of ours."""
    if isinstance(error, StopgradError):
        raise error
    first = describe(what[0]) if what else "nothing"
    if process_count() > 1 and any(sign in str(error) for sign in _LOST):
        raise DistributedError(
            f"another process of the run has ended, or is not reached any more, while {first} was computed; "
            f"look at what the others print ({error})"
        ) from error
    more = f" and {len(what) - 1} more" if len(what) > 1 else ""
    raise EngineError(
        f"the {engine.name} engine could not compute {first}{more}: {type(error).__name__}: {error}"
    ) from error
