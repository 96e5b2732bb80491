"""What calls of a function may change, as it was before: tensors, modules, and random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from stopgrad.interop.torch import internals

Tensor = torch.Tensor


class State:
    """The values of tensors, what modules hold, and the states of generators, to be put back."""

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[Tensor, Tensor, Tensor | None, Tensor | None]] = {}
        self._modules: dict[int, tuple[torch.nn.Module, dict[str, Any], dict[str, Any]]] = {}
        self._random = torch.random.get_rng_state()
        self._python, self._numpy = random.getstate(), np.random.get_state()

    def keep(self, x: Tensor) -> None:
        """Note the value of a tensor and of its ``grad``."""
        if id(x) not in self._tensors and x.layout is torch.strided and x.device.type != "meta":
            with internals.DisableTorchFunction():
                grad = x.grad if x.is_leaf else None
                copy = None if grad is None else grad.detach().clone()
                self._tensors[id(x)] = (x, x.detach().clone(), grad, copy)

    def keep_module(self, module: torch.nn.Module) -> None:
        """Note what a module and those in it hold."""
        for part in module.modules():
            if id(part) not in self._modules:
                self._modules[id(part)] = (part, dict(part.__dict__), dict(part._buffers))
                for x in (*part._parameters.values(), *part._buffers.values()):
                    if x is not None:
                        self.keep(x)

    def restore(self) -> None:
        """Make everything what it was."""
        with internals.DisableTorchFunction(), torch.no_grad():
            for x, value, grad, of_grad in self._tensors.values():
                if not _same(x, value):
                    x.data.copy_(value)
                if x.is_leaf and x.grad is not grad:
                    x.grad = grad
                if grad is not None and of_grad is not None and not _same(grad, of_grad):
                    grad.data.copy_(of_grad)
        for module, attributes, buffers in self._modules.values():
            for name in [name for name in module.__dict__ if name not in attributes]:
                del module.__dict__[name]
            module.__dict__.update(attributes)
            if {**module._buffers} != buffers:
                module._buffers.clear()
                module._buffers.update(buffers)
        torch.random.set_rng_state(self._random)
        random.setstate(self._python)
        np.random.set_state(self._numpy)

    @contextmanager
    def moved(self, xs: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
        """While this lasts, these tensors have other values, which are what is put back."""
        before = [self._tensors[id(x)] for x in xs]
        try:
            for x, value, (_, _, grad, of_grad) in zip(xs, values, before, strict=True):
                self._tensors[id(x)] = (x, value, grad, of_grad)
            self.restore()
            yield
        finally:
            for x, entry in zip(xs, before, strict=True):
                self._tensors[id(x)] = entry
            self.restore()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Modules that are called while this lasts are noted before they run."""
        hooks: dict[Any, Any] = internals.forward_pre_hooks
        key = object()
        hooks[key] = self._called
        try:
            yield
        finally:
            hooks.pop(key, None)

    def _called(self, module: torch.nn.Module, _: object) -> None:
        self.keep_module(module)


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    equal = torch.equal(a.detach(), b)
    return equal and not bool((b == 0).any())  # Zeros may differ in their signs.
