"""Processes of one training: each but the first tells only what differs from the first's."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

from stopgrad.flow.problems.diagnosis import Diagnosis

WAIT = 5.0
"""Seconds for which other processes wait for the first one's findings."""


def of_other_ranks(diagnosis: Diagnosis) -> Diagnosis:
    """What a process tells: all of it, or what the first process of the same training has not found."""
    rank, count = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "1")
    if not rank.isdigit() or not count.isdigit() or int(count) < 2:
        return diagnosis
    shared = _shared()
    if is_first():
        number, written = tempfile.mkstemp(prefix=shared.name)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(diagnosis.identities(), file)
        os.replace(written, shared)
        return diagnosis
    until = time.monotonic() + WAIT
    while not shared.exists() and time.monotonic() < until:
        time.sleep(0.05)
    try:
        if hasattr(os, "getuid") and shared.stat().st_uid != os.getuid():
            return diagnosis  # Somebody else's file of that name.
        identities = json.loads(shared.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return diagnosis
    return diagnosis.without(identities)


def is_first() -> bool:
    """Whether this is the only process of a training, or the first of several."""
    return os.environ.get("RANK", "0") in ("", "0")


def _shared() -> Path:
    """The file of one training's findings: its processes have one parent, and one address to meet at."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    job = "-".join([str(os.getppid()), *[os.environ.get(name, "") for name in names]])
    safe = "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in job)
    return Path(tempfile.gettempdir()) / f"stopgrad-{os.getuid() if hasattr(os, 'getuid') else 0}-{safe}.json"
