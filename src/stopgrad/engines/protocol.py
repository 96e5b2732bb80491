"""What an engine is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.errors import DistributedError, EngineError, StopgradError
from stopgrad.base.later import Later
from stopgrad.base.structure import flatten
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.interpreter import lowering
from stopgrad.graph.op import Op, Unsupported
from stopgrad.graph.sharding import Spec
from stopgrad.rewrite import Pass, Rule
from stopgrad.scale.processes import process_count

if TYPE_CHECKING:
    from stopgrad.scale.meshes import Mesh

Compiled = Callable[[Sequence[Any]], Sequence[Any]]
"""From the values of the inputs to those of the outputs."""


class Variant(NamedTuple):
    """A way in which an engine can run a graph.

    Attributes:
        name: what reports call it.
        forms: rules that put a graph into the form in which it runs best so.
        passes: what is then done with the graph as a whole.
    """

    name: str
    forms: Sequence[Rule] = ()
    passes: Sequence[Pass] = ()


PLAIN = Variant("plain")
"""Every operation as its definition says, one after the other."""


class Engine(ABC):
    """Compiles prepared graphs: no gates, and inputs that are placeholders.

    Attributes:
        name: what users call it by. An operation's own form for it stands under this name in its definition.
        form: under which name an operation's form for it stands, where that is not its own.
        priority: of the engines that are installed and can run a graph, ``"auto"`` takes that of the highest.
        needs: the modules without which it is not installed. They are imported when the engine is made.
        keeps_sizes: whether it is given graphs with their sizes symbolic, and compiles once for all; else the
            sizes are numbers, and it compiles for each.
        reuses: whether what it compiles writes results into the inputs given up by *donate*. Sessions then
            give it, beside the values, arrays that they no longer need.
        unusable: why it cannot compute in this process, although it is installed; None where it can.
        checks: whether what it compiles raises a TypeError or ValueError, and computes nothing, for native
            arrays of other shapes or dtypes than it compiled for, for NumPy arrays of other shapes, and for
            objects of other types.
        flatten: takes structures apart, as :func:`stopgrad.base.structure.flatten` does; perhaps quicker.
        variants: the ways in which it can run a graph, the preferred first; the last is :data:`PLAIN`.
        meshes: whether it runs graphs on a mesh of devices: :meth:`on_mesh` then makes it with the mesh.
        mesh: the mesh; None where it computes on one device.
        forms: lowerings of its own, or :func:`stopgrad.graph.op.unsupported`, for operations whose
            definitions know nothing of the engine.
    """

    name: str
    form: ClassVar[str] = ""
    priority: int
    needs: ClassVar[Sequence[str]] = ()
    keeps_sizes: ClassVar[bool] = False
    reuses: ClassVar[bool] = False
    unusable: ClassVar[str | None] = None
    checks: bool = False
    meshes: ClassVar[bool] = False
    mesh: Mesh | None = None
    flatten: Callable[[Any], tuple[list[Any], Any]] = staticmethod(flatten)
    variants: Sequence[Variant] = (PLAIN,)
    forms: ClassVar[Mapping[type[Op], Callable[..., Any] | Unsupported]] = {}

    @classmethod
    def on_mesh(cls, mesh: Mesh) -> Engine:
        """An engine of this kind that computes on a mesh."""
        kind: Any = cls
        made: Engine = kind(mesh)
        return made

    if TYPE_CHECKING:

        @staticmethod
        def mesh_of(mesh: object) -> Mesh:
            """A mesh as users give it, of ours or of another library, as one of ours."""

    else:
        mesh_of = Later("stopgrad.engines.meshes")

    @classmethod
    def form_of(cls, definition: type[Op]) -> Callable[..., Any] | Unsupported:
        """A definition's form for this engine: one of its own, or the one over any array namespace."""
        return lowering(definition, cls.form or cls.name)

    def unsupported(self, operations: Sequence[Operation]) -> str | None:
        """Why the engine cannot run these operations and what is in their bodies; None where it can."""
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
        """A function of the inputs' values. Inputs at the positions in *donate* may be overwritten by it.

        The graph is in the variant's form already. On a mesh, the operations of inputs and outputs say how
        these are divided; where they do not, inputs are whole on each device, outputs as the engine likes.

        Its results share no memory with the other inputs, nor with each other. They may still be on their
        way; :meth:`finish` waits for them.
        """

    @abstractmethod
    def hold(self, array: npt.ArrayLike) -> Any:
        """The engine's own copy of an array, which nobody else can change."""

    @abstractmethod
    def is_native(self, x: object) -> bool:
        """Whether *x* is an array that the engine takes without looking at it."""

    def spec_of(self, value: object) -> Spec:
        """How an array is divided over the engine's mesh already; ``()`` where it does not lie there."""
        return ()

    def spread(self, array: npt.ArrayLike, spec: Spec) -> Any:
        """As :meth:`hold`, for an array that all processes have; on a mesh, divided so."""
        return self.hold(array)

    def place(self, value: Array, spec: Spec) -> Any:
        """What this process has of a value, as an array of the engine, on its mesh."""
        return value

    def layout(self, spec: Spec) -> Any:
        """How an array divided so lies on the mesh, as its library says it; None without a mesh."""
        return None

    def fetched(self, value: npt.ArrayLike) -> np.ndarray[Any, Any]:
        """A result as a NumPy array, whole."""
        return np.asarray(value)

    def agree(self, what: str, lines: Callable[[], Sequence[str]]) -> None:  # noqa: B027 - nobody to ask
        """Hold lines against those of all other processes of the run, which are to be the same.

        Raises:
            DistributedError: they differ.
        """

    def finish(self, values: Iterable[Any]) -> None:  # noqa: B027 - most engines have nothing to wait for
        """Wait until values are computed; before that, they can only be handed to the engine again.

        What went wrong while they were computed is raised here at the latest.
        """


_LOST = ("Gloo", "Connection reset by peer", "Connection closed by peer", "NCCL")
"""What is in errors of JAX's where another process is gone."""


def fail(engine: Engine, what: Sequence[Output], error: Exception) -> NoReturn:
    """Raise, as an error of ours, what happened while an engine compiled or computed outputs."""
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
