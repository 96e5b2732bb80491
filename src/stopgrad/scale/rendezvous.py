"""A meeting of the processes of a run, before the engine's own runtime starts.

If a process does not come, JAX's runtime aborts the others from C++, without a Python error and without
naming it. So they meet here first, on the port that the runtime uses afterwards: process 0 listens, the
others say who they are, and every process that came in time raises an error that names those that did not.
Nothing else is sent here, and of what arrives only a few short fields are read.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from stopgrad.base.errors import ArgumentError, DistributedError

LONGEST = 1 << 16
"""The most bytes that are read of a process that says who it is. Longer lines are not from our processes."""

LONGEST_ANSWER = 1 << 26
"""The most bytes that are read of process 0, which names all hosts."""

_SHOWN = 8
"""The most processes that a message names."""


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of ``host:port``, ``[::1]:port`` or ``:port``."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ArgumentError(
            f"the coordinator's address must be 'host:port', the port from 1 to 65535, but it is {address!r}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def meet(address: str, bind_address: str, count: int, index: int, timeout: float) -> list[str]:
    """Wait until all processes are here, and return the names of their hosts, in order.

    Args:
        address: where process 0 is reached.
        bind_address: where process 0 listens.
        count: how many processes there are.
        index: the index of this process.
        timeout: seconds to wait.

    Raises:
        DistributedError: one did not come in time, two say that they are the same one, or they do not agree
            on how many there are; in all processes.
    """
    deadline = time.monotonic() + timeout
    if index == 0:
        return _Meeting(count, timeout).held(*split_address(bind_address), deadline)
    return _Guest(address, count, index, timeout).admitted(deadline)


def named(indices: Collection[int], hosts: Mapping[int, str]) -> str:
    """Processes as a message names them.

    Examples:
        >>> named([2, 3], {2: "node2"})
        'processes 2 (node2) and 3'
    """
    parts = [f"{i} ({hosts[i]})" if i in hosts else str(i) for i in sorted(indices)[:_SHOWN]]
    if len(indices) > _SHOWN:
        parts.append(f"{len(indices) - _SHOWN} more")
    whole = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"process{'es' if len(indices) > 1 else ''} {whole}"


# ------------------------------------------------------------------------------------------- process 0


class _Connection:
    """A connection to process 0, and the index of the process that called, once it has said it."""

    def __init__(self, endpoint: socket.socket) -> None:
        self.endpoint = endpoint
        self.heard = bytearray()
        self.index: int | None = None

    def tell(self, **message: object) -> None:
        """Send a line, unless the other side has left."""
        with contextlib.suppress(OSError):
            self.endpoint.settimeout(5.0)
            self.endpoint.sendall(json.dumps(message).encode() + b"\n")
            self.endpoint.setblocking(False)


class _Meeting:
    """Process 0's side."""

    def __init__(self, count: int, timeout: float) -> None:
        self.count = count
        self.timeout = timeout
        self.hosts = {0: socket.gethostname()}
        self.present: dict[int, _Connection] = {}
        self.selector = selectors.DefaultSelector()

    def held(self, host: str, port: int, deadline: float) -> list[str]:
        """The hosts of all processes. All of them get these, or all get the error."""
        try:
            with _listening(host, port) as listener:
                self.selector.register(listener, selectors.EVENT_READ)
                self._gather(listener, deadline)
            hosts = [self.hosts[i] for i in range(self.count)]
            # The port must be free by now: who gets this connects to the runtime that listens there next.
            self._close(hosts=hosts)
            return hosts
        except DistributedError as error:
            self._close(error=error.message)
            raise
        finally:
            for key in list(self.selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self.selector.close()

    def _gather(self, listener: socket.socket, deadline: float) -> None:
        while len(self.present) < self.count - 1:
            left = deadline - time.monotonic()
            if left <= 0:
                raise DistributedError(self._complaint())
            for key, _ in self.selector.select(left):
                if key.fileobj is listener:
                    endpoint, _ = listener.accept()
                    endpoint.setblocking(False)
                    self.selector.register(endpoint, selectors.EVENT_READ, _Connection(endpoint))
                else:
                    self._hear(key.data)
        self.selector.unregister(listener)

    def _complaint(self) -> str:
        missing = self._missing()
        gone = [i for i in missing if i in self.hosts]
        left = f"; {named(gone, self.hosts)} came, but left" if gone else ""
        return (
            f"{named(missing, self.hosts)} of {self.count} did not come within {self.timeout:g} s{left}; "
            f"{named([0, *self.present], self.hosts)} did. {_LOOK}"
        )

    def _missing(self) -> list[int]:
        return [i for i in range(1, self.count) if i not in self.present]

    def _hear(self, caller: _Connection) -> None:
        try:
            heard = caller.endpoint.recv(LONGEST)
        except OSError:
            heard = b""
        caller.heard += heard
        *lines, caller.heard = caller.heard.split(b"\n")
        known = all(self._understand(caller, _message(bytes(line)) or {}) for line in lines)
        if not heard or not known or len(caller.heard) > LONGEST:
            self.selector.unregister(caller.endpoint)
            caller.endpoint.close()
            if caller.index is not None:  # It may be restarted and come again.
                del self.present[caller.index]

    def _understand(self, caller: _Connection, message: Mapping[str, Any]) -> bool:
        """Read the message of a caller; returns whether it is one of our processes."""
        if message.get("who") is True:
            caller.tell(missing=self._missing(), hosts={str(i): h for i, h in self.hosts.items()})
            return True
        index = message.get("index")
        if type(index) is not int or index < 1 or caller.index is not None:
            return False
        self._admit(caller, index, message)
        return True

    def _admit(self, caller: _Connection, index: int, message: Mapping[str, Any]) -> None:
        count, host = message.get("count"), str(message.get("host"))[:255]
        refused = None
        if count != self.count:
            refused = (
                f"process {index} ({host}) was told of {count} processes, process 0 ({self.hosts[0]}) of "
                f"{self.count}; give all the same num_processes"
            )
        elif index in self.present:
            refused = (
                f"two processes say that they are number {index}, on {host} and on "
                f"{self.hosts[index]}; give each its own process_id"
            )
        if refused is not None:
            caller.tell(error=refused)
            raise DistributedError(refused)
        caller.index = index
        self.present[index] = caller
        self.hosts[index] = host

    def _close(self, **message: object) -> None:
        """Tell all processes the result, and wait briefly until they have received it."""
        for caller in self.present.values():
            caller.tell(**message)
        until = time.monotonic() + 2.0
        while self.present and time.monotonic() < until:
            for key, _ in self.selector.select(until - time.monotonic()):
                if isinstance(key.data, _Connection):
                    self._hear(key.data)
                else:  # Nothing is listening any more.
                    self.selector.unregister(key.fileobj)


_LOOK = "Look at what those print themselves, and whether their hosts are up and reach process 0"


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        if host in ("", "::") and socket.has_dualstack_ipv6():
            listener = socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True
            )
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise DistributedError(
            f"process 0 cannot listen on port {port} of {host or 'this host'} ({error.strerror or error}); "
            "take another port, and give all processes the same"
        ) from None
    listener.setblocking(False)
    with listener:
        yield listener


# ------------------------------------------------------------------------------------------ the others


class _Guest:
    """The side of the other processes."""

    def __init__(self, address: str, count: int, index: int, timeout: float) -> None:
        self.address = address
        self.place = split_address(address)
        self.timeout = timeout
        self.introduction = {"index": index, "count": count, "host": socket.gethostname(), "pid": os.getpid()}
        self.why = "nobody answers"

    def admitted(self, deadline: float) -> list[str]:
        """Wait until all processes are here, and return their hosts."""
        wait = 0.05
        while (left := deadline - time.monotonic()) > 0:
            try:
                endpoint = socket.create_connection(self.place, timeout=min(left, 10.0))
            except OSError as error:  # Process 0 has not started, or its name is not known yet.
                self.why = str(error.strerror or error)
                time.sleep(min(wait, left))
                wait = min(2 * wait, 1.0)
                continue
            with endpoint:
                hosts = self._waited(endpoint, deadline)
            if hosts is not None:
                self._await_runtime(deadline)
                return hosts
            time.sleep(min(wait, max(deadline - time.monotonic(), 0.0)))
        raise DistributedError(
            f"process 0 did not come within {self.timeout:g} s: at {self.address}, {self.why}. Look at what "
            "it prints itself, whether its host is up and reached from here under this name, and whether "
            "the port is the one that process 0 was given"
        )

    def _waited(self, endpoint: socket.socket, deadline: float) -> list[str] | None:
        """The hosts of all; None if the listener is not process 0, or no longer."""
        asked, heard = False, bytearray()
        try:
            endpoint.sendall(json.dumps(self.introduction).encode() + b"\n")
            while True:
                endpoint.settimeout(max(deadline - time.monotonic(), 0.001) if not asked else 5.0)
                try:
                    message = _message(_line(endpoint, heard))
                except TimeoutError:
                    if asked:
                        raise
                    asked = True  # Process 0 may wait longer: ask it who is missing.
                    endpoint.sendall(b'{"who": true}\n')
                    continue
                if message is None:
                    self.why = "somebody else answers, or process 0 ended before all were there"
                    return None
                self._heed(message)
                if "hosts" in message and not asked:
                    return [str(host) for host in message["hosts"]]
        except OSError as error:
            self.why = str(error.strerror or error)
            return None

    def _heed(self, message: Mapping[str, Any]) -> None:
        if "error" in message:
            raise DistributedError(str(message["error"]))
        if "missing" in message:
            hosts = {int(i): str(host) for i, host in message["hosts"].items()}
            raise DistributedError(
                f"{named(message['missing'], hosts)} did not come within the {self.timeout:g} s that "
                f"process {self.introduction['index']} waits. {_LOOK}"
            )

    def _await_runtime(self, deadline: float) -> None:
        """Wait until process 0 listens again: if the runtime connects too early, it sleeps for a second."""
        while time.monotonic() < deadline:
            try:
                socket.create_connection(self.place, timeout=5.0).close()
                return
            except OSError:
                time.sleep(0.02)


def _line(endpoint: socket.socket, heard: bytearray) -> bytes:
    """The next line, or its beginning if the connection ends; what follows stays in *heard*."""
    more = b"-"
    while more and b"\n" not in heard and len(heard) < LONGEST_ANSWER:
        more = endpoint.recv(LONGEST)
        heard += more
    line, _, rest = bytes(heard).partition(b"\n")
    heard[:] = rest
    return line


def _message(line: bytes) -> dict[str, Any] | None:
    """The fields of a message; None if it is not ours."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
