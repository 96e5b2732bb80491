"""What is taken of TensorFlow beyond its documented interface: what for, and what is lost without it.

This is the one place where such names stand. Each is looked up by :func:`_need`, with what stands for it
where a release lacks it; reports then say in the words given here what they cannot know.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from stopgrad.base.namespaces import attribute_at
from stopgrad.interop.shared import keras

Result = TypeVar("Result")

GradientFunction = Callable[..., object]
"""Takes an operation and the gradients of its results; returns that of its input, or a list of these."""

Lookup = Callable[[str], GradientFunction | None]
"""Finds the gradient function for a kind of operations."""


class Need(NamedTuple):
    """Something undocumented that is used.

    Attributes:
        path: where it is.
        purpose: what it is for.
        without: what reports say they do not know where it is missing; empty if they lose nothing.
    """

    path: str
    purpose: str
    without: str


NEEDS: dict[str, Need] = {}
"""Everything that is used, by its path."""
MISSING: dict[str, Need] = {}
"""What this release of TensorFlow lacks."""


def _need(path: str, purpose: str, default: object, without: str = "") -> Any:
    need = NEEDS[path] = Need(path, purpose, without)
    try:
        return attribute_at(path)
    except (AttributeError, ImportError):
        MISSING[path] = need
        return default


def not_known() -> list[str]:
    """What no report can know with this release of TensorFlow, in a sentence each."""
    unknown = dict.fromkeys([need.without for need in MISSING.values() if need.without])
    return [f"TensorFlow {tf.__version__} does not tell {without}" for without in unknown]


class _Nothing:
    """Stands for a module or class that is not there: nothing of it is patched."""


_EAGER = "tensorflow.python.eager."
_TAPES = "which tape recorded an operation"

context: Any = _need(_EAGER + "context.context", "the callbacks for operations", None, "what operations ran")
execute: Any = _need(_EAGER + "execute", "callbacks for operations", _Nothing, "what operations ran")
tapes: Any = _need(_EAGER + "backprop.GradientTape", "when tapes record", _Nothing, _TAPES)
imperative: Any = _need(_EAGER + "imperative_grad", "what gradients are asked for", _Nothing, _TAPES)
graph_gradients: Any = _need(
    "tensorflow.python.ops.gradients_util",
    "what tf.gradients is asked for",
    _Nothing,
    "calls of tf.gradients",
)
record: Any = _need(
    _EAGER + "record", "custom gradients and functions", _Nothing, "what custom gradients pass on"
)
variables: Any = _need(
    "tensorflow.python.ops.resource_variable_ops", "the variables that are read", _Nothing, "variables' names"
)
EagerTensor: Any = _need(
    "tensorflow.python.framework.ops._EagerTensorBase", "values that leave for Python", _Nothing
)
AtomicFunction: Any = _need(
    _EAGER + "polymorphic_function.atomic_function.AtomicFunction",
    "the graphs of functions that are called",
    _Nothing,
    "what happens inside of tf.function",
)
Tensor: Any = _need(
    "tensorflow.python.framework.tensor.Tensor", "traced tensors that are asked for their numbers", _Nothing
)
FuncGraph: Any = _need("tensorflow.python.framework.func_graph.FuncGraph", "graphs of functions", _Nothing)
_MockOp: Any = _need(
    _EAGER + "backprop._MockOp", "asking what an operation's gradient function gives", None, "what passes on"
)
_registry: Any = _need(
    "tensorflow.python.framework.ops._gradient_registry", "the gradient functions", None, "what passes on"
)
_ops: Any = _need("tensorflow.python.framework.ops", "which gradient function runs", _Nothing)
array_ops: Any = _need("tensorflow.python.ops.array_ops", "the stops of TensorFlow's own functions", _Nothing)
_is_stopped: Callable[[], bool] = _need(
    "tensorflow.python.pywrap_tfe.TFE_Py_TapeSetIsStopped", "whether recording is stopped", lambda: False
)
_restart: Callable[[], object] = _need(
    "tensorflow.python.pywrap_tfe.TFE_Py_TapeSetRestartOnThread", "letting tapes record again", tuple
)

ReplicaThread: Any = _need(
    "tensorflow.python.distribute.mirrored_run._MirroredReplicaThread",
    "the threads in which strategies run their replicas",
    _Nothing,
    "what replicas of a tf.distribute.Strategy do",
)
_conversion: Any = _need(
    "tensorflow.python.autograph.core.config", "what AutoGraph leaves as it is written", _Nothing
)
_stop: Callable[[], object] = _need(
    "tensorflow.python.pywrap_tfe.TFE_Py_TapeSetStopOnThread", "letting no tape record", tuple
)
_filtering: Any = _need(
    "tensorflow.python.util.traceback_utils", "leaving our frames out of the messages of errors", _Nothing
)


def leave_out_frames(folder: str) -> None:
    """Let TensorFlow leave the frames of a folder out of tracebacks and messages, as it does with its own."""
    excluded = getattr(_filtering, "_EXCLUDED_PATHS", None)
    if excluded is not None and folder not in excluded:
        _filtering._EXCLUDED_PATHS = (*excluded, folder)


def executed(kind: str, inputs: Sequence[Any], attrs: tuple[Any, ...], outputs: int) -> list[Any]:
    """The results of an operation that has run for other operands, of 32-bit integers."""
    typed = [
        value if key not in ("T", "Tparams", "dtype") else tf.int32.as_datatype_enum
        for pair in zip(attrs[::2], attrs[1::2], strict=True)
        for key, value in ((None, pair[0]), pair)
    ]
    results: list[Any] = execute.quick_execute(kind, outputs, list(inputs), tuple(typed), context())
    return results


def _leave_as_written(package: str) -> None:
    """Let AutoGraph convert no function of a package, as none of NumPy's: it is not the user's program."""
    rules = getattr(_conversion, "CONVERSION_RULES", None)
    if rules is not None:
        _conversion.CONVERSION_RULES = (_conversion.DoNotConvert(package), *rules)


_leave_as_written(__name__.partition(".")[0])


def install_callbacks() -> None:
    """Let operations that run eagerly call back; without callbacks it changes nothing."""
    execute.execute = execute.execute_with_callbacks


def callbacks() -> list[Any]:
    """The callbacks for operations of this thread."""
    registered: list[Any] = context()._thread_local_data.op_callbacks
    return registered


_OF_THREADS = ("is_eager", "invoking_op_callbacks", "scope_name", "device_name", "device_spec")


def _state() -> list[Callable[[], object]]:
    """Functions in C that put back what TensorFlow keeps for this thread as it is now."""
    local = context()._thread_local_data
    stacks = [holder.stack for holder in (_ops._default_graph_stack, context().context_switches)]
    names = [name for name in _OF_THREADS if hasattr(local, name)]
    back: list[Callable[[], object]] = [
        functools.partial(setattr, local, name, getattr(local, name)) for name in names
    ]
    back += [functools.partial(stack.__setitem__, slice(None), list(stack)) for stack in stacks]
    return [*back, _stop if is_stopped() else _restart]


def _apart(call: Callable[[], Result]) -> Result:
    """Call a function, and put TensorFlow's state of this thread back whatever happens in it.

    An interrupt within TensorFlow's own contexts would else leave the thread in a graph.
    """
    put_back: Callable[[], object] = functools.partial(deque, map(operator.call, _state()), 0)
    handled = sys.exc_info()[1]
    try:
        return call()
    except BaseException as error:
        raised: BaseException | None = error
        while raised is not None and raised is not handled:
            # The contexts that these frames hold are left now, and not whenever the error is forgotten.
            traceback.clear_frames(raised.__traceback__)
            raised = raised.__context__
        raise
    finally:
        put_back()  # One call in C: no handler of a signal runs before it, or within.


def unseen(call: Callable[[], Result]) -> Result:
    """Call a function whose operations run eagerly, and which no tape or callback sees."""

    def inside() -> Result:
        context()._thread_local_data.invoking_op_callbacks = True
        with record.stop_recording(), tf.init_scope():
            return call()

    return _apart(inside)


def is_stopped() -> bool:
    """Whether no tape of this thread records now."""
    return bool(_is_stopped())


def reads_variables(tape: tf.GradientTape) -> bool:
    """Whether a tape watches the trainable variables that are read."""
    return bool(tape._watch_accessed_variables)


def copies_of(variable: tf.Variable) -> Sequence[Any]:
    """TensorFlow's variables that hold a variable's values: one, or one for each replica of a strategy.

    A copy stands for the variable itself.
    """
    plain = keras.plain(variable)
    if not hasattr(plain, "_primary"):
        around = getattr(plain.handle, "_distributed_container", None)
        plain = plain if around is None else around() or plain
    copies: Sequence[Any] = plain.values if hasattr(plain, "_primary") else (plain,)
    return copies


def record_of(tape: tf.GradientTape) -> object:
    """What a tape records in, which is another after a reset."""
    return tape._tape


def identity_of(tensor: tf.Tensor) -> int:
    """A number that a tensor shares with no other."""
    number: int = tensor._id
    return number


_graph_of: Any = _need(
    "tensorflow.python.framework.function_def_to_graph.function_def_to_graph",
    "the graphs of functions that no graph holds as such",
    None,
)


def function_named(graph: tf.Graph | None, name: str) -> tf.Graph | None:
    """The graph of a function that an operation of a graph calls; None if it is not there any more.

    The graph that TensorFlow puts around a loop whose gradient is asked for does not hold the loop's own.
    """
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    if _graph_of is None or not context().has_function(name):
        return None
    return _graph_of(context().get_function_def(name))


def aside(call: Callable[[], Result]) -> Result:
    """Call a function whose operations belong to a graph of their own, and which no tape or callback sees."""

    def inside() -> Result:
        context()._thread_local_data.invoking_op_callbacks = True
        _restart()  # What is called may have a tape of its own; others watch nothing in this graph.
        with FuncGraph("asked").as_default():
            return call()

    return _apart(inside)


def is_unseen() -> bool:
    """Whether what runs in this thread is not to be seen: see :func:`unseen` and :func:`aside`."""
    return bool(context()._thread_local_data.invoking_op_callbacks)


def gradient_function(name: str) -> GradientFunction | None:
    """TensorFlow's gradient function for a kind of operations; None where it says that there is no gradient.

    Raises:
        LookupError: there is none.
    """
    return _registry.lookup(name)


@contextlib.contextmanager
def looked_up(around: Callable[[Lookup], Lookup]) -> Iterator[None]:
    """While it lasts, gradient functions are found by what is made of TensorFlow's own search."""
    original = _ops._gradient_registry
    _ops._gradient_registry = _Searched(original, around(original.lookup))
    try:
        yield
    finally:
        _ops._gradient_registry = original


class _Searched:
    """Stands for the registry of gradient functions, and finds them in another way."""

    def __init__(self, registry: object, lookup: Callable[[str], Any]) -> None:
        self._registry, self.lookup = registry, lookup

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)


class AskedOp:
    """Stands for an operation before its gradient function, with other tensors.

    Args:
        op: an operation of a graph, which answers all else.
        inputs, outputs: the tensors.
    """

    skip_input_indices: tuple[int, ...] = ()

    inputs: list[Any]
    outputs: list[Any]

    def __init__(self, op: tf.Operation, inputs: list[Any], outputs: list[Any]) -> None:
        self._op, self.inputs, self.outputs = op, inputs, outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def asked_op(
    kind: str, attrs: tuple[object, ...], inputs: list[tf.Tensor], outputs: list[tf.Tensor]
) -> tf.Operation:
    """Stands for an operation that ran eagerly, as TensorFlow's own tapes have it."""
    return _MockOp(attrs, inputs, outputs, kind, ())


def results_of_custom(op: tf.Operation) -> int:
    """How many of the inputs of a custom gradient's operation are its own results, which come first."""
    function = gradient_function(op.get_attr("_gradient_op_type"))
    return int(_enclosed(_enclosed(function, "tape_grad_fn"), "flat_result_len"))


def _enclosed(function: Any, name: str) -> Any:
    """A variable that a function has from around it."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return cells[name].cell_contents


def custom_gradient_of(op: tf.Operation) -> str:
    """The name of the custom gradient that an operation of a graph stands for; empty if for none."""
    try:
        return op.get_attr("_gradient_op_type").decode() if op.type == "IdentityN" else ""
    except ValueError:
        return ""


def attributes_of(tensor: tf.Tensor) -> Mapping[str, Any]:
    """What kind of variable a handle refers to: dtype and sizes."""
    data = getattr(tensor, "_handle_data", None)
    if data is None or not data.is_set or not data.shape_and_type:
        return {}
    first = data.shape_and_type[0]
    return {"dtype": tf.as_dtype(first.dtype), "shape": tf.TensorShape(first.shape)}


_extract_stack: Callable[[], Sequence[traceback.FrameSummary]] = _need(
    "tensorflow.python.util.tf_stack.extract_stack", "the line that AutoGraph's code was written for", list
)


def stack() -> Sequence[traceback.FrameSummary]:
    """The stack of the thread, with the lines for which AutoGraph wrote code."""
    return _extract_stack()


_scope: Callable[[], str] = _need(
    "tensorflow.python.framework.ops.get_name_scope", "the layer of Keras' in which an operation ran", str
)


def scope() -> str:
    """The names of the layers of Keras', or scopes, that run now: ``"model/dense"``."""
    return _scope()


KERAS = "keras.src.optimizers.optimizer"
"""The module that is imported once Keras' optimizers are there."""
OPTIMIZERS = "keras.src.optimizers.base_optimizer"
"""The module of the class of all of Keras' optimizers."""


LEGACY = "tf_keras.src.optimizers.optimizer"
"""The module of the optimizers of Keras 2, which is a package beside Keras 3."""


def legacy_optimizers() -> tuple[type, type]:
    """The classes of Keras 2 whose optimizers are made, and step."""
    purpose = "what optimizers of tf_keras do"
    base = _need(f"{LEGACY}._BaseOptimizer", purpose, _Nothing, purpose)
    return base, _need(f"{LEGACY}.Optimizer", purpose, _Nothing, purpose)


def keras_optimizer() -> type | None:
    """The class of Keras' optimizers that steps; None if Keras is not there, or another one."""
    return _need(f"{OPTIMIZERS}.BaseOptimizer", "what optimizers do", None, "what optimizers do")
