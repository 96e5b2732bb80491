"""The path by which an operation of a page is grouped: the scopes in its name, then the calls that led to it.

Calls are known by the instructions that the functions were executing. Whether two operations were made in one
call or in two follows from their order: within a call, a function goes back to an earlier instruction only in
a loop.
"""

from __future__ import annotations

import dis
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType
from typing import NamedTuple

from stopgrad.base.source import Called, Calls
from stopgrad.flow.page.collected import Collected
from stopgrad.graph.graph import Operation

SCOPE, CALL = "scope", "call"
_AGAIN = re.compile(r"(.*\d)_\d+$")
"""The name of a scope of an author's own number that was entered again, as "block9_1"."""


class Step(NamedTuple):
    """One scope or call on a path.

    Attributes:
        kind: ``"scope"`` or ``"call"``.
        label: the name of the scope, or of the function with its class.
        number: tells calls of one function apart; 0 for scopes.
    """

    kind: str
    label: str
    number: int = 0


Path = tuple[Step, ...]


def label_of(steps: Sequence[Step]) -> str:
    """The name of a group of operations that share these steps, beyond those of the groups around it.

    Scopes are named before calls; of calls inside each other the outermost, which contains the others.
    """
    scopes = [step.label for step in steps if step.kind == SCOPE]
    return "/".join(scopes) if scopes else steps[0].label


def paths_of(
    collected: Collected, noted: Mapping[Operation, Calls], inputs: Sequence[Sequence[int]]
) -> list[Path]:
    """The paths of the operations asked about, in their order.

    Args:
        noted: the calls that led to operations, where they were noted. Of others, the innermost function is
            known; those around it follow from what it and they make before and after.
        inputs: for each operation, those that it takes values from.
    """
    operations = collected.operations[: collected.forward]
    scopes = _scopes(operations)
    calls: list[Path] = [()] * collected.forward
    numbering = _Numbering()
    for members in [collected.top, *(members for _, _, members, _ in collected.bodies)]:
        own = [i for i in members if inputs[i]]  # What has no inputs goes where it is used.
        numbered = numbering.paths([operations[i] for i in own], noted)
        for i, path in zip(own, _without_shared_calls(numbered), strict=True):
            calls[i] = path
    paths = [(*scope, *path) for scope, path in zip(scopes, calls, strict=True)]
    _move_leaves(paths, inputs)
    return paths


# ---------------------------------------------------------------------------------------------- scopes


def _scopes(operations: Iterable[Operation]) -> list[Path]:
    """The scopes in the names of operations. One that was entered again is the one that it was."""
    prefixes = [op.name.rpartition("/")[0] for op in operations]
    paths: dict[str, Path] = {"": ()}
    scopes: set[str] = set()
    for prefix in set(prefixes):
        while prefix and prefix not in scopes:
            scopes.add(prefix)
            prefix = prefix.rpartition("/")[0]
    for prefix in sorted(scopes, key=lambda prefix: prefix.count("/")):
        outer, _, last = prefix.rpartition("/")
        again = _AGAIN.match(last)
        name = again[1] if again and (f"{outer}/{again[1]}" if outer else again[1]) in scopes else last
        paths[prefix] = (*paths[outer], Step(SCOPE, name))
    return [paths[prefix] for prefix in prefixes]


# ----------------------------------------------------------------------------------------------- calls


def _calls_noted_in(op: Operation) -> Calls:
    """The calls that led to an operation, as far as its place knows them: mostly the innermost one."""
    inner = []
    place, at = op._place, op._instruction
    while isinstance(place, Called):
        inner.append((place.code, at))
        place, at = place.caller
    if isinstance(place, CodeType):
        inner.append((place, at))
    return tuple(reversed(inner))


class _Open(NamedTuple):
    """A call that is going on.

    Attributes:
        code, at: the function, and the instruction that it executes.
        step: the step that stands for it.
        returns: whether the function itself makes a further operation later.
    """

    code: CodeType
    at: int
    step: Step
    returns: bool


class _Numbering:
    """Numbers the calls that led to operations, which come in the order in which they were made."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._loops: dict[CodeType, list[tuple[int, int]]] = {}
        self._open: list[_Open] = []  # Those that led to the last operation.

    def paths(self, operations: Sequence[Operation], noted: Mapping[Operation, Calls]) -> list[Path]:
        calls_of = [noted[op] if op in noted else _calls_noted_in(op) for op in operations]
        returning = self._returning(calls_of)
        self._open = []
        paths = []
        for op, calls, returns in zip(operations, calls_of, returning, strict=True):
            if calls:
                self._enter(calls if op in noted else self._around(calls), returns)
            paths.append(tuple([call.step for call in self._open]) if calls else ())
        return paths

    def _returning(self, calls_of: Sequence[Calls]) -> list[bool]:
        """For each operation, whether the call that made it makes a further one later."""
        after: dict[CodeType, int] = {}
        returning = []
        for calls in reversed(calls_of):
            code, at = calls[-1] if calls else (None, 0)
            returning.append(code in after and (after[code] > at or self._is_loop(code, after[code], at)))
            if code is not None:
                after[code] = at
        return returning[::-1]

    def _around(self, calls: Calls) -> Calls:
        """Calls with those around them, which nobody noted: those that are going on and that return later."""
        (code, at), *_ = calls
        depth = len(self._open)
        for n in range(depth - 1, -1, -1):
            call = self._open[n]
            if call.code is code and (at >= call.at or self._is_loop(code, at, call.at)):
                return (*[(outer.code, outer.at) for outer in self._open[:n]], *calls)
        while depth and not self._open[depth - 1].returns:
            depth -= 1
        return (*[(outer.code, outer.at) for outer in self._open[:depth]], *calls)

    def _enter(self, calls: Calls, returns: bool) -> None:
        same = self._same(calls)
        steps = [call.step for call in self._open[:same]]
        steps += [Step(CALL, _name(code), next(self._numbers)) for code, _ in calls[same:]]
        returning = [call.returns for call in self._open[:same]] + [False] * (len(calls) - same)
        returning[-1] = returns
        self._open = [
            _Open(*call, step, more) for call, step, more in zip(calls, steps, returning, strict=True)
        ]

    def _same(self, calls: Calls) -> int:
        """The number of calls, from the outermost on, that are the same as those of the last operation."""
        for depth, ((code, at), last) in enumerate(zip(calls, self._open, strict=False)):
            if code is not last.code:
                return depth
            if at == last.at:
                continue
            if at > last.at or self._is_loop(code, at, last.at):
                return depth + 1
            # It is called again: by the innermost function around it that goes through a loop.
            outer = (n for n in range(depth, 0, -1) if self._is_loop(*calls[n - 1], calls[n - 1][1]))
            return next(outer, depth)
        return min(len(calls), len(self._open))

    def _is_loop(self, code: CodeType, at: int, before: int) -> bool:
        """Whether a function gets from an instruction to one that is not behind it by a loop of its own."""
        jumps = self._loops.get(code)
        if jumps is None:
            back = [
                instruction
                for instruction in dis.get_instructions(code)
                if "JUMP_BACKWARD" in instruction.opname
            ]
            jumps = self._loops[code] = [(instruction.argval, instruction.offset) for instruction in back]
        return any(start <= at and before <= end for start, end in jumps)


def _name(code: CodeType) -> str:
    """A function's name, with that of its class; empty for those without a name of their own."""
    name = code.co_qualname.rpartition("<locals>.")[2]
    return "" if name.startswith("<") or name.endswith(">") else name


def _without_shared_calls(paths: Sequence[Path]) -> list[Path]:
    """Paths without the calls in which all operations were made, and without those of nameless functions."""
    within = [path for path in paths if path]
    shared = len(functools.reduce(_common, within)) if within else 0
    return [tuple([step for step in path[shared:] if step.label]) for path in paths]


# ---------------------------------------------------------------------------------------------- leaves


def _move_leaves(paths: list[Path], inputs: Sequence[Sequence[int]]) -> None:
    """Put what has no inputs, such as a parameter, into the innermost group that has all of its uses."""
    shared: dict[int, Path] = {}
    for i, path in enumerate(paths):
        for x in inputs[i]:
            if not inputs[x]:
                common = shared.get(x)
                shared[x] = path if common is None else _common(common, path)
    for x, path in shared.items():
        if path[: len(paths[x])] == paths[x]:
            paths[x] = path


def _common(one: Path, other: Path) -> Path:
    """The steps that two paths share."""
    n = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return one[:n]
