"""A watch tells of its own failures in the report; in these tests they are failures."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _a_watch_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = pytest.importorskip("stopgrad.interop.torch.recording.recorder")

    def lose(self: Any, call: Any, place: Any, error: Exception) -> None:
        raise error

    monkeypatch.setattr(recorder.Recorder, "lose", lose)
