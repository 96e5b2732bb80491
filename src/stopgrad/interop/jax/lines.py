"""Where in the user's file an equation of a jaxpr was written, as its own source information says."""

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
"""Through which what a user writes reaches JAX, such as ``a > b``."""


def is_between(file: str) -> bool:
    """Whether a file stands between JAX and the user's line: JAX itself, ours, or Python's own library."""
    if file.startswith(_STANDARD):
        return not any(name in file for name in _INSTALLED)
    return file.startswith(("<frozen", _JAX)) or is_internal(file)


def is_installed(file: str) -> bool:
    """Whether a file is that of an installed library."""
    return any(name in file for name in _INSTALLED)


def frames(eqn: jex.JaxprEqn) -> Iterator[tuple[CodeType, int]]:
    """The frames that led to an equation, the innermost first. Inside of a ``jit``, up to its function."""
    found = eqn.source_info.traceback
    if found is not None:
        codes, instructions = found.raw_frames()
        yield from zip(codes, instructions, strict=True)


def place_of(eqn: jex.JaxprEqn, around: RawLocation | None) -> RawLocation | None:
    """The first frame outside of JAX; of what JAX itself wrote in a function of its own, *around*."""
    for code, instruction in frames(eqn):
        if not is_between(code.co_filename):
            return code, instruction
    return around


def _written_in(eqn: jex.JaxprEqn, after: str) -> str:
    """The file that calls what bound an equation: behind a function of that name, or behind JAX's facades."""
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

    There JAX stops gradients that would be zero, as that of the maximum in a softmax.
    """
    return _written_in(eqn, "stop_gradient").startswith(_IDIOMS)


def is_inside(eqn: jex.JaxprEqn) -> bool:
    """Whether a comparison is written in one of JAX's own functions that have derivatives, as ``nn.elu``."""
    return _written_in(eqn, "").startswith(_SMOOTH)
