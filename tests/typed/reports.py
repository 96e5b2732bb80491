"""What reports, sessions and monitors say, as type checkers see it; the tests run it, too."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import stopgrad as sg
from stopgrad.flow import GradientCheck
from stopgrad.run.tuning import Report
from stopgrad.train.monitoring.sessions import SessionMonitor


def energy(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return sg.reduce_sum(sg.square(w))


def of_reports(y: sg.Output, x: sg.Output) -> None:
    report = sg.explain(y, [x])
    assert_type(report, sg.Flow)
    assert_type(report.status, str)
    assert_type(report.cuts, tuple[sg.Cut, ...])
    assert_type(sg.check_gradients(energy, np.ones(2)), GradientCheck)
    assert_type(sg.trace_nan(energy, np.ones(2)), sg.NanTrace)


def of_graphs(y: sg.Output) -> None:
    assert_type(y.op, sg.Operation)
    assert_type(y.op.graph, sg.Graph)
    assert_type(y.op.name, str)
    assert_type(y.name, str)
    assert_type(y.type, sg.TensorType)
    assert_type(y.type.dtype, sg.DType)
    assert_type(y.ndim, int)


def of_sessions(graph: sg.Graph, y: sg.Output, x: sg.Output) -> None:
    session = sg.Session(graph, engine="numpy")
    assert_type(session.run(y, {x: np.ones(2)}), Any)
    assert_type(session.mesh, sg.Mesh | None)
    assert_type(sg.monitor(session, y, [x]), SessionMonitor)


def of_functions() -> None:
    compiled = sg.function(sg.exp, engine="numpy")
    compiled(1.0)
    assert_type(compiled.report(), tuple[Report, ...])
