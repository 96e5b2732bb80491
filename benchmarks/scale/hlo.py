"""What a compiled program of XLA's says and moves between devices, read from its text.

Bytes are those that one device sends, by the algorithms that are optimal in bandwidth (rings), for a group
of n devices and R bytes of result on each:

| operation | bytes sent by a device |
| --- | --- |
| all-reduce | 2 (n - 1) / n · R |
| all-gather | (n - 1) / n · R |
| reduce-scatter | (n - 1) · R, for the operand is n times the result |
| all-to-all, ragged-all-to-all | (n - 1) / n · R |
| collective-permute, collective-broadcast | R |

What stands in the body of a loop counts as often as XLA says that the loop runs; of the branches of a
conditional, the one that moves most. The same form serves every backend: ``-start`` and ``-done`` of
asynchronous operations, and those that stand in a computation that ``async-start`` calls, count once.

References:
    R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH.
    International Journal of High Performance Computing Applications 19 (2005).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

KINDS: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: float(n - 1),
    "all-to-all": lambda n: (n - 1) / n,
    "ragged-all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1.0,
    "collective-broadcast": lambda n: 1.0,
}
"""How many times its result each device sends, in a group of n."""


@dataclass(frozen=True)
class Collective:
    """One operation between devices.

    Attributes:
        kind: a key of ``KINDS``.
        result: bytes of its result on one device.
        group: how many devices take part in it together; of a collective-permute, 2.
        times: how often it runs.
    """

    kind: str
    result: float
    group: int
    times: int = 1

    @property
    def moved(self) -> float:
        """Bytes that a device sends in all its runs."""
        return self.times * KINDS[self.kind](self.group) * self.result if self.group > 1 else 0.0


@dataclass(frozen=True)
class Instruction:
    """One line of a computation: ``name = type opcode(operands), attributes``."""

    name: str
    type: str
    opcode: str
    rest: str

    def attribute(self, name: str) -> str:
        """What follows ``name=``; empty where it is not there."""
        found = re.search(rf"[ ,]{name}=(\{{[^}}]*\}}|[^,\s]+)", self.rest)
        return found[1] if found else ""


def collectives(text: str) -> list[Collective]:
    """All that one device does together with others while the program runs once.

    Args:
        text: of an HLO module, as ``compiled.as_text()`` has it.

    Raises:
        ValueError: it moves something in a loop of which XLA does not know how often it runs.
    """
    parts, entry = computations(text)
    return _within(parts, entry, devices(text), {})


def moved(text: str) -> float:
    """Bytes that one device sends while the program runs once."""
    return sum(found.moved for found in collectives(text))


# ------------------------------------------------------------------------------------------- the text


def devices(text: str) -> int:
    """How many devices the program runs on."""
    head = text.split("\n", 1)[0]
    counts = [re.search(rf"\b{name}=(\d+)", head) for name in ("num_partitions", "replica_count")]
    return math.prod(int(found[1]) for found in counts if found)


def computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The computations of a module by name, and the name of the one that is run."""
    parts: dict[str, list[Instruction]] = {}
    current: list[Instruction] | None = None
    entry = ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith((" ", "HloModule")):
            name = _word(line.removeprefix("ENTRY "))
            parts[name] = current = []
            entry = name if line.startswith("ENTRY ") else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and " = " in line:
            current.append(instruction(line))
    if not entry:
        raise ValueError("no ENTRY computation: is this the text of an HLO module?")
    return parts, entry


def instruction(line: str) -> Instruction:
    """A line of a computation."""
    name, right = line.strip().removeprefix("ROOT ").split(" = ", 1)
    right = re.sub(r"/\*.*?\*/", "", right)
    end = _closing(right) if right.startswith("(") else right.index(" ")
    opcode, rest = right[end:].strip().split("(", 1)
    return Instruction(_word(name), right[:end], opcode, rest)


def _word(text: str) -> str:
    return text.split(" ", 1)[0].removeprefix("%")


def _closing(text: str) -> int:
    """Where the bracket with which the text begins has ended."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0:
            return i + 1
    raise ValueError(f"brackets that do not close: {text[:80]}")


def elements(type: str) -> list[str]:
    """The types in a tuple; a type that is none, alone."""
    if not type.startswith("("):
        return [type]
    found, depth, start = [], 0, 1
    for i, char in enumerate(type):
        depth += (char in "([{") - (char in ")]}")
        if (char == "," and depth == 1) or depth == 0:
            found.append(type[start:i].strip())
            start = i + 1
    return [one for one in found if one]


def bytes_of(type: str) -> float:
    """Of a type as HLO writes it, ``f32[4,8]{1,0}``, or of all in a tuple."""
    if type.startswith("("):
        return sum(bytes_of(one) for one in elements(type))
    found = re.match(r"([a-z]+)(\d*)\w*\[([\d,<=]*)\]", type)
    if not found or found[1] in ("token", "opaque"):
        return 0.0
    bits = 8 if found[1] == "pred" else int(found[2])
    return bits / 8 * math.prod(int(size.removeprefix("<=")) for size in found[3].split(",") if size)


# ------------------------------------------------------------------------------------------- groups


def groups(text: str, count: int) -> list[list[int]]:
    """Which devices work together, from any of the three forms in which HLO writes it.

    ``{{0,1},{2,3}}``, where none stand for all together; ``[4,2]<=[2,4]T(1,0)``: the numbers from 0 on as
    an array of shape 2 × 4, transposed, as 4 groups of 2; ``mesh['a'=2,'b'=4] {'b'}``: along axes of a mesh
    of devices, or along part of one, ``{'b':(2)2}``: size 2, of which steps are 2 apart.
    """
    if text.startswith("["):
        shape, order = _iota(text)
        return _rows(order, shape[-1])
    if text.startswith("mesh"):
        return _along(text)
    found = [[int(i) for i in one.split(",")] for one in re.findall(r"\{([\d,]+)\}", text)]
    return found or [list(range(count))]


def _rows(order: Sequence[int], size: int) -> list[list[int]]:
    return [list(order[i : i + size]) for i in range(0, len(order), size)]


def _numbers(text: str) -> list[int]:
    return [int(i) for i in text.split(",") if i]


def _iota(text: str) -> tuple[list[int], list[int]]:
    found = re.match(r"\[([\d,]*)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?", text)
    shape = _numbers(found[1])
    sizes = _numbers(found[2] or found[1])
    axes = _numbers(found[3] or "") or list(range(len(sizes)))
    return shape, _transposed(range(math.prod(sizes)), sizes, axes)


def _transposed(values: Sequence[int], sizes: Sequence[int], axes: Sequence[int]) -> list[int]:
    """The elements of an array in the order in which they stand after its axes have been exchanged."""
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    places = [0]
    for axis in axes:
        places = [place + i * steps[axis] for place in places for i in range(sizes[axis])]
    return [values[place] for place in places]


def _along(text: str) -> list[list[int]]:
    """Groups along axes of a mesh. An axis of which a part is named is taken as several."""
    inside, after = text.removeprefix("mesh[").split("]", 1)
    mesh = [(name, int(size)) for name, size in re.findall(r"'([^']*)'=(\d+)", inside)]
    wanted = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", re.search(r"\{([^}]*)\}", after)[1])
    placed = re.search(r"device_ids=\((.*?)\)(?= |,|$)", after)
    sizes, chosen = [], []
    for name, size in mesh:
        cut = [(int(before or 1), int(part or size)) for other, before, part in wanted if other == name]
        passed = 1
        for before, part in sorted(cut):
            sizes += [before // passed, part]
            chosen.append(len(sizes) - 1)
            passed = before * part
        sizes.append(size // passed)
    ids: Sequence[int] = range(math.prod(sizes))
    if placed:
        ids = _iota(placed[1])[1] if placed[1].startswith("[") else _numbers(placed[1])
    rest = [i for i in range(len(sizes)) if i not in chosen]
    return _rows(_transposed(ids, sizes, rest + chosen), math.prod(sizes[i] for i in chosen))


# ------------------------------------------------------------------------------------------- counting


def _within(
    parts: dict[str, list[Instruction]], name: str, count: int, known: dict[str, list[Collective]]
) -> list[Collective]:
    """What a computation moves, with what it calls."""
    if name not in known:
        known[name] = [
            found
            for one in parts[name]
            for found in _own(one, count) or _called(one, lambda other: _within(parts, other, count, known))
        ]
    return known[name]


def _own(one: Instruction, count: int) -> list[Collective]:
    kind = one.opcode.removesuffix("-start")
    if kind not in KINDS:
        return []
    type = one.type
    if one.opcode != kind and kind != "all-reduce":
        # Operands, results, and what the operation needs for itself.
        type = elements(type)[1]
    if kind == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", one.rest)[1] + "}"
        apart = any(len({*_numbers(pair)}) > 1 for pair in re.findall(r"\{([\d,]+)\}", pairs))
        return [Collective(kind, bytes_of(type), 2 if apart else 1)]
    return [Collective(kind, bytes_of(type), max(map(len, groups(_groups_of(one), count))))]


def _groups_of(one: Instruction) -> str:
    found = re.search(
        r"replica_groups=(\{\{.*?\}\}|\{\}|\[[\d,]*\](?:<=\[[\d,]+\](?:T\([\d,]+\))?)?|mesh\[.*?\}(?=,|\s|$))",
        one.rest,
    )
    return found[1] if found else "{}"


def _called(one: Instruction, within: Callable[[str], list[Collective]]) -> Iterator[Collective]:
    """What the computations move that an instruction runs."""
    if one.opcode == "while":
        trips = re.search(r'known_trip_count"?:\{"n":"(\d+)"\}', one.rest)
        inside = within(_word(one.attribute("body")))
        tested = within(_word(one.attribute("condition")))
        if (inside or tested) and not trips:
            raise ValueError(f"XLA does not say how often the loop {one.name} runs, in which devices speak")
        times = int(trips[1]) if trips else 0
        yield from (replace(found, times=found.times * times) for found in inside)
        yield from (replace(found, times=found.times * (times + 1)) for found in tested)
    elif one.opcode == "conditional":
        names = [one.attribute("true_computation"), one.attribute("false_computation")]
        names += one.attribute("branch_computations").strip("{}").split(",")
        branches = [within(_word(name.strip())) for name in names if name.strip()]
        yield from max(branches, key=lambda found: sum(other.moved for other in found))
    elif one.opcode in ("fusion", "call", "async-start", "custom-call"):
        name = one.attribute("calls") or one.attribute("to_apply")
        yield from within(_word(name)) if name else ()
