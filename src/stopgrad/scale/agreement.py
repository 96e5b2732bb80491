"""Compares what processes are about to run, through the key-value store of JAX's coordination service."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import socket
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from stopgrad.base.errors import DistributedError
from stopgrad.scale.rendezvous import named

ROOMS = "stopgrad/agree"
LEFT = "stopgrad/left"
FAILED = "stopgrad/failed"
"""Folders of the store: what is compared, which processes have left a comparison, and which have failed."""


class _Late(Exception):  # noqa: N818
    """A value has not been written in time."""


def _folder_of_departed(room: str) -> str:
    """The folder of the processes that have left a room."""
    return f"{room.replace(ROOMS, LEFT, 1)}/"


class Comparison:
    """One comparison: process 0 compares with the others, one after the other, and tells them the result.

    Each process writes its digests under ``room/0``, ``room/1`` …. Process 0 then writes ``room/turn0`` …:
    each is a question to one process, which answers under ``room/answer0`` …, or the result.
    """

    client: Any
    hosts: dict[int, str]
    rooms: dict[str, None]
    seconds: float
    index: int
    count: int
    what: str
    lines: Sequence[str]
    room: str
    turn: int

    def __init__(
        self,
        client: object,
        place: tuple[int, int],
        hosts: dict[int, str],
        rooms: dict[str, None],
        subject: tuple[str, int, Sequence[str]],
        seconds: float,
        shown: Callable[[int], str] | None = None,
    ) -> None:
        self.shown = shown
        self.client, self.hosts, self.rooms, self.seconds = client, hosts, rooms, seconds
        self.index, self.count = place
        self.what, number, self.lines = subject
        self.room = f"{ROOMS}/{hashlib.sha256(self.what.encode()).hexdigest()[:16]}/{number}"
        self.turn = 0
        hosts[self.index] = socket.gethostname()

    def result(self) -> str:
        """What is wrong, the same text in all processes; empty if nothing is."""
        complaint = self._collected() if self.index == 0 else self._joined()
        self._leave()
        return complaint

    def _collected(self) -> str:
        """The result in process 0: what is wrong, or empty."""
        deadline = time.monotonic() + self.seconds
        own = self._card()
        self._put("0", own)
        different, missing, late = [], [], []
        for i in range(1, self.count):
            card = self._get(str(i), deadline)
            if card is None:
                missing.append(i)
                continue
            self.hosts[i] = card["host"]
            if card["gone"]:
                late.append(i)
            elif card["digest"] != own["digest"]:
                different.append(i)
        complaint = ""
        if missing:
            complaint = self._absent(missing)
        elif late:
            waited = self._named(late)
            complaint = f"{self._named([0])} came to {self.what} when {waited} did not wait any more. {_LATE}"
        elif different:
            complaint = self._difference(different)
        self._put(f"turn{self.turn}", {"complaint": complaint})
        return complaint

    def _joined(self) -> str:
        """The result in another process: what is wrong, or empty."""
        own = self._card()
        self._put(str(self.index), own)
        first = self._get("0", time.monotonic() + self.seconds)
        if first is None:
            # If process 0 comes late, it must know that this process does not wait any more.
            self._put(str(self.index), {**own, "gone": True})
            first = self._get("0", time.monotonic())
            if first is None:
                return self._absent(self._missing())
        self.hosts[0] = first["host"]
        while True:  # Process 0 always finishes; if it dies, the runtime ends this process.
            message = self._get(f"turn{self.turn}", math.inf)
            if "complaint" in message:
                return str(message["complaint"])
            if message["to"] == self.index:
                self._put(f"answer{self.turn}", self._answer(message))
            self.turn += 1

    def _leave(self) -> None:
        """Process 0 removes what was written when it comes the next time: by then all have read it."""
        if self.index != 0:
            self.client.key_value_set(f"{_folder_of_departed(self.room)}{self.index}", "")
            return
        for room in [*self.rooms]:
            if len(self.client.key_value_dir_get(_folder_of_departed(room))) == self.count - 1:
                self.client.key_value_delete(f"{room}/")
                self.client.key_value_delete(_folder_of_departed(room))
                self.rooms.pop(room, None)
        self.rooms[self.room] = None

    # ----------------------------------------------------------------------------- what is written and read

    def _card(self) -> dict[str, Any]:
        return {
            "host": self.hosts[self.index],
            "what": self.what,
            "digest": self._digest(0, len(self.lines)),
            "gone": False,
        }

    def _digest(self, start: int, stop: int) -> str:
        digest = hashlib.sha256()
        for i in range(start, min(stop, len(self.lines))):
            line = self.lines[i].encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(line))  # So that it matters where lines are split.
            digest.update(line)
        return digest.hexdigest()

    def _put(self, name: str, value: dict[str, Any]) -> None:
        self.client.key_value_set(f"{self.room}/{name}", json.dumps(value), allow_overwrite=True)

    def _get(self, name: str, deadline: float) -> Any:
        """What another process writes before the deadline; None if it does not."""
        while True:
            remaining = deadline - time.monotonic()
            with contextlib.suppress(_Late):
                return json.loads(self._read(name, min(remaining, 2.0)))
            self._heed_failures()
            if remaining <= 0:
                return None

    def _read(self, name: str, seconds: float) -> str:
        """What another process writes within these seconds; at the deadline, what is there already."""
        place = f"{self.room}/{name}"
        try:
            if seconds <= 0:  # This process waited for others: a wait of 1 ms could miss what is there.
                return self.client.key_value_try_get(place)
            # Not for long at a time, because no signal is handled meanwhile.
            return self.client.blocking_key_value_get(place, math.ceil(1e3 * seconds))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error) or "NOT_FOUND" in str(error):
                raise _Late from None
            raise DistributedError(f"{self.what}: process 0 is gone: {error}") from error

    def _heed_failures(self) -> None:
        """Raise if a process has ended by an exception, since it will not come."""
        for key, value in self.client.key_value_dir_get(f"{FAILED}/"):
            failure = json.loads(value)
            if failure["known"]:  # It waited here, too, or knows of the difference.
                raise DistributedError(failure["why"])
            failed = self._named([int(key.rpartition("/")[2])])
            raise DistributedError(f"{failed} does not come to {self.what}: it failed: {failure['why']}")

    # ------------------------------------------------------------------------------------ who is not there

    def _named(self, indices: Sequence[int]) -> str:
        return named(indices, self.hosts)

    def _missing(self) -> list[int]:
        """The processes that have not come here, as far as the store says."""
        here = {key.rpartition("/")[2] for key, _ in self.client.key_value_dir_get(f"{self.room}/")}
        return [i for i in range(self.count) if str(i) not in here]

    def _absent(self, missing: Sequence[int]) -> str:
        elsewhere = ""
        for key, value in self.client.key_value_dir_get(f"{ROOMS}/"):
            if key.endswith(f"/{missing[0]}") and not key.startswith(self.room):
                elsewhere = f"; {self._named(missing[:1])} waits at {json.loads(value)['what']} instead"
        return (
            f"{self._named(missing)} of {self.count} did not come to {self.what} within {self.seconds:g} "
            f"s{elsewhere}. {_LATE}"
        )

    # ------------------------------------------------------------------------------------- what is different

    def _difference(self, different: Sequence[int]) -> str:
        """The first line that differs, found by comparing parts, parts of a part, and so on."""
        other = different[0]
        start, stop = 0, max(len(self.lines), self._ask(other, "length"))
        while stop - start > 1:
            step = -(-(stop - start) // _PARTS)
            theirs = self._ask(other, "digests", start, stop, step)
            parts = range(start, stop, step)
            start = next(
                i for i, digest in zip(parts, theirs, strict=True) if digest != self._digest(i, i + step)
            )
            stop = min(start + step, stop)
        ours, theirs = self._line(start), self._ask(other, "line", start)
        also = f" (also other than process 0: {self._named(different[1:])})" if different[1:] else ""
        return (
            f"the processes differ in {self.what}, line {start + 1}{also}:\n"
            f"  {self._named([0])}: {_around(ours, theirs)}\n"
            f"  {self._named([other])}: {_around(theirs, ours)}\n"
            f"All run the same script on the same inputs; {_CAUSES}"
        )

    def _ask(self, other: int, *question: object) -> Any:
        """Ask another process, and return its answer."""
        self._put(f"turn{self.turn}", {"to": other, "question": question})
        answer = self._get(f"answer{self.turn}", time.monotonic() + max(self.seconds, 60.0))
        if answer is None:
            raise DistributedError(f"{self._named([other])} did not answer what it has for {self.what}")
        self.turn += 1
        return answer["answer"]

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        kind, *rest = message["question"]
        if kind == "length":
            return {"answer": len(self.lines)}
        if kind == "line":
            return {"answer": self._line(*rest)}
        start, stop, step = rest
        return {"answer": [self._digest(i, i + step) for i in range(start, stop, step)]}

    def _line(self, i: int) -> str | None:
        """A line as errors show it, shortened; None after the last one."""
        if i >= len(self.lines):
            return None
        return (self.lines[i] if self.shown is None else self.shown(i))[:_LONGEST]


_PARTS = 512
"""The number of digests that are sent at once."""

_LONGEST = 1 << 16
"""The most characters of a line that are sent."""

_WIDTH = 240
"""The most characters of a line that are shown."""

_LATE = (
    "Every process must run every step; look at what that one prints, whether it still runs, and whether it "
    "only needs more time (the timeout of sg.distributed.initialize)"
)
_CAUSES = (
    "what comes from a clock, from random numbers without a key, from the order of a set or from "
    "process_index() makes them differ"
)


def _around(text: str | None, other: str | None) -> str:
    """A line as errors show it: a long one is cut to where it begins to differ."""
    if text is None:
        return "(no such line)"
    if len(text) <= _WIDTH:
        return text
    pairs = enumerate(zip_longest(text, other or ""))
    start = max(0, next((i for i, (a, b) in pairs if a != b), 0) - _WIDTH // 2)
    shown = text[start : start + _WIDTH]
    return f"{'…' if start else ''}{shown}{'…' if start + len(shown) < len(text) else ''}"
