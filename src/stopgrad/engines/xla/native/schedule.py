"""Writes programs for the vector machine of ``rows.cc``: what is computed when, and where it is kept.

A program is a sequence of stages, each of which passes over the columns of a row once. There are several,
because a sum over a row is known only after all its columns. A value that several stages need is kept, or
computed again if that is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stopgrad.engines.xla.native.recording import COLUMNS, FULL, NUMBER, ROW, VECTOR, Node
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import NumpyArray

INSTRUCTIONS = (
    "Copy", "Negative", "Abs", "Sign", "Square", "Sqrt", "Floor", "Ceil", "Round", "Exp", "Expm1", "Log",
    "Log1p", "Tanh", "Sigmoid", "Erf", "Erfc", "IsNan", "IsInf", "IsFinite", "Not", "ToFloat", "Add",
    "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Equal", "NotEqual", "Less", "LessEqual", "And",
    "Or", "EqualWhole", "LessWhole", "Where", "Load", "Position", "OneHot", "RowSum", "RowMax", "RowMin",
    "ColumnSum", "Total", "StoreBool", "Prefetch", "LoadRow", "Gather", "Inside", "StoreRow", "StoreRowBool",
    "TotalRow",
)  # fmt: skip
"""The instructions, in the order of ``instructions.h``."""

_OPCODES = {name: i for i, name in enumerate(INSTRUCTIONS)}
# The time of an instruction for a vector, in units of a load or store. Others than these take 2.
COSTS = {
    **{"Exp": 12, "Expm1": 15, "Log": 20, "Log1p": 32, "Tanh": 25, "Sigmoid": 22, "Erf": 45, "Erfc": 45},
    **{"Divide": 8, "Sqrt": 8, "Load": 3},
}
_KEPT = 7
"""The cost from which a value is kept for the next stage, instead of being computed again."""

_NONE, _TILE, _KEEP, _INPUT, _OUTPUT, _VECTOR, _ROW, _NUMBER, _ROW_INPUT, _LAST_OUTPUT = range(10)
_DTYPES = ("float32", "bool", "int32", "int64", "int8", "uint8", "int16", "uint16")
_REDUCED = {"RowSum", "RowMax", "RowMin"}

TILE = 2048
"""Numbers per tile: a few tiles fit into the first-level cache."""
BLOCK = 16384
"""Numbers per block: a few blocks fit into the second-level cache."""
LEAST_TASKS, TASKS = 8, 64
"""The number of tasks into which rows are divided, if there are enough."""


class Result(NamedTuple):
    """An output of a region, and the node that holds it."""

    output: Output
    node: Node


def _operand(kind: int, index: int) -> int:
    return index << 4 | kind


@dataclass
class _Stage:
    rows: list[tuple[int, ...]] = field(default_factory=list)
    tiles: list[tuple[int, ...]] = field(default_factory=list)


class Schedule:
    """Writes one program.

    Attributes:
        inputs: the inputs of the program, in order.
    """

    def __init__(self, rows: int, columns: int, results: Sequence[Result]) -> None:
        self._rows, self._columns = rows, columns
        self._results = results
        self.inputs: list[Output] = []
        self._positions: dict[Output, int] = {}
        self._sources: list[tuple[int, ...]] = []
        self._scalars: list[tuple[int, int]] = []
        self._numbers: dict[Node, int] = {}
        self._before: list[tuple[int, ...]] = []
        self._after: list[tuple[int, ...]] = []
        self._totals: list[int] = []
        self._row_registers: dict[Node, int] = {}
        self._kept: dict[Node, int] = {}
        self._stored: dict[Node, int] = {}
        self._most_tiles = 1
        self._weight = 0
        self._order = ordered([result.node for result in results])
        self._levels = self._find_levels()
        self._stages = [_Stage() for _ in range(2 + max(self._levels.values(), default=0))]
        self._needed = self._find_needs()

    # ---- when

    def _find_levels(self) -> dict[Node, int]:
        """The first stage in which each value is known: for a reduction, the one after its columns."""
        levels: dict[Node, int] = {}
        for node in self._order:
            level = max([levels[x] for x in node.inputs], default=0)
            levels[node] = level + 1 if node.op in _REDUCED else level
        return levels

    def _costs(self) -> dict[Node, int]:
        """The cost of computing each value of all columns again."""
        costs: dict[Node, int] = {}
        for node in self._order:
            own = 0 if node.op in ("input", "constant") and not _loads(node) else COSTS.get(node.op, 2)
            again = own + sum(costs[x] for x in node.inputs if x.kind == FULL)
            costs[node] = again if node.kind == FULL and again < _KEPT else 1
            if node.kind == FULL and again >= _KEPT:
                self._kept[node] = -1
        return costs

    def _find_needs(self) -> dict[Node, set[int]]:
        """The stages in which each value of all columns is needed."""
        self._costs()
        stored = {}
        for i, (output, node) in enumerate(self._results):
            if node.kind == FULL and node not in stored and output.dtype.numpy == np.float32:
                stored[node] = i
        needed: dict[Node, set[int]] = {node: set() for node in self._order}
        for _, node in self._results:
            if node.kind == FULL:
                needed[node].add(self._levels[node])
        for node in reversed(self._order):
            level = self._levels[node]
            if node.op in _REDUCED:
                needed[node.inputs[0]].add(level - 1)
            elif node.kind == FULL:
                # A sum over rows can be taken in any stage that has its operand.
                stages = needed[node] = needed[node] or {level}
                if len(stages) > 1 and (node in self._kept or node in stored) and not _is_input(node):
                    stages = {min(stages)}
                elif node in self._kept:
                    del self._kept[node]
                for x in node.inputs:
                    if x.kind == FULL:
                        needed[x] |= stages
        for node in list(self._kept):
            if len(needed[node]) < 2 or node in stored:
                del self._kept[node]
        self._kept = {node: i for i, node in enumerate(self._kept)}
        self._stored = {node: i for node, i in stored.items() if not _is_input(node)}
        return needed

    # ---- where

    def _position(self, x: Output) -> int:
        if x not in self._positions:
            self._positions[x] = len(self.inputs)
            self.inputs.append(x)
        return self._positions[x]

    def _source(self, node: Node) -> int:
        """The number of an input's source, which describes where its rows are."""
        output, view = node.data
        terms = [] if view is None else _terms(*view)
        over, modulo, times = (list(column) for column in zip(*terms, strict=True)) if terms else ([], [], [])
        for column in (over, modulo, times):
            column.extend([1] * (3 - len(column)))
        # The same row for all is a term, too.
        count = len(terms)
        if node.kind == VECTOR or (view is not None and not terms):
            count, times[0] = 1, 0
        source = (
            self._position(output), _DTYPES.index(output.dtype.name), count, *over, *modulo, *times
        )  # fmt: skip
        if source not in self._sources:
            self._sources.append(source)
        return self._sources.index(source)

    def _number(self, node: Node) -> int:
        """A single number as an operand. Its instructions are written first, if it is computed."""
        if node not in self._numbers:
            operands = [self._number(x) for x in node.inputs] if node.op != "Total" else []
            index = self._numbers[node] = len(self._numbers)
            if node.op == "input":
                self._scalars.append((index, self._position(node.data[0])))
            elif node.op not in ("constant", "Total"):
                code = self._after if node.late else self._before
                code.append(_instruction(node.op, _operand(_NUMBER, index), operands))
        return _operand(_NUMBER, self._numbers[node])

    def _row(self, node: Node) -> int:
        """A value with one number per row, as an operand."""
        if node.kind == NUMBER:
            return self._number(node)
        if node.op == "input" and not _loads(node):
            return _operand(_ROW_INPUT, self._position(node.data[0]))
        return _operand(_ROW, self._row_registers.setdefault(node, len(self._row_registers)))

    # ---- instructions

    def _write_rows(self) -> None:
        """Write the instructions on one number per row, each in its stage."""
        for node in self._order:
            stage = self._stages[self._levels[node]].rows
            if node.kind == ROW and node.op == "input":
                if _loads(node):
                    stage.append(_instruction("LoadRow", self._row(node), [self._source(node)]))
            elif node.op == "Gather":
                source, label = node.inputs
                stage.append(
                    _instruction("Gather", self._row(node), [self._source(source), self._row(label)])
                )
            elif node.kind == ROW and node.op not in _REDUCED:
                stage.append(_instruction(node.op, self._row(node), [self._row(x) for x in node.inputs]))
            elif node.op == "Total" and node.inputs[0].kind != FULL:
                stage.append(_instruction("TotalRow", self._total(node), [self._row(node.inputs[0])]))
        for i, (output, node) in enumerate(self._results):
            if node.kind == ROW or (node.kind == NUMBER and output.type.size != 1):
                name = "StoreRow" if output.dtype.numpy == np.float32 else "StoreRowBool"
                stage = self._stages[self._levels[node]].rows
                stage.append(_instruction(name, i, [self._row(node)]))

    def _total(self, node: Node) -> int:
        self._totals.append(self._number(node) >> 4)
        return len(self._totals) - 1

    def _read_directly(self) -> list[int]:
        """The inputs of all columns that are read without conversion."""
        inputs = [x for x in self._order if x.op == "input" and x.kind == FULL]
        return [
            _operand(_INPUT, self._position(x.data[0])) for x in inputs if self._needed[x] and not _loads(x)
        ]

    def _write_tiles(self, number: int) -> int:
        """Write a stage's instructions on all columns. Returns how long they take."""
        sinks = []
        for node in self._order:
            if node.op in _REDUCED and self._levels[node] - 1 == number:
                sinks.append(node)
            elif node.op in ("Total", "ColumnSum") and node.inputs[0].kind == FULL:
                stages = self._needed[node.inputs[0]]
                if max(stages) == number:
                    sinks.append(node)
            elif (node in self._kept or node in self._stored) and min(self._needed[node]) == number:
                sinks.append(node)
        bools = [
            (i, node)
            for i, (output, node) in enumerate(self._results)
            if node.kind == FULL and self._stored.get(node) != i and self._levels[node] == number
        ]
        before = self._weight
        _Tiles(self, number, sinks, bools).write()
        return self._weight - before


class _Tiles:
    """Writes the instructions of one stage on all columns, and assigns registers."""

    def __init__(
        self, schedule: Schedule, number: int, sinks: Sequence[Node], more: Sequence[tuple[int, Node]]
    ) -> None:
        self.schedule = schedule
        self.number = number
        self.sinks = sinks
        self.more = more
        self.code = schedule._stages[number].tiles
        self.registers: dict[Node, int] = {}
        self.free: list[int] = []
        self.count = 0
        self.order = ordered([*sinks, *(node for _, node in more)], self._inputs)
        self.uses: dict[Node, int] = {}
        for node in self.order:
            for x in self._inputs(node):
                self.uses[x] = self.uses.get(x, 0) + 1
        for _, node in more:
            self.uses[node] = self.uses.get(node, 0) + 1

    def _is_available(self, node: Node) -> bool:
        """Whether an earlier stage has stored or kept it."""
        schedule = self.schedule
        is_available = node in schedule._kept or node in schedule._stored
        return is_available and min(schedule._needed[node]) < self.number

    def _inputs(self, node: Node) -> Sequence[Node]:
        """The inputs of all columns that this stage must load to compute a node."""
        if self._is_available(node) or (node.kind != FULL and node not in self.sinks):
            return ()
        return [x for x in node.inputs if x.kind == FULL]

    def write(self) -> None:
        schedule = self.schedule
        for node in self.order:
            if node.kind == FULL and (self._is_available(node) or (_is_input(node) and not _loads(node))):
                continue
            if node.kind != FULL and node not in self.sinks:
                continue
            if node.op == "input":
                operands = [schedule._source(node)]
            else:
                operands = [self.place(x) for x in node.inputs]
            for x in self._inputs(node):
                self.release(x)
            name = "Load" if node.op == "input" else node.op
            self.code.append(_instruction(name, self.target(node), operands))
            schedule._weight += COSTS.get(name, 2)
        for i, node in self.more:
            output = schedule._results[i].output
            if output.dtype.numpy == np.float32:
                self.code.append(_instruction("Copy", _operand(_OUTPUT, i), [self.place(node)]))
            else:
                self.code.append(_instruction("StoreBool", i, [self.place(node)]))
            schedule._weight += 2
        schedule._most_tiles = max(schedule._most_tiles, self.count)

    def target(self, node: Node) -> int:
        schedule = self.schedule
        if node.op in _REDUCED:
            return schedule._row(node)
        if node.op == "Total":
            return schedule._total(node)
        if node.kind == COLUMNS:
            return next(
                k
                for k, r in enumerate([r for r in schedule._results if r.node.kind == COLUMNS])
                if r.node is node
            )
        if node in schedule._stored:
            again = self.uses.get(node) or len(schedule._needed[node]) > 1
            return _operand(_OUTPUT if again else _LAST_OUTPUT, schedule._stored[node])
        if node in schedule._kept:
            return _operand(_KEEP, schedule._kept[node])
        if self.free:
            register = self.free.pop()
        else:
            register = self.count
            self.count += 1
        self.registers[node] = register
        return _operand(_TILE, register)

    def release(self, node: Node) -> None:
        self.uses[node] -= 1
        if not self.uses[node] and node in self.registers:
            self.free.append(self.registers[node])

    def place(self, node: Node) -> int:
        schedule = self.schedule
        if node.kind in (ROW, NUMBER):
            return schedule._row(node)
        if node in self.registers:
            return _operand(_TILE, self.registers[node])
        if node in schedule._stored:
            return _operand(_OUTPUT, schedule._stored[node])
        if node in schedule._kept:
            return _operand(_KEEP, schedule._kept[node])
        return _operand(_VECTOR if node.kind == VECTOR else _INPUT, schedule._position(node.data[0]))


def _is_input(node: Node) -> bool:
    return node.op == "input"


def _loads(node: Node) -> bool:
    """Whether an input must be converted to float32, or its rows be repeated."""
    return node.op == "input" and (node.data[1] is not None or node.data[0].dtype.numpy != np.float32)


def _instruction(name: str, target: int, operands: Sequence[int]) -> tuple[int, ...]:
    return (_OPCODES[name], target, *operands, *[0] * (3 - len(operands)))


def ordered(
    roots: Iterable[Node], inputs: Callable[[Node], Sequence[Node]] = lambda node: node.inputs
) -> list[Node]:
    """Nodes in topological order, without recursion; a node's inputs keep their order."""
    order: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
            continue
        stack.append((node, True))
        stack.extend((x, False) for x in reversed(inputs(node)) if x not in order)
    return list(order)


def _terms(has: tuple[int, ...], used: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """The terms that map row r to a row of an input: the sum of r // over % modulo * times."""
    terms: list[tuple[int, int, int]] = []
    over = times = 1
    for n, m in zip(reversed(has), reversed(used), strict=True):
        if n == m:
            if terms and terms[-1][0] * terms[-1][1] == over and terms[-1][2] * terms[-1][1] == times:
                o, k, t = terms.pop()
                terms.append((o, k * m, t))
            elif m != 1:
                terms.append((over, m, times))
        over *= m
        times *= n
    return terms


def encode(rows: int, columns: int, results: Sequence[Result]) -> tuple[list[Output], Any]:
    """Write a program that computes results.

    Returns:
        The inputs of the program, and the program as the machine reads it.
    """
    schedule = Schedule(rows, columns, results)
    schedule._write_rows()
    costs = [schedule._write_tiles(number) for number in range(len(schedule._stages))]
    if columns <= TILE:
        # The busiest stage prefetches the next rows. For long rows the processor does so itself.
        busiest = schedule._stages[costs.index(max(costs))].tiles
        busiest[:0] = [_instruction("Prefetch", 0, [place]) for place in schedule._read_directly()]
    return schedule.inputs, _laid_out(schedule)


def _laid_out(schedule: Schedule) -> NumpyArray:
    rows, columns = schedule._rows, schedule._columns
    sums = [i for i, result in enumerate(schedule._results) if result.node.kind == COLUMNS]
    finals = [
        (i, schedule._number(node) >> 4)
        for i, (output, node) in enumerate(schedule._results)
        if node.kind == NUMBER and output.type.size == 1
    ]
    constants = [(index, node.data) for node, index in schedule._numbers.items() if node.op == "constant"]
    numbers = bytearray(4 * len(schedule._numbers))
    for index, value in constants:
        numbers[4 * index : 4 * index + 4] = value
    block = max(1, min(BLOCK // columns, -(-rows // LEAST_TASKS)))
    task = max(block, -(-rows // (TASKS * block)) * block)
    header = [
        rows, columns, block, min(TILE, block * columns), schedule._most_tiles, len(schedule._kept),
        len(schedule._row_registers), len(schedule._numbers), len(schedule._numbers), len(schedule._scalars),
        len(schedule._sources), len(schedule._totals), len(sums), len(schedule._before), len(schedule._after),
        len(finals), len(schedule._stages), task, schedule._weight,
    ]  # fmt: skip
    parts: list[Any] = [header, np.frombuffer(bytes(numbers), np.int32)]
    parts += [schedule._scalars, schedule._sources, schedule._totals, sums, finals]
    parts += [schedule._before, schedule._after]
    for stage in schedule._stages:
        parts += [[len(stage.rows), len(stage.tiles)], stage.rows, stage.tiles]
    return np.concatenate([np.asarray(part, np.int32).reshape(-1) for part in parts])
