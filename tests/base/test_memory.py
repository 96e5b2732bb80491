"""The process's memory between calls."""

from __future__ import annotations

import platform

import pytest

from stopgrad.base.memory import keep_memory


def test_memory_is_kept_where_glibc_can_and_nobody_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOPGRAD_KEEP_MEMORY", raising=False)
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")
    monkeypatch.setenv("STOPGRAD_KEEP_MEMORY", "0")
    assert not keep_memory()
