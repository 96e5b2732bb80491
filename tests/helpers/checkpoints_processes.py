"""What each of two processes does in the test of checkpoints: ``stopgrad launch -n 2 --devices 2``."""

from __future__ import annotations

import errno
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.scale.distributed import agree


def model() -> tuple[sg.Graph, list[Any]]:
    """Parameters divided in all ways, and a step that changes all of them."""
    graph = sg.Graph()
    with graph.as_default():
        start = np.arange(32.0).reshape(8, 4)
        ps = [
            sg.parameter(start, name="both", sharding=("data", "model")),
            sg.parameter(start.astype(np.float32), name="across", sharding=("data", None)),
            sg.parameter(np.arange(6), name="whole"),
            sg.parameter(np.zeros((0, 4)), name="none", sharding=("data", None)),
        ]
        return graph, [sg.assign(p, p + p.dtype.numpy.type(1)) for p in ps]


class Position:
    """Stands for data whose position is another in each process."""

    def __init__(self) -> None:
        self.at = [0, sg.distributed.process_index()]

    def state(self) -> Any:
        return self.at

    def restore(self, state: Any) -> None:
        self.at = state


def fails(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def main(folder: str) -> dict[str, Any]:
    index = sg.distributed.process_index()
    found: dict[str, Any] = {}
    graph, step = model()
    data = Position()
    with sg.Session(graph, mesh=sg.Mesh(data=2, model=2)) as session:

        def values() -> list[float]:
            return [float(session.value(graph.output(name)).sum()) for name in ("both", "across", "whole")]

        with sg.Checkpoints(Path(folder) / "run", session, data=data, keep=2) as checkpoints:
            found["at first"] = checkpoints.restore()
            for i in range(1, 4):
                session.run(step)
                data.at[0] = i
                checkpoints.save(i)
                if i == 2:
                    two = values()
            session.run(step)
            checkpoints.wait()
            found["restored"] = checkpoints.restore()
            found["position"] = data.at
            found["values"] = values()
            agree("all have restored", [])
            if index == 0:  # A file that the other process checks, or not.
                for file in (Path(folder) / "run" / "3" / "arrays").rglob("*"):
                    if file.is_file() and "process_1" in str(file):
                        file.write_bytes(file.read_bytes()[:-1] + b"\xff")
            agree("it is broken", [])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found["broken passed over"] = checkpoints.restore()
            found["warned"] = [str(w.message) for w in caught]
            found["as at two"] = values() == two
            # The disk of one process is full.
            fsync = os.fsync
            if index == 1:
                os.fsync = fails  # type: ignore[assignment]
            checkpoints.save(4)
            try:
                checkpoints.wait()
            except sg.CheckpointError as error:
                found["error"] = error.message
            os.fsync = fsync
            found["steps"] = checkpoints.steps
            agree("all have looked", [])
            checkpoints.save(5, wait=True)
            found["after"] = checkpoints.steps
        session.save(Path(folder) / "saved")
        session.run(step)
        session.restore(Path(folder) / "saved")
        found["saved and restored"] = values() == two
    return found


if __name__ == "__main__":
    sg.distributed.initialize(timeout=60)
    told = main(sys.argv[1])
    (Path(sys.argv[1]) / f"found.{sg.distributed.process_index()}").write_text(json.dumps(told))
