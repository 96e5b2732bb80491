"""The options of ``stopgrad run``: what it prints and writes, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_scripts import in_forks
from tiers import some

pytest.importorskip("torch")

SCRIPTS = Path(__file__).parent / "scripts"
WRONG = SCRIPTS / "not-held" / "head_replaced_after_optimizer.py"
RIGHT = SCRIPTS / "not-held" / "head_replaced_after_optimizer_right.py"
TWO = """import torch, sys
from torch import nn
torch.manual_seed(0)
net, aux = nn.Linear(4, 1), nn.Linear(4, 1)
opt = torch.optim.SGD([*net.parameters(), *aux.parameters()], lr=0.1)
for step in range(8):
    x = torch.randn(16, 4)
    loss = (net(x) - x[:, 0]).pow(2).mean()
    loss = loss + aux(x).detach().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("step", step, flush=True)
print("done", sys.argv[1:])
"""


DIES = """import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(9):
    if step == 3:
        with torch.no_grad():
            net[0].bias.fill_(-100.0)
    x = torch.randn(16, 4)
    loss = (net(x) - x[:, :1] - 5).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
SAME = """import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 3, bias=False)
opt = torch.optim.SGD(net.parameters(), lr=1.0)
x = torch.randn(16, 4)
for step in range(5):
    out = net(x)
    loss = (out / out.detach()).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""


OWN = """import torch
raise ValueError("Trying to backward through the graph a second time")
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the commands of this module did, by name; one process runs them, which takes less time."""
    folder = tmp_path_factory.mktemp("run")
    two, moved = folder / "two.py", folder / "moved.py"
    two.write_text(TWO)
    moved.write_text("# A comment more.\n\n" + TWO)
    dies, same = folder / "dies.py", folder / "same.py"
    dies.write_text(DIES)
    same.write_text(SAME)
    own = folder / "own.py"
    own.write_text(OWN)
    old = folder / "old.json"
    old.write_text(json.dumps({"findings": [{"id": "gone|x", "kind": "not-held", "message": "of old"}]}))
    jobs = {
        "wrong": [str(WRONG)],
        "right": ["--check", str(RIGHT)],
        "check": ["--check", str(WRONG)],
        "fail-on": ["--fail-on", "nan-gradient", str(WRONG)],
        "fail-on-it": ["--fail-on", "not-held,nan-gradient", str(WRONG)],
        "two": [str(two), "--lr", "1"],
        "moved": [str(moved)],
        "only": ["--only", "broadcast-loss", str(two)],
        "steps": ["--steps", "4", str(two)],
        "github": ["--format", "github", str(two)],
        "sarif": ["--format", "sarif", str(two)],
        "html": ["--html", str(folder / "page.html"), str(two)],
        "baseline": ["--baseline", str(old), str(two)],
        "no-kind": ["--only", "nonsense", str(two)],
        "no-script": [str(folder / "missing.py")],
        "every": ["--every", "2", str(two)],
        "dies": ["--every", "1", str(dies)],
        "same": [str(same)],
        "own": [str(own)],
    }
    found = in_forks(*jobs.values())
    return {name: found[json.dumps(job)] for name, job in jobs.items()} | {"folder": folder}


def kinds(told: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in told["findings"]]


def test_the_status_is_the_scripts_unless_something_is_checked(ran: dict[str, Any]) -> None:
    assert {name: ran[name]["status"] for name in ("wrong", "right", "check", "fail-on", "fail-on-it")} == {
        "wrong": 0,
        "right": 0,
        "check": 1,
        "fail-on": 0,
        "fail-on-it": 1,
    }
    assert ran["right"]["findings"] == []
    assert "stopgrad: nothing found" in ran["right"]["printed"]
    assert ran["right"]["printed"].count("stopgrad") == 1  # One line where all is well.


def test_the_script_gets_its_arguments(ran: dict[str, Any]) -> None:
    assert "done ['--lr', '1']" in ran["two"]["printed"]


def test_the_worst_comes_first_and_only_selects(ran: dict[str, Any]) -> None:
    assert kinds(ran["two"]) == ["no-gradient", "broadcast-loss"]
    assert kinds(ran["only"]) == ["broadcast-loss"]
    assert "there is no kind 'nonsense'" in ran["no-kind"]["printed"]
    assert ran["no-kind"]["status"] == 2


def test_findings_keep_their_identity_when_lines_move(ran: dict[str, Any]) -> None:
    def of(name: str) -> list[str]:
        return [one["id"].replace(f"{name}.py", "") for one in ran[name]["findings"]]

    assert of("two") == of("moved")
    lines = [
        [place["line"] for one in ran[name]["findings"] for place in one["places"]]
        for name in ("two", "moved")
    ]
    assert lines[1] == [line + 2 for line in lines[0]]


def test_after_some_steps_it_reports_and_the_script_goes_on(ran: dict[str, Any]) -> None:
    printed = ran["steps"]["printed"]
    assert ran["steps"]["steps"] == 4
    at = [printed.index(text) for text in ("step 2", "stopgrad: ", "step 3", "done")]
    assert at == sorted(at)
    assert printed.count("stopgrad: ") == 1


def test_how_often_it_records(ran: dict[str, Any]) -> None:
    assert [(ran[name]["steps"], ran[name]["recorded"]) for name in ("two", "every")] == [(8, 3), (8, 6)]


def test_forms_for_machines(ran: dict[str, Any]) -> None:
    printed = ran["github"]["printed"]
    assert "::error file=" in printed
    assert "::warning file=" in printed
    text = ran["sarif"]["printed"]
    log = json.loads(text[text.index('{\n  "$schema"') :])
    assert [one["ruleId"] for one in log["runs"][0]["results"]] == ["no-gradient", "broadcast-loss"]


def test_the_page(ran: dict[str, Any]) -> None:
    page = (ran["folder"] / "page.html").read_text()
    assert "aux.weight" in page
    assert "each prediction is compared with every target" in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("https://matplotlib.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")


def test_what_is_new_and_what_is_gone(ran: dict[str, Any]) -> None:
    assert kinds(ran["baseline"]) == ["no-gradient", "broadcast-loss"]
    assert "gone: not-held: of old" in ran["baseline"]["printed"]


def test_a_layer_that_dies_in_the_run_is_told_with_the_step(ran: dict[str, Any]) -> None:
    (found,) = ran["dies"]["findings"]
    assert (found["kind"], found["step"]) == ("zero-gradient", 4)
    assert found["names"] == ["net.0.weight", "net.0.bias", "net.2.weight"]
    assert "since step 4" in found["message"]
    assert {place["source"] for place in found["places"]} == {"net(x)"}


def test_a_loss_that_stays_though_weights_move_is_noted(ran: dict[str, Any]) -> None:
    (found,) = ran["same"]["findings"]
    assert (found["kind"], found["severity"], found["evidence"]["loss"]) == ("constant-loss", "note", 1.0)


def test_an_error_of_the_users_own_is_not_explained_by_its_words(ran: dict[str, Any]) -> None:
    assert (ran["own"]["findings"], ran["own"]["status"]) == ([], 1)
    assert "stopgrad: nothing found" in ran["own"]["printed"]


def test_no_script(ran: dict[str, Any]) -> None:
    assert ran["no-script"]["status"] == 2
    assert "can't open file" in ran["no-script"]["printed"]


@pytest.mark.slow
def test_other_ranks_tell_what_the_first_does_not(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO)
    environment = {**os.environ, "WORLD_SIZE": "2", "MASTER_PORT": str(os.getpid()), "OMP_NUM_THREADS": "1"}
    told = []
    for rank in ("0", "1"):
        ran = subprocess.run(
            [sys.executable, "-m", "stopgrad", "run", str(script)],
            capture_output=True,
            text=True,
            env={**environment, "RANK": rank},
        )
        told.append(ran.stderr)
    assert "2 findings" in told[0]
    assert "nothing found" in told[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "modes_around_the_loop",
        *some(["gan_with_detach", "spectral_norm", "vae", "truncated_bptt"], 4, pytest.mark.nightly),
    ],
)
def test_numbers_and_random_states_are_those_of_python(name: str, tmp_path: Path) -> None:
    source = (SCRIPTS / "correct" / f"{name}.py").read_text()
    script = tmp_path / "train.py"
    ending = (
        "\nimport gc, hashlib, random, numpy, torch\n"
        "found = [x for x in gc.get_objects() if type(x) is torch.nn.Parameter]\n"
        "print(sorted(x.detach().double().sum().item() for x in found))\n"
        "print(torch.get_rng_state().sum(), random.random(), numpy.random.rand())\n"
    )
    script.write_text("import random, numpy\nrandom.seed(0); numpy.random.seed(0)\n" + source + ending)
    printed = [
        subprocess.run([sys.executable, *way, str(script)], capture_output=True, text=True, check=True).stdout
        for way in ([], ["-m", "stopgrad", "run"])
    ]
    assert printed[0] == printed[1]
