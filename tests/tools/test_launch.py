"""``stopgrad launch``: what it tells its processes, what it prints of them, and how they end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import stopgrad as sg
from stopgrad.tools import cli
from stopgrad.tools.cli import launch


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A file to write a program into."""
    return tmp_path / "script.py"


class Launched(NamedTuple):
    """How a launch ended."""

    status: int
    out: bytes
    err: bytes


def launched(*arguments: object, grace: float = launch.GRACE, **variables: str) -> Launched:
    """As a process of its own: JAX runs in that of the tests, which therefore must not be forked."""
    program = "import sys; from stopgrad.tools.cli import launch, main; launch.GRACE = float(sys.argv[1]); "
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{program}sys.exit(main(sys.argv[2:]))",
            str(grace),
            "launch",
            *map(str, arguments),
        ],
        env={**os.environ, "PYTHONPATH": str(Path(sg.__file__).parents[1]), **variables},
        capture_output=True,
        timeout=60,
    )
    return Launched(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: script.py, or -m module"),
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        (["-m"], "-m needs the name of a module"),
        (["-n", "0", __file__], "-n must be from 1 to 65536, not 0"),
        (["-n", "two", __file__], "invalid int value: 'two'"),
        (["--devices", "0", __file__], "--devices must be from 1"),
        (["--port", "70000", __file__], "--port must be from 1 to 65535, not 70000"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_right(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(["launch", *arguments])
    assert exit.value.code == cli.ERROR
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_each_process_is_told_its_place_and_the_scripts_own_arguments(script: Path) -> None:
    script.write_text(
        "import os, sys\n"
        "told = 'JAX_COORDINATOR_ADDRESS', 'STOPGRAD_NUM_PROCESSES', 'JAX_NUM_CPU_DEVICES', 'JAX_PLATFORMS'\n"
        "print(sys.argv[1:], os.environ['STOPGRAD_PROCESS_ID'], [os.environ.get(x) for x in told])\n"
    )
    # What looks like an option of the command's is the script's, after its name.
    done = launched("-n", 3, "--devices", 2, "--port", 4321, script, "-n", 9, "--port", "-m")
    assert (done.status, done.err) == (cli.OK, b"")
    assert sorted(done.out.decode().splitlines()) == [
        f"[{i}] ['-n', '9', '--port', '-m'] {i} ['127.0.0.1:4321', '3', '2', 'cpu']" for i in range(3)
    ]


@pytest.mark.slow
def test_a_module_runs_as_python_runs_it(script: Path) -> None:
    script.with_name("trained.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    path = f"{Path(sg.__file__).parents[1]}{os.pathsep}{script.parent}"
    done = launched("-m", "trained", "--rate", "0.1", PYTHONPATH=path)
    assert done == (cli.OK, b"[0] __main__ ['--rate', '0.1']\n", b"")


@pytest.mark.slow
def test_output_comes_line_by_line_as_the_bytes_that_it_is(script: Path) -> None:
    script.write_text(
        "import sys\n"
        "sys.stdout.buffer.write(b'\\xff\\xfe raw\\n\\nend of file')\n"
        "sys.stderr.buffer.write(b'x' * 3_000_000 + b'\\n')\n"
    )
    done = launched("-n", 2, script)
    assert done.status == cli.OK
    for i in (b"[0] ", b"[1] "):
        own = b"".join(line for line in done.out.splitlines(keepends=True) if line.startswith(i))
        assert own == i + b"\xff\xfe raw\n" + i + b"\n" + i + b"end of file\n"
        assert sum(line.count(b"x") for line in done.err.splitlines() if line.startswith(i)) == 3_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "status", "says"),
    [
        ("sys.exit(7)", 7, "process 1 failed first, with status 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "process 1 failed first, ended by SIGKILL"),
    ],
)
def test_when_one_fails_the_others_are_ended_and_its_status_is_returned(
    how: str, status: int, says: str, script: Path
) -> None:
    # The others do not heed SIGTERM, which JAX takes for a note that the machine is about to be taken away.
    script.write_text(
        "import os, signal, sys, time\n"
        "print('pid', os.getpid(), flush=True)\n"
        f"if os.environ['STOPGRAD_PROCESS_ID'] == '1':\n    {how}\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "time.sleep(100)\n"
    )
    done = launched("-n", 3, script, grace=0.5)
    assert (done.status, done.err.decode()) == (status, f"stopgrad: {says}; the others were ended\n")
    assert_gone(done.out.decode())


@pytest.mark.slow
def test_others_may_end_by_themselves_after_one_has_failed(script: Path) -> None:
    script.write_text(
        "import os, sys, time\n"
        "if os.environ['STOPGRAD_PROCESS_ID'] == '0':\n    sys.exit(3)\n"
        "time.sleep(0.5)\nprint('done')\n"
    )
    done = launched("-n", 2, script)
    assert done == (3, b"[1] done\n", b"stopgrad: process 0 failed first, with status 3\n")


def assert_gone(out: str) -> None:
    """None of the processes that said what they are is there any more."""
    found = [int(pid) for pid in re.findall(r"pid (\d+)", out)]
    assert found
    until = time.monotonic() + 10
    while any(map(_runs, found)) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in found if _runs(pid)] == []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


WITH_A_CHILD = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"])
print("pid", os.getpid(), "pid", child.pid, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_signal_to_the_launcher_leaves_no_process_behind(
    number: signal.Signals, status: int, script: Path
) -> None:
    script.write_text(WITH_A_CHILD + "time.sleep(100)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "stopgrad", "launch", "-n", "2", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    out = process.stdout.readline() + process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == status
    if number != signal.SIGKILL:
        assert f"stopgrad: ended by {number.name}\n" in err
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)  # It was passed on.
    assert_gone(out)


@pytest.mark.slow
def test_children_of_one_that_is_killed_end_with_it_and_do_not_hold_its_output(script: Path) -> None:
    script.write_text(
        f"{WITH_A_CHILD}if os.environ['STOPGRAD_PROCESS_ID'] == '1':\n"
        "    time.sleep(0.3)\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(100)\n"
    )
    done = launched("-n", 2, script, grace=1)
    assert done.status == 137
    assert done.err == b"stopgrad: process 1 failed first, ended by SIGKILL; the others were ended\n"
    assert_gone(done.out.decode())


@pytest.mark.slow
def test_all_of_very_much_output_at_once_is_passed_on(script: Path) -> None:
    script.write_text(
        "import sys\nfor i in range(10_000):\n"
        "    sys.stdout.write(f'line {i}\\n')\n    sys.stderr.write(f'error {i}\\n')\n"
    )
    done = launched("-n", 2, script)
    assert done.status == cli.OK
    for stream, word in ((done.out, "line"), (done.err, "error")):
        lines = stream.decode().splitlines()
        for process in (0, 1):
            own = [line for line in lines if line.startswith(f"[{process}] ")]
            assert own == [f"[{process}] {word} {i}" for i in range(10_000)]


@pytest.mark.slow
def test_a_port_that_is_taken_is_told_by_an_error_of_ours(script: Path) -> None:
    script.write_text("import stopgrad as sg\nsg.distributed.initialize(timeout=60)\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = launched("-n", 2, "--port", port, script, grace=0.5)
    assert done.status == 1
    told = f"DistributedError: distributed.initialize: process 0 cannot listen on port {port}"
    assert told in done.err.decode()
    assert "process 0 failed first, with status 1" in done.err.decode()


@pytest.mark.slow
def test_a_reader_who_leaves_ends_the_processes(script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, 'pid').write_text(f'pid {{os.getpid()}}')\n"
        "while True:\n    print('line')\n    time.sleep(0.01)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "stopgrad", "launch", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == cli.LEFT
    assert_gone((tmp_path / "pid").read_text())
    assert process.stderr is not None
    process.stderr.close()
