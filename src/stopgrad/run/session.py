"""Sessions: run operations of a graph, and hold the values of its parameters."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from stopgrad.base.errors import EngineError, FeedError, FileError, GraphError
from stopgrad.base.later import Later
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import TensorType
from stopgrad.engines import Engine, engine as engine_named, fail
from stopgrad.engines.registry import mesh_of
from stopgrad.graph.builder import default_graph
from stopgrad.graph.files import ArrayFile, checked_path, shortened, write_arrays
from stopgrad.graph.fingerprint import digest
from stopgrad.graph.graph import Graph, Operation, Output, describe, needed
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.sharding import check_shardings, declared_sharding
from stopgrad.ops.structural.sources import Assign, Parameter, Placeholder
from stopgrad.run.compiling import CACHE_SIZE, Compiler, Options, cached, compile_sized, has_hash
from stopgrad.run.feeds import feed_value, sizes_of
from stopgrad.run.programs import Program
from stopgrad.run.tuning import Report, Sample

Feeds = Mapping[Any, Any]
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class _Plan:
    """What one choice of fetches and feeds needs.

    Attributes:
        fetches: the outputs to hand out.
        feeds: the outputs that are given values.
        parameters: those whose values are read.
        assigned: those that get new values, from the outputs *assigns*.
        unsized: what engines that keep sizes symbolic have compiled.
    """

    fetches: list[Output]
    feeds: list[Output]
    parameters: list[Output]
    assigned: list[Output]
    assigns: list[Output]
    unsized: dict[Engine, Program] = field(default_factory=dict)


class _State(NamedTuple):
    """What a session holds at one moment.

    Never changed, only replaced: so the effect of a run is all or nothing.

    Attributes:
        engine: the engine that computes, and holds the values.
        values: of parameters; those not among them have their first values still.
        spare: arrays of the engine that nobody needs any more, by the parameter whose next value may be
            written there. They are taken out before they are given away, so that none is ever given twice.
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
        engine: the name of an engine, as ``"xla"`` or ``"numpy"``; or ``"auto"``, the best that is installed.
            When that cannot compute what is fetched, the session moves to the best that can.
        cache_size: how many compiled computations are kept (one for each choice of fetches and feeds, and of
            shapes fed); beyond it the least recently used goes. Compiling one again takes its time again.
        strict: whether every operation is computed just as its definition says, one after the other. Else the
            engine may compute several together, or in another order, where that is faster; what may differ
            then stands in ``docs/performance.md``.
        mesh: a :class:`stopgrad.Mesh` or one of JAX's: the devices on which everything is computed.
            Parameters are divided over them as their ``sharding`` says, and whole on each where it says
            nothing. Of a value that is divided among several processes, each process feeds its own part;
            what is fetched is whole in every process. By default that of the surrounding ``with mesh:``, or
            none: one device.
        tune: ``"quick"`` or ``"full"`` to measure, when something is compiled, which of the engine's ways to
            run it is the fastest on the values given then, for about 1 or 10 seconds; ``"full"`` with the
            engine ``"auto"`` measures all engines, as long as no parameter has a value of an engine's own.
            What was found is remembered on disk, by graph and machine; :meth:`report` tells it.

    A run is all or nothing: after an error, an interrupt (Ctrl-C) or a signal, the parameters have either all
    their values from before or, where the run had ended already, all their new ones. Threads may share a
    session: its runs wait for each other, and :meth:`value`, :meth:`save` and :meth:`restore` for the run
    under way. A signal handler or a callback inside a run may use :meth:`value` and :meth:`save`, which see
    the values from before; a run there is an error.

    Memory: the xla engine writes new values beside the old ones, into the arrays that held those before them.
    So each parameter that has been assigned takes its size twice.

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
        found = default_graph() if graph is None else graph
        if found is not None and not isinstance(found, Graph):
            raise GraphError(
                "Session takes a graph, not "
                f"{describe(found) if isinstance(found, (Output, Operation)) else repr(found)}"
            )
        if found is None:
            raise GraphError("Session needs a graph: pass one, or open it inside 'with graph.as_default():'")
        self.graph = found
        self._auto = engine == "auto"
        self.mesh = mesh_of(mesh)
        if self.mesh is not None:
            check_shardings(found.operations, self.mesh)
        self._compiler = Compiler(Options(engine, strict=strict, tune=tune, mesh=self.mesh))
        self._state = _State(engine_named(engine, mesh=self.mesh), {}, {})
        # Neither refers to the session: once dropped it is freed at once, with all that it holds.
        self._plans = cached(partial(plan_for, found), cache_size, "Session")
        self._programs = cached(partial(_compile, self._compiler), cache_size, "Session")
        self._locks: dict[object, threading.RLock] = {}
        self._closed = False

    @property
    def engine(self) -> str:
        """The name of the engine that computes now."""
        return self._state.engine.name

    def run(self, fetches: object, feed_dict: Feeds | None = None) -> Any:
        """Compute what is fetched.

        Args:
            fetches: an output, an operation, a name, or a nested structure of these.
            feed_dict: from outputs (placeholders or any others), operations or names to their values.

        Returns:
            NumPy arrays in the structure of fetches. Assignments among the computed operations take effect
            together, when all has been computed; every operation sees the values from before.

        Raises:
            FeedError, ShapeError, DTypeError, GraphError, EngineError; the parameters are then as they were.
        """
        asked = self._present("run").engine
        leaves, spec = ([fetches], None) if type(fetches) is Output else flatten(fetches)
        feeds = {} if feed_dict is None else feed_dict
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise FeedError(
                f"Session.run: feed_dict is a dict from tensors to values, not {type(feeds).__name__}"
            )
        try:
            plan = self._plans(tuple(leaves), tuple(feeds))
        except TypeError:
            if all(has_hash(x) for x in (*leaves, *feeds)):
                raise
            raise GraphError(
                f"Session.run: cannot fetch {fetches!r}; fetch outputs, operations or names"
            ) from None
        arrays = [feed_value(x, value, asked) for x, value in zip(plan.feeds, feeds.values(), strict=True)]
        with self._lock_outside("run"):
            values = self._run(plan, arrays, asked)
        return values[0] if spec is None else unflatten(spec, values)

    def compile(self, fetches: object, feed_dict: Feeds | None = None) -> Program:
        """Compile what a run would compute, and run nothing.

        Args:
            fetches: as for :meth:`run`.
            feed_dict: as for :meth:`run`; in the place of a value, anything with a shape and a dtype will do.
                Of a value that is divided among several processes, the shape is that of the whole.

        Returns:
            what was compiled, to be read; a run that computes the same finds it ready.

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

    def report(self) -> tuple[Report, ...]:
        """How what was compiled last is run: the engine, its way, and what was tried and measured."""
        return tuple(self._compiler.reports)

    def value(self, parameter: Output) -> np.ndarray[Any, Any]:
        """A copy of the value that a parameter has now."""
        self._present("value")
        member = _member(self.graph, parameter)
        if member.op.definition is not Parameter:
            raise GraphError(f"{describe(member)} is no parameter; fetch it with Session.run")
        with self._lock():
            state = self._present("value")
            value = state.value(member)
            if any(state.engine.spec_of(value) or ()):  # Its parts are gathered, for which all must come.
                state.engine.agree("Session.value", lambda: [f"{member.op.name} {member.type!r}"])
            return np.array(state.engine.fetched(value))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values of all parameters, by name, as they are together at one moment.

        The file is one of safetensors, which other libraries read. A session on a mesh writes a folder,
        through orbax: each process its own part, and all of them name the same folder.

        The old file, or what was saved in the folder before, stays until the new is whole.
        """
        if self.mesh is not None:
            self._save_into_folder(path)
            return
        arrays = self._hand_out(lambda values: {name: np.asarray(x) for name, x in values.items()})
        write_arrays(path, arrays)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take the values of all parameters from what :meth:`save` wrote: a file, or a folder.

        All of them or, after an error, none. Where a folder holds several checkpoints, as one of
        :class:`stopgrad.Checkpoints` does, the newest that is as it was written.
        """
        self._present("restore")
        lock = self._lock_outside("restore")
        if os.path.isdir(checked_path(path)):
            self._restore_from_folder(path)
            return
        found = self._read_file(path)
        with lock:
            state = self._present("restore")
            self._replace_all(
                {p: state.engine.spread(array, declared_sharding(p)) for p, array in found.items()}
            )

    if TYPE_CHECKING:

        def _save_into_folder(self, path: str | os.PathLike[str]) -> None: ...
        def _restore_from_folder(self, path: str | os.PathLike[str]) -> None: ...

    else:  # What folders need is imported with the first of them.
        _save_into_folder = Later("stopgrad.run.session_folders")
        _restore_from_folder = Later("stopgrad.run.session_folders")

    def close(self) -> None:
        """Let go of parameters and compiled code. A closed session runs nothing.

        A run under way, in another thread, ends with an error, or as if it had come before.
        """
        self._closed = True
        self._state = _State(self._state.engine, {}, {})
        self._plans.cache_clear()
        self._programs.cache_clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------- inside

    def _present(self, what: str) -> _State:
        """The state, unless the session is closed or its engine can compute no more."""
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

        After a fork it is another one: of the old one nobody knows who held it, and he is not here.
        """
        return self._locks.get(_process) or self._locks.setdefault(_process, threading.RLock())

    def _lock_outside(self, what: str) -> threading.RLock:
        """The same, for what cannot be done inside a run."""
        lock = self._lock()
        if lock._is_owned():  # type: ignore[attr-defined] # As threading.Condition asks it.
            raise GraphError(
                f"Session.{what}: called inside a run of this session, by a signal handler or a callback; "
                "there value and save can be used, all else must wait until the run has ended"
            )
        return lock

    def _run(self, plan: _Plan, arrays: list[Any], asked: Engine) -> list[np.ndarray[Any, Any]]:
        """Compute all, then replace the state: with the lock held."""
        old = self._present("run")
        shapes = tuple([a.shape for a in arrays])
        sample = None
        if self._compiler.measures:
            sample = Sample([*[old.value(p) for p in plan.parameters], *arrays], anywhere=not old.values)
        program: Program = self._programs(old.engine, plan, shapes, sample)
        engine, state = program.backend, old
        try:
            if engine is not state.engine:
                state = _State(engine, {p: engine.hold(np.asarray(v)) for p, v in old.values.items()}, {})
            if engine is not asked:
                arrays = [np.asarray(a) for a in arrays]  # They may be the other engine's own.
            values, count = state.values, len(plan.fetches)
            if plan.parameters:
                first = _first_values(state, [p for p in plan.parameters if p not in values])
                values = {**values, **first} if first else values
                arrays = [*[values[p] for p in plan.parameters], *arrays]
            if plan.assigned and engine.reuses:
                arrays = [*arrays, *[_spare(state, p) for p in plan.assigned]]
            results = program.run(arrays)
            engine.finish(results)
            fetched = [engine.fetched(r) for r in results[:count]]
        except Exception as error:
            fail(engine, plan.fetches, error)
        if plan.assigned or values is not old.values:
            new = dict(zip(plan.assigned, results[count:], strict=True))
            self._commit(state._replace(values={**values, **new}))
        if plan.assigned and engine.reuses:
            state.spare.update({p: values[p] for p in plan.assigned if p in values})
        return fetched

    def _commit(self, state: _State) -> None:
        if self._closed:
            raise GraphError("Session: the session was closed before the run had ended")
        self._state = state

    def _hand_out(self, use: Callable[[dict[str, Any]], Result]) -> Result:
        """What comes of the values of all parameters, as they are together at one moment, by name."""
        self._present("save")
        with self._lock():
            state = self._present("save")
            return use({p.op.name: state.value(p) for p in self._all_parameters()})

    def _read_file(self, path: str | os.PathLike[str]) -> dict[Output, Any]:
        """The values of all parameters in a file; where several do not fit, the error names them all."""
        found, wrong = {}, []
        with ArrayFile(path) as stored:
            for p in self._all_parameters():
                try:
                    found[p] = stored.read(p.op.name, p.type, describe(p))
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
        return found

    def _replace_all(self, values: Mapping[Output, Any]) -> None:
        """Give parameters these values, the engine's own: with the lock held."""
        state = self._present("restore")
        state.engine.finish(values.values())
        self._commit(state._replace(values={**state.values, **values}))

    def _parameter_types(self) -> dict[str, TensorType]:
        return {p.op.name: p.type for p in self._all_parameters()}

    def _all_parameters(self) -> list[Output]:
        return [op.outputs[0] for op in self.graph.operations if op.definition is Parameter]


_process = object()
"""Stands for this process, among those that were forked from each other."""


def _forked() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _spare(state: _State, parameter: Output) -> Any:
    """An array to write the next value of a parameter into. From here on, nobody else has it."""
    found = state.spare.pop(parameter, None)
    if found is not None:
        return found
    return state.engine.spread(parameter.op.values[0].array, declared_sharding(parameter))


def _first_values(state: _State, parameters: Sequence[Output]) -> dict[Output, Any]:
    """The values that parameters begin with, held by the engine; the same in all processes."""
    if parameters:
        state.engine.agree(
            "the first values of parameters",
            lambda: [f"{p.op.name} {p.type!r} {digest(state.value(p))}" for p in parameters],
        )
    return {p: state.engine.spread(state.value(p), declared_sharding(p)) for p in parameters}


def _member(graph: Graph, x: object) -> Output:
    if isinstance(x, str):
        return graph.output(x)
    if not isinstance(x, (Output, Operation)):
        raise GraphError(f"Session.run: {x!r} is no output, operation or name")
    output = x.as_output()
    if output.op.graph is not graph:
        raise GraphError(f"Session.run: {describe(output)} belongs to another graph than the session")
    return output


def plan_for(graph: Graph, leaves: Sequence[Any], fed: Sequence[Any]) -> _Plan:
    """What a run needs that fetches *leaves* and is fed *fed*; refused where something must be fed, too."""
    fetches = [_member(graph, leaf) for leaf in leaves]
    feeds = [_member(graph, x) for x in fed]
    given = set(feeds)
    if len(given) < len(feeds):
        twice = next(x for x, times in Counter(feeds).items() if times > 1)
        raise FeedError(f"{describe(twice)} is fed twice; give it one value")
    running = needed(fetches, given)
    for op in running:
        if op.definition is Placeholder:
            user = _consumer(op, running)
            raise FeedError(
                f"{describe(op)} must be fed, because "
                f"{f'{describe(user)} needs it' if user else 'it is fetched'}; add it to feed_dict"
            )
    assigns = [op for op in running if op.definition is Assign]
    assigned: dict[Output, Operation] = {}
    for op in assigns:
        parameter = op.inputs[0]
        if parameter in assigned:
            raise GraphError(
                f"one run would assign {describe(parameter)} twice, "
                f"by {describe(assigned[parameter])} and by {describe(op)}; "
                "fetch one of them, or combine them into one"
            )
        assigned[parameter] = op
        if parameter in given:
            raise FeedError(f"{describe(parameter)} is both fed and assigned in one run; do one of them")
    parameters = [op.outputs[0] for op in running if op.definition is Parameter]
    return _Plan(fetches, feeds, parameters, list(assigned), [op.outputs[0] for op in assigns])


def _consumer(op: Operation, running: Sequence[Operation]) -> Operation | None:
    return next((user for user in running if any(x.op is op for x in user.inputs)), None)


def _compile(
    compiler: Compiler,
    engine: Engine,
    plan: _Plan,
    shapes: Sequence[tuple[int, ...]],
    sample: Sample | None,
) -> Program:
    """Compile a plan for the shapes fed; for another engine, where this one cannot run it and any may."""
    outputs, inputs = [*plan.fetches, *plan.assigns], [*plan.parameters, *plan.feeds]
    # What is fetched is whole everywhere; a parameter's next value lies where the old one does.
    lie = [declared_sharding(p) or (None,) * p.ndim for p in plan.assigned]
    shardings: list[Spec] = [*[(None,) * y.ndim for y in plan.fetches], *lie]
    compile = partial(compiler.compile, engine, assigned=plan.assigned, sample=sample, shardings=shardings)
    return compile_sized(engine, outputs, inputs, sizes_of(plan.feeds, shapes), plan.unsized, compile)
