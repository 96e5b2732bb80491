"""Scripts as people write them: what is wrong in each is found, at its lines, and nothing in its twin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from run_scripts import in_forks

SCRIPTS = Path(__file__).parent / "scripts"
CASES = Path(__file__).parents[4] / "shared" / "cases"
PARTS = 2
KINDS = sorted(folder.name for folder in SCRIPTS.iterdir() if folder.is_dir() and folder.name != "correct")


def wanted(path: Path) -> str:
    """The kind of finding that a script is to have."""
    found = re.search(r"^# finds: ([\w-]+)$", path.read_text(), re.MULTILINE)
    assert found is not None, path
    return found[1]


def marked(path: Path) -> set[int]:
    """The lines that an explanation must name."""
    lines = path.read_text().splitlines()
    return {i for i, line in enumerate(lines, 1) if re.search(r"# <\w+>$", line)}


def wrong_with(path: Path, told: dict[str, Any]) -> str:
    """What is wrong with what was found in a script; empty if nothing."""
    kinds = [one["kind"] for one in told["findings"] if one["severity"] != "note"]
    kind = wanted(path)
    if told["unknown"]:
        return f"not known: {told['unknown']}"
    if kind == "nothing":
        return f"a false alarm: {kinds}" if kinds else ""
    places = [place for one in told["findings"] if one["kind"] == kind for place in one["places"]]
    missing = marked(path) - {place["line"] for place in places if Path(place["file"]).name == path.name}
    if kind not in [one["kind"] for one in told["findings"]]:
        return f"wanted {kind}, found {kinds}\n{told['printed'][-1500:]}"
    if any("release of PyTorch does not show" in one["cure"] for one in told["findings"]):
        return ""  # It says why it names no lines.
    return f"lines {sorted(missing)} are not named\n{told['printed'][-1500:]}" if missing else ""


def check(paths: list[Path]) -> None:
    """Run scripts, and fail with all that is wrong."""
    packages = ("jax",) if any(path.parent.name.startswith("jax") for path in paths) else ("torch",)
    found = in_forks(*map(str, paths), packages=packages)
    wrong = [
        f"{path.parent.name}/{path.name}: {told}"
        for path in paths
        if (told := wrong_with(path, found[str(path)]))
    ]
    assert not wrong, "\n".join(wrong)


def of_torch(paths: list[Path]) -> list[Path]:
    return [path for path in paths if not path.parent.name.startswith("jax")]


@pytest.mark.first
def test_one_script_of_each_kind_its_right_twin_and_some_correct_programs() -> None:
    pytest.importorskip("torch")
    first = [sorted((SCRIPTS / kind).glob("*.py"))[:2] for kind in KINDS]
    correct = sorted((SCRIPTS / "correct").glob("*.py"))[::6]
    check(of_torch([*correct, *(path for pair in first for path in pair)]))


@pytest.mark.first
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_script(part: int) -> None:
    pytest.importorskip("torch")
    check(of_torch(sorted(SCRIPTS.rglob("*.py")))[part::PARTS])


def test_scripts_in_jax() -> None:
    pytest.importorskip("jax")
    folders = [SCRIPTS / kind for kind in KINDS if kind.startswith("jax")]
    check([path for folder in folders for path in sorted(folder.glob("*.py"))])


def test_every_wrong_script_has_a_right_twin() -> None:
    for kind in KINDS:
        for path in (SCRIPTS / kind).glob("*.py"):
            if wanted(path) != "nothing":
                assert wanted(path) == kind, path
                assert wanted(path.with_stem(f"{path.stem}_right")) == "nothing"
    assert sum(wanted(path) != "nothing" for path in SCRIPTS.rglob("*.py")) >= 60


CASES_OF_TORCH = {
    "ddp_unused": "ddp-unused",
    "inplace_relu": "modified-in-place",
    "list_of_layers": "not-held",
    "nan_train": "nan-gradient",
    "no_grad_fn": "no-graph",
    "nonleaf_to": "non-leaf",
    "ok_train": "",
    "optimizer_inplace_gan": "modified-in-place",
    "second_backward": "second-backward",
    "silent_old_optimizer": "not-held",
    "zero_grad_between": "zeroed-before-step",
}
"""What ``stopgrad run`` finds in each of the cases."""


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases lie beside the project")
def test_the_cases() -> None:
    pytest.importorskip("torch")
    paths = {name: str(CASES / f"torch_{name}.py") for name in CASES_OF_TORCH}
    found = in_forks(*paths.values())
    for name, path in paths.items():
        kinds = [one["kind"] for one in found[path]["findings"] if one["severity"] != "note"]
        assert kinds == list(filter(None, [CASES_OF_TORCH[name]])), name
