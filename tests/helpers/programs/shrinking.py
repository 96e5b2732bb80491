"""Makes a program that fails smaller, as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from programs.language import INPUTS, Program, Statement, changed, everything, renamed


def shrunk(program: Program, fails: Callable[[Program], bool], tries: int = 2000) -> Program:
    """The smallest program found that still fails."""
    progress = True
    while progress:
        progress = False
        for less in smaller(program):
            tries -= 1
            if tries < 0:
                return program
            if fails(less):
                program, progress = less, True
                break
    return program


def smaller(program: Program) -> Iterator[Program]:
    """Programs a little smaller than this one, the smallest first."""
    for k in range(len(program.results)):
        if len(program.results) > 1:
            yield replace(program, results=program.results[:k] + program.results[k + 1 :])
    for k in range(len(program.asked)):
        yield replace(program, asked=program.asked[:k] + program.asked[k + 1 :])
    for k in range(len(program.stops)):
        yield replace(program, stops=program.stops[:k] + program.stops[k + 1 :])
    for statement in reversed(list(everything(program.statements))):
        yield from _without(program, statement)
    for statement in everything(program.statements):
        for less in _less(statement):
            yield changed(program, statement.label, lambda _, less=less: (less,))  # type: ignore[misc]


def _without(program: Program, statement: Statement) -> Iterator[Program]:
    """The program without a statement; what it makes is replaced by what it takes, or by inputs."""
    gone = changed(program, statement.label, lambda _: ())
    if not statement.makes:
        if statement.form == "block":
            yield changed(program, statement.label, lambda s: s.inside)
        yield gone
        return
    for kinds in (statement.takes, INPUTS):
        new = {}
        for name in statement.makes:
            new[name] = next((other for other in kinds if other[0] == name[0]), "")
        if all(new.values()):
            yield renamed(gone, new)


def _less(statement: Statement) -> Iterator[Statement]:
    """The statement with less in it."""
    if statement.number is None and statement.form == "while":
        yield replace(statement, number=1)
    if statement.number and statement.form != "scan":
        yield replace(statement, number=statement.number - 1)
    for k in range(len(statement.names)):
        if len(statement.names) > 1:
            yield replace(statement, names=statement.names[:k] + statement.names[k + 1 :])
    for k, name in enumerate(statement.takes):
        for other in INPUTS if k or statement.form != "write" else ():
            if other[0] == name[0] and name not in INPUTS:
                takes = (*statement.takes[:k], other, *statement.takes[k + 1 :])
                yield replace(statement, takes=takes)
    for k, function in enumerate(statement.functions):
        for j, name in enumerate(function.gives):
            for other in (*function.takes, *INPUTS):
                if other[0] == name[0] and name not in (*INPUTS, *function.takes):
                    gives = (*function.gives[:j], other, *function.gives[j + 1 :])
                    functions = list(statement.functions)
                    functions[k] = replace(function, gives=gives)
                    yield replace(statement, functions=tuple(functions))
                    break
    if statement.form == "switch" and len(statement.functions) > 2:
        for k in range(len(statement.functions)):
            functions = statement.functions[:k] + statement.functions[k + 1 :]
            yield replace(statement, functions=functions)
