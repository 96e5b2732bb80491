"""The versions that are promised: every bound is stated alike, and there is one script that tries them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from places import DOCS, ROOT

import versions
from versions import counted, install, lower_bounds, main, parsed, pytest_command, requirements

STATED = re.compile(r"\b(Python|PyTorch|JAX|NumPy|ONNX Runtime|ONNX) (\d[\d.]*\d) to (\d[\d.]*\d)")
PACKAGES = {
    "python": "Python",
    "torch": "PyTorch",
    "jax": "JAX",
    "numpy": "NumPy",
    "onnx": "ONNX",
    "onnxruntime": "ONNX Runtime",
}


# ------------------------------------------------------------------------------------------- the bounds


def test_every_dependency_has_a_lower_bound() -> None:
    tables = requirements()
    named = [*tables["dependencies"], *tables[versions.BESIDE]]
    for extra in ("xla", "jax", "torch", "onnx", "tensorflow", "scale", "special", "completion", "tour"):
        named += [one for one in tables[extra] if not one.startswith("stopgrad[")]
    for one in named:
        assert re.fullmatch(r"[\w.-]+>=[\d.]+", one), one


def table_of_versions() -> dict[str, list[str]]:
    """The table in ``docs/dependencies.md``: for each package, its oldest and its newest version."""
    text = (DOCS / "dependencies.md").read_text().partition("\n## Versions\n")[2].partition("\n## ")[0]
    first = text.partition("\n| ")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first.splitlines()]
    return {name: cells for name, *cells in rows[2:]}


def test_the_table_of_versions_has_the_bounds_of_pyproject() -> None:
    found = {name: cells[0] for name, cells in table_of_versions().items() if name != "python"}
    assert found == lower_bounds()


def test_pages_say_the_bounds_of_that_table() -> None:
    table = table_of_versions()
    wanted = {named: tuple(table[name][:2]) for name, named in PACKAGES.items()}
    for page, packages in ((ROOT / "README.md", PACKAGES), (DOCS / "index.md", ["python"])):
        found = {name: (oldest, newest) for name, oldest, newest in STATED.findall(page.read_text())}
        assert found == {PACKAGES[name]: wanted[PACKAGES[name]] for name in packages}, page


def test_every_bound_and_each_release_of_pytorch_is_tried_each_night() -> None:
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    oldest, newest = (tuple(map(int, one.split(".")[:2])) for one in table_of_versions()["torch"][:2])
    for minor in range(oldest[1], newest[1] + 1):
        assert re.search(rf"\btorch={oldest[0]}\.{minor}\.\d+\b", nightly), minor
    for name in requirements()[versions.BESIDE]:
        assert f"{versions.name_of(name)}=oldest" in nightly


# ------------------------------------------------------------------------------------------- the script


def test_what_is_named_replaces_what_the_tests_pin() -> None:
    asked, _ = parsed(["torch=2.6.0", "numpy=newest"])
    packages = asked.packages()
    assert "torch==2.6.0" in packages
    assert "numpy" in packages
    assert sum(one.startswith("torch") for one in packages) == 1
    assert asked.tests()[0] == "tests/interop/torch"


def test_a_set_without_pytorch_has_the_one_of_the_tests() -> None:
    asked, _ = parsed(["jax=oldest"])
    pinned = next(one for one in requirements()["test"] if one.startswith("torch=="))
    assert f"jax=={lower_bounds()['jax']}" in asked.packages()
    assert pinned in asked.packages()
    assert asked.tests() == ["tests/interop/jax"]


def test_oldest_is_every_lower_bound_and_newest_has_no_pin() -> None:
    oldest, _ = parsed(["--oldest"])
    packages = oldest.packages()
    for name, version in lower_bounds(("dependencies", *versions.EXTRAS)).items():
        assert f"{name}=={version}" in packages
    newest, _ = parsed(["--newest"])
    assert not [one for one in newest.packages() if "==" in one]
    assert {"torch", "jax"} <= {versions.name_of(one) for one in newest.packages()}
    assert set(versions.REST) < set(newest.tests())


@pytest.mark.parametrize("tier", versions.TIERS)
def test_tensorflow_is_never_beside_pytorch(tier: str) -> None:
    asked, _ = parsed(["tensorflow-cpu=newest", "--tier", tier])
    names = {versions.name_of(one) for one in asked.packages()}
    assert "tensorflow-cpu" in names
    assert not names & {"torch", "torchvision", "transformers", "pytorch-lightning"}


@pytest.mark.parametrize(
    "arguments",
    [[], ["torch"], ["colour=oldest"], ["torch=2.6", "tensorflow=2.20"], ["--oldest", "--newest"]],
    ids=" ".join,
)
def test_what_cannot_be_tried_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(arguments)
    assert "error" in capsys.readouterr().err


def test_the_environment_is_made_by_uv_or_else_by_pip() -> None:
    folder = Path("/somewhere")
    make, pip = install(folder, "3.13", ["torch==2.6.0"], "uv")
    assert make == ["uv", "venv", "--quiet", "--python", "3.13", "/somewhere"]
    assert pip[:3] == ["uv", "pip", "install"]
    assert pip[-3:] == ["-e", str(ROOT), "torch==2.6.0"]
    make, pip = install(folder, "3.13", ["torch==2.6.0"], None)
    assert make == ["python3.13", "-m", "venv", "/somewhere"]
    assert pip[:4] == ["/somewhere/bin/python", "-m", "pip", "install"]
    assert install(folder, "", [], None)[0][0] == sys.executable
    assert install(folder, "/usr/bin/python3", [], None)[0][0] == "/usr/bin/python3"


def test_the_processes_see_no_other_packages_and_no_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_CONSTRAINT", "/etc/caps.txt")
    found = versions.clean()
    assert "PYTHONPATH" not in found
    assert found["PIP_CONSTRAINT"] == "/dev/null"


def test_pytest_is_asked_for_a_tier_and_what_follows_the_dashes() -> None:
    asked, options = parsed(["torch=2.6.0", "--tier", "slow", "--", "-k", "gallery"])
    command = pytest_command(Path("/somewhere"), asked.tests(), asked.tier, 1, options.more)
    assert command[:3] == ["/somewhere/bin/python", "-m", "pytest"]
    assert command[command.index("-m", 3) + 1] == "slow"
    assert command[-3:] == ["-k", "gallery", "tests/interop/torch"]


def test_outcomes_are_counted(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    assert counted(results) == {"passed": 0, "failed": 0, "skipped": 0}
    results.write_text('<testsuites><testsuite tests="9" failures="1" errors="1" skipped="3"/></testsuites>')
    assert counted(results) == {"passed": 4, "failed": 2, "skipped": 3}


def test_an_outcome_is_a_row_of_the_table() -> None:
    asked, _ = parsed(["torch=2.6.0", "--tier", "slow"])
    counts = {"passed": 4, "failed": 2, "skipped": 3, "seconds": 70}
    installed = {"python": "3.11.7", "numpy": "2.4.6", "jax": "0.10.2", "torch": "2.6.0", "onnx": "1.23.2"}
    line = {"asked": asked.told, "tests": asked.tests(), "tier": asked.tier, "versions": installed, **counts}
    cells = versions.row(line).strip("| ").split(" | ")
    assert cells[:7] == ["torch 2.6.0", "3.11.7", "2.4.6", "0.10.2", "2.6.0", "1.23.2", "–"]
    assert cells[7:] == ["interop/torch", "slow", "4", "2", "3", "70"]


@pytest.mark.slow
def test_an_environment_that_is_there_is_used_and_its_status_returned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    table = tmp_path / "table.jsonl"
    here = ["jax=oldest", "--keep", str(tmp_path), "--table", str(table), "--processes", "0"]
    assert main([*here, "--tests", "tests/docs/test_versions.py", "--", "-k", "counted"]) == 0
    assert '"passed": 1, "failed": 0, "skipped": 0' in table.read_text()
    assert main([*here, "--tests", "tests/docs/test_versions.py", "--", "-k", "nothing_of_this_name"]) == 5
    assert "python 3." in capfd.readouterr().out


@pytest.mark.nightly
def test_the_lowest_versions_pass() -> None:
    assert main(["--oldest", "--processes", "1"]) == 0
