"""The user's line at which an equation of a jaxpr was written, from JAX's source information."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from types import CodeType

import jax
import jax.extend.core as jex

from stopgrad.base.source import RawLocation, is_internal

_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
_SMOOTH = tuple(os.path.join(_JAX, "_src", name) + os.sep for name in ("nn", "ops", "scipy"))
_IDIOMS = (*_SMOOTH, os.path.join(_JAX, "_src", "numpy") + os.sep)
_FACADES = ("array_methods.py", "ufuncs.py", "ufunc_api.py", "lax.py", "tree_util.py")
"""The files through which a user's expression, such as ``a > b``, reaches JAX."""


def is_between(file: str) -> bool:
    """Whether a file is JAX's, ours or of Python's own library, and so holds no line of the user's."""
    if file.startswith(_STANDARD):
        return not any(name in file for name in _INSTALLED)
    return file.startswith(("<frozen", _JAX)) or is_internal(file)


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed library."""
    return any(name in file for name in _INSTALLED)


def frames(eqn: jex.JaxprEqn) -> Iterator[tuple[CodeType, int]]:
    """The frames that led to an equation, innermost first. Inside a ``jit`` they end at its function."""
    found = eqn.source_info.traceback
    if found is not None:
        codes, instructions = found.raw_frames()
        yield from zip(codes, instructions, strict=True)


def place_of(eqn: jex.JaxprEqn, around: RawLocation | None) -> RawLocation | None:
    """The first frame outside of JAX; *around* if there is none, as in JAX's own functions."""
    for code, instruction in frames(eqn):
        if not is_between(code.co_filename):
            return code, instruction
    return around


def _written_in(eqn: jex.JaxprEqn, after: str) -> str:
    """The file that called JAX's function *after*, or JAX's facades, to bind an equation."""
    waiting = bool(after)
    for code, _ in frames(eqn):
        file = code.co_filename
        if waiting:
            waiting = code.co_name != after
        elif not file.startswith((_STANDARD, *_CORE)) and os.path.basename(file) not in _FACADES:
            return file
    return ""


_CORE = tuple(
    os.path.join(_JAX, "_src", name)
    for name in (
        "source_info_util.py", "interpreters" + os.sep, "core.py", "pjit.py", "traceback_util.py", "api.py",
        "linear_util.py", "api_util.py", "custom_derivatives.py", "profiler.py",
    )
)  # fmt: skip


def is_idiom(eqn: jex.JaxprEqn) -> bool:
    """Whether a ``stop_gradient`` is written in one of JAX's own numerical functions, not by a user.

    There JAX stops gradients that would be zero, such as that of the maximum in a softmax.
    """
    return _written_in(eqn, "stop_gradient").startswith(_IDIOMS)


def is_inside(eqn: jex.JaxprEqn) -> bool:
    """Whether a comparison is written in one of JAX's own differentiable functions, such as ``nn.elu``."""
    return _written_in(eqn, "").startswith(_SMOOTH)
