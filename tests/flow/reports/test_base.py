"""What holds of every report: one form of text, of what notebooks show, and of data."""

from __future__ import annotations

import html.parser
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page_tools
import pytest

import stopgrad as sg
from stopgrad.base.source import Location
from stopgrad.flow.problems.diagnosis import Diagnosis
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.reports.base import FlowReport

HOME = Path(sg.__file__).parent
PLACE = {"file", "line", "end_line", "column", "end_column", "function", "expression", "caller"}


def loss(params: Any, x: Any) -> Any:
    hidden = sg.tanh(params["größe"] * sg.stop_gradient(x))
    return sg.reduce_sum(hidden) * sg.stop_gradient(sg.reduce_sum(params["v"]))


def root(x: Any) -> Any:
    return sg.reduce_sum(sg.where(x > 0.0, sg.sqrt(x), 0.0))


def kept_out(x: Any) -> Any:
    return sg.reduce_sum(x * sg.stop_gradient(sg.sqrt(x)))


@sg.custom_gradient
def wrong(x: Any) -> Any:
    return x * x, lambda dy: dy * x


ARGS = ({"größe": np.ones(3), "v": np.ones(3)}, np.ones(3))
X = np.array([0.0, 1.0])
HERE = Location(__file__, 18, 18, 0, 20)
UNHELD = Problem(
    "not-held",
    "w receives gradients",
    [Site("made", "made here", HERE)],
    ["w"],
    {"norm": float("inf")},
    "give it",
)
REPORTS = {
    "explain": lambda: sg.explain(loss, *ARGS),
    "a part of explain": lambda: sg.explain(loss, *ARGS)["params"],
    "explain, hostile names": page_tools.hostile,
    "check": lambda: sg.check_gradients(loss, *ARGS),
    "check, failed": lambda: sg.check_gradients(lambda x: sg.reduce_sum(wrong(x)), X, raises=False),
    "check, not finite": lambda: sg.check_gradients(root, X, raises=False),
    "trace_nan": lambda: sg.trace_nan(root, X),
    "trace_nan, an infinity": lambda: sg.trace_nan(lambda x: sg.reduce_sum(1.0 / x), X),
    "trace_nan, finite": lambda: sg.trace_nan(root, np.ones(2)),
    "ablate": lambda: sg.ablate(loss, *ARGS, repeats=1),
    "ablate, not finite": lambda: sg.ablate(kept_out, X, repeats=1),
    "run": lambda: Diagnosis([UNHELD, Problem("broadcast-loss", "n to n")], 5, 3, ["what a step did"]),
}


@pytest.fixture(scope="module", params=REPORTS)
def report(request: pytest.FixtureRequest) -> Any:
    return REPORTS[request.param]()


def kinds() -> list[type]:
    found = FlowReport.__subclasses__()
    assert {kind.__name__ for kind in found} == {"Flow", "GradientCheck", "NanTrace", "Ablation", "Diagnosis"}
    return found


def test_all_reports_are_shown_in_the_same_way() -> None:
    shared = ["to_text", "to_dict", "to_json", "_repr_html_", "__str__"]
    own = {f"{kind.__name__}.{name}" for kind in kinds() for name in shared if name in vars(kind)}
    assert not own
    assert [kind.__name__ for kind in kinds() if kind.__str__ is not FlowReport.__str__] == []
    expected = "(self, width: 'int' = 80, color: 'bool | None' = None) -> 'str'"
    assert str(inspect.signature(FlowReport.to_text)) == expected
    assert len({kind._format for kind in kinds()}) == len(kinds())


def test_no_two_classes_are_called_report() -> None:
    found = [
        path
        for path in HOME.rglob("*.py")
        if re.search(r"^\s*class Report\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(found) <= 1, found


# -------------------------------------------------------------------------------------------------- text


def test_text_is_plain_where_it_is_printed_and_coloured_where_asked(report: Any) -> None:
    plain, coloured = report.to_text(color=False), report.to_text(color=True)
    assert str(report) == plain
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize("width", [39, 0, "80", 80.5, True])
def test_a_width_that_is_none_is_refused(report: Any, width: Any) -> None:
    with pytest.raises(sg.ArgumentError):
        report.to_text(width)


@pytest.mark.parametrize("width", [40, 60, 200])
def test_lines_are_no_wider_than_the_page_but_for_single_words(report: Any, width: int) -> None:
    for line in report.to_text(width).splitlines():
        assert len(line) <= width or len(line.split()) == 1 or "🦊" in line, line


# ---------------------------------------------------------------------------------------------- notebooks


class Elements(html.parser.HTMLParser):
    """Which elements there are; each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_what_the_text_says_without_scripts(report: Any) -> None:
    shown = Elements(report._repr_html_())
    elements = {"div", "details", "summary", "b", "span", "pre", "table", "tr", "td"}
    # The scripts that draw a graph are in a page of their own.
    assert shown.found - elements <= ({"iframe"} if isinstance(report, sg.Flow) else set())
    sentence = report.to_text(1000).splitlines()[0]
    assert sentence in shown.text


def test_a_notebook_shows_statuses_cuts_and_findings() -> None:
    shown = page_tools.q_learning()._repr_html_()
    assert re.search(r"<summary><b[^>]*>stopped:</b> target/w", shown)
    assert re.search(r"<span style=\"text-decoration:underline[^>]*>sg.stop_gradient\(rewards \+ 0.9", shown)
    assert "that does nothing" in shown


def test_a_notebook_does_not_say_where_files_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("explain", "check", "trace_nan", "ablate"):
        report = REPORTS[name]()
        assert str(Path(__file__).parent) in report.to_text()
        assert str(Path(__file__).parent) not in report._repr_html_(), name
        assert Path(__file__).name in report._repr_html_()


# --------------------------------------------------------------------------------------------------- data


def dicts_in(data: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All that lies in data, with the key that it stands under."""
    yield key, data
    if isinstance(data, dict):
        for name, one in data.items():
            yield from dicts_in(one, name)
    elif isinstance(data, list):
        for one in data:
            yield from dicts_in(one, key)


def test_data_have_a_format_and_one_form_of_places_and_numbers(report: Any) -> None:
    data = report.to_dict()
    assert list(data)[:2] == ["format", "version"]
    assert re.fullmatch(r"stopgrad\.[a-z-]+", data["format"])
    assert json.loads(report.to_json()) == json.loads(report.to_json(indent=2)) == data
    for key, one in dicts_in(data):
        assert type(one) in (dict, list, str, int, float, bool, type(None)), (key, type(one))
        if isinstance(one, dict) and "file" in one and "role" not in one:  # Those with a role are shorter.
            assert set(one) == PLACE, key
        if key in ("location", "origin_location", "rule"):
            assert one is None or set(one) == PLACE


def test_numbers_that_are_not_finite_are_texts() -> None:
    (stop,) = REPORTS["ablate, not finite"]().to_dict()["stops"]
    assert stop["difference"] == "inf"
    (found,) = REPORTS["check, not finite"]().to_dict()["inputs"].values()
    assert found["error"] == "inf"
    first = REPORTS["trace_nan, an infinity"]().first
    assert first.kind == "inf"
    trace = sg.trace_nan(lambda x: sg.reduce_sum(x - x), np.array([np.inf, 1.0]))
    texts = {one for _, one in dicts_in(trace.to_dict()) if one in ("inf", "nan")}
    assert texts >= {"inf"}


def test_columns_are_characters_in_every_report() -> None:
    line = 'hidden = sg.tanh(params["größe"] * sg.stop_gradient(x))'
    starts = {}
    for name in ("explain", "check", "ablate"):
        for _, one in dicts_in(REPORTS[name]().to_dict()):
            if isinstance(one, dict) and one.get("expression") == "sg.stop_gradient(x)":
                starts[name] = one["column"]
    at = 4 + line.index("sg.stop_gradient")
    assert starts == {"explain": at, "check": at, "ablate": at}
