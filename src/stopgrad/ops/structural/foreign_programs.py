"""Programs of JAX that foreign operations carry, as text in the graph.

A program may come with a graph from anywhere. What it says of itself is checked when it is read. Its code is
run only if JAX wrote it in this process, or if whoever loaded the graph trusts it: JAX's own reader of such
code can crash the process, and the code may call functions of the process by their addresses.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, Array, EngineError, Namespace, Sizes, Status

WALLS = (Status.STOPPED, Status.NOT_DIFFERENTIABLE, Status.UNDEFINED, Status.DISCONNECTED)
"""What may keep a gradient from an operand."""


class Step(NamedTuple):
    """How JAX computes a foreign operation, or a derivative of it.

    Attributes:
        call, results, walls, reach: as for :class:`stopgrad.ops.structural.foreign.Foreign`.
        refused: the results whose derivative JAX lacks, and why.
        towards: for a derivative: the operands of the step before for which it computes cotangents.
        wants: for a derivative: the results of the step before whose cotangents it takes, after that step's
            operands.
        reason: why there is no code.
        code: a serialised ``jax.export.Exported``; empty where there is none.
    """

    call: str
    results: tuple[tuple[Any, ...], ...] = ()
    walls: tuple[tuple[int, str, str], ...] = ()
    reach: tuple[tuple[int, ...], ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    towards: tuple[int, ...] = ()
    wants: tuple[int, ...] = ()
    reason: str = ""
    code: bytes = b""


def written(steps: Sequence[Step]) -> str:
    """The text of a program: the steps for an operation and its successive derivatives, in base64."""
    heads = [(len(step.code), *step[:-1]) for step in steps]
    program = b"\n".join([json.dumps(heads).encode(), b"".join([step.code for step in steps])])
    return base64.b64encode(program).decode()


@functools.lru_cache(64)
def steps_of(program: str, operands: int) -> tuple[Step, ...]:
    """The steps of a program for an operation with so many operands.

    Raises:
        ArgumentError: the text is no program, or its parts do not fit together.
    """
    try:
        head, _, codes = base64.b64decode(program, validate=True).partition(b"\n")
        heads = _as_tuples(json.loads(head))
    except (ValueError, RecursionError):  # What is no base64, no UTF-8, no JSON, or too deep.
        raise ArgumentError("a foreign operation's program cannot be read") from None
    if not isinstance(heads, tuple) or not heads or not all(map(_is_head, heads)):
        raise ArgumentError("a foreign operation's program does not describe its steps")
    if sum(size for size, *_ in heads) != len(codes):
        raise ArgumentError("a foreign operation's program has more or less code than it says")
    steps: list[Step] = []
    start = 0
    for size, *parts in heads:
        step = Step(*parts)._replace(code=codes[start : start + size])
        start += size
        if steps:
            _positions(step.towards, operands, "an operand of the step before")
            _positions(step.wants, len(steps[-1].results), "a result of the step before")
            operands += len(step.wants)
            if step.code and len(step.results) != len(step.towards):
                raise ArgumentError("a foreign operation's gradient has a result for each of its operands")
        if step.code or not steps:
            check_call(step.call, step.results, step.walls, step.reach, operands)
            _positions([position for position, _ in step.refused], len(step.results), "a result")
        steps.append(step)
    return tuple(steps)


def check_call(call: str, results: Any, walls: Any, reach: Any, operands: int) -> None:
    """Raise for a foreign operation that cannot be.

    Raises:
        ArgumentError: it has no name, or a wall or a dependence names what it does not have.
    """
    if not _is(call, str) or not call:
        raise ArgumentError("a foreign operation has the name of a call")
    if not _all(results, lambda y: _is(y, tuple) and bool(y) and _is(y[0], str)):
        raise ArgumentError(f"each result of {call[:60]} has a dtype and sizes, not {d.shorten(results)}")
    if not _all(walls, lambda w: _fits(w, (int, str, str)) and w[1] in WALLS):
        raise ArgumentError(
            f"each wall of {call[:60]} is a position, one of {', '.join(WALLS)}, and a reason, not "
            f"{d.shorten(walls)}"
        )
    _positions([position for position, *_ in walls], operands, f"an operand of {call[:60]}")
    if not _all(reach, lambda some: _all(some, lambda i: _is(i, int))) or len(reach) not in (0, len(results)):
        raise ArgumentError(
            f"{call[:60]} says for each of its {len(results)} results on which operands it depends, or for "
            f"none, not {d.shorten(reach)}"
        )
    for some in reach:
        _positions(some, operands, f"an operand of {call[:60]}")


def _positions(positions: Sequence[int], count: int, what: str) -> None:
    """Raise unless these are different positions among so many."""
    for position in positions:
        if not 0 <= position < count:
            raise ArgumentError(f"{position} is no position of {what}; there are {count}")
    if len({*positions}) < len(positions):
        raise ArgumentError(f"{what} is named twice: {d.shorten(positions)}")


def _is_head(head: Any) -> bool:
    """Whether this is the description of a step: the length of its code, and the fields of :class:`Step`."""
    if not _fits(head, (int, str, tuple, tuple, tuple, tuple, tuple, tuple, str)) or head[0] < 0:
        return False
    _, _, _, _, _, refused, towards, wants, _ = head
    return _all(refused, lambda x: _fits(x, (int, str))) and _all((*towards, *wants), lambda i: _is(i, int))


def _fits(value: Any, kinds: Sequence[type]) -> bool:
    return _is(value, tuple) and len(value) == len(kinds) and all(map(_is, value, kinds))


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _all(values: object, holds: Callable[[Any], bool]) -> bool:
    return isinstance(values, tuple) and all(map(holds, values))


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


# ------------------------------------------------------------------------------------------------ its code

_TRUSTED: set[bytes] = set()
"""The SHA-256 of each code that JAX wrote in this process, or that somebody trusts."""


def trust(code: bytes) -> bytes:
    """Have this code run in this process, whichever graph it is in; the code."""
    _TRUSTED.add(sha256(code).digest())
    return code


@functools.lru_cache(64)
def loaded(xp: Namespace, code: bytes) -> Callable[..., Sequence[Array]]:
    """The function of a step's code, whose ``vmap`` calls it for one example after another.

    Raises:
        EngineError: nobody trusts it, or JAX cannot read it.
    """
    if sha256(code).digest() not in _TRUSTED:
        raise EngineError(
            "the graph came from a file or text with a program of JAX, which is native code: nothing keeps "
            "it from crashing this process or from taking it over. If you trust where it comes from, load "
            "the graph with Graph.load(path, trusted=True) or Graph.from_text(text, trusted=True)"
        )
    try:
        call: Callable[..., Any] = xp.export.deserialize(bytearray(code)).call
    except Exception as error:  # Whatever flatbuffers and MLIR raise.
        raise EngineError(f"JAX cannot read the program: {' '.join(str(error).split())[:200]}") from error
    batched: Callable[..., Any] = xp.jax.custom_batching.sequential_vmap(call)
    return batched


def computed(xp: Namespace, step: Step, tensors: Sequence[Array], results: Sizes) -> Array | Sequence[Array]:
    """What a step's code computes from arrays.

    Raises:
        EngineError: it takes or makes other arrays than the operation says.
    """
    try:
        arrays = loaded(xp, step.code)(*tensors)
    except (TypeError, ValueError) as error:
        raise EngineError(f"the program of {step.call} takes other arrays: {error}") from error
    kinds = tuple([(y.dtype.name, *y.shape) for y in arrays])
    if kinds != results:
        raise EngineError(f"the program of {step.call} makes {kinds}, and not {results} as the graph says")
    return arrays[0] if len(arrays) == 1 else arrays
