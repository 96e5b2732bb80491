"""XLA, through JAX's documented interface: one executable, compiled ahead of time, per graph."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.garbage import without_gc
from stopgrad.base.later import Later
from stopgrad.base.memory import keep_memory
from stopgrad.base.namespaces import LazyNamespace, require
from stopgrad.base.types import TensorType, int32, tensor_type
from stopgrad.engines.protocol import PLAIN, Compiled, Engine, Variant
from stopgrad.engines.registry import register
from stopgrad.engines.xla.compiler_options import CHEAP_KERNELS, compiler_options, memory_options
from stopgrad.engines.xla.native import candidates, kernels, library, loaded
from stopgrad.engines.xla.native.regroup import regroup
from stopgrad.engines.xla.result_memory import SMALL, handed_over
from stopgrad.engines.xla.settings import Settings
from stopgrad.engines.xla.stored import Programs
from stopgrad.engines.xla.stored_plans import Plan
from stopgrad.engines.xla.work import WIDE, Work
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.interpreter import Run, program
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.effects import Calling, DebugCallback
from stopgrad.ops.structural.sharding import Shard
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.rewrite import Forming, formed, prepare
from stopgrad.rewrite.forms import FORMS
from stopgrad.rewrite.rolling import roll

if TYPE_CHECKING:
    from stopgrad.scale.meshes import Mesh

_as_numpy = np.asarray  # A global name is found faster.


class JaxNamespace(LazyNamespace):
    """JAX's functions; and *constrained*, which tells JAX how an array is divided over the mesh, if any."""

    constrained: Callable[[Any, Spec], Any] = staticmethod(lambda x, spec: x)


def jax_namespace() -> JaxNamespace:
    """JAX's NumPy, with ``lax``, ``special``, ``nn`` and ``jax`` itself."""
    numpy_of_jax = require("jax.numpy", "the xla engine", "xla")
    modules = {name: f"jax.{name}" for name in ("lax", "nn", "export")}
    modules |= {"special": "jax.scipy.special", "jax": "jax", "experimental": "jax.experimental"}
    return JaxNamespace(numpy_of_jax, "the xla engine", "xla", **modules)


@register
class XlaEngine(Engine):
    """Compiles with XLA, for JAX's default device.

    The process's own JAX settings do not change what is computed, and are left alone. Given arrays on other
    devices, it computes there.
    """

    name = "xla"
    priority = 100
    needs = ("jax",)
    reuses = True
    checks = True
    slow_to_call = True
    variants: Sequence[Variant] = (Variant("native", FORMS, (roll,)), Variant("forms", FORMS, (roll,)), PLAIN)
    meshes = True
    forms = {Shard: lambda xp, x, sharding: xp.constrained(x, sharding)}

    if TYPE_CHECKING:

        @classmethod
        def on_mesh(cls, mesh: Mesh) -> Engine: ...

    else:
        on_mesh = Later("stopgrad.engines.xla.on_meshes")

    def __init__(self) -> None:
        if importlib.util.find_spec("jax") is None:
            require("jax", "the xla engine", "xla")  # Raises.

    # JAX is imported when something is compiled with it, which takes half a second.

    @cached_property
    def _jax(self) -> Any:
        keep_memory()
        return without_gc(require, "jax", "the xla engine", "xla")  # It makes 150,000 objects, all in use.

    @cached_property
    def namespace(self) -> JaxNamespace:
        """JAX's functions, for lowerings."""
        return jax_namespace()

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self._jax)

    @cached_property
    def _settings(self) -> Settings:
        return Settings(self._jax)

    def array(self, value: npt.ArrayLike, dtype: np.dtype[Any]) -> Any:
        """A lowering's result as an array of the inferred dtype."""
        if isinstance(value, self._jax.Array) and value.dtype == dtype and not value.weak_type:
            return value  # The usual case; asking JAX takes as long as a small operation.
        return self.namespace.asarray(value, dtype)

    def compile(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        donate: Sequence[int] = (),
        variant: Variant = PLAIN,
    ) -> Compiled:
        return self._compiled(inputs, outputs, donate, variant, None)

    def compile_form(self, forming: Forming, donate: Sequence[int], variant: Variant) -> Compiled:
        name = self._name_of(forming, donate, variant)
        if name is None:
            return self.compile(forming.inputs, forming.outputs, donate, variant)
        run = self._recalled(name, forming, variant)
        return run or self._compiled(forming.inputs, forming.outputs, donate, variant, name)

    def _name_of(self, forming: Forming, donate: Sequence[int], variant: Variant) -> str | None:
        """The name of the stored program for a graph whose form is not known yet; None if it has none."""
        rules = [f"{rule.__module__}.{rule.__qualname__}" for rule in (*forming.forms, *forming.passes)]
        if self.mesh is not None or not all(rule.startswith("stopgrad.") for rule in rules):
            return None
        prepared, spare = forming.prepared, [x.type for x in forming.spare]
        details = ("prepared", variant.name, rules, tuple(donate), spare)
        options = {} if variant is PLAIN else memory_options(self._jax.default_backend())
        return self._programs.name_of(prepared.inputs, prepared.outputs, options, details, blocks=True)

    def _recalled(self, name: str, forming: Forming, variant: Variant) -> Compiled | None:
        """The stored program of a graph; None if there is none, or one for other kernels."""
        stored = self._programs.stored(name)
        if stored is None:
            return None
        with contextlib.suppress(Exception):  # What JAX cannot load is made again.
            plan = Plan.decode(stored[0])
            if plan.kernels is None or plan.kernels == kernels(self._probed):
                sizes = len(plan.inputs), plan.outputs
                compiled = self._settings.fixed(plan.wide, self._programs.load, stored[1], *sizes)
                return self._running(
                    plan, compiled, lambda: self._work(forming.inputs, forming.outputs, variant).plain
                )
        return None

    def _compiled(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        donate: Sequence[int],
        variant: Variant,
        name: str | None,
    ) -> Compiled:
        """A program for a graph; stored under the name if there is one, else by the graph."""
        work = self._work(inputs, outputs, variant)
        if work.edges is not None:
            donate = work.edges.donated(donate)
        types, wide = [x.type for x in work.inputs], work.wide
        jit = self._jit(work.fast, donate)
        lower = partial(jit.lower, *self._kinds(types))
        if name is None:
            details = (variant.name, *work.details, tuple(donate), wide)
            ends = work.inputs, work.outputs
            compile = partial(self._programs.compile, lower, *ends, work.options, details)
        else:
            note = lambda: work.plan(donate).encode()
            compile = partial(self._programs.make, lower, work.options, name, note)
        compiled = self._settings.fixed(wide, compile)
        return self._running(work.plan(donate), compiled, lambda: work.plain, work.operations)

    def _work(self, inputs: Sequence[Output], outputs: Sequence[Output], variant: Variant) -> Work:
        return Work(inputs, outputs, variant, self, self._jax.default_backend(), self._probed)

    def _running(
        self,
        plan: Plan,
        compiled: Any,
        plain: Callable[[], Run],
        operations: Sequence[Operation] = (),
    ) -> Compiled:
        """A compiled program with what is done around it. *plain* makes what computes the same anywhere."""
        run = self.raising(self._called(plan.inputs, compiled, plan.donate, plan.wide, plain), operations)
        return run if plan.outside is None else plan.outside.around(run, self)

    def stacker(self, kind: TensorType, count: int) -> Compiled:
        """A program that stacks *count* arrays of a type."""
        inputs = [_placeholder(kind, Graph())] * count
        return self._jitted(lambda xs: [self.namespace.stack(xs)], inputs, inputs[:1], details=("stacker",))

    def cutter(self, kind: TensorType, count: int) -> Compiled:
        """A program that cuts *count* consecutive parts out of an array of a type, from a position on."""
        graph = Graph()
        whole, first = _placeholder(kind, graph), _placeholder(tensor_type(int32, ()), graph)
        cut = self.namespace.lax.dynamic_index_in_dim

        def parts(arrays: Sequence[Array]) -> list[Any]:
            x, i = arrays
            return [cut(x, i + k, keepdims=False) for k in range(count)]

        return self._jitted(parts, [whole, first], [whole] * count, CHEAP_KERNELS, details=("cutter",))

    def regrouper(self, before: Sequence[TensorType], after: Sequence[TensorType]) -> Compiled | None:
        """A program whose results hold, one after the other, the bytes of what it takes."""
        if self._jax.default_backend() != "cpu" or not library().available:
            return None
        run, wide = regroup(after), not WIDE.isdisjoint([kind.dtype for kind in before])
        jit = self._jit(run, ())
        compiled = self._settings.fixed(wide, lambda: jit.lower(*self._kinds(before)).compile())
        return self._called(before, compiled, (), wide, lambda: run)

    def traces(self, arrays: Sequence[Any]) -> bool:
        """Whether JAX traces what is done with these arrays."""
        return any(isinstance(x, self._jax.core.Tracer) for x in arrays)

    def _probed(self, inputs: Sequence[Output], outputs: Sequence[Output], kernels: bool) -> Compiled:
        """A graph by which kernels are measured, with them or without. Calls are waited for."""
        form = formed(prepare(outputs, inputs), FORMS)
        steps = program(form.inputs, form.outputs, self, candidates if kernels else None)
        options = compiler_options(form.outputs[0].op.graph.operations, "cpu")
        details = ("probe", loaded() if kernels else None)
        run = self._jitted(steps, form.inputs, form.outputs, options, details=details)
        return lambda arrays: self._jax.block_until_ready(run(arrays))

    def raising(self, run: Compiled, operations: Sequence[Operation]) -> Compiled:
        """A program that raises what a function of Python raised that it called."""
        callings: list[Calling] = [op.calling for op in operations if op.definition is DebugCallback]
        if not callings:
            return run

        def run_to_the_end(arrays: Sequence[Any]) -> Sequence[Any]:
            results = run(arrays)
            self.finish(results)
            raised = [calling.raised for calling in callings if calling.raised is not None]
            for calling in callings:
                calling.raised = None
            if raised:
                raise raised[0]
            return results

        run_to_the_end.executable = run.executable  # type: ignore[attr-defined]
        return run_to_the_end

    def _jit(self, run: Run, donate: Sequence[int]) -> Any:
        # Donated inputs are kept even if nothing reads them: results are written into them.
        return self._jax.jit(
            lambda *arrays: run(arrays), donate_argnums=tuple(donate), keep_unused=bool(donate)
        )

    def _kinds(self, types: Sequence[TensorType]) -> list[Any]:
        return [self._jax.ShapeDtypeStruct(x.shape, x.dtype.numpy) for x in types]

    def _jitted(
        self,
        run: Run,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        options: Mapping[str, str | bool] = MappingProxyType({}),
        details: tuple[Any, ...] = (),
    ) -> Compiled:
        """A small function of JAX's arrays, compiled for inputs of these types."""
        types = [x.type for x in inputs]
        wide = any(x.dtype in WIDE for x in inputs)
        lower = partial(self._jit(run, ()).lower, *self._kinds(types))
        parts = lower, inputs, outputs, options, (*details, (), wide)
        compiled = self._settings.fixed(wide, self._programs.compile, *parts)
        return self._called(types, compiled, (), wide, lambda: run)

    def _called(
        self,
        inputs: Sequence[TensorType],
        compiled: Any,
        donate: Sequence[int],
        wide: bool,
        plain: Callable[[], Run],
    ) -> Compiled:
        """A compiled program as it is called.

        *plain* makes what computes the same on other devices and when JAX traces it.
        """
        settings, config = self._settings, self._jax.config
        wide_inputs = [i for i, x in enumerate(inputs) if x.dtype in WIDE]
        types = [(x.shape, x.dtype.numpy) for x in inputs]
        traced = cache(lambda: self._jit(plain(), donate))

        def anyhow(*arrays: Array) -> Sequence[Any]:
            try:
                return compiled(*arrays)
            except (TypeError, ValueError):
                return traced()(*arrays)

        call = compiled

        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            nonlocal call
            if call is compiled:
                call = _within(compiled)
            try:
                if donate and (config.jax_debug_nans or config.jax_debug_infs):
                    return settings.fixed(wide, compiled, *arrays)
                if wide_inputs and np.ndarray in [type(arrays[i]) for i in wide_inputs]:
                    return settings.wide(call, *arrays)  # Else JAX would narrow their 64-bit numbers.
                return call(*arrays)
            except FloatingPointError:  # The user asked JAX to raise for NaN.
                return settings.fixed(wide, compiled, *arrays)
            except (TypeError, ValueError):
                # Arrays on other devices, JAX's tracers, and disable_jit.
                if [(np.shape(x), getattr(x, "dtype", None)) for x in arrays] != types:
                    raise
                return settings.fixed(wide, anyhow, *arrays)

        run.executable, run.whole = compiled, True  # type: ignore[attr-defined]
        if not donate:
            run.direct = partial(self._direct, compiled, wide_inputs)  # type: ignore[attr-defined]
        return run

    def _direct(self, compiled: Any, wide: Sequence[int], arrays: Sequence[Any]) -> Callable[..., Any] | None:
        """A function of arrays like these that does what *run* does; None if JAX never takes such."""
        if self.traces(arrays):
            return None
        call = _within(compiled)
        if np.ndarray in [type(arrays[i]) for i in wide]:
            return partial(self._settings.wide, call)
        return call

    def hold(self, array: npt.ArrayLike) -> Any:
        # A copy: on a CPU, JAX would otherwise share the caller's memory.
        return self._settings.fixed(True, lambda: self.namespace.array(np.asarray(array), copy=True))

    def is_native(self, x: object) -> bool:
        jax = sys.modules.get("jax")
        return jax is not None and isinstance(x, getattr(jax, "Array", ()))  # It is being imported, perhaps.

    def fetched(self, value: npt.ArrayLike) -> np.ndarray[Any, Any]:
        return handed_over(np.asarray(value))

    def taken(self, values: Sequence[Any]) -> Sequence[Any]:
        arrays = []
        try:
            for x in values:
                x.block_until_ready()
                array = _as_numpy(x)
                arrays.append(array.copy() if array.nbytes < SMALL else handed_over(array))
        except AttributeError:  # Not all are arrays of JAX's.
            return super().taken(values)
        return arrays

    def finish(self, values: Iterable[Any]) -> None:
        # If NumPy reads an array whose computation failed, jaxlib ends the process.
        waited = [*values]
        try:
            for x in waited:
                x.block_until_ready()
        except AttributeError:  # Not all are arrays of JAX's, which looks at each of them for longer.
            self._jax.block_until_ready(waited)


def _placeholder(kind: TensorType, graph: Graph) -> Output:
    return emit(Placeholder, (), (kind.dtype, kind.shape, ()), "", graph).outputs[0]


def _within(compiled: Any) -> Callable[..., Any]:
    """What a compiled program of JAX's calls, without the frame of Python around it.

    It is there after the first call. It is not documented; without it, the program itself does the same.
    """
    call: Callable[..., Any] = getattr(compiled, "_call", None) or compiled
    return call


# JAX computes in its own threads. A forked process does not have them, and would wait for ever.
_FORKED = (
    "JAX was running when this process was forked from another, and its threads do not come along; "
    "start the process with multiprocessing.get_context('spawn'), or compute in it with engine='numpy'"
)
_running = False


def _before_fork() -> None:
    global _running
    bridge = sys.modules.get("jax._src.xla_bridge")
    # No public function tells. If the private one is gone, JAX counts as running once it is imported.
    _running = bridge is not None and bool(getattr(bridge, "_backends", True))


def _after_fork() -> None:
    if _running:
        XlaEngine.unusable = _FORKED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
