"""What is taken of PyTorch beyond its documented interface: what for, since when, what is lost without it.

This is the one place where such names stand. Each is looked up by :func:`_need`, with what stands for it
where a release lacks it. Then a report leaves out just what it cannot know, and says so in the words given
here. Attributes of tensors are implemented in C for the classes of all: there each is asked of its class.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
import torch.autograd.function
import torch.nn.modules.module
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from stopgrad.base.namespaces import attribute_at


class Need(NamedTuple):
    """Something undocumented that is used.

    Attributes:
        path: where it is.
        since: the oldest release that is known to have it, of those that are supported.
        purpose: what it is for.
        without: what reports say they do not know where it is missing; empty if they lose nothing.
    """

    path: str
    since: str
    purpose: str
    without: str


NEEDS: dict[str, Need] = {}
"""Everything that is used, by its path."""
MISSING: dict[str, Need] = {}
"""What this release of PyTorch lacks."""


def _need(path: str, purpose: str, default: object, without: str = "", since: str = "2.9") -> Any:
    need = NEEDS[path] = Need(path, since, purpose, without)
    try:
        return attribute_at(path)
    except (AttributeError, ImportError):
        MISSING[path] = need
        return default


def not_known() -> list[str]:
    """What no report can know with this release of PyTorch, in a sentence each."""
    release = f"PyTorch {torch.__version__}"
    lacking = dict.fromkeys([need.without for need in MISSING.values() if need.without])
    return [f"{release} does not tell {without}" for without in lacking]


def _has(path: str, purpose: str, without: str = "", since: str = "2.9") -> bool:
    return _need(path, purpose, None, without, since) is not None


# ----------------------------------------------------------------------------------- functions of torch.func

_FUNC = "what functions of torch.func do to gradients"
peek_interpreter_stack: Callable[[], Any] = _need(
    "torch._C._functorch.peek_interpreter_stack", "whether a function of torch.func runs", lambda: None, _FUNC
)
is_functorch_wrapped_tensor: Callable[[Any], bool] = _need(
    "torch._C._functorch.is_functorch_wrapped_tensor", "its tensors", lambda _: False, _FUNC
)
get_unwrapped: Callable[[Any], Any] = _need(
    "torch._C._functorch.get_unwrapped", "the tensors in its tensors", lambda x: x, _FUNC
)
interpreters: Callable[[], list[Any]] = _need(
    "torch._functorch.pyfunctorch.retrieve_all_functorch_interpreters", "which of them run", list, _FUNC
)
GradInterpreter: Any = _need("torch._functorch.pyfunctorch.GradInterpreter", "which differentiate", (), _FUNC)

# ------------------------------------------------------------------------- modes, and what is not to be seen

DisableTorchFunction: Any = _need(
    "torch._C.DisableTorchFunction", "what the package computes itself is not watched", contextlib.nullcontext
)
EnableTorchFunction: Any = _need(
    "torch._C._EnableTorchFunction", "a function's backward on trial is watched", contextlib.nullcontext
)
DisableTorchDispatch: Any = _need(
    "torch._C._DisableTorchDispatch", "norms are not seen by modes of the user's", contextlib.nullcontext
)
count_function_modes: Callable[[], int] = _need(
    "torch._C._len_torch_function_stack", "whether a mode might see norms", lambda: 1
)
count_dispatch_modes: Callable[[], int] = _need(
    "torch._C._len_torch_dispatch_stack", "whether a mode might see norms", lambda: 1
)
push_mode: Callable[[Any], None] = _need(
    "torch._C._push_on_torch_function_stack",
    "a mode begins without code in Python, where an interrupt may come",
    operator.methodcaller("__enter__"),
)
_pop_mode: Callable[[], object] | None = _need(
    "torch._C._pop_torch_function_stack",
    "a mode ends without code in Python, where an interrupt may come",
    None,
)

mode_at: Callable[[int], Any] = _need(
    "torch._C._get_function_stack_at", "which modes the user has entered", lambda _: None
)
current_mode: Callable[[], Any] = _need(
    "torch.overrides._get_current_function_mode",
    "a mode that was put back after its end, by code of PyTorch's that an interrupt ended, is taken away",
    lambda: None,
)


def pop_of(mode: Any) -> Callable[[], object]:
    """The function that ends a mode."""
    if _pop_mode is None or "torch._C._push_on_torch_function_stack" in MISSING:
        return lambda: mode.__exit__(None, None, None)
    return _pop_mode


# --------------------------------------------------------------------------------------- gradients on or off

set_grad_enabled: Any = _need(
    "torch._C._set_grad_enabled",
    "the call by which all contexts switch gradients",
    torch.set_grad_enabled,
    "which lines switch gradients off",
)
is_outside_of_apply: Callable[[], bool] = _need(
    "torch._C._is_fwd_grad_enabled",
    "forward gradients are on everywhere but in Function.apply, which switches them off for the forward",
    bool,
)
_contextlib_file: str = _need("torch.utils._contextlib.__file__", "functions decorated with no_grad", "")
DECORATORS = _contextlib_file
"""The file in which functions run that were decorated with a context such as ``no_grad``."""

# ------------------------------------------------------------------------------------------------ optimizers

_switched: Any = getattr(
    _need(
        "torch.optim.optimizer._use_grad_for_differentiable",
        "steps of optimizers in which nothing is to be recorded are not shown, which costs less",
        None,
    ),
    "__code__",
    None,
)


def is_switched(step: object) -> bool:
    """Whether the step of an optimizer is one of PyTorch's that switches gradients off."""
    while hasattr(step, "__code__"):
        if _switched is not None and step.__code__ in _switched.co_consts:
            return True
        step = getattr(step, "__wrapped__", None)
    return False


_step_hooks: tuple[Any, ...] = tuple(
    [
        _need(
            f"torch.optim.optimizer._global_optimizer_{when}_hooks", "whether steps have hooks", {None: None}
        )
        for when in ("pre", "post")
    ]
)
_HOOKS = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"


def step_hooks(optimizer: torch.optim.Optimizer) -> list[Any]:
    """The hooks that run with a step of an optimizer."""
    own = [getattr(optimizer, name, {None: None}) for name in _HOOKS]
    return [hook for hooks in (*_step_hooks, *own) for hook in hooks.values()]


# -------------------------------------------------------------------------------------------------- autograd


_ORDER = "what was made before the watch began"


class _Nothing:
    """Stands for a class of which there are no objects."""


number_of: Callable[[Any], int] = (
    operator.methodcaller("_sequence_nr")
    if _has("torch._C._FunctionBase._sequence_nr", "the order in which nodes were made", _ORDER)
    else lambda _: 0
)


def _sequence_number() -> int:
    last = number_of(torch.ones((), requires_grad=True).view(1).grad_fn)
    return last and last + 1  # Where nodes have no numbers, all are 0.


next_node: Callable[[], int] = _need(
    "torch._C._autograd._get_sequence_nr",
    "the number of the next node that autograd makes in this thread",
    _sequence_number,
)
current_node: Callable[[], Any] = _need(
    "torch._C._current_autograd_node", "which operation's derivative runs", lambda: None
)
if TYPE_CHECKING:

    class DispatchMode:
        """What is used of PyTorch's."""

        def __enter__(self) -> Self: ...
        def __exit__(self, *_: object) -> None: ...

else:
    DispatchMode = _need(
        "torch.utils._python_dispatch.TorchDispatchMode",
        "which operations run, forwards and backwards",
        object,
    )
CheckpointFunction: Any = _need(
    "torch.utils.checkpoint.CheckpointFunction",
    "reentrant checkpoints, whose backward runs the forward again",
    _Nothing,
    "what reentrant checkpoints pass on",
)
_BACKWARD = "torch.autograd.function.BackwardCFunction"
backward_codes: frozenset[Any] = frozenset(
    [
        getattr(
            _need(f"{_BACKWARD}.{name}", "a function's backward runs", None, since=since), "__code__", None
        )
        for name, since in (("apply", "2.9"), ("apply_boxed", "2.13"))
    ]
)
"""The code that calls the ``backward`` of users' functions."""
function_of: Callable[[Any], Any] = (
    (lambda node: getattr(node, "_forward_cls", None))
    if _has(
        "torch.autograd.Function._backward_cls._forward_cls",
        "the function that a node, or a context, belongs to",
        "which functions of the user's pass on no gradient",
    )
    else lambda _: None
)
results_of: Callable[[Any], Any] = (
    operator.attrgetter("_input_metadata")
    if _has("torch._C._FunctionBase._input_metadata", "dtypes and sizes of what was made unseen", "")
    else lambda _: ()
)
"""What is known of the results of a node: for each, its dtype, shape and device."""
MADE_BY_TRANSFORMS = "torch._functorch.autograd_function"
"""The module of the functions that ``torch.vmap`` makes, whose forwards run those of the user's functions."""
function_counter: Any = _need(
    "torch.autograd.function.AUTOGRAD_FUNCTION_COUNTER", "whether new functions were made", None
)


class SavedBy(NamedTuple):
    """A tensor that a node saved for its derivative.

    Attributes:
        name: what the node calls it.
        tensor: the tensor, as it is now; None if it has been freed, or PyTorch does not show it.
        error: what PyTorch raises when it is taken out; empty if nothing.
    """

    name: str
    tensor: Any
    error: str


_SAVED = "_raw_saved_"
SHOWS_SAVED = _has("torch._C._autograd.SavedTensor.data", "which memory a derivative needs", since="2.10")
"""Whether this release shows what derivatives need."""
_saved_data: Callable[[Any], Any] = operator.attrgetter("data") if SHOWS_SAVED else lambda _: None
_saved_hook: Callable[[Any], Any] = (
    operator.attrgetter("unpack_hook")
    if _has("torch._C._autograd.SavedTensor.unpack_hook", "what hooks have packed", since="2.10")
    else lambda _: True
)


def saved_by(node: object) -> list[SavedBy]:
    """The tensors that a node saved, without those that hooks (the user's, or a checkpoint's) have packed."""
    saved = []
    for attribute in dir(node):
        if attribute.startswith(_SAVED):
            name = attribute.removeprefix(_SAVED)
            accessor = "saved_tensors" if name == "tensors" else f"_saved_{name}"
            try:
                raw = getattr(node, attribute)
                several = raw if isinstance(raw, tuple) else (raw,)
                if all(part is None or _saved_hook(part) is None for part in several):
                    error = _refused(node, accessor)
                    saved += [SavedBy(name, _saved_data(part), error) for part in several if part is not None]
            except RuntimeError as error:  # A user's function, and lists, tell at once that they were freed.
                saved.append(SavedBy(name, None, str(error)))
    return saved


def _refused(node: object, attribute: str) -> str:
    """What PyTorch says when a saved tensor is taken out; empty if nothing."""
    try:
        getattr(node, attribute)
    except RuntimeError as error:
        return str(error)
    return ""


BUILT_IN = "torch._C._VariableFunctions."
"""How the names of functions in C begin that PyTorch calls without it."""
UNNAMED = "torch._VariableFunctionsClass."
"""Where PyTorch says that functions of ``torch`` are which have no public name, such as those of lists."""
preserve_version: Callable[[Any], Any] = _need(
    "torch.autograd.grad_mode._unsafe_preserve_version_counter",
    "a function's backward on trial leaves no trace",
    lambda _: contextlib.nullcontext(),
)


class _Shown(TorchFunctionMode):
    """Notes whether it is shown a call of ``torch.autograd.backward``."""

    shown = False

    def __torch_function__(self, func: Any, _: object, args: Any = (), kwargs: Any = None) -> object:
        self.shown = self.shown or func is torch.autograd.backward
        return func(*args, **(kwargs or {}))


def _shows_backward() -> bool:
    """Whether modes are shown the calls of ``torch.autograd.backward``, as they are of newer releases."""
    loss = torch.zeros((), requires_grad=True)
    with _Shown() as mode:
        torch.autograd.backward(loss)
    return mode.shown


shows_backward: bool = _shows_backward()
foreach_norm: Callable[[list[Any]], Any] = _need(
    "torch._foreach_norm",
    "the norms of many gradients at once",
    lambda tensors: [torch.linalg.vector_norm(x) for x in tensors],
)

# ------------------------------------------------------------------------------------- attributes of tensors

_WRITES = "which lines write into tensors"
_version: Callable[[Any], int] = (
    operator.attrgetter("_version")
    if _has("torch.Tensor._version", "how often a tensor was written into", _WRITES)
    else lambda _: 0
)


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written into, as PyTorch counts it; -1 where it does not count."""
    try:
        return _version(tensor)
    except RuntimeError:  # It was made in inference mode.
        return -1


is_view: Callable[[Any], bool] = _need(
    "torch.Tensor._is_view", "views, whose gradients go through their bases", lambda _: False, _WRITES
)
base_of: Callable[[Any], Any] = (
    operator.attrgetter("_base")
    if _has("torch.Tensor._base", "the bases of views", _WRITES)
    else lambda _: None
)
hooks_of: Callable[[Any], Any] = (
    operator.attrgetter("_backward_hooks")
    if _has("torch.Tensor._backward_hooks", "the hooks of tensors", "which hooks change gradients")
    else lambda _: None
)
takes_at_once: Callable[[Any], Any] = (
    operator.attrgetter("_post_accumulate_grad_hooks")
    if _has("torch.Tensor._post_accumulate_grad_hooks", "whether a hook may take a gradient from grad")
    else lambda _: True
)
memory_id: Callable[[Any], int] = (
    operator.attrgetter("_cdata")
    if _has("torch.UntypedStorage._cdata", "the identity of memory")
    else operator.methodcaller("data_ptr")
)

# ---------------------------------------------------------------------------------------- modules, compilers

modules: Any = torch.nn.modules.module
forward_pre_hooks: dict[Any, Any] = _need(
    "torch.nn.modules.module._global_forward_pre_hooks",
    "which modules were called",
    {},
    "which modules were called",
)
other_hooks: tuple[Any, ...] = tuple(
    [
        _need(f"torch.nn.modules.module.{name}", "whether only hooks of watches are there", {})
        for name in ("_global_forward_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
    ]
)
asks_for_hooks: bool = _has(
    "torch.nn.modules.module._has_any_global_hook", "compiled modules do not warn of the hooks of watches"
)
COMPILED = "torch._dynamo.eval_frame", "_callback_from_stance"
"""The module and the function by which compiled code is called; the module is imported when it is needed."""
trees: Any = _need("torch.utils._pytree", "the structures of arguments of exported programs", None)
FakeTensor: Any = _need("torch._subclasses.FakeTensor", "tensors without values in exported programs", ())
OpOverload: Any = _need("torch._ops.OpOverload", "operators of exported programs", _Nothing)


def children_of(spec: Any) -> Sequence[Any]:
    """The parts of a structure of arguments, whose name has changed between releases."""
    return spec.children() if hasattr(spec, "children") else spec.children_specs


def local_part(x: torch.Tensor) -> torch.Tensor:
    """What this process has of a distributed tensor; of others, the tensor itself."""
    return getattr(x, "_local_tensor", x)


def is_compiled_itself(module: torch.nn.Module) -> bool:
    """Whether ``torch.compile`` compiled a module, or its ``compile`` did."""
    return type(module).__name__ == "OptimizedModule" or bool(getattr(module, "_compiled_call_impl", None))


def parts_and_wholes(module: object) -> list[tuple[Any, Any]]:
    """The parameters of which ``fully_shard`` keeps parts in a module, with those that it computes with."""
    state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
    groups = getattr(state, "_fsdp_param_groups", ())
    parameters = [parameter for group in groups for parameter in group.fsdp_params]
    return [(x.sharded_param, x._unsharded_param) for x in parameters if hasattr(x, "_unsharded_param")]
