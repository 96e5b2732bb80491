"""The process's memory between calls."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from stopgrad.engines.xla.memory import keep_memory


def test_memory_is_kept_where_glibc_can_and_nobody_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOPGRAD_KEEP_MEMORY", raising=False)
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")
    monkeypatch.setenv("STOPGRAD_KEEP_MEMORY", "0")
    assert not keep_memory()


_IN_A_THREAD = """
import ctypes, resource, threading
from stopgrad.engines.xla.memory import keep_memory
assert keep_memory()
allocator = ctypes.CDLL(None)
allocator.malloc.restype = ctypes.c_void_p
faults = []
def allocate():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for size in (20, 80):
            memory = ctypes.c_void_p(allocator.malloc(size << 20))
            ctypes.memset(memory, 1, size << 20)
            allocator.free(memory)
        faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
thread = threading.Thread(target=allocate)
thread.start()
thread.join()
print(*faults)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_that_a_thread_has_freed_is_there_for_the_next_time() -> None:
    ran = subprocess.run([sys.executable, "-c", _IN_A_THREAD], capture_output=True, text=True, check=True)
    first, *later = map(int, ran.stdout.split())
    assert first > 1000
    assert max(later) < 100
