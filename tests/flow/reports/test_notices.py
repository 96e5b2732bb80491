"""Reports as annotations of source lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stopgrad as sg
from stopgrad.base.source import Location
from stopgrad.flow.reports.notices import Notice, at_lines, github, sarif


def test_github_escapes_what_ends_a_property_or_the_message() -> None:
    found = github([Notice("note", "a, b", "50 % of\nit: x, y", Location("/a:b,c/net.py", 3))])
    assert found == ("::notice file=/a%3Ab%2Cc/net.py,line=3,title=stopgrad%3A a%2C b::50 %25 of%0Ait: x, y")


def test_a_notice_without_a_line_names_no_file() -> None:
    assert github([Notice("error", "nan", "it")]) == "::error title=stopgrad%3A nan::it"
    (result,) = json.loads(sarif([Notice("error", "nan", "it")]))["runs"][0]["results"]
    assert result == {"ruleId": "nan", "level": "error", "message": {"text": "it"}}


def test_sarif_counts_columns_from_one_in_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file below the working directory is named relative to it, as a URI."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "grün net.py"
    path.write_text('ä = "é" + f(1)\n')
    byte = len('ä = "é" + '.encode())
    at = Location(str(path), 1, 1, byte, byte + 4)
    (result,) = json.loads(sarif([Notice("warning", "not differentiable", "it", at)]))["runs"][0]["results"]
    assert result["ruleId"] == "not-differentiable"
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "gr%C3%BCn%20net.py"},
        "region": {"startLine": 1, "startColumn": 11, "endLine": 1, "endColumn": 15},
    }


def test_each_line_has_one_notice() -> None:
    places = [Location("a.py", 1), None, Location("a.py", 2), Location("a.py", 1)]
    assert [n.location.line for n in at_lines("note", "r", "m", places) if n.location] == [1, 2]
    assert list(at_lines("note", "r", "m", [None])) == [Notice("note", "r", "m")]


def test_what_a_helper_does_is_noticed_at_the_own_line() -> None:
    own = Location("/me/net.py", 3)
    helper = Location("/opt/site-packages/helper/base.py", 7, caller=own, asks=True)
    model = Location("/opt/site-packages/model/net.py", 9, caller=own)
    found = list(at_lines("note", "r", "m", [helper, model, Location("/me/net.py", 4)]))
    assert [(n.location.file, n.location.line) for n in found if n.location] == [
        ("/me/net.py", 3),
        ("/me/net.py", 4),
    ]


def levels(report: sg.Flow | sg.GradientCheck | sg.NanTrace | sg.Ablation) -> list[tuple[str, str]]:
    (run,) = json.loads(report.to_sarif())["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(
        dict.fromkeys(one["ruleId"] for one in run["results"])
    )
    return [(one["level"], one["ruleId"]) for one in run["results"]]


def test_every_report_says_what_it_found() -> None:
    @sg.custom_gradient
    def wrong(x: sg.Tensor) -> object:
        return sg.exp(x), lambda g: 2.0 * g * sg.exp(x)

    def stopped(x: sg.Tensor, y: sg.Tensor) -> sg.Tensor:
        return x * sg.stop_gradient(y)

    assert levels(sg.explain(stopped, 1.0, 2.0)) == [("warning", "stopped")]
    assert levels(sg.explain(lambda x: x * x, 1.0)) == []
    assert levels(sg.check_gradients(wrong, 1.0, raises=False)) == [("error", "differs")]
    assert levels(sg.check_gradients(sg.exp, 1.0)) == []
    assert levels(sg.trace_nan(lambda x: sg.log(x) * 0.0, 0.0))[0] == ("error", "inf")
    assert levels(sg.trace_nan(sg.exp, 0.0)) == []
    assert ("note", "stop_gradient") in levels(sg.ablate(stopped, 1.0, 2.0, repeats=1))


def test_the_wrong_rule_of_a_custom_gradient_is_named_by_its_line() -> None:
    @sg.custom_gradient
    def wrong(x: sg.Tensor) -> object:
        def gradient(g: sg.Tensor) -> sg.Tensor:
            return 2.0 * g * sg.exp(x)

        return sg.exp(x), gradient

    check = sg.check_gradients(wrong, 1.0, raises=False)
    line = wrong.__wrapped__.__code__.co_firstlineno + 3
    assert f"test_notices.py,line={line}," in check.to_github()
    assert "generated 5.43656" in check.to_github()
