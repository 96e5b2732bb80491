"""The JSON of findings is as its schema and docs/findings.md describe it, and the page has every kind."""

from __future__ import annotations

import importlib.util
import json
import re
from typing import Any

import pytest
from pages import DOCS
from places import ROOT

from stopgrad.base.source import Location
from stopgrad.flow.problems.catalogue import KINDS, page_of
from stopgrad.flow.problems.diagnosis import Diagnosis
from stopgrad.flow.problems.problem import Problem, Site

SCHEMA: dict[str, Any] = json.loads((DOCS / "static" / "training.schema.json").read_text())
PAGE = (DOCS / "findings.md").read_text()
ROLE = re.compile(r"""(?:\b[Ss]ites?|\bhere)\(\s*"(\w+)"|\brole(?:: str)? ?= ?"(\w+)\"""")


def diagnosis() -> Diagnosis:
    """One of each kind, with and without what is optional."""
    at = Location(__file__, 1, 1, 0, 3)
    problems = [Problem(kind, f"{kind} was seen") for kind in KINDS]
    problems.append(
        Problem(
            "nan-gradient",
            "the gradient of w is NaN",
            [Site("made", "begins here", at), Site("first", "differentiated here", at)],
            ["w", "b"],
            {"step": 3, "norm": float("nan"), "shapes": [[2, 1], [2]], "reasons": ["sqrt"]},
            "keep the argument away from 0",
            3,
        )
    )
    return Diagnosis(problems, steps=7, recorded=3, unknown=["what more there was"])


def test_the_json_has_the_fields_that_the_schema_requires_and_no_others() -> None:
    told = json.loads(diagnosis().to_json())
    finding, place = SCHEMA["$defs"]["finding"], SCHEMA["$defs"]["place"]
    places = [place for one in told["findings"] for place in one["places"]]
    assert len(told["findings"]) == len(KINDS) + 1
    assert len(places) == 2
    forms = [(told, SCHEMA), *[(one, finding) for one in told["findings"]], *[(one, place) for one in places]]
    for found, form in forms:
        assert list(found) == form["required"] == list(form["properties"])
    assert (told["format"], told["version"]) == ("stopgrad.training", 1)


@pytest.mark.skipif(importlib.util.find_spec("jsonschema") is None, reason="needs jsonschema")
def test_the_json_is_valid_by_the_schema_and_what_is_not_is_refused() -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(SCHEMA)
    validator = Draft202012Validator(SCHEMA)
    for one in (diagnosis(), Diagnosis(())):
        told = json.loads(one.to_json(indent=2))
        assert not [error.message for error in validator.iter_errors(told)]
    told = json.loads(diagnosis().to_json())
    refused = {"kind": "unheard-of", "severity": "fatal", "step": -1, "names": "w", "id": ""}
    for name, wrong in refused.items():
        broken = {**told, "findings": [{**told["findings"][0], name: wrong}]}
        assert not validator.is_valid(broken), name


def test_the_schema_knows_every_kind_and_every_role() -> None:
    assert SCHEMA["$defs"]["kind"]["enum"] == list(KINDS)
    roles = SCHEMA["$defs"]["place"]["properties"]["role"]["enum"]
    folders = [ROOT / "src" / "stopgrad" / "interop" / world for world in ("torch", "jax")]
    source = "\n".join(file.read_text() for folder in folders for file in folder.rglob("*.py"))
    used = {a or b for a, b in ROLE.findall(source)}
    assert len(used) >= 10
    assert used <= set(roles)
    section = PAGE.split("### Roles of lines")[1].split("\n###")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == roles


def test_the_page_has_a_heading_for_each_kind_in_the_order_of_the_catalogue_and_no_other() -> None:
    sections = re.split(r"^### ", PAGE.split("\n## What raises\n")[1], flags=re.MULTILINE)[1:]
    assert [section.partition("\n")[0] for section in sections] == list(KINDS)
    for section in sections:
        kind = section.partition("\n")[0]
        assert "```py\n" in section, kind
        assert page_of(kind) == f"docs/findings.md#{kind}"
    raised = re.split(r"^### ", PAGE.split("\n## What trains nothing, or wrongly\n")[0], flags=re.MULTILINE)
    for kind, one in KINDS.items():
        assert one.raised == any(section.startswith(f"{kind}\n") for section in raised), kind


def test_the_fields_on_the_page_are_those_of_the_schema() -> None:
    section = PAGE.split("### JSON")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    named = [name for row in rows for name in row.split("`")[1::2]]
    forms = (SCHEMA, SCHEMA["$defs"]["finding"], SCHEMA["$defs"]["place"])
    assert named == [name for form in forms for name in form["properties"]]
