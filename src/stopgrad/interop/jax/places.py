"""The user's line at which an equation of a jaxpr was written, from JAX's source information."""

from __future__ import annotations

import itertools
import os
import sysconfig
from collections.abc import Iterator
from types import CodeType

import jax
import jax.extend.core as jex

from stopgrad.base.source import INSTALLED, OWN, Called, Instruction, RawLocation, called, kind_of

_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
_HOME = os.path.join(_JAX, "_src", "lax", "lax.py")
"""The file of ``stop_gradient`` itself."""
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_SMOOTH = tuple(os.path.join(_JAX, "_src", name) + os.sep for name in ("nn", "ops", "scipy"))
_IDIOMS = (*_SMOOTH, os.path.join(_JAX, "_src", "numpy") + os.sep)
_FACADES = ("array_methods.py", "ufuncs.py", "ufunc_api.py", "lax.py", "tree_util.py")
"""The files through which a user's expression, such as ``a > b``, reaches JAX."""


def is_between(file: str) -> bool:
    """Whether a file is JAX's, ours or of Python's own library, and so holds no line of the user's."""
    return file.startswith(_JAX) or kind_of(file) not in (OWN, INSTALLED)


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed library."""
    return kind_of(file) == INSTALLED


def frames(eqn: jex.JaxprEqn) -> Iterator[tuple[CodeType, int]]:
    """The frames that led to an equation, innermost first. Inside a ``jit`` they end at its function."""
    traceback = eqn.source_info.traceback
    if traceback is not None:
        codes, instructions = traceback.raw_frames()
        yield from zip(codes, instructions, strict=True)


def place_of(eqn: jex.JaxprEqn, around: RawLocation | None) -> RawLocation | None:
    """The first frame outside of JAX, a library's with the user's line that led there.

    It is *around* if there is none, as in JAX's own functions; for an equation inside a ``jit`` that is the
    line that called the function.
    """
    if eqn.primitive.name == "stop_gradient":
        named = _where_named(eqn, around)
        if named is not None:
            return named
    stack = frames(eqn)
    for code, instruction in stack:
        if not is_between(code.co_filename):
            return called(code, instruction, itertools.chain(stack, _callers(around)))
    return around


def _where_named(eqn: jex.JaxprEqn, around: RawLocation | None) -> RawLocation | None:
    """The innermost code that names ``stop_gradient``: who wrote a stop, also one that others call.

    It may be JAX's own, such as that of a batched ``cond``, with the line that called it; None where nobody's
    code up to the user's own names it.
    """
    all_frames = list(frames(eqn))
    if all_frames and not any(
        code.co_filename == _HOME and "stop_gradient" in code.co_name for code, _ in all_frames
    ):
        # Nobody called it: it has the place of what JAX put it in for, such as a cond that is batched twice.
        (code, instruction), *outer = all_frames
        return called(code, instruction, itertools.chain(outer, _callers(around)))
    stack = iter(all_frames)
    for code, instruction in stack:
        file = code.co_filename
        if kind_of(file) != OWN and "stopgradient" in code.co_qualname.replace("_", "").lower():
            continue  # It is the function itself, JAX's or that of a library over it, such as Keras'.
        if any("stop_gradient" in name for name in (*code.co_names, *code.co_freevars, *code.co_varnames)):
            return called(code, instruction, itertools.chain(stack, _callers(around)))
        if kind_of(file) == OWN:
            return None
    return None


def _callers(place: RawLocation | None) -> Iterator[Instruction]:
    """The instruction of a place, and those that led there, as far as they are kept."""
    while place is not None:
        code, instruction = place
        if isinstance(code, Called):
            yield code.code, instruction
            place = code.caller
        else:
            place = None
            if isinstance(code, CodeType):
                yield code, instruction


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


def is_ruled_by_jax(eqn: jex.JaxprEqn) -> bool:
    """Whether the function of an equation with a rule of its own is JAX's, as ``nn.relu`` is."""
    for value in eqn.params.values():
        debug_info = getattr(getattr(value, "jaxpr", value), "debug_info", None)
        if _JAX in str(getattr(debug_info, "func_src_info", "")):
            return True
    return False
