"""The names of a graph's operations and scopes, found out when they are asked for.

An operation carries its label: the name it was given, or the prefix of the scope that it was built in. All
else follows from the operations in their order. What has been found out may lag behind, and what it says of
an operation that has been taken back does not count: so nobody has to tell that a build has failed, or has
been interrupted.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

from stopgrad.base.errors import GraphError
from stopgrad.base.locks import exclusive
from stopgrad.graph.builder import Pending

# The graph stands above this module.
Operation: TypeAlias = Any


class Names:
    """The names in one graph, of whose operations this is the list."""

    __slots__ = ("_claims", "_counts", "_inhabited", "_names", "_operations", "_read", "_taken")

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        # Prefixes of scopes, each with what holds it, and from which position on operations below it do.
        self._claims: dict[str, tuple[weakref.ref[Any], int]] = {}
        self._names: list[str] = []  # Of the first operations.
        self._taken: dict[str, Operation] = {}
        self._inhabited: dict[str, Operation] = {}  # Prefixes, each with the first operation below it.
        self._read = 0  # How many operations' labels are in these two.
        self._counts: dict[str, int] = {}  # Up to which number names are taken.

    def of(self, op: Operation) -> str:
        """The name of an operation; of one that has been taken back, what it would be called after."""
        if not self._there(op):
            return op._label if op._label and op._label[-1] != "/" else f"{op._label}{op.type}"
        if op.id >= len(self._names):
            self._settle()
        return self._names[op.id]

    def find(self, name: str) -> Operation | None:
        """The operation of this name, or None."""
        self._settle()
        found = self._taken.get(name)
        return found if found is not None and self._there(found) else None

    def all(self) -> Sequence[str]:
        """The names of all operations, in their order."""
        self._settle()
        return self._names

    # ------------------------------------------------------------------------------------ building

    def label(self, prefix: str, name: str) -> str:
        """The label of the next operation: its whole name, made unique.

        It is taken when the operation is there; until then the caller holds :data:`stopgrad.base.locks.LOCK`.
        """
        check_name(name)
        name = prefix + name
        self._prepare(name)
        return name if name not in self._taken and name not in self._claims else self._unique(name)

    def note(self, op: Operation, pending: Pending | None) -> None:
        """What :meth:`_read_labels` would find out about an operation whose label was asked for.

        Its name may be one that a scope had ready.
        """
        if pending is not None:
            pending.taken_by = op
        if self._read == op.id:
            self._taken[op._label] = op
            self._inhabit(op._label, op)
            self._read = op.id + 1

    @exclusive
    def claim(self, prefix: str, holder: object) -> str:
        """A prefix for names that no other scope has.

        It is taken as long as there is the *holder*, which is referred to weakly, or an operation below it.
        """
        self._prepare(prefix)
        found = self._unique(prefix)
        # What stands below already, as of graphs that are put in whole, was there without a claim.
        start = len(self._operations) if self._is_inhabited(found) else 0
        self._claims[found] = weakref.ref(holder), start
        return found + "/"

    def forget(self, first: int, removed: Sequence[Operation]) -> None:
        """Drop what was found out about the operations from position *first* on, which are to be removed."""
        names = self._names[first:]
        self._read = min(self._read, first)
        self._counts.clear()
        del self._names[first:]
        for name in (*names, *(op._label for op in removed)):
            if name in self._taken and self._taken[name].id >= first:
                self._taken.pop(name, None)

    # -------------------------------------------------------------------------------- finding out

    def _there(self, op: Operation) -> bool:
        operations = self._operations
        return op.id < len(operations) and operations[op.id] is op

    def _prepare(self, name: str) -> None:
        """Find out the names that must be settled before this one is taken."""
        if _GENERATED.match(name.rpartition("/")[2]) is not None:
            self._settle()  # The names of earlier operations, whenever they are asked for.
        elif self._read != len(self._operations):
            self._read_labels()

    @exclusive
    def _settle(self) -> None:
        """Give those operations a name that have only a prefix."""
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
            op.id = id  # The thread that built it may not have come to that yet.
            label = op._label
            if label:
                if label[-1] != "/" and self._is_free(label, op):
                    self._taken[label] = op
                self._inhabit(label, op)
        self._read = start + len(unread)

    def _inhabit(self, label: str, op: Operation) -> None:
        """Note that an operation stands below its prefixes, where it is the first."""
        prefixes = []
        prefix = label.rpartition("/")[0]
        while prefix and not ((first := self._inhabited.get(prefix)) is not None and self._there(first)):
            prefixes.append(prefix)
            prefix = prefix.rpartition("/")[0]
        for prefix in reversed(prefixes):  # One that is inhabited says that those around it are.
            self._inhabited[prefix] = op

    def _unique(self, name: str, own: Operation | None = None) -> str:
        """The name, or with the first number with which nothing but *own* has it."""
        if self._is_free(name, own):
            return name
        count = self._counts.get(name, 0)
        while not self._is_free(f"{name}_{count + 1}", own):
            count += 1
        self._counts[name] = count
        return f"{name}_{count + 1}"

    def _is_free(self, name: str, own: Operation | None) -> bool:
        claim = self._claims.get(name)
        if claim is not None:
            holds, start = claim
            if holds() is not None or (self._is_inhabited(name) and self._is_inhabited_from(name, start)):
                return False
        holder = self._taken.get(name)
        return holder is None or holder is own or not self._there(holder)

    def _is_inhabited(self, prefix: str) -> bool:
        first = self._inhabited.get(prefix)
        return first is not None and self._there(first)

    def _is_inhabited_from(self, prefix: str, start: int) -> bool:
        if not start:
            return True
        below = prefix + "/"
        return any(op._label.startswith(below) for op in self._operations[start : self._read])


_GENERATED = re.compile(r"[A-Z]\w*\Z")
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*\Z")


def check_name(name: str) -> None:
    """Names follow TensorFlow's rule."""
    if not isinstance(name, str) or not _NAME.match(name) or name.endswith("/"):
        raise GraphError(
            f"{name!r:.60} cannot name an operation or scope: start with a letter or digit, then letters, "
            "digits and _ . - /"
        )
