"""Fixes JAX's settings while this engine traces and computes, and restores them afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any, TypeVar

_Setting = tuple[Callable[[Any], Any], str, Any]
"""The context manager of a setting, its name, and its value here."""

R = TypeVar("R")


class Settings:
    """The settings of JAX that change what is traced, or stop a compiled program.

    JAX reads them from the process and the thread whenever it traces. An executable that was compiled ahead
    of time reads only the one for 64-bit NumPy arrays, and those of the three debugging aids.
    """

    enable_x64: Any

    def __init__(self, jax: ModuleType) -> None:
        self._config = jax.config
        self.enable_x64 = jax.enable_x64
        self._fixed: list[_Setting] = [
            (jax.disable_jit, "jax_disable_jit", False),
            (jax.debug_nans, "jax_debug_nans", False),
            (jax.debug_infs, "jax_debug_infs", False),
            (jax.numpy_rank_promotion, "jax_numpy_rank_promotion", "allow"),
            (jax.numpy_dtype_promotion, "jax_numpy_dtype_promotion", "standard"),
            (jax.default_matmul_precision, "jax_default_matmul_precision", None),
            (jax.allow_f16_reductions, "jax_allow_f16_reductions", True),
        ]

    def fixed(self, wide: bool, function: Callable[..., R], *arguments: object) -> R:
        """Call a function under the engine's own settings; *wide* says whether with 64-bit types."""
        fixed = [(self.enable_x64, "jax_enable_x64", wide), *self._fixed]
        return self._under(fixed, function, *arguments)

    def wide(self, function: Callable[..., R], *arguments: object) -> R:
        """Call a function with 64-bit types, and all other settings unchanged."""
        if self._config.jax_enable_x64:
            return function(*arguments)
        try:
            with self.enable_x64(True):
                return function(*arguments)
        finally:
            if self._config.jax_enable_x64:
                self._repair(self.enable_x64, False)

    def _under(self, fixed: list[_Setting], function: Callable[..., R], *arguments: object) -> R:
        config = self._config
        before = [getattr(config, name) for _, name, _ in fixed]
        try:
            with ExitStack() as stack:
                for context, _, value in fixed:
                    stack.enter_context(context(value))
                return function(*arguments)
        finally:
            for (context, name, _), value in zip(fixed, before, strict=True):
                if getattr(config, name) != value:
                    self._repair(context, value)

    @staticmethod
    def _repair(context: Callable[[Any], Any], value: object) -> None:
        """Restore a setting. JAX does not, if it is interrupted while it changes one."""
        context(value).__enter__()
