"""Patches of PyTorch that are in place while any watch runs, and undone after the last."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

import torch

from stopgrad.interop.torch.recording.places import place_of, user_frame
from stopgrad.interop.torch.recording.recorder import Recorder

_inference: Any = torch.inference_mode
_Parameter: Any = torch.nn.Parameter
_torch: Any = torch
_module: Any = torch.nn.modules.module


class _Running(threading.local):
    """The recorders that run in a thread."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []


_RUNNING = _Running()
_LOCK = threading.RLock()


def _called(module: torch.nn.Module, _: object) -> None:
    """Note that a module is called."""
    for recorder in _RUNNING.recorders:
        recorder.called(module)


def _is_only_hook() -> bool:
    """Whether there are no hooks on all modules but ours."""
    others = _module._global_forward_hooks, _module._global_backward_hooks, _module._global_backward_pre_hooks
    return not any(others) and list(_module._global_forward_pre_hooks.values()) == [_called]


class _Patches:
    """The patches that stand while any watch runs, in whatever thread."""

    def __init__(self) -> None:
        self.count = 0
        self.stance: Any = None

    def apply(self) -> None:
        self._enter, self._exit = _inference.__enter__, _inference.__exit__
        enter, leave = self._enter, self._exit

        def __enter__(manager: torch.inference_mode) -> None:  # noqa: N807
            for recorder in _RUNNING.recorders:
                recorder.infer(manager, sys._getframe(1))
            return enter(manager)

        def __exit__(manager: torch.inference_mode, *failure: object) -> None:  # noqa: N807
            leave(manager, *failure)
            for recorder in _RUNNING.recorders:
                recorder.infer_no_more(manager)

        _inference.__enter__, _inference.__exit__ = __enter__, __exit__
        self._make = make = _Parameter.__dict__["__new__"]

        def __new__(  # noqa: N807
            cls: type[torch.nn.Parameter], data: torch.Tensor | None = None, requires_grad: bool = True
        ) -> Any:
            made = make(cls, data, requires_grad)
            if isinstance(data, torch.Tensor):
                for recorder in _RUNNING.recorders:
                    recorder.wrapped(made, data, place_of(user_frame(sys._getframe(1))))
            return made

        _Parameter.__new__ = __new__
        # To replace Module.__call__ would take longer than small models do: Python then forgets what it knows
        # of the attributes of all classes of modules.
        self._hook = _module.register_module_forward_pre_hook(_called)
        self._has_any = has_any = _module._has_any_global_hook
        # Compiled modules would warn.
        _module._has_any_global_hook = lambda: has_any() and not _is_only_hook()
        self._compile = original = torch.compile

        @functools.wraps(original)
        def compile_and_run_eagerly(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            self.run_eagerly()
            return made

        _torch.compile = compile_and_run_eagerly

    def run_eagerly(self) -> None:
        """Run compiled code as it was written, if anything may have been compiled."""
        if "torch._dynamo" in sys.modules and self.stance is None:
            self.stance = torch.compiler.set_stance("force_eager")

    def undo(self) -> None:
        stance, self.stance = self.stance, None
        if stance is not None:
            stance.__exit__(None, None, None)
        _torch.compile = self._compile
        _inference.__enter__, _inference.__exit__ = self._enter, self._exit
        _Parameter.__new__ = self._make
        self._hook.remove()
        _module._has_any_global_hook = self._has_any


_PATCHES = _Patches()


def begin(recorder: Recorder) -> None:
    """Let a recorder begin: patch PyTorch, if it is the first."""
    with _LOCK:
        if _PATCHES.count == 0:
            _PATCHES.apply()
        _PATCHES.count += 1
        _PATCHES.run_eagerly()
    _RUNNING.recorders = [*_RUNNING.recorders, recorder]


def end(recorder: Recorder) -> None:
    """Let a recorder end: undo the patches, if it was the last."""
    _RUNNING.recorders = [one for one in _RUNNING.recorders if one is not recorder]
    with _LOCK:
        _PATCHES.count -= 1
        if _PATCHES.count == 0:
            _PATCHES.undo()
