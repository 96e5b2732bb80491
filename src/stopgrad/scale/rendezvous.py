"""A meeting of the processes of a run, before the engine's own runtime starts.

If a process does not come, JAX's runtime aborts the others from C++, without a Python error and without
naming it. So they meet here first, on the port that the runtime uses afterwards: process 0 listens, the
others say who they are, and every process that came in time raises an error that names those that did not.

Whoever can reach the port can talk to process 0. So each side proves to the other that it knows the run's
secret, by HMAC-SHA256 (RFC 2104) of what it says and of two numbers drawn for this connection. What proves
nothing is dropped, and counted in the message about processes that did not come.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import secrets
import selectors
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from stopgrad.base.errors import ArgumentError, DistributedError

LONGEST = 1 << 12
"""The most bytes that are read of a process that says who it is. Longer lines are not from our processes."""

STRANGERS = 64
"""The most connections of callers that have not proved yet who they are; then the oldest is dropped."""

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


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address, so that no other needs to be told from ours.

    Examples:
        >>> is_loopback("localhost:1234"), is_loopback("10.0.0.1:1234")
        (True, False)
    """
    host = split_address(address)[0]
    return host in ("localhost", "::1") or host.startswith("127.")


def own_address(address: str) -> str:
    """Where process 0 listens: at the address by which the others know it.

    It listens at all addresses of its machine if this machine's name means only itself there, as in Debian's
    ``/etc/hosts``: at 127.0.1.1 no other machine would find it.
    """
    host, port = split_address(address)
    with contextlib.suppress(OSError):
        hosts = {str(place[0]) for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        if not is_loopback(address) and all(host == "::1" or host.startswith("127.") for host in hosts):
            return f":{port}"
    return address


def meet(
    address: str, bind_address: str, count: int, index: int, timeout: float, secret: str = ""
) -> list[str]:
    """Wait until all processes are here, and return the names of their hosts, in order.

    Args:
        address: where process 0 is reached.
        bind_address: where process 0 listens.
        count: how many processes there are.
        index: the index of this process.
        timeout: seconds to wait.
        secret: what all processes of the run know, and nobody else.

    Raises:
        DistributedError: one did not come in time, two say that they are the same one, or they do not agree
            on how many there are; in all processes.
    """
    deadline = time.monotonic() + timeout
    if index == 0:
        return _Meeting(count, timeout, secret).held(*split_address(bind_address), deadline)
    return _Guest(address, count, index, timeout, secret).admitted(deadline)


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


def _proof(secret: str, *content: object) -> str:
    """What shows that whoever says this knows the secret."""
    return hmac.digest(secret.encode(), json.dumps(content).encode(), "sha256").hex()


def _proved(secret: str, proof: object, *content: object) -> bool:
    return isinstance(proof, str) and proof.isascii() and hmac.compare_digest(proof, _proof(secret, *content))


# ------------------------------------------------------------------------------------------- process 0


class _Connection:
    """A connection to process 0.

    Attributes:
        endpoint: its socket.
        heard: the beginning of a line.
        nonce: the number that process 0 drew for it.
        theirs: the number that the caller drew; None until it has proved that it knows the secret.
        index: the caller's index.
    """

    def __init__(self, endpoint: socket.socket) -> None:
        self.endpoint = endpoint
        self.heard = bytearray()
        self.nonce = secrets.token_hex(16)
        self.theirs: str | None = None
        self.index = 0

    def greet(self) -> bool:
        """Send the number that the caller's proof must be about; returns whether that worked."""
        try:
            self.endpoint.send(json.dumps({"nonce": self.nonce}).encode() + b"\n")
        except OSError:
            return False
        return True

    def tell(self, secret: str, **message: object) -> None:
        """Send a line with its proof, unless the other side has left."""
        text = json.dumps(message)
        line = {"said": text, "proof": _proof(secret, "host", self.nonce, self.theirs, text)}
        with contextlib.suppress(OSError):
            self.endpoint.settimeout(5.0)
            self.endpoint.sendall(json.dumps(line).encode() + b"\n")
            self.endpoint.setblocking(False)


class _Meeting:
    """Process 0's side."""

    def __init__(self, count: int, timeout: float, secret: str) -> None:
        self.count, self.timeout, self.secret = count, timeout, secret
        self.hosts = {0: socket.gethostname()}
        self.present: dict[int, _Connection] = {}
        self.strangers: dict[_Connection, None] = {}
        self.dropped = 0
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
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise DistributedError(self._complaint())
            for key, _ in self.selector.select(remaining):
                if key.fileobj is listener:
                    self._accept(listener)
                elif key.fileobj.fileno() >= 0:  # type: ignore[union-attr]  # It was not dropped meanwhile.
                    self._hear(key.data)
        self.selector.unregister(listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            endpoint, _ = listener.accept()
        except OSError:  # It has left, or there are no descriptors any more.
            self._drop_oldest(0)
            return
        endpoint.setblocking(False)
        caller = _Connection(endpoint)
        self.selector.register(endpoint, selectors.EVENT_READ, caller)
        self.strangers[caller] = None
        if not caller.greet():
            self._drop(caller)
        self._drop_oldest(STRANGERS)

    def _drop_oldest(self, most: int) -> None:
        if len(self.strangers) > most:
            self._drop(next(iter(self.strangers)))

    def _drop(self, caller: _Connection) -> None:
        self.selector.unregister(caller.endpoint)
        caller.endpoint.close()
        if self.present.get(caller.index) is caller:  # It may be restarted and come again.
            del self.present[caller.index]
        elif caller in self.strangers:
            del self.strangers[caller]
            self.dropped += 1

    def _complaint(self) -> str:
        missing = self._missing()
        gone = [i for i in missing if i in self.hosts]
        departed = f"; {named(gone, self.hosts)} came, but left" if gone else ""
        strange = f"; callers that did not know the run's secret: {self.dropped}" if self.dropped else ""
        return (
            f"{named(missing, self.hosts)} of {self.count} did not come within {self.timeout:g} s{departed}; "
            f"{named([0, *self.present], self.hosts)} did{strange}. {_LOOK}"
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
        are_ours = all(self._understand(caller, _message(bytes(line)) or {}) for line in lines)
        if not heard or not are_ours or len(caller.heard) > LONGEST:
            self._drop(caller)

    def _understand(self, caller: _Connection, message: Mapping[str, Any]) -> bool:
        """Read the message of a caller; returns whether it is one of our processes."""
        if caller.theirs is not None:
            if message.get("who") is True:
                hosts = {str(i): h for i, h in self.hosts.items()}
                caller.tell(self.secret, missing=self._missing(), hosts=hosts)
            return message.get("who") is True
        index, count, host, theirs = (message.get(name) for name in ("index", "count", "host", "nonce"))
        proved = _proved(self.secret, message.get("proof"), "guest", caller.nonce, theirs, index, count, host)
        if not proved or not (type(index) is type(count) is int and type(host) is type(theirs) is str):
            return False
        self._admit(caller, index, count, host[:255], theirs)
        return True

    def _admit(self, caller: _Connection, index: int, count: int, host: str, theirs: str) -> None:
        refused = None
        if count != self.count:
            refused = (
                f"process {index} ({host}) was told of {count} processes, process 0 ({self.hosts[0]}) of "
                f"{self.count}; give all the same num_processes"
            )
        elif not 0 < index < self.count:
            refused = f"a process on {host} says that it is number {index} of {count}"
        elif index in self.present:
            refused = (
                f"two processes say that they are number {index}, on {host} and on "
                f"{self.hosts[index]}; give each its own process_id"
            )
        del self.strangers[caller]
        caller.theirs = theirs
        if refused is not None:
            caller.tell(self.secret, error=refused)
            raise DistributedError(refused)
        caller.index = index
        self.present[index] = caller
        self.hosts[index] = host

    def _close(self, **message: object) -> None:
        """Tell all processes the result, and wait briefly until they have received it."""
        for caller in self.present.values():
            caller.tell(self.secret, **message)
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
        elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        cure = (
            "say in the variable JAX_COORDINATOR_BIND_ADDRESS at which of its own addresses it listens"
            if elsewhere
            else "take another port, and give all processes the same"
        )
        place = f"port {port} of {host or 'this host'}"
        raise DistributedError(
            f"process 0 cannot listen on {place} ({error.strerror or error}); {cure}"
        ) from None
    listener.setblocking(False)
    with listener:
        yield listener


# ------------------------------------------------------------------------------------------ the others


class _Guest:
    """The side of the other processes."""

    def __init__(self, address: str, count: int, index: int, timeout: float, secret: str) -> None:
        self.address = address
        self.place = split_address(address)
        self.timeout, self.secret = timeout, secret
        self.index, self.count, self.host = index, count, socket.gethostname()
        self.why = "nobody answers"

    def admitted(self, deadline: float) -> list[str]:
        """Wait until all processes are here, and return their hosts."""
        wait = 0.05
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                endpoint = socket.create_connection(self.place, timeout=min(remaining, 10.0))
            except OSError as error:  # Process 0 has not started, or its name is not known yet.
                self.why = str(error.strerror or error)
                time.sleep(min(wait, remaining))
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
            nonces = self._introduced(endpoint, heard, min(deadline, time.monotonic() + 10.0))
            while nonces is not None:
                endpoint.settimeout(max(deadline - time.monotonic(), 0.001) if not asked else 5.0)
                try:
                    message = self._heard(_line(endpoint, heard), nonces)
                except TimeoutError:
                    if asked:
                        raise
                    asked = True  # Process 0 may wait longer: ask it who is missing.
                    endpoint.sendall(b'{"who": true}\n')
                    continue
                if message is None:
                    break
                self._heed(message)
                if "hosts" in message and not asked:
                    return [str(host) for host in message["hosts"]]
        except OSError as error:
            self.why = str(error.strerror or error)
            return None
        self.why = "somebody else answers, or process 0 has another secret, or ended before all were there"
        return None

    def _introduced(
        self, endpoint: socket.socket, heard: bytearray, deadline: float
    ) -> tuple[str, str] | None:
        """Say who this is, with the proof; the numbers that both sides drew."""
        endpoint.settimeout(max(deadline - time.monotonic(), 0.001))
        theirs = (_message(_line(endpoint, heard)) or {}).get("nonce")
        if not isinstance(theirs, str):
            return None
        nonce = secrets.token_hex(16)
        proof = _proof(self.secret, "guest", theirs, nonce, self.index, self.count, self.host)
        fields = {"index": self.index, "count": self.count, "host": self.host, "nonce": nonce, "proof": proof}
        endpoint.sendall(json.dumps(fields).encode() + b"\n")
        return theirs, nonce

    def _heard(self, line: bytes, nonces: tuple[str, str]) -> dict[str, Any] | None:
        """What process 0 says; None if it is not process 0."""
        fields = _message(line) or {}
        text, proof = fields.get("said"), fields.get("proof")
        if not isinstance(text, str) or not _proved(self.secret, proof, "host", *nonces, text):
            return None
        return _message(text.encode())

    def _heed(self, message: Mapping[str, Any]) -> None:
        if "error" in message:
            raise DistributedError(str(message["error"]))
        if "missing" in message:
            hosts = {int(i): str(host) for i, host in message["hosts"].items()}
            raise DistributedError(
                f"{named(message['missing'], hosts)} did not come within the {self.timeout:g} s that "
                f"process {self.index} waits. {_LOOK}"
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
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
