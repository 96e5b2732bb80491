"""The benchmark scripts run; how fast anything is, no test asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.slow


def run(script: str, *arguments: str, path: Path | None = None) -> str:
    """What a script prints; *path* is looked in before the installed packages."""
    folders = [str(ROOT / "src"), *([str(path)] if path else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=True
    ).stdout


def test_generation_measures_stopgrad_alone(tmp_path: Path) -> None:
    shown = run(
        "generation.py",
        "--quick",
        "--peers",
        "none",
        "--repetitions",
        "1",
        "--json",
        str(tmp_path / "out.json"),
    )
    assert "Operations: forward" in shown
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {row["case"] for row in rows} == {"chain", "mlp", "fan_out", "stopped", "live_tenth", "derivative"}
    assert all(row["libraries"]["stopgrad"]["live"] > row["libraries"]["stopgrad"]["forward"] for row in rows)


def test_batching_measures_both_and_gives_the_same_values(tmp_path: Path) -> None:
    shown = run("batching.py", "--quick", "--rounds", "2", "--json", str(tmp_path / "out.json"))
    assert "gradients of 8 examples" in shown
    *rows, built = json.loads((tmp_path / "out.json").read_text())
    assert [set(row["run_ms"]) for row in rows] == [{"stopgrad", "jax"}] * 4
    assert built["operations"] < 50


@pytest.mark.nightly
def test_runtime_measures_every_row_and_agrees_with_gradients_by_hand(tmp_path: Path) -> None:
    shown = run(
        "runtime.py",
        "--quick",
        "--peers",
        "numpy",
        "--numpy-engine",
        "--rounds",
        "1",
        "--json",
        str(tmp_path / "out.json"),
    )
    assert "stable softmax loss" in shown
    assert "≠ where" in shown
    found = json.loads((tmp_path / "out.json").read_text())
    assert {row["row"] for row in found["rows"]} == {f"S{i}" for i in range(1, 22)}
    for row in found["rows"]:
        ours, other, by_hand = (row["libraries"][name] for name in ("stopgrad", "stopgrad numpy", "numpy"))
        assert ours["ms"] > 0
        assert ours["first_s"] > 0
        assert ours["rss_mb"] > 0
        assert other["agrees"], row
        assert by_hand.get("agrees") or "written by hand where" in by_hand["left_out"], row
    for row in found["gates"]:
        assert row["with"]["stops"] == 20
        assert row["without"]["stops"] == 0
        assert row["with"]["text"] == row["without"]["text"]


def test_runtime_goes_on_where_it_ended_and_writes_a_page(tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    options = ("runtime.py", "--quick", "--peers", "numpy", "--json", str(out))
    run(*options, "--only", "S6")
    before = json.loads(out.read_text())["rows"]
    run(*options, "--only", "S6,S21", "--resume")
    rows = json.loads(out.read_text())["rows"]
    assert [row["row"] for row in rows] == ["S6", "S21"]
    assert rows[:1] == before
    page.write_text("# Above\n<!-- runtime.py: begin -->\nold\n<!-- runtime.py: end -->\nbelow\n")
    run(*options, "--markdown", str(page))
    written = page.read_text()
    assert written.startswith("# Above\n<!--")
    assert written.endswith("-->\nbelow\n")
    assert "old" not in written
    ratio = rows[0]["libraries"]["stopgrad"]["cpu_ms"] / rows[0]["libraries"]["numpy"]["cpu_ms"]
    assert f" {ratio:.2f} |" in written
    assert "`mixture`" in written


def test_runtime_leaves_a_missing_peer_out_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('none of it here')")
    out = tmp_path / "out.json"
    shown = run(
        "runtime.py", "--quick", "--only", "S1", "--peers", "numpy,numba", "--json", str(out), path=tmp_path
    )
    assert "numba: left out: ImportError: none of it here" in shown
    for row in json.loads(out.read_text())["rows"]:
        assert "none of it here" in row["libraries"]["numba"]["left_out"]
        assert row["libraries"]["numpy"]["agrees"]


def test_runtime_shows_a_disagreement(tmp_path: Path) -> None:
    """NumPy by hand, with an exponential that is not one."""
    out = tmp_path / "out.json"
    code = "import sys, numpy; numpy.exp = numpy.expm1 if 'numpy' in sys.argv else numpy.exp"
    (tmp_path / "sitecustomize.py").write_text(code)
    shown = run(
        "runtime.py", "--quick", "--only", "S1", "--peers", "numpy", "--json", str(out), path=tmp_path
    )
    rows = json.loads(out.read_text())["rows"]
    assert not any(row["libraries"]["numpy"]["agrees"] for row in rows)
    assert shown.count("≠ |") >= 3
    assert "numpy: loss, Σ |gradient|" in shown


@pytest.mark.nightly
def test_watch_measures_steps_and_chains(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = run("watch.py", "--quick", "--only", "mlp,chain", "--rounds", "2", "--json", str(out))
    assert "of fastest" in shown
    found = json.loads(out.read_text())
    assert [row["case"] for row in found["steps"]] == ["mlp", "mlp of 100 layers"]
    assert all(len(row["watched_ms"]) == 2 and row["plain"]["kept"] >= 0.0 for row in found["steps"])
    assert [row["size"] for row in found["chains"]] == [1_000]


@pytest.mark.nightly
def test_watch_cost_measures_every_way_and_leaves_a_missing_peer_out(tmp_path: Path) -> None:
    (tmp_path / "torchlens.py").write_text("raise ImportError('none of it here')")
    out = tmp_path / "out.json"
    options = ("--quick", "--only", "mlp of 2 layers,gpt", "--threads", "1", "--json", str(out))
    shown = run("watch_cost.py", *options, path=tmp_path)
    assert "torchlens: left out: ImportError: none of it here" in shown
    rows = json.loads(out.read_text())["rows"]
    assert [row["case"] for row in rows] == ["mlp of 2 layers", "gpt-2 small"]
    for row in rows:
        assert set(row["seconds"]) == {"plain", "watch", "anomaly mode", "bare mode", "monitor"}
        assert all(len(times) >= 2 and min(times) > 0 for times in row["seconds"].values())
        assert f"| {row['case']} | 1 | {1e3 * min(row['seconds']['plain']):.3g} (" in shown


@pytest.mark.nightly
def test_onnx_training_measures_steps_and_gradients(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ("--quick", "--only", "mlp", "--ways", "eager,trainer,stock", "--rounds", "1")
    shown = run("onnx_training.py", *options, "--json", str(out))
    assert "| mlp | trainer |" in shown
    (row,) = json.loads(out.read_text())["rows"]
    for way in ("trainer", "stock"):
        assert row[way]["ms"] > 0
        assert max(abs(a - b) for a, b in zip(row[way]["losses"], row["eager"]["losses"], strict=True)) < 1e-4
    assert row["gradients"]["differ"] < 1e-4


@pytest.mark.nightly
def test_scale_reads_what_devices_send_and_hold_and_agrees_with_jax(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ("--quick", "--only", "siamese", "--devices", "4", "--batch", "strong", "--json", str(out))
    shown = run("scale.py", *options)
    assert "MB sent without the stop → with it" in shown
    assert "sg.Session / JAX, memory" in shown
    stopped, open_ = json.loads(out.read_text())["rows"]
    assert stopped["case"] == "siamese both sgd, stopped"
    for name, found in stopped["libraries"].items():
        assert 0 < found["sent"] < open_["libraries"][name]["sent"]
        assert found["sent"] <= stopped["libraries"]["jax"]["sent"]
        assert found["memory"] > 0
    assert stopped["agrees"] < 1e-5


@pytest.mark.nightly
def test_data_measures_batches(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = run("data.py", "--quick", "--peers", "grain", "--rounds", "1", "--json", str(out))
    assert "| one by one | 1024 |" in shown
    rows = json.loads(out.read_text())
    assert [set(row["seconds"]) for row in rows] == [{"stopgrad", "grain"}] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of a process")
@pytest.mark.nightly
def test_large_graphs_measures_every_stage(tmp_path: Path) -> None:
    shown = run("large_graphs.py", "--quick", "--json", str(tmp_path / "out.json"))
    assert "bytes each, after" in shown
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["stage"] for row in rows] == ["build", "gradient", "explain", "prepare", "save", "load"]
    assert rows[1]["operations"] > 2 * rows[0]["operations"] > 2 * 10_000


@pytest.mark.nightly
def test_depth_measures_both_and_gives_the_same_loss(tmp_path: Path) -> None:
    shown = run("depth.py", "--quick", "--ways", "loop,jax scan", "--json", str(tmp_path / "out.json"))
    assert "| mlp | gradient | jax scan |" in shown
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["way"], row["depth"]) for row in rows] == [
        (way, depth) for way in ("loop", "jax scan") for depth in (1, 8)
    ]
    for ours, theirs in zip(rows[:2], rows[2:], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


@pytest.mark.nightly
def test_first_call_measures_the_parts_of_three_processes(tmp_path: Path) -> None:
    shown = run("first_call.py", "--quick", "--json", str(tmp_path / "out.json"))
    assert "| mlp, 4 | second |" in shown
    first, second, other = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert first["loss"] == second["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert all(
        first["parts"][name] > 0 for name in ("trace", "gradient", "prepare", "forms", "lower", "compile")
    )
    assert not any(second["parts"][name] for name in ("forms", "rolling", "plan", "lower", "compile"))
    assert second["parts"]["load"] > 0


def test_checkpoints_measures_all_ways(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = run(
        "checkpoints.py", "--megabytes", "16", "--rounds", "1", "--folder", str(tmp_path), "--json", str(out)
    )
    assert "while a checkpoint is written" in shown
    rows = json.loads(out.read_text())["rows"]
    assert [row["way"] for row in rows] == ["Session.save", "Checkpoints", "orbax", "orbax, uncompressed"]
    assert all(row["bytes"] > 1.5e7 and row["written"] >= row["returns"] > 0 for row in rows)


@pytest.mark.nightly
def test_monitor_measures_steps_of_three_worlds(tmp_path: Path) -> None:
    shown = run("monitor.py", "--quick", "--rounds", "2", "--json", str(tmp_path / "out.json"))
    assert "| torch, layers of 8 |" in shown
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["world"] for row in rows] == [
        world for world in ("torch", "sessions", "jax") for _ in range(2)
    ]
    assert all(row["alone_us"] < 1e6 and row["sampled"] > 0 for row in rows)
