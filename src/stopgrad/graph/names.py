"""The names of a graph's operations and scopes, computed when they are needed.

An operation carries its label: the name that it was given, or the prefix of the scope in which it was built.
All names follow from the labels, in order. What has been computed may lag behind, and entries for operations
that were taken back do not count: so a failed or interrupted build need not be reported here.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

from stopgrad.base.errors import GraphError
from stopgrad.base.locks import exclusive
from stopgrad.graph.builder import Pending

# Graphs are defined above this module.
Operation: TypeAlias = Any


class Names:
    """The names in one graph, computed from the list of its operations."""

    __slots__ = ("_claims", "_counts", "_inhabited", "_names", "_operations", "_read", "_taken")

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        # Prefixes of scopes, with their holders and the positions from which on operations reserve them.
        self._claims: dict[str, tuple[weakref.ref[Any], int]] = {}
        self._names: list[str] = []  # The names of the first operations.
        self._taken: dict[str, Operation] = {}
        self._inhabited: dict[str, Operation] = {}  # Prefixes, each with the first operation below it.
        self._read = 0  # The number of operations whose labels have been read.
        self._counts: dict[str, int] = {}  # The numbers before which names are taken.

    def of(self, op: Operation) -> str:
        """The name of an operation; of one that was taken back, the name without a number."""
        if not self._holds(op):
            return op._label if op._label and op._label[-1] != "/" else f"{op._label}{op.type}"
        if op.id >= len(self._names):
            self._settle()
        return self._names[op.id]

    def find(self, name: str) -> Operation | None:
        """The operation of this name, or None."""
        self._settle()
        op = self._taken.get(name)
        return op if op is not None and self._holds(op) else None

    def all(self) -> Sequence[str]:
        """The names of all operations, in their order."""
        self._settle()
        return self._names

    # ------------------------------------------------------------------------------------ building

    def label(self, prefix: str, name: str) -> str:
        """The label of the next operation: its full name, made unique.

        The name is taken once the operation exists; until then the caller holds
        :data:`stopgrad.base.locks.LOCK`.
        """
        self._prepare(check_name(name))
        return self._unique(prefix + name)

    def note(self, op: Operation, pending: Pending | None) -> None:
        """Record an operation with a label of :meth:`label`, as :meth:`_read_labels` would.

        Its name may be one that was pending in a scope.
        """
        if pending is not None:
            pending.taken_by = op
        if self._read == op.id:
            label = op._label
            self._taken[label] = op
            if "/" in label:
                self._inhabit(label, op)
            self._read = op.id + 1

    @exclusive
    def claim(self, prefix: str, name: str, holder: object) -> str:
        """A prefix of names that no other scope has, below a *prefix*.

        It is reserved as long as the *holder* lives, which is held weakly, or an operation is below it.
        """
        self._prepare(check_name(name))
        unique = self._unique(prefix + name)
        # Graphs that were inlined have operations below prefixes that nobody has claimed.
        start = len(self._operations) if unique in self._inhabited and self._is_inhabited(unique) else 0
        self._claims[unique] = weakref.ref(holder), start
        return unique + "/"

    def forget(self, first: int, removed: Sequence[Operation]) -> None:
        """Drop the entries of operations from position *first* on, which are about to be removed."""
        names = self._names[first:]
        self._read = min(self._read, first)
        self._counts.clear()
        del self._names[first:]
        for name in (*names, *(op._label for op in removed)):
            if name in self._taken and self._taken[name].id >= first:
                self._taken.pop(name, None)

    # -------------------------------------------------------------------------------- finding out

    def _holds(self, op: Operation) -> bool:
        operations = self._operations
        return op.id < len(operations) and operations[op.id] is op

    def _prepare(self, settled: bool) -> None:
        """Compute the names that must be known before one is taken: if *settled*, also generated ones."""
        if settled:
            self._settle()  # Earlier operations keep their names, whenever these are computed.
        elif self._read != len(self._operations):
            self._read_labels()

    @exclusive
    def _settle(self) -> None:
        """Give a name to operations that have only a prefix."""
        self._read_labels()
        names = self._names
        for op in self._operations[len(names) : self._read]:
            label = op._label
            if not label or label[-1] == "/":
                label = self._unique(label + op.definition.type, op)
                self._taken[label] = op
            names.append(label)

    def _read_labels(self) -> None:
        """Take the names that operations were given when they were built."""
        start = self._read
        unread = self._operations[start:]
        for id, op in enumerate(unread, start):
            op.id = id  # The thread that built it may not have set it yet.
            label = op._label
            if label:
                if label[-1] != "/" and self._is_free(label, op):
                    self._taken[label] = op
                self._inhabit(label, op)
        self._read = start + len(unread)

    def _inhabit(self, label: str, op: Operation) -> None:
        """Record an operation as the first one below its prefixes, unless there are others."""
        prefixes = []
        prefix = label.rpartition("/")[0]
        while prefix and not ((first := self._inhabited.get(prefix)) is not None and self._holds(first)):
            prefixes.append(prefix)
            prefix = prefix.rpartition("/")[0]
        for prefix in reversed(prefixes):  # If a prefix has operations, so have those around it.
            self._inhabited[prefix] = op

    def _unique(self, name: str, own: Operation | None = None) -> str:
        """The name, if needed with the first number that makes it unique; *own* may have it already."""
        if (name not in self._taken and name not in self._claims) or self._is_free(name, own):
            return name
        count = self._counts.get(name, 1)
        while not self._is_free(numbered := f"{name}_{count}", own):
            count += 1
        self._counts[name] = count
        return numbered

    def _is_free(self, name: str, own: Operation | None) -> bool:
        holder = self._taken.get(name)
        if holder is not None and holder is not own and self._holds(holder):
            return False
        claim = self._claims.get(name)
        if claim is None:
            return True
        holds, start = claim
        return holds() is None and not (self._is_inhabited(name) and self._is_inhabited_from(name, start))

    def _is_inhabited(self, prefix: str) -> bool:
        first = self._inhabited.get(prefix)
        return first is not None and self._holds(first)

    def _is_inhabited_from(self, prefix: str, start: int) -> bool:
        if not start:
            return True
        below = prefix + "/"
        return any(op._label.startswith(below) for op in self._operations[start : self._read])


_GENERATED = re.compile(r"[A-Z]\w*\Z")
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*\Z")


def check_name(name: str) -> bool:
    """Names follow TensorFlow's rule. Whether this one could also be made for an operation without a name."""
    generated = _is_generated(name) if isinstance(name, str) else None
    if generated is None:
        raise GraphError(
            f"{name!r:.60} cannot name an operation or scope: start with a letter or digit, then letters, "
            "digits and _ . - /"
        )
    return generated


@functools.lru_cache(4096)
def _is_generated(name: str) -> bool | None:
    """Whether a name looks like a type; None if it is no valid name."""
    valid = _NAME.match(name) is not None and name[-1] != "/"
    return _GENERATED.match(name.rpartition("/")[2]) is not None if valid else None
