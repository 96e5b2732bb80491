"""What the pages show does what they say: the code of the recipes, tables, links."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, FILE, blocks, pages
from places import ROOT

import stopgrad as sg

pytestmark = pytest.mark.slow

PACKAGE = Path(sg.__file__).parent


def run(folder: Path, *command: str | Path, package: Path = PACKAGE) -> str:
    """What a command prints, with the package that it finds."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package to which both recipes have been applied."""
    package = tmp_path_factory.mktemp("src") / "stopgrad"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "ops" / "penalties.py").write_text(blocks("add-an-operation.md", "python")[0])
    with (package / "__init__.py").open("a") as file:
        file.write("from stopgrad.ops.penalties import *\n")
    folder = package / "engines" / "wide"
    folder.mkdir()
    (folder / "__init__.py").write_text(blocks("add-an-engine.md", "python")[0])
    return package


RUNTIME = importlib.util.find_spec("onnxruntime") is not None
SCALE = [importlib.util.find_spec(name) for name in ("jax", "grain", "orbax")]
TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
FRAMEWORKS = [importlib.util.find_spec(name) for name in ("torch", "jax")]

HOW_TO = [
    *("custom-gradient", "find-a-nan", "freeze-a-layer", "in-a-notebook", "in-pytest-and-ci"),
    *("per-example-gradients", "random-numbers", "save-and-load", "session-or-function"),
]
PAGES = [
    "add-an-operation.md",
    "add-an-engine.md",
    "arrays.md",
    "flow-report.md",
    "gates.md",
    *(f"how-to/{name}.md" for name in HOW_TO),
    pytest.param("how-to/use-a-gpu.md", marks=pytest.mark.skipif(SCALE[0] is None, reason="needs JAX")),
    "habits.md",
    pytest.param("onnx.md", marks=pytest.mark.skipif(not RUNTIME, reason="needs onnxruntime")),
    pytest.param("tensorflow.md", marks=pytest.mark.skipif(not TENSORFLOW, reason="needs TensorFlow")),
    pytest.param("train-graph.md", marks=pytest.mark.skipif(not RUNTIME, reason="needs onnxruntime")),
    pytest.param("monitor.md", marks=pytest.mark.skipif(None in FRAMEWORKS, reason="needs PyTorch and JAX")),
    pytest.param(
        "other-code.md", marks=pytest.mark.skipif(None in FRAMEWORKS, reason="needs PyTorch and JAX")
    ),
    pytest.param("scale.md", marks=pytest.mark.skipif(None in SCALE, reason="needs JAX, grain and orbax")),
]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_recipe_runs_and_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks(page, "python")))
    expected = "".join(blocks(page, "text"))
    assert expected
    assert run(tmp_path, program).replace(f"{tmp_path}/", "") == expected


@pytest.mark.nightly
def test_the_loop_of_the_page_on_scale_goes_on_after_all_its_processes_were_killed(tmp_path: Path) -> None:
    """As two processes of four devices: the losses are those of one process that nobody killed."""
    loop = blocks("scale.md", "python")[0].replace("epochs=5", "epochs=60")
    assert "epochs=60" in loop
    (tmp_path / "whole").mkdir()
    (tmp_path / "train.py").write_text(loop)
    whole = run(tmp_path / "whole", tmp_path / "train.py").splitlines()
    assert len(whole) == 36
    command = ["-m", "stopgrad", "launch", "-n", "2", "--devices", "4", str(tmp_path / "train.py")]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    with subprocess.Popen(
        [sys.executable, *command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        begun = [next(line for line in first.stdout if "step 150" in line)]
        first.kill()  # The processes that it started die with it.
        begun += first.stdout.readlines()
    assert not any("step 1800" in line for line in begun)
    rest = run(tmp_path, *command).splitlines()
    for process in "01":
        shown = [line.removeprefix(f"[{process}] ") for line in rest if line.startswith(f"[{process}] step")]
        assert 0 < len(shown) < 36
        assert shown == whole[-len(shown) :]


def test_an_operation_in_the_package_passes_the_tests_that_it_brings(extended: Path) -> None:
    options = ("-o", "addopts=", "-p", "no:cacheprovider", "-k", "Charbonnier")
    found = run(
        ROOT,
        *("-m", "pytest", ROOT / "tests/sweeps/test_operations.py", *options),
        package=extended,
    )
    assert int(re.findall(r"(\d+) passed", found)[0]) >= 10


def test_an_operation_in_the_package_is_documented_by_an_example_that_runs(extended: Path) -> None:
    text = (
        "import doctest, numpy as np, stopgrad as sg; from stopgrad.ops import penalties; "
        "print(tuple(doctest.testmod(penalties, extraglobs={'sg': sg, 'np': np})))"
    )
    assert run(extended.parent, "-c", text, package=extended) == "(0, 2)\n"


def test_an_engine_in_the_package_is_found_by_its_folder(extended: Path) -> None:
    text = (
        "import sys, stopgrad as sg; print(*sg.engines.ENGINES, 'jax' in sys.modules); "
        "print(sg.function(lambda x: (1.0 + x) - 1.0, engine='wide')(1e-8))"
    )
    assert run(extended.parent, "-c", text, package=extended) == "xla onnxruntime numpy wide False\n1e-08\n"


def test_the_commands_list_the_new_engine_and_operation(extended: Path) -> None:
    text = run(extended.parent, "-m", "stopgrad.tools.cli", "ops", "charbonnier", package=extended)
    assert re.search(
        r"Charbonnier +charbonnier +Elementwise Charbonnier penalty, .* "
        r"x; epsilon +x: yes +rule +xla, onnxruntime, numpy, wide",
        text,
    ), text


# ----------------------------------------------------------------------------------------- the other pages


def test_every_name_of_ours_in_the_how_to_pages_exists() -> None:
    text = "\n".join(page.read_text() for page in (DOCS / "how-to").glob("*.md"))
    named = set(re.findall(r"\bsg\.((?:optimizers\.)?\w+)", text))
    assert len(named) > 50
    for name in named:
        owner = sg.optimizers if "." in name else sg
        assert hasattr(owner, name.rpartition(".")[2]), name


def test_every_how_to_page_is_listed_and_its_code_is_run() -> None:
    listed = (DOCS / "how-to" / "index.md").read_text()
    for page in (DOCS / "how-to").glob("*.md"):
        assert page.stem == "index" or f"]({page.name})" in listed
        assert "```python" not in page.read_text() or page.stem in {*HOW_TO, "use-a-gpu"}


@pytest.mark.parametrize("page", sorted([*pages(), *DOCS.parent.glob("*.md")]), ids=lambda p: p.name)
def test_every_file_that_a_page_links_to_exists(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target


def test_what_the_architecture_page_says_to_read_exists() -> None:
    page = (DOCS / "architecture.md").read_text()
    assert len(page.split()) <= 1000
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 12
    named = [(f"{package}/{file}", name) for package, cell in rows for file, name in FILE.findall(cell)]
    named += FILE.findall(page.split("## Five journeys")[1])
    assert len(named) >= 20
    for file, name in named:
        assert not name or re.search(rf"^(?:class|def) {name}\b", (PACKAGE / file).read_text(), re.MULTILINE)
        assert (PACKAGE / file).is_file(), file
