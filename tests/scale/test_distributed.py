"""The processes of a run: how they meet, compare what they run, and what is said where one is missing.

Here threads stand for processes, and a dictionary for the store of the coordination service; JAX's own, with
real processes, is in test_processes.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from stopgrad.errors import ArgumentError, DistributedError

import stopgrad as sg
from stopgrad.scale import agreement, distributed, rendezvous
from stopgrad.scale.agreement import Comparison

HOST = socket.gethostname()


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each call gives, or raises, all of them at once."""

    def kept(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except DistributedError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return [*pool.map(kept, calls)]


SECRET = "what only these processes know"


def comes(
    address: str, count: int, index: int, timeout: float = 10.0, secret: str = SECRET
) -> Callable[[], list[str]]:
    """A process that meets the others; JAX's runtime listens next where process 0 has."""

    def come() -> list[str]:
        hosts = rendezvous.meet(address, address, count, index, timeout, secret)
        if index == 0:
            with socket.create_server(rendezvous.split_address(address)) as runtime:
                runtime.settimeout(5)
                for _ in range(count - 1):
                    runtime.accept()[0].close()
        return hosts

    return come


# ---------------------------------------------------------------------------------------------- meeting


def test_all_who_meet_know_the_hosts() -> None:
    address = free_address()
    assert at_once(*[comes(address, 8, i) for i in range(8)]) == [[HOST] * 8] * 8


@pytest.mark.slow
def test_each_that_came_names_those_that_did_not() -> None:
    address = free_address()
    found = at_once(comes(address, 6, 0, 1.0), comes(address, 6, 1), comes(address, 6, 4))
    text = (
        f"processes 2, 3 and 5 of 6 did not come within 1 s; processes 0 ({HOST}), 1 ({HOST}) and 4 ({HOST}) "
        "did. Look at what those print themselves, and whether their hosts are up and reach process 0"
    )
    assert [error.message for error in found] == [text] * 3


@pytest.mark.slow
def test_a_process_0_that_does_not_come_is_named() -> None:
    address = free_address()
    found = at_once(*[comes(address, 3, i, 0.5) for i in (1, 2)])
    for error in found:
        assert error.message.startswith(
            f"process 0 did not come within 0.5 s: at {address}, Connection refused. Look at what it prints"
        )


@pytest.mark.slow
def test_who_waits_less_long_than_process_0_names_the_missing_too() -> None:
    address = free_address()
    zero, one = at_once(comes(address, 3, 0, 2.0), comes(address, 3, 1, 0.7))
    assert f"of 3 did not come within 2 s; process 1 ({HOST}) came, but left; process 0" in zero.message
    assert "process 2 did not come within the 0.7 s that process 1 waits" in one.message


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ([(3, 1), (3, 1)], "two processes say that they are number 1, on {0} and on {0}; give each its own"),
        (
            [(4, 1), (3, 2)],
            "process 1 ({0}) was told of 4 processes, process 0 ({0}) of 3; give all",
        ),
    ],
)
def test_places_that_do_not_go_together_are_an_error_in_all(
    others: Sequence[tuple[int, int]], says: str
) -> None:
    address = free_address()
    found = at_once(comes(address, 3, 0, 5.0), *[comes(address, count, i, 2.0) for count, i in others])
    assert all(isinstance(error, DistributedError) for error in found)
    assert says.format(HOST) in found[0].message
    assert any(says.format(HOST) in error.message for error in found[1:])


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


STRANGE = [
    *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00\xff\n", b"[1]\n", b"null\n", b"{}\n", b"{" * 100_000),
    *(b'{"index": "1", "count": 2}\n', b'{"index": 1', b"", b'{"who": 1}\n', b'{"who": true}\n' * 1000),
    b'{"index": ' + b"9" * 5000 + b"}\n",
    line(index=1, count=3, host="somebody"),
    line(index=999, count=3, host="somebody", nonce="", proof=""),
    line(index=1, count=7, host="somebody", nonce="0", proof="\xe9"),
    line(index=1, count=3, host={"a": 1}, nonce=[1], proof=1),
]


@pytest.mark.slow
def test_strangers_are_not_heeded() -> None:
    address = free_address()
    place = rendezvous.split_address(address)
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as open_ones:
        zero = pool.submit(comes(address, 3, 0))
        time.sleep(0.3)
        for words in STRANGE:
            for stays in (False, True):  # On the line.
                endpoint = open_ones.enter_context(socket.create_connection(place, timeout=5))
                with contextlib.suppress(ConnectionError):
                    endpoint.sendall(words)
                if not stays:
                    endpoint.close()
        for _ in range(3 * rendezvous.STRANGERS):
            open_ones.enter_context(socket.create_connection(place, timeout=5))
        one = pool.submit(comes(address, 3, 1))
        assert comes(address, 3, 2)() == zero.result() == one.result() == [HOST] * 3


def test_a_process_that_left_may_come_again() -> None:
    address = free_address()
    with ThreadPoolExecutor(2) as pool:
        zero = pool.submit(comes(address, 3, 0))
        time.sleep(0.2)
        with socket.create_connection(rendezvous.split_address(address)) as endpoint:
            guest, heard = rendezvous._Guest(address, 3, 2, 5.0, SECRET), bytearray()
            assert guest._introduced(endpoint, heard, time.monotonic() + 5.0) is not None
            endpoint.sendall(b'{"who": true}\n')
            assert b"missing" in endpoint.recv(1000)
        one = pool.submit(comes(address, 3, 1))
        assert comes(address, 3, 2)() == zero.result() == one.result() == [HOST] * 3


def test_a_process_without_the_secret_does_not_come_in() -> None:
    address = free_address()
    zero, stranger = at_once(comes(address, 2, 0, 0.8), comes(address, 2, 1, 0.6, "another secret"))
    assert "process 1 of 2 did not come within 0.8 s" in zero.message
    assert re.search(r"callers that did not know the run's secret: \d+\. Look", zero.message)
    assert "process 0 did not come within 0.6 s" in stranger.message
    assert "somebody else answers, or process 0 has another secret" in stranger.message


def test_what_was_said_on_one_line_proves_nothing_on_another() -> None:
    """Who listens to the network can repeat what a process said, and gets nowhere."""
    address = free_address()
    place = rendezvous.split_address(address)
    with ThreadPoolExecutor(1) as pool:
        zero = pool.submit(at_once, comes(address, 2, 0, 1.0))
        time.sleep(0.2)
        with socket.create_connection(place) as first, socket.create_connection(place) as second:
            nonce = json.loads(first.recv(1000))["nonce"]
            said = {"index": 1, "count": 2, "host": "h", "nonce": "n"}
            said["proof"] = rendezvous._proof(SECRET, "guest", nonce, "n", 1, 2, "h")
            second.recv(1000)
            second.sendall(line(**said))
            second.settimeout(5.0)
            assert second.recv(1000) == b""  # It was hung up on.
        ((error,),) = [zero.result()]
        assert "process 1 of 2 did not come" in error.message


FALSE = {
    "garbage": b"\xff\xfe\n",
    "no line": b"x" * (1 << 20),
    "hosts at once": line(hosts=["h", "h"]),
    "a number": line(nonce=1) + line(hosts=["h", "h"]),
    "hosts without a proof": line(nonce="n") + line(said=json.dumps({"hosts": ["h", "h"]}), proof=""),
    "an error without a proof": line(nonce="n") + line(error="you are wrong"),
    "a proof that is none": line(nonce="n") + line(said="{}", proof=5),
    "nothing": b"",
}


@pytest.mark.parametrize("what", FALSE)
def test_a_false_process_0_is_not_believed(what: str) -> None:
    def answer(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                endpoint, _ = server.accept()
                with endpoint:
                    endpoint.sendall(FALSE[what])
                    endpoint.settimeout(0.2)
                    endpoint.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DistributedError, match=r"process 0 did not come within 0\.4 s") as caught:
            comes(address, 2, 1, 0.4)()
        assert "you are wrong" not in caught.value.message
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_process_that_is_none_of_the_run_is_an_error_that_says_so() -> None:
    address = free_address()
    zero, one = at_once(comes(address, 2, 0, 5.0), comes(address, 2, 2, 5.0))
    assert zero.message == one.message == f"a process on {HOST} says that it is number 2 of 2"


@pytest.mark.slow
def test_without_descriptors_for_strangers_ours_come_in() -> None:
    resource = pytest.importorskip("resource")
    address = free_address()
    place = rendezvous.split_address(address)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    strangers = subprocess.Popen(
        [sys.executable, "-c", STRANGERS, *map(str, place), address, SECRET],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        with ThreadPoolExecutor(1) as pool:
            zero = pool.submit(comes(address, 2, 0))
            time.sleep(0.3)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, hard))
            said, _ = strangers.communicate(b"come\n")
            assert zero.result() == [HOST] * 2
            assert said.decode().strip() == str([HOST] * 2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        strangers.kill()


STRANGERS = """if True:
    import socket, sys
    from stopgrad.scale import rendezvous
    sys.stdin.readline()
    host, port, address, secret = sys.argv[1:]
    found = [socket.create_connection((host, int(port))) for _ in range(50)]
    print(rendezvous.meet(address, address, 2, 1, 10.0, secret))
    """


@pytest.mark.parametrize("address", ["10.0.0.1:77", "[fe80::1]:77", "train-0.train:77"])
def test_where_other_machines_come_the_run_needs_a_secret(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for secret in ("", "short"):
        monkeypatch.setenv(distributed.SECRET, secret)
        with pytest.raises(ArgumentError, match=r"the same secret of at least 16 .* STOPGRAD_RUN_SECRET"):
            distributed._secret(address, address)
    monkeypatch.setenv(distributed.SECRET, SECRET)
    assert distributed._secret(address, address) == SECRET


def test_on_one_machine_a_secret_may_be_left_out_unless_others_can_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(distributed.SECRET, raising=False)
    for address in ("127.0.0.1:77", "localhost:77", "[::1]:77"):
        assert distributed._secret(address, address) == ""
        with pytest.raises(ArgumentError, match="other machines reach"):
            distributed._secret(address, ":77")


def test_process_0_listens_at_its_own_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rendezvous.own_address("127.0.0.1:77") == "127.0.0.1:77"
    assert rendezvous.own_address("localhost:77") == "localhost:77"
    places = {"node1": "10.0.0.7", "debian": "127.0.1.1"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [(0, 0, 0, "", (places[host], port))])
    assert rendezvous.own_address("node1:77") == "node1:77"
    assert rendezvous.own_address("debian:77") == ":77"  # Where no other machine would find it.


@pytest.mark.slow
def test_a_port_that_is_taken_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(DistributedError, match=r"cannot listen on port \d+ of 127.0.0.1 \(Addr"):
            rendezvous.meet(address, address, 2, 0, 60.0)
    with pytest.raises(DistributedError, match="say in the variable JAX_COORDINATOR_BIND_ADDRESS"):
        rendezvous.meet("192.0.2.1:7777", "192.0.2.1:7777", 2, 0, 60.0)


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:70000", "host:12x", "host:-1"])
def test_an_address_without_a_port_is_refused(address: str) -> None:
    with pytest.raises(ArgumentError, match="must be 'host:port', the port from 1 to 65535"):
        rendezvous.split_address(address)


def test_addresses_of_either_kind_are_taken_apart() -> None:
    assert rendezvous.split_address("node1:80") == ("node1", 80)
    assert rendezvous.split_address("[fe80::1]:80") == ("fe80::1", 80)
    assert rendezvous.split_address(":80") == ("", 80)


def test_of_many_processes_only_some_are_named() -> None:
    assert rendezvous.named(range(1000), {0: "a"}) == "processes 0 (a), 1, 2, 3, 4, 5, 6, 7 and 992 more"


# -------------------------------------------------------------------------------------------- comparing


class Store:
    """The coordination service's store, as its client shows it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.changed = threading.Condition()
        self.reads = 0
        self.rooms: dict[str, None] = {}
        """What process 0 has to clear away."""

    def held(self) -> int:
        """How many rooms are written in."""
        return len({tuple(key.split("/")[2:4]) for key in self.values})

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        with self.changed:
            assert allow_overwrite or key not in self.values
            assert len(value) < 1 << 20
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        with self.changed:
            self.reads += 1
            if not self.changed.wait_for(lambda: key in self.values, milliseconds / 1e3):
                raise RuntimeError("DEADLINE_EXCEEDED: as JAX says it")
            return str(self.values[key])

    def key_value_try_get(self, key: str) -> str:
        with self.changed:
            self.reads += 1
            if key not in self.values:
                raise RuntimeError("NOT_FOUND: as JAX says it")
            return str(self.values[key])

    def key_value_dir_get(self, folder: str) -> list[tuple[str, str]]:
        with self.changed:
            return [(k, v) for k, v in self.values.items() if k.startswith(folder)]

    def key_value_delete(self, folder: str) -> None:
        with self.changed:
            assert folder.endswith("/")
            self.values = {k: v for k, v in self.values.items() if not k.startswith(folder)}


def comparison(
    store: Store,
    index: int,
    count: int,
    what: str = "the graph",
    number: int = 0,
    lines: Sequence[str] = (),
    seconds: float = 0.3,
) -> Comparison:
    rooms = store.rooms if index == 0 else {}
    return Comparison(store, (index, count), {}, rooms, (what, number, lines), seconds)


def compared(
    store: Store, texts: Sequence[Sequence[str] | None], what: str = "the graph", number: int = 0
) -> list[Any]:
    """What the processes find that have these lines; None: that one does not come."""

    def of(i: int, lines: Sequence[str]) -> Callable[[], str]:
        # Time enough, where all come.
        seconds = 0.3 if any(text is None for text in texts) else 60.0
        return lambda: comparison(store, i, len(texts), what, number, lines, seconds).result()

    return at_once(*[of(i, lines) for i, lines in enumerate(texts) if lines is not None])


def test_equal_lines_are_agreed_upon_and_nothing_is_left_behind() -> None:
    store = Store()
    lines = [f"line {i}" for i in range(10_000)]
    for number in range(3):
        assert compared(store, [lines] * 5, number=number) == [""] * 5
    assert store.held() == 1
    assert store.reads == 3 * (4 + 2 * 4)  # In proportion to the processes.


@pytest.mark.slow
def test_the_first_line_that_differs_is_found_in_texts_of_any_length() -> None:
    draw = random.Random(0)
    for length in (1, 2, 3, 511, 512, 513, 5000, 600_000):
        ours = [str(i) for i in range(length)]
        theirs = list(ours)
        places = sorted(draw.sample(range(length), min(length, 3)))
        for place in places:
            theirs[place] = f"other {place}"
        store = Store()
        found = compared(store, [ours, theirs])
        assert found[0] == found[1]
        line = places[0]
        assert f"differ in the graph, line {line + 1}:\n" in found[0]
        assert f"\n  process 0 ({HOST}): {line}\n  process 1 ({HOST}): other {line}\n" in found[0]


@pytest.mark.slow
def test_all_processes_raise_when_one_differs_and_all_that_do_are_named() -> None:
    found = compared(Store(), [["a", "b"], ["a", "b"], ["a", "c"], ["x", "b"]])
    assert len(set(found)) == 1
    assert f"line 2 (also other than process 0: process 3 ({HOST})):" in found[0]
    assert f"process 0 ({HOST}): b\n  process 2 ({HOST}): c\n" in found[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "line"),
    [
        (["a"], ["a", "b"], f"line 2:\n  process 0 ({HOST}): (no such line)\n  process 1 ({HOST}): b\n"),
        ([], ["a"], "line 1:"),
        (["a", "b"], ["a"], "line 2:"),
        (["ab"], ["a", "b"], "line 1:"),
        (["a", ""], ["a"], "line 2:"),
    ],
)
def test_a_text_that_goes_on_differs_where_it_does(ours: list[str], theirs: list[str], line: str) -> None:
    found = compared(Store(), [ours, theirs])
    assert line in found[0]
    assert found[0] == found[1]


def test_of_a_long_line_the_part_is_shown_where_it_begins_to_differ() -> None:
    long = "x" * 5000
    (found, _) = compared(Store(), [[long + "1" + long], [long + "2" + long]])
    assert re.search(r"process 0 \(.*\): …x{120}1x{119}…\n", found)
    assert len(found) < 1000


@pytest.mark.slow
def test_who_does_not_come_is_named_by_all_and_where_it_is_instead() -> None:
    store = Store()
    assert all(
        "process 1 of 3 did not come to the graph within 0.3 s." in x for x in compared(store, [[], None, []])
    )
    store = Store()
    assert all(
        "processes 0 and 2 of 4 did not come to the graph" in x for x in compared(store, [None, [], None, []])
    )
    store = Store()
    waiting, here = comparison(store, 1, 2, "saving"), comparison(store, 0, 2)
    saving, graph = at_once(waiting.result, here.result)
    assert (
        "process 0 of 2 did not come to saving within 0.3 s; process 0 waits at the graph instead." in saving
    )
    assert (
        "process 1 of 2 did not come to the graph within 0.3 s; process 1 waits at saving instead." in graph
    )


@pytest.mark.slow
def test_a_process_0_that_comes_when_nobody_waits_any_more_learns_that() -> None:
    store = Store()
    assert all("process 0 of 3 did not come" in x for x in compared(store, [None, [], []]))
    found = comparison(store, 0, 3).result()
    late = f"processes 1 ({HOST}) and 2 ({HOST})"
    assert f"process 0 ({HOST}) came to the graph when {late} did not wait any more" in found


@pytest.mark.slow
def test_a_process_that_failed_is_not_waited_for() -> None:
    store = Store()
    store.key_value_set(f"{agreement.FAILED}/1", json.dumps({"known": False, "why": "ValueError: mine"}))
    began = time.monotonic()
    (found,) = at_once(comparison(store, 0, 2, seconds=60.0).result)
    assert found.message == "process 1 does not come to the graph: it failed: ValueError: mine"
    assert time.monotonic() - began < 10


def test_threads_may_compare_different_things_at_once() -> None:
    store = Store()
    with ThreadPoolExecutor(8) as pool:
        rounds = [
            pool.submit(compared, store, [[what]] * 3, what, number) for what in "ab" for number in range(4)
        ]
    assert [future.result() for future in rounds] == [[""] * 3] * 8
    assert compared(store, [[]] * 3, number=1) == [""] * 3
    assert store.held() == 1


def test_alone_there_is_nothing_to_agree_upon() -> None:
    distributed.agree("the graph", ["a"])
    assert distributed._RUN.rounds == {}


# -------------------------------------------------------------------------------------- where one's place is

SLURM = {
    "SLURM_JOB_ID": "4096",
    "SLURM_STEP_NODELIST": "node[07-09],other",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
LAUNCH = {
    "JAX_COORDINATOR_ADDRESS": "127.0.0.1:77",
    "STOPGRAD_NUM_PROCESSES": "4",
    "STOPGRAD_PROCESS_ID": "3",
}


@pytest.mark.parametrize(
    ("given", "variables", "place"),
    [
        ((None, None, None, None), {}, None),
        ((None, 1, None, None), {}, None),
        (("a:1", 2, 1, None), {}, ("a:1", 2, 1, None)),
        ((None, None, None, None), LAUNCH, ("127.0.0.1:77", 4, 3, None)),
        ((None, None, 2, [0]), LAUNCH, ("127.0.0.1:77", 4, 2, [0])),
        ((None, None, None, None), SLURM, ("node07:61440", 8, 5, [1])),
        ((None, None, None, None), {**SLURM, **LAUNCH}, ("127.0.0.1:77", 4, 3, None)),
        (("a:1", None, None, None), SLURM, ("a:1", 8, 5, [1])),
    ],
)
def test_what_is_not_given_is_found_out(
    given: Any, variables: dict[str, str], place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert distributed._place(*given, timeout=1.0) == place


@pytest.mark.parametrize(
    ("given", "variables", "says"),
    [
        (("a:1", None, None), {}, "num_processes and process_id must be given, too: JAX finds no cluster"),
        ((None, 4, 1), {}, "coordinator_address must be given, too"),
        ((None, 4, None), {}, "coordinator_address and process_id must be given, too"),
        (("a:1", 2, 2), {}, "process_id must be from 0 to num_processes - 1 = 1, but it is 2; the first"),
        (("a:1", 2, -1), {}, "but it is -1"),
        (("a:1", 0, 0), {}, "num_processes must be at least 1, not 0"),
        (("a:1", 2.0, 0), {}, "num_processes must be an integer, not 2.0"),
        (("a:1", 2, "0"), {}, "process_id must be an integer, not '0'"),
        ((1, 2, 0), {}, "coordinator_address must be a text 'host:port', not 1"),
        (("a", 2, 0), {}, "must be 'host:port'"),
        ((None, None, None), {**LAUNCH, "STOPGRAD_PROCESS_ID": "x"}, "STOPGRAD_PROCESS_ID must be a number"),
        ((None, None, None), {**SLURM, "SLURM_NTASKS": "x"}, "JAX sees a cluster here, but cannot tell"),
    ],
)
def test_a_place_that_cannot_be_is_refused_with_what_is_right(
    given: Any, variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((ArgumentError, DistributedError), match=re.escape(says)):
        distributed._place(*given, None, timeout=1.0)


@pytest.mark.slow
def test_initialize_where_it_cannot_be_called() -> None:
    program = """if True:
        import sys
        import stopgrad as sg

        def refused(says, *args, **kwargs):
            try:
                sg.distributed.initialize(*args, **kwargs)
            except sg.StopgradError as error:
                assert str(error).startswith("distributed.initialize: "), error
                assert says in str(error), error
            else:
                raise AssertionError(says)
            assert "jax" in sys.modules or "must be" in says
            assert not sg.distributed.is_initialized()

        assert (sg.distributed.process_index(), sg.distributed.process_count()) == (0, 1)
        sg.distributed.shutdown()
        assert "jax" not in sys.modules
        refused("timeout must be a number of seconds above 0, not 0", timeout=0)
        refused("heartbeat_timeout must be a number of seconds above 0", heartbeat_timeout=float("nan"))
        refused("timeout must be a number of seconds above 0, not '3'", timeout="3")
        refused("local_device_ids must be numbers of devices", local_device_ids="0")
        refused("local_device_ids must be numbers of devices", local_device_ids=[0, -1])
        refused("process_id must be from 0", "localhost:1", 2, 2)
        sg.distributed.initialize()  # By hand, on one machine: a run of one process.
        assert sg.distributed.is_initialized()
        assert (sg.distributed.process_index(), sg.distributed.process_count()) == (0, 1)
        from jax._src import xla_bridge
        assert not xla_bridge.backends_are_initialized()
        try:
            sg.distributed.initialize()
        except sg.DistributedError as error:
            assert "called a second time; call it once" in str(error), error
        sg.distributed.shutdown()
        assert not sg.distributed.is_initialized()
        import jax
        jax.devices()
        refused("JAX's devices are in use already; call it before", "localhost:1", 2, 0)
        refused("JAX's devices are in use already")
        print("as it should be")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr, done.returncode) == ("as it should be\n", "", 0)


def test_errors_are_of_the_package() -> None:
    assert issubclass(sg.DistributedError, sg.StopgradError)
    assert issubclass(sg.DistributedError, RuntimeError)
