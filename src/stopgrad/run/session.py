"""Sessions, which run operations of a graph and hold the values of its parameters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.errors import EngineError, FeedError, FileError, GraphError
from stopgrad.base.later import Later
from stopgrad.base.progress import Progress
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import TensorType
from stopgrad.engines import Engine, engine as engine_named, fail
from stopgrad.engines.registry import mesh_of
from stopgrad.graph.builder import default_graph
from stopgrad.graph.files import ArrayFile, checked_path, shortened, write_arrays
from stopgrad.graph.fingerprint import digest
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.sharding import check_shardings, declared_sharding
from stopgrad.ops.structural.sources import Parameter
from stopgrad.run.compiling import CACHE_SIZE, Compiler, Options, cached, compile_sized, has_hash
from stopgrad.run.feeds import feed_value, sizes_of
from stopgrad.run.plans import ARRAYS, DTYPE, Again, Feeds, Last, Plan, member, plan_for
from stopgrad.run.programs import Program
from stopgrad.run.tuning import Report, Sample

if TYPE_CHECKING:
    from stopgrad.scale.meshes import Mesh

Result = TypeVar("Result")


class _State(NamedTuple):
    """The state of a session, which is never changed, only replaced: so a run is all or nothing.

    Attributes:
        engine: the engine that computes, and holds the values.
        values: values of parameters. Other parameters still have their first values.
        spare: arrays of the engine that are no longer needed, by the parameter whose next value may be
            written there. They are taken out before they are given away, so that none is given twice.
    """

    engine: Engine
    values: Mapping[Output, Any]
    spare: dict[Output, Any]

    def value(self, parameter: Output) -> Any:
        value = self.values.get(parameter)
        return parameter.op.values[0].array if value is None else value


class Session:
    """Runs operations of a graph, and holds the values of its parameters.

    Args:
        graph: None for the default graph.
        engine: the name of an engine, such as ``"xla"`` or ``"numpy"``; or ``"auto"``, the best that is
            installed. If that cannot compute what is fetched, the session moves to the best that can. A few
            elementwise operations on few numbers are computed by NumPy, which takes less time than to call a
            compiled program.
        cache_size: the number of compiled computations that are kept: one for each choice of fetches, feeds
            and fed shapes. Beyond it, the least recently used is dropped, and compiled again if needed.
        strict: whether every operation is computed just as its definition says, one after the other. Else the
            engine may fuse or reorder operations where that is faster; ``docs/performance.md`` says what may
            differ then.
        mesh: a :class:`stopgrad.Mesh` or one of JAX's: the devices on which everything is computed.
            Parameters are divided over them as their ``sharding`` says; those without one are whole on each.
            Of a value that is divided among several processes, each process feeds its own part; every process
            fetches the whole. By default the mesh of the surrounding ``with mesh:``; without one, a single
            device.
        tune: ``"quick"`` or ``"full"`` to measure at compilation, for about 1 or 10 seconds, which of the
            engine's variants is the fastest on the values given then. With the engine ``"auto"``, ``"full"``
            measures all engines, as long as no parameter has a value that an engine holds. Results are
            remembered on disk, by graph and machine; :meth:`report` tells them.

    A run is all or nothing: after an error, an interrupt (Ctrl-C) or a signal, either all parameters have
    their old values or, if the run had finished, all have their new ones. Threads may share a session: its
    runs wait for each other, and :meth:`value`, :meth:`save` and :meth:`restore` wait for the current run. A
    signal handler or a callback inside a run may use :meth:`value` and :meth:`save`, which see the old
    values; a run there is an error.

    Memory: the xla engine keeps two arrays for each parameter that has been assigned, and writes new values
    into the one that is free.

    Examples:
        >>> graph = sg.Graph()
        >>> with graph.as_default():
        ...     x = sg.placeholder(sg.float32, [None], name="x")
        ...     y = sg.reduce_sum(x * x)
        >>> with sg.Session(graph) as session:
        ...     session.run(y, {x: [1.0, 2.0]})
        array(5., dtype=float32)
    """

    def __init__(
        self,
        graph: Graph | None = None,
        engine: str = "auto",
        *,
        cache_size: int = CACHE_SIZE,
        strict: bool = False,
        tune: str = "off",
        mesh: object = None,
    ) -> None:
        own = default_graph() if graph is None else graph
        if own is not None and not isinstance(own, Graph):
            raise GraphError(
                "Session takes a graph, not "
                f"{describe(own) if isinstance(own, (Output, Operation)) else repr(own)}"
            )
        if own is None:
            raise GraphError("Session needs a graph: pass one, or open it inside 'with graph.as_default():'")
        self.graph = own
        self._auto = engine == "auto"
        self.mesh: Mesh | None = mesh_of(mesh)
        if self.mesh is not None:
            check_shardings(own.operations, self.mesh)
        self._compiler = Compiler(Options(engine, strict=strict, tune=tune, mesh=self.mesh))
        self._state = _State(engine_named(engine, mesh=self.mesh), {}, {})
        # Neither refers to the session, so that a dropped session is freed at once, with all that it holds.
        self._plans = cached(partial(plan_for, own), cache_size, "Session")
        self._programs = cached(partial(_compile, self._compiler), cache_size, "Session", owner="a session")
        self._last: Last | None = None
        self._locks: dict[object, threading.RLock] = {}
        self._closed = False

    @property
    def engine(self) -> str:
        """The name of the current engine."""
        return self._state.engine.name

    def run(self, fetches: object, feed_dict: Feeds | None = None) -> Any:
        """Compute the fetches.

        Args:
            fetches: an output, an operation, a name, or a nested structure of these. The name of a
                :func:`probe` stands for the gradient there.
            feed_dict: a dict from outputs (placeholders or any others), operations or names to values.

        Returns:
            NumPy arrays in the structure of fetches. Assignments take effect together, after everything has
            been computed; every operation sees the old values.

        Raises:
            FeedError, ShapeError, DTypeError, GraphError, EngineError: the parameters are then unchanged.
        """
        engine = self._present("run").engine
        feeds = {} if feed_dict is None else feed_dict
        last = self._last
        if last is not None and last.asks(fetches, feeds):
            plan, spec = last.plan, last.spec
            again = last.again
            values = None if again is None else self._run_again(again, plan, feeds)
        else:
            plan, spec = self._planned(fetches, feeds)
            values = None
        if values is None:
            pairs = zip(plan.feeds, feeds.values(), strict=True)
            arrays = [feed_value(x, value, engine) for x, value in pairs]
            with self._lock_outside("run"):
                values = self._run(plan, arrays, engine)
        return values[0] if spec is None else unflatten(spec, values)

    def compile(self, fetches: object, feed_dict: Feeds | None = None) -> Program:
        """Compile what :meth:`run` would compute, without running it.

        Args:
            fetches: as for :meth:`run`.
            feed_dict: as for :meth:`run`; anything with a shape and a dtype can stand for a value. Of a value
                that is divided among several processes, the shape is that of the whole.

        Returns:
            the compiled program, to be read. A run that computes the same uses it.

        Examples:
            >>> graph = sg.Graph()
            >>> with graph.as_default():
            ...     x = sg.placeholder(sg.float32, [None, 8])
            ...     y = sg.reduce_sum(x * x)
            >>> with sg.Session(graph, engine="xla") as session:
            ...     session.compile(y, {x: np.zeros((4, 8), np.float32)}).memory_analysis().arguments
            128
        """
        state = self._present("compile")
        leaves, _ = flatten(fetches)
        feeds = {} if feed_dict is None else feed_dict
        plan = self._plans(tuple(leaves), tuple(feeds))
        shapes = tuple([tuple(np.shape(v) if np.isscalar(v) else v.shape) for v in feeds.values()])
        program: Program = self._programs(state.engine, plan, shapes, None)
        return program

    _repr_html_: Any = Later("stopgrad.flow.shown")

    def report(self) -> tuple[Report, ...]:
        """How the last compiled computation is run: the engine, its variant, and what was measured."""
        return tuple(self._compiler.reports)

    def value(self, parameter: Output) -> np.ndarray[Any, Any]:
        """A copy of the value that a parameter has now."""
        self._present("value")
        checked = member(self.graph, parameter)
        if checked.op.definition is not Parameter:
            raise GraphError(f"{describe(checked)} is no parameter; fetch it with Session.run")
        with self._lock():
            state = self._present("value")
            value = state.value(checked)
            if any(state.engine.spec_of(value) or ()):  # Gathering its parts takes all processes.
                state.engine.agree("Session.value", lambda: [f"{checked.op.name} {checked.type!r}"])
            return np.array(state.engine.fetched(value))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values of all parameters at one moment, by name.

        The file is in the format of safetensors, which other libraries read. A session on a mesh writes a
        folder, through orbax: each process writes its own part, and all must give the same folder.

        The old file, or what was saved in the folder before, stays until the new one is complete.
        """
        if self.mesh is not None:
            self._save_into_folder(path)
            return
        arrays = self._hand_out(lambda values: {name: np.asarray(x) for name, x in values.items()})
        write_arrays(path, arrays)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Read the values of all parameters from a file or folder that :meth:`save` wrote.

        After an error, no parameter has changed. If a folder holds several checkpoints, as those of
        :class:`stopgrad.Checkpoints` do, the newest intact one is read.
        """
        self._present("restore")
        lock = self._lock_outside("restore")
        if os.path.isdir(checked_path(path)):
            self._restore_from_folder(path)
            return
        arrays = self._read_file(path)
        with lock:
            state = self._present("restore")
            self._replace_all(
                {p: state.engine.spread(array, declared_sharding(p)) for p, array in arrays.items()}
            )

    if TYPE_CHECKING:

        def _save_into_folder(self, path: str | os.PathLike[str]) -> None: ...
        def _restore_from_folder(self, path: str | os.PathLike[str]) -> None: ...

    else:  # What folders need is imported when the first one is read.
        _save_into_folder = Later("stopgrad.run.session_folders")
        _restore_from_folder = Later("stopgrad.run.session_folders")

    def close(self) -> None:
        """Drop the parameters and compiled code. A closed session cannot run.

        A run in another thread at that time either raises an error or finishes before.
        """
        self._closed = True
        self._state = _State(self._state.engine, {}, {})
        self._last = None
        self._plans.cache_clear()
        self._programs.cache_clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------- inside

    def _planned(self, fetches: object, feeds: Feeds) -> tuple[Plan, Any]:
        """The plan of a run, and the structure of what it fetches; None for one output."""
        leaves, spec = ([fetches], None) if type(fetches) is Output else flatten(fetches)
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise FeedError(
                f"Session.run: feed_dict is a dict from tensors to values, not {type(feeds).__name__}"
            )
        try:
            plan: Plan = self._plans(tuple(leaves), tuple(feeds))
        except TypeError:
            if all(has_hash(x) for x in (*leaves, *feeds)):
                raise
            raise GraphError(
                f"Session.run: cannot fetch {fetches!r}; fetch outputs, operations or names"
            ) from None
        self._last = Last.of(fetches, leaves, feeds, plan, spec)
        return plan, spec

    def _present(self, what: str) -> _State:
        """The state. Raises if the session is closed, or its engine cannot compute any more."""
        if self._closed:
            raise GraphError(f"Session.{what}: the session is closed; open a new one")
        state = self._state
        if state.engine.unusable is not None:
            if not self._auto or state.values:
                raise EngineError(
                    f"Session.{what}: the {state.engine.name} engine cannot be used: {state.engine.unusable}"
                )
            self._state = state = _State(engine_named(), {}, {})
        return state

    def _lock(self) -> threading.RLock:
        """The lock that is held while the session runs.

        After a fork it is a new one: a thread that held the old one does not exist here.
        """
        return self._locks.get(_process) or self._locks.setdefault(_process, threading.RLock())

    def _lock_outside(self, what: str) -> threading.RLock:
        """The same lock; raises inside a run, where *what* cannot be done."""
        lock = self._locks.get(_process) or self._lock()
        if lock._is_owned():  # type: ignore[attr-defined] # As threading.Condition asks it.
            raise GraphError(
                f"Session.{what}: called inside a run of this session, by a signal handler or a callback; "
                "there value and save can be used, all else must wait until the run has ended"
            )
        return lock

    def _run_again(self, again: Again, plan: Plan, feeds: Feeds) -> Sequence[np.ndarray[Any, Any]] | None:
        """Compute the fetches as in the last run; None if what is fed has other types."""
        engine, values = again.engine, [*feeds.values()]
        if engine.unusable is not None or {*map(type, values)} != ARRAYS:
            return None
        if [*map(DTYPE, values)] != again.dtypes:
            return None
        with self._lock_outside("run"):
            try:
                return engine.taken(again.direct(*values))
            except (TypeError, ValueError, FloatingPointError):
                return None
            except Exception as error:
                fail(engine, plan.fetches, error)

    def _run(self, plan: Plan, arrays: list[Any], asked: Engine) -> Sequence[np.ndarray[Any, Any]]:
        """Compute everything, then replace the state. The caller holds the lock."""
        old = self._present("run")
        fed, shapes = arrays, tuple([a.shape for a in arrays])
        sample = None
        if self._compiler.measures:
            sample = Sample([*[old.value(p) for p in plan.parameters], *arrays], anywhere=not old.values)
        program: Program = self._programs(old.engine, plan, shapes, sample)
        engine, state = program.backend, old
        try:
            if engine is not state.engine and not program.small:
                state = _State(engine, {p: engine.hold(np.asarray(v)) for p, v in old.values.items()}, {})
            if engine is not asked:
                arrays = [np.asarray(a) for a in arrays]  # They may be arrays of the other engine.
            values, count = state.values, len(plan.fetches)
            if plan.parameters:
                try:
                    arrays = [*map(values.__getitem__, plan.parameters), *arrays]
                except KeyError:
                    missing = [p for p in plan.parameters if p not in values]
                    values = {**values, **_first_values(state, missing)}
                    arrays = [*map(values.__getitem__, plan.parameters), *arrays]
            if plan.assigned and engine.reuses:
                try:
                    arrays = [*arrays, *map(state.spare.pop, plan.assigned)]
                except KeyError:  # They are made again, those too that have been taken out.
                    arrays = [*arrays, *map(partial(_spare, state), plan.assigned)]
            results = program.run(arrays)
            fetched = engine.taken(results[:count])
            if len(results) > count and not (program.whole and count):  # Else all are ready.
                engine.finish(results[-1:] if program.whole else results[count:])
        except Exception as error:
            fail(engine, plan.fetches or plan.assigns, error)
        if plan.assigned or values is not old.values:
            new = {**values}
            new.update(zip(plan.assigned, results[count : count + len(plan.assigned)], strict=True))
            self._commit(_State(engine, new, state.spare))
        if plan.assigned and engine.reuses:
            state.spare.update([(p, values[p]) for p in plan.assigned if p in values])
        elif (last := self._last) is not None and last.plan is plan and last.again is None:
            self._last = last._replace(again=Again.of(plan, program, fed))
        if plan.done:
            fetched = [*fetched]
            for i in plan.done:
                fetched.insert(i, np.array(True))
        return fetched

    def _commit(self, state: _State) -> None:
        if self._closed:
            raise GraphError("Session: the session was closed before the run had ended")
        self._state = state

    def _hand_out(self, use: Callable[[dict[str, Any]], Result]) -> Result:
        """The result of *use* for the values of all parameters at one moment, by name."""
        self._present("save")
        with self._lock():
            state = self._present("save")
            return use({p.op.name: state.value(p) for p in self._all_parameters()})

    def _read_file(self, path: str | os.PathLike[str]) -> dict[Output, Any]:
        """The values of all parameters in a file. The error names all that do not fit."""
        arrays, wrong = {}, []
        with Progress("reading arrays"), ArrayFile(path) as stored:
            for p in self._all_parameters():
                try:
                    arrays[p] = stored.read(p.op.name, p.type, describe(p))
                except FileError:
                    raise
                except GraphError as error:
                    wrong.append(error)
        if len(wrong) > 1:
            shown = os.fspath(path)
            raise GraphError(
                f"{shown} does not fit the graph:\n  "
                + "\n  ".join(shortened([error.message.removeprefix(f"{shown} ") for error in wrong]))
            )
        if wrong:
            raise wrong[0]
        return arrays

    def _replace_all(self, values: Mapping[Output, Any]) -> None:
        """Give parameters these values, which the engine holds. The caller holds the lock."""
        state = self._present("restore")
        state.engine.finish(values.values())
        self._commit(state._replace(values={**state.values, **values}))

    def _parameter_types(self) -> dict[str, TensorType]:
        return {p.op.name: p.type for p in self._all_parameters()}

    def _all_parameters(self) -> list[Output]:
        return [op.outputs[0] for op in self.graph.operations if op.definition is Parameter]


_process = object()
"""Identifies this process among those that were forked from each other."""


def _forked() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _spare(state: _State, parameter: Output) -> Array:
    """Take out the array into which the next value of a parameter may be written."""
    array = state.spare.pop(parameter, None)
    if array is not None:
        return array
    return state.engine.spread(parameter.op.values[0].array, declared_sharding(parameter))


def _first_values(state: _State, parameters: Sequence[Output]) -> dict[Output, Any]:
    """The first values of parameters, held by the engine; equal in all processes."""
    state.engine.agree(
        "the first values of parameters",
        lambda: [f"{p.op.name} {p.type!r} {digest(state.value(p))}" for p in parameters],
    )
    return {p: state.engine.spread(state.value(p), declared_sharding(p)) for p in parameters}


def _compile(
    compiler: Compiler,
    engine: Engine,
    plan: Plan,
    shapes: Sequence[tuple[int, ...]],
    sample: Sample | None,
) -> Program:
    """Compile a plan for the fed shapes; for another engine if this one cannot run it, with ``"auto"``."""
    outputs, inputs = [*plan.fetches, *plan.assigns, *plan.acting], [*plan.parameters, *plan.feeds]
    # Fetches are whole on each device; a parameter's next value is divided like the old one.
    lie = [declared_sharding(p) or (None,) * p.ndim for p in plan.assigned]
    shardings: list[Spec] = [*[(None,) * y.ndim for y in plan.fetches], *lie, *[()] * len(plan.acting)]
    outside = not plan.parameters and not plan.assigned  # These are the engine's own.
    compile = partial(
        compiler.compile,
        engine,
        assigned=plan.assigned,
        sample=sample,
        shardings=shardings,
        outside=outside,
    )
    return compile_sized(engine, outputs, inputs, sizes_of(plan.feeds, shapes), plan.unsized, compile)
