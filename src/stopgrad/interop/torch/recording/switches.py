"""Who watches in a thread, and what of PyTorch is changed for it.

**Nothing of PyTorch's depends on code of ours that runs at the end of a watch**, where an interrupt could
prevent it. PyTorch's functions are patched once for the process, by wrappers that do nothing while nobody
watches in their thread. What a watch adds, it takes back when its ``with`` statement drops it (see
:mod:`stopgrad.graph.builder`), by functions that are implemented in C, between which no signal is handled.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from stopgrad.interop.shared.lifetimes import Lifetime, at_once
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.effects_on_gradients import CALLS, Act, call_of
from stopgrad.interop.torch.recording.places import place_of, user_frame
from stopgrad.interop.torch.recording.recorder import Recorder

_inference: Any = torch.inference_mode
_Parameter: Any = torch.nn.Parameter
_Tensor = torch.Tensor
_torch: Any = torch
_NOTHING, _GRADIENT = Act.NOTHING, Act.GRADIENT  # Reading them from their class takes longer.
_are_gradients_on, _transformed = torch.is_grad_enabled, internals.peek_interpreter_stack
_switch: Callable[..., Any] = internals.set_grad_enabled


class _Running(threading.local):
    """The recorders that run in a thread."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []


_RUNNING = _Running()
_END = operator.methodcaller("end")


class _Here(threading.local):
    """Holds the function for the end of a watch in the thread that began it; in others it does nothing."""

    end: Callable[[], object] = object


class Mode(TorchFunctionMode):
    """Shows a recorder the calls of PyTorch's functions, as long as it runs."""

    recorder: Recorder

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder, self._run, self._run_plainly = recorder, recorder.run, recorder.run_plainly

    @property
    def has_ended(self) -> bool:
        """Whether it records no more.

        After an interrupt, PyTorch may put a mode back that it had put aside.
        """
        return self.recorder not in _RUNNING.recorders

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        here = self.recorder.region
        if here is not None and here.ignored and func is not _switch:
            return func(*args, **kwargs) if kwargs else func(*args)
        if self.recorder not in _RUNNING.recorders:  # It has ended in another thread, or this is a fork.
            return func(*args, **(kwargs or {}))
        for kind in types:
            if kind is not _Tensor and kind is not _Parameter and not issubclass(kind, _Tensor):
                return self._of_containers(func, types, args, kwargs or {})
        call = CALLS.get(func) or call_of(func)
        if call.plain and _are_gradients_on() and _transformed() is None:
            return self._run_plainly(call, func, args, kwargs or {})
        if call.act is _NOTHING:
            return func(*args, **kwargs) if kwargs else func(*args)
        if call.act is _GRADIENT and self.recorder.observer is None:
            return func(*args)
        return self._run(call, func, args, kwargs or {})

    def _of_containers(
        self, func: Callable[..., Any], types: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function of classes that are no tensors, but hold some.

        What they do in place of PyTorch is watched, too.
        """
        for kind in types:
            with self:
                result = kind.__torch_function__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
        return self._run(call_of(func), func, args, kwargs)


def begin(recorder: Recorder, lifetime: Lifetime, beneath: bool = False) -> None:
    """Let a recorder run in this thread, for as long as something is held.

    Args:
        beneath: whether its mode is put below those of the user's, who may leave them before it ends. It is
            then ended by :func:`end_beneath`.
    """
    _patch_everything()
    while isinstance(top := internals.current_mode(), Mode) and top.has_ended:
        internals.pop_of(top)()
    recorders, here = _RUNNING.recorders, _Here()
    # To replace Module.__call__ would take longer than small models do: Python then forgets what it knows
    # of the attributes of all classes of modules.
    hooks, key, mode = internals.forward_pre_hooks, object(), Mode(recorder)
    called = functools.partial(_called, recorder)
    steps: list[Callable[[], object]] = []
    steps += [functools.partial(recorders.append, recorder), functools.partial(recorders.remove, recorder)]
    steps += [int, recorder.ending()]
    steps += [functools.partial(hooks.__setitem__, key, called), functools.partial(hooks.pop, key, None)]
    if beneath:
        lifetime.do(*steps)
        _rearrange([mode, *_modes()])
        return
    here.end = internals.pop_of(mode)
    steps += [functools.partial(internals.push_mode, mode), functools.partial(_END, here)]
    lifetime.do(*steps)


def rest(recorder: Recorder) -> None:
    """Let a recorder of this thread see nothing more, also while a call runs, where it cannot end."""
    if recorder in _RUNNING.recorders:
        _RUNNING.recorders.remove(recorder)


def end_beneath(recorder: Recorder, lifetime: Lifetime) -> None:
    """End a recorder whose mode is below those of the user's."""
    if recorder not in _RUNNING.recorders:
        _RUNNING.recorders.append(recorder)  # It rests.
    _rearrange([mode for mode in _modes() if not (isinstance(mode, Mode) and mode.recorder is recorder)])
    lifetime.end()


def _modes() -> list[Any]:
    """The modes of this thread, the outermost first."""
    return [internals.mode_at(i) for i in range(internals.count_function_modes())]


def _rearrange(modes: Sequence[Any]) -> None:
    """Let these be the modes of this thread, the outermost first."""
    pops = [internals.pop_of(None)] * internals.count_function_modes()
    at_once([*pops, *[functools.partial(internals.push_mode, mode) for mode in modes]])


def _called(recorder: Recorder, module: torch.nn.Module, _: object) -> None:
    """Note that a module is called."""
    if recorder in _RUNNING.recorders:
        recorder.called(module)


def _is_ours(hook: object) -> bool:
    return isinstance(hook, functools.partial) and hook.func is _called


os.register_at_fork(after_in_child=lambda: _RUNNING.recorders.clear())

# ------------------------------------------------------------------------------ patches, once for the process

_PATCHED: set[str] = set()
_HOOK = "step"
_OPTIMIZER: Any = torch.optim.Optimizer
_STEPPED = tuple(
    [
        one
        for one in vars(torch.optim).values()
        if isinstance(one, type)
        and issubclass(one, _OPTIMIZER)
        and internals.is_switched(vars(one).get("step"))
    ]
)
"""PyTorch's optimizers whose steps switch gradients off, and record nothing."""
_PATCHES = 7 + len(_STEPPED) + internals.asks_for_hooks + (not internals.shows_backward)
"""How many are made while no compiler is imported."""
_DYNAMO = internals.COMPILED[0]
_OWN = frozenset(one for one in vars(torch.optim).values() if isinstance(one, type))
_PLAIN = frozenset([_Tensor, _Parameter, NoneType])
_LOCK = threading.RLock()
Original = Callable[..., Any]


def _patch_everything() -> None:
    if len(_PATCHED) == _PATCHES + (_DYNAMO in sys.modules):
        return
    with _LOCK:
        _patch(_inference, "__enter__", _entering_inference)
        _patch(_inference, "__exit__", _leaving_inference)
        _patch(_Parameter, "__new__", _making_parameters)
        if internals.asks_for_hooks:
            _patch(internals.modules, "_has_any_global_hook", _asking_for_hooks)
        _patch(_torch, "compile", _compiling)
        _patch(_OPTIMIZER, "__init__", _making_optimizers)
        _patch(_OPTIMIZER, "zero_grad", _zeroing)
        for optimizer in _STEPPED:
            _patch(optimizer, "step", _stepping)
        if _HOOK not in _PATCHED:
            _PATCHED.add(_HOOK)
            register_optimizer_step_post_hook(_stepped)
        if not internals.shows_backward:
            _patch(_torch.autograd, "backward", _showing)
        _run_eagerly()


def _run_eagerly() -> None:
    """Let compiled code run as it was written while somebody watches, if there may be any."""
    frames: Any = sys.modules.get(_DYNAMO)
    if frames is not None:
        with _LOCK:
            _patch(frames, "_callback_from_stance", _calling_compiled)


def _patch(owner: Any, name: str, wrapper: Callable[[Original], Original]) -> None:
    key = f"{owner.__name__}.{name}"
    if key not in _PATCHED:
        patched = functools.wraps(owner.__dict__[name])(wrapper(owner.__dict__[name]))
        at_once([functools.partial(setattr, owner, name, patched), functools.partial(_PATCHED.add, key)])


def _entering_inference(enter: Original) -> Original:
    def __enter__(manager: torch.inference_mode) -> None:  # noqa: N807
        for recorder in _RUNNING.recorders:
            recorder.infer(manager, sys._getframe(1))
        enter(manager)

    return __enter__


def _leaving_inference(leave: Original) -> Original:
    def __exit__(manager: torch.inference_mode, *failure: object) -> None:  # noqa: N807
        leave(manager, *failure)
        for recorder in _RUNNING.recorders:
            recorder.infer_no_more(manager)

    return __exit__


def _making_parameters(make: Original) -> Original:
    def __new__(  # noqa: N807
        cls: type[torch.nn.Parameter], data: torch.Tensor | None = None, requires_grad: bool = True
    ) -> Any:
        parameter = make(cls, data, requires_grad)
        if isinstance(data, torch.Tensor):
            for recorder in _RUNNING.recorders:
                recorder.wrapped(parameter, data, place_of(user_frame(sys._getframe(1))))
        return parameter

    return __new__


def _making_optimizers(make: Original) -> Original:
    def __init__(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        place = place_of(user_frame(sys._getframe(1))) if _RUNNING.recorders else None
        try:
            make(optimizer, *args, **kwargs)
        except Exception as error:
            for recorder in _RUNNING.recorders:
                recorder.explain(recorder, error, place, (*args, *kwargs.values()))
            raise
        for recorder in _RUNNING.recorders:
            recorder.made(optimizer, place)

    return __init__


def _stepped(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Tell recorders that an optimizer has stepped. It is a hook that stays."""
    if _RUNNING.recorders:
        place = place_of(user_frame(sys._getframe(1)))
        with internals.DisableTorchFunction():  # No mode of the user's sees it.
            for recorder in _RUNNING.recorders:
                recorder.stepped(optimizer, place)


def _stepping(step: Original) -> Original:
    """A step of one of PyTorch's optimizers. Nothing in it is recorded, so that it need not be shown."""

    def stepping(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if _torch.compiler.is_compiling() or args or kwargs or not _is_unseen(optimizer):
            return step(optimizer, *args, **kwargs)
        with internals.DisableTorchFunction():
            return step(optimizer)

    return stepping


def _zeroing(zero: Original) -> Original:
    """To take gradients away is not recorded either; but an observer is told."""

    def zero_grad(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> Any:
        if _torch.compiler.is_compiling() or not set_to_none or not _is_unseen(optimizer, observed=False):
            return zero(optimizer, set_to_none)
        with internals.DisableTorchFunction():
            return zero(optimizer, set_to_none)

    return zero_grad


def _is_unseen(optimizer: torch.optim.Optimizer, observed: bool = True) -> bool:
    """Whether the one who watches is the only one who would see the operations of an optimizer.

    Neither a mode of the user's nor a class of tensors may miss any, and no hook is to be run unseen.
    """
    recorders = _RUNNING.recorders
    if len(recorders) != 1 or (recorders[0].observer is not None and not observed):
        return False
    mode = internals.current_mode() if internals.count_function_modes() == 1 else None
    if not isinstance(mode, Mode) or mode.recorder is not recorders[0]:
        return False
    if type(optimizer) not in _OWN or optimizer.defaults.get("differentiable"):
        return False
    if internals.step_hooks(optimizer) != [_stepped]:
        return False
    with internals.DisableTorchFunction():
        for group in optimizer.param_groups:
            for x in group["params"]:
                if type(x) not in _PLAIN or type(x.grad) not in _PLAIN:
                    return False
    return True


def _asking_for_hooks(has_any: Original) -> Original:
    """Compiled modules would warn of the hooks of watches."""

    def has_any_global_hook() -> bool:
        ours = internals.forward_pre_hooks.values()
        return bool(has_any()) and (any(internals.other_hooks) or not all(map(_is_ours, ours)))

    return has_any_global_hook


def _showing(differentiate: Original) -> Original:
    """``torch.autograd.backward`` as in releases that show it to modes."""

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        listed = (tensors,) if isinstance(tensors, _Tensor) else tuple(tensors)
        if has_torch_function(listed):
            return handle_torch_function(_torch.autograd.backward, listed, tensors, *args, **kwargs)
        return differentiate(tensors, *args, **kwargs)

    return backward


def _compiling(compile: Original) -> Original:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        result = compile(*args, **kwargs)
        _run_eagerly()
        return result

    return compiled


def _calling_compiled(callback_of: Original) -> Original:
    def callback_from_stance(callback: Any) -> Any:
        return None if _RUNNING.recorders else callback_of(callback)

    return callback_from_stance
