"""Runs of several processes, by ``jax.distributed``, with errors that name missing processes.

Every process runs the same script. :func:`initialize` comes first, before JAX's devices are asked for; a
session or function on a mesh then computes across all of them, each process feeding its own part:

.. code-block:: python

    import stopgrad as sg

    sg.distributed.initialize()
    with sg.Mesh(data=-1):
        ...

``stopgrad launch -n 4 script.py`` starts such a script four times on one machine; Slurm, Open MPI, Kubernetes
and Cloud TPU are found out by JAX. Started by hand, the same script is a run of one process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import math
import operator
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType

from stopgrad.base.errors import ArgumentError, DistributedError, StopgradError
from stopgrad.base.namespaces import require
from stopgrad.scale import rendezvous
from stopgrad.scale.agreement import FAILED, Comparison
from stopgrad.scale.processes import process_count, process_index, runtime

__all__ = ["initialize", "is_initialized", "process_count", "process_index", "shutdown"]

COUNT, INDEX, SECRET = "STOPGRAD_NUM_PROCESSES", "STOPGRAD_PROCESS_ID", "STOPGRAD_RUN_SECRET"
"""The variables by which ``stopgrad launch`` tells each process its place, and the secret of the run.

JAX itself knows one for the coordinator, ``JAX_COORDINATOR_ADDRESS``, but none for these.
"""


class _Run:
    """What this process knows of its run, apart from what JAX knows."""

    def __init__(self) -> None:
        self.alone = False  # Whether it was initialised as the only process.
        self.timeout = 300.0
        self.hosts: dict[int, str] = {}
        self.rounds: Counter[str] = Counter()
        self.rooms: dict[str, None] = {}  # Of comparisons that have ended, until they are cleared away.
        self.lock = threading.Lock()
        self.failed: BaseException | None = None


_RUN = _Run()


def is_initialized() -> bool:
    """Whether :func:`initialize` has been called, or JAX's own.

    Examples:
        >>> sg.distributed.is_initialized()
        False
    """
    return _RUN.alone or runtime() is not None


# ---------------------------------------------------------------------------------------- begin and end


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    local_device_ids: int | Sequence[int] | None = None,
    timeout: float = 300.0,
    heartbeat_timeout: float = 100.0,
) -> None:
    """Join the processes of this run. Every process calls it, before anything computes.

    What is not given is taken from the variables that ``stopgrad launch`` sets
    (``JAX_COORDINATOR_ADDRESS``, ``STOPGRAD_NUM_PROCESSES``, ``STOPGRAD_PROCESS_ID``), then from what
    ``jax.distributed`` detects by itself: Open MPI, Slurm, Cloud TPU, Kubernetes. If nothing is given and
    nothing detected, this is a run of one process and no error, so one script works for both.

    Processes show each other that they know the run's secret, the same text in the variable
    ``STOPGRAD_RUN_SECRET`` of each. ``stopgrad launch`` draws one. It must be given where the address is not
    one of this machine alone. Process 0 listens at the coordinator's address only, or at that in
    ``JAX_COORDINATOR_BIND_ADDRESS``. JAX's own service, which then takes its place, knows no secret: keep its
    port inside a private network.

    If a process does not come in time, every other one raises an error that names it. Later on, JAX's runtime
    watches: if a process dies silently, all others are aborted after ``heartbeat_timeout`` seconds (at once
    if it was process 0) with a message that names it; this cannot be a Python error. A process that ends by
    an uncaught exception does not wait for the others, which therefore end in the same way. At a normal end,
    and at ``sys.exit``, each process waits for all others, 300 s at most.

    Args:
        coordinator_address: ``"host:port"`` at which all processes reach process 0; the port must be free.
        num_processes: the number of processes.
        process_id: the index of this process.
        local_device_ids: the GPUs of this process, if it should not have all of its machine.
            Slurm and Open MPI give each process one.
        timeout: seconds to wait for the others here, and later whenever processes compare what they run.
        heartbeat_timeout: seconds after which a silent process is taken for dead.

    Raises:
        ArgumentError: an argument is invalid, or missing while others are given; there is no secret.
        DistributedError: a process did not come, two have the same index, it was called before, or JAX's
            devices are in use already.

    Examples:
        >>> sg.distributed.initialize("10.0.0.1:1234", num_processes=2, process_id=0)  # doctest: +SKIP
    """
    try:
        _initialize(
            coordinator_address, num_processes, process_id, local_device_ids, timeout, heartbeat_timeout
        )
    except StopgradError as error:
        error.name_after("distributed.initialize")
        raise


def _initialize(
    address: str | None,
    count: int | None,
    index: int | None,
    local_device_ids: int | Sequence[int] | None,
    timeout: float,
    heartbeat_timeout: float,
) -> None:
    if is_initialized():
        raise DistributedError("called a second time; call it once, at the beginning of the script")
    seconds = _positive(timeout, "timeout"), _positive(heartbeat_timeout, "heartbeat_timeout")
    devices = [local_device_ids] if isinstance(local_device_ids, int) else local_device_ids
    if devices is not None and not (
        isinstance(devices, Sequence) and all(type(i) is int and i >= 0 for i in devices)
    ):
        raise ArgumentError(f"local_device_ids must be numbers of devices from 0, not {local_device_ids!r}")
    jax = require("jax", "sg.distributed", "xla")
    _require_unused(jax)
    place = _place(address, count, index, local_device_ids, seconds[0])
    _RUN.timeout = seconds[0]
    if place is None:
        _RUN.alone = True
        return
    address, count, index, local_device_ids = place
    bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or rendezvous.own_address(address)
    began = time.monotonic()
    if count > 1:
        secret = _secret(address, bind)
        _RUN.hosts = dict(enumerate(rendezvous.meet(address, bind, count, index, seconds[0], secret)))
    if jax.config.jax_cpu_collectives_implementation is None:  # Without one, CPUs cannot communicate.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            address,
            count,
            index,
            local_device_ids,
            cluster_detection_method="deactivate",
            coordinator_bind_address=bind if index == 0 else None,
            initialization_timeout=math.ceil(max(seconds[0] - (time.monotonic() - began), 10.0)),
            heartbeat_timeout_seconds=math.ceil(seconds[1]),
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise DistributedError(f"jax.distributed: {error}") from error
    if runtime() is None:
        raise DistributedError(
            f"JAX {jax.__version__} keeps the run elsewhere than JAX 0.8 to 0.10 do; take one of those"
        )
    _leave_when_failed()


def shutdown() -> None:
    """Leave the run. Waits for all processes, 300 s at most; does nothing if there is no run.

    It is called automatically when the script ends.

    Raises:
        DistributedError: the others did not call it, or have ended.
    """
    _RUN.alone = False
    if runtime() is None:
        return
    try:
        require("jax", "sg.distributed", "xla").distributed.shutdown()
    except RuntimeError as error:
        raise DistributedError(f"distributed.shutdown: {error}") from error
    _RUN.hosts = {}


def _secret(*addresses: str) -> str:
    """The secret of the run, which is needed where other machines reach an address."""
    secret = os.environ.get(SECRET, "")
    if not secret and all(map(rendezvous.is_loopback, addresses)):
        return ""
    if len(secret) < _SHORTEST:
        raise ArgumentError(
            f"other machines reach {addresses[0]}: so that strangers cannot join the run, give all processes "
            f"the same secret of at least {_SHORTEST} characters in the variable {SECRET}, for example what "
            "'openssl rand -hex 32' prints"
        )
    return secret


_SHORTEST = 16


def _positive(seconds: float, name: str) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ArgumentError(f"{name} must be a number of seconds above 0, not {seconds!r}")
    return float(seconds)


def _require_unused(jax: ModuleType) -> None:
    """Raise if JAX has made its devices: it would only ever know those of this process."""
    try:
        # A public option that JAX refuses to change once it has devices.
        jax.config.update("jax_num_cpu_devices", jax.config.jax_num_cpu_devices + 1)
    except RuntimeError:
        raise DistributedError(
            "JAX's devices are in use already; call it before anything computes on JAX or asks for its "
            "devices, best as the first line after the imports"
        ) from None
    jax.config.update("jax_num_cpu_devices", jax.config.jax_num_cpu_devices - 1)


# --------------------------------------------------------------------------------- where this process is

_Place = tuple[str, int, int, "int | Sequence[int] | None"]


def _place(
    address: str | None,
    count: int | None,
    index: int | None,
    local_device_ids: int | Sequence[int] | None,
    timeout: float,
) -> _Place | None:
    """The address, count, index and devices of this process in the run; None if it is alone."""
    if address is not None and not isinstance(address, str):
        raise ArgumentError(f"coordinator_address must be a text 'host:port', not {address!r}")
    count, index = _integer(count, "num_processes", COUNT), _integer(index, "process_id", INDEX)
    address = address or os.environ.get("JAX_COORDINATOR_ADDRESS") or None
    if count is not None and count < 1:
        raise ArgumentError(f"num_processes must be at least 1, not {count}")
    if count == 1 and address is None and index in (None, 0):
        return None
    if None in (address, count, index):
        address, count, index, local_device_ids = _detected(address, count, index, local_device_ids, timeout)
    settings = {"coordinator_address": address, "num_processes": count, "process_id": index}
    lacking = [name for name, value in settings.items() if value is None]
    if len(lacking) == len(settings):
        return None
    if address is None or count is None or index is None:
        raise ArgumentError(
            f"{' and '.join(lacking)} must be given, too: JAX finds no cluster here that would say it. Give "
            "all three, or start the processes by 'stopgrad launch', srun, mpirun or a Kubernetes job; "
            "without any of them it is a run of one process"
        )
    rendezvous.split_address(address)
    if not 0 <= index < count:
        raise ArgumentError(
            f"process_id must be from 0 to num_processes - 1 = {count - 1}, but it is {index}; the first "
            "process is number 0"
        )
    return address, count, index, local_device_ids


def _integer(value: int | None, name: str, variable: str) -> int | None:
    """An argument, or else the value of an environment variable."""
    if value is not None:
        try:
            return operator.index(value)
        except TypeError:
            raise ArgumentError(f"{name} must be an integer, not {value!r}") from None
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise ArgumentError(f"the variable {variable} must be a number, not {text!r}")
    return int(text)


def _detected(
    address: str | None,
    count: int | None,
    index: int | None,
    local_device_ids: int | Sequence[int] | None,
    timeout: float,
) -> tuple[str | None, int | None, int | None, int | Sequence[int] | None]:
    """Complete what is not given by what JAX detects, if it detects anything.

    ``jax.distributed.initialize`` does this, too, but never returns if a process is missing, and the meeting
    before it needs to know.
    """
    clusters = require("jax._src.clusters", "sg.distributed", "xla")
    try:
        return clusters.ClusterEnv.auto_detect_unset_distributed_params(
            address, count, index, local_device_ids, None, math.ceil(timeout)
        )
    except Exception as error:  # A scheduler's client may raise anything.
        raise DistributedError(
            f"JAX sees a cluster here, but cannot tell this process's place in it "
            f"({type(error).__name__}: {error}). "
            "Give coordinator_address, num_processes and process_id; num_processes=1 for a run of one process"
        ) from error


# -------------------------------------------------------------------------------------- a failing process

_WORDS = 1000
_LAST_WORDS = 3.0
"""Seconds that a failed process waits for others that fail, too, and for those that ask about it."""


def _leave_when_failed() -> None:
    """Have a process end at once after an uncaught exception, instead of waiting for the others."""
    previous = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _RUN.failed = error
        previous(kind, error, trace)

    sys.excepthook = note
    atexit.register(_leave)  # Runs before JAX's own function, which would wait 300 s for the others.


def _leave() -> None:
    run = runtime()
    failed = _RUN.failed
    if failed is None or run is None:
        return
    # When process 0 ends, the others are aborted; so it lets those that fail, too, print their errors first.
    with contextlib.suppress(Exception):
        is_ours = isinstance(failed, DistributedError)
        why = str(failed.args[0]) if is_ours else "".join(traceback.format_exception_only(failed)).strip()
        note = json.dumps({"known": is_ours, "why": why[:_WORDS]})
        run.client.key_value_set(f"{FAILED}/{run.process_id}", note)
        run.client.wait_at_barrier(FAILED, int(1e3 * _LAST_WORDS))
        time.sleep(0.3 if run.process_id == 0 else 0.0)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(130 if isinstance(failed, KeyboardInterrupt) else 1)


# --------------------------------------------------------------------------------------------- agreement


def agree(
    what: str,
    lines: Sequence[str],
    timeout: float | None = None,
    shown: Callable[[int], str] | None = None,
) -> None:
    """Compare lines with all other processes, and return when all are here and have the same.

    It uses the store of the coordination service, and no devices, so that a difference is an error and not a
    hang. Every process must call it equally often with the same *what*; threads may do so at the same time
    with different ones. With a single process, nothing happens.

    Args:
        what: what is compared, as the error names it.
        lines: what must be equal. Digests are sent; of lines that differ, the first.
        timeout: seconds to wait for the others; as given to :func:`initialize` unless given.
        shown: maps the number of a line to the text that an error shows; unless given, the line itself.

    Raises:
        DistributedError: in all processes: lines differ, and it says which line and in which processes; or a
            process did not come.
    """
    run = runtime()
    if run is None or run.num_processes == 1:
        return
    with _RUN.lock:
        number = _RUN.rounds[what]
        _RUN.rounds[what] += 1
    seconds = _RUN.timeout if timeout is None else timeout
    place = run.process_id, run.num_processes
    complaint = Comparison(
        run.client, place, _RUN.hosts, _RUN.rooms, (what, number, lines), seconds, shown
    ).result()
    if complaint:
        raise DistributedError(complaint)
