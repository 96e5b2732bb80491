"""The page of ``stopgrad serve`` in Chromium: its numbers are those of ONNX Runtime on the desktop."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_tools import started
from safetensors.numpy import save_file

pytestmark = pytest.mark.slow

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from language_models import pieces, training_folder  # noqa: E402
from serve_pages import (  # noqa: E402
    BATCH,
    RATE,
    Opened,
    assert_close,
    batches,
    on_the_desktop,
    opened,
    prepared,
    served,
)

import stopgrad.onnx as sgo  # noqa: E402
from stopgrad.interop.onnx.training import training_folders  # noqa: E402
from stopgrad.tools import cli  # noqa: E402


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Any]:
    with served(home / "training", home / "pieces.npz") as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


def logits(model: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options)
    return session.run(None, {"tokens": pieces()["tokens"]})[0]


# ------------------------------------------------------------------------------------------------ numbers


def test_steps_with_a_reload_between_are_the_steps_on_the_desktop_and_merge_back(
    browser: Any, server: Any, home: Path, tmp_path: Path
) -> None:
    trainer, expected = on_the_desktop(home, 22)
    with opened(browser, server) as page:
        assert page.page.evaluate("crossOriginIsolated")
        page.train(13)
        page.page.reload()
        assert page.settle() == "ready"
        assert (page.steps, page.text("#start")) == (13, "Go on")
        assert page.page.input_value("#rate") == str(RATE)
        assert not page.page.is_checked("#shuffle")
        page.page.select_option("#backend", "wasm:2")  # Goes on there; two threads even on one core.
        assert page.settle() == "ready"
        page.train(9)
        assert page.steps == 22
        np.testing.assert_allclose(page.losses(server), expected, rtol=1e-5)
        assert float(page.text("#loss")) == pytest.approx(expected[-1], rel=1e-3)
        adapter = page.download("#adapter", tmp_path / "adapter.safetensors")
        state = page.download("#state", tmp_path / "state.safetensors")
    trainer.save_weights(tmp_path / "expected.safetensors")
    assert_close(adapter, tmp_path / "expected.safetensors")
    trainer.save(tmp_path / "expected_state.safetensors")
    assert_close(state, tmp_path / "expected_state.safetensors")

    merged = tmp_path / "merged.onnx"
    assert cli.main(["merge", str(home / "training"), str(adapter), "-o", str(merged)]) == cli.OK
    found = logits(merged)
    np.testing.assert_allclose(
        found, trainer.predict(tokens=pieces()["tokens"])["logits"], rtol=1e-3, atol=1e-4
    )
    assert np.abs(found - logits(home / "model.onnx")).max() > 0.1


def test_shuffled_batches_are_the_same_after_a_reload(browser: Any, server: Any) -> None:
    with opened(browser, server) as page:
        page.train(20, shuffled=True)
        whole = page.losses(server)
    with opened(browser, server) as page:
        page.train(11, shuffled=True)
        page.page.reload()
        page.settle()
        page.train(9, shuffled=True)
        np.testing.assert_array_equal(page.losses(server), whole)
        assert len(set(np.round(whole, 6))) == 20


def test_a_state_goes_from_the_desktop_to_the_page_and_back(
    browser: Any, server: Any, home: Path, tmp_path: Path
) -> None:
    trainer, _ = on_the_desktop(home, 8)
    trainer.save(tmp_path / "state.safetensors")
    with opened(browser, server) as page:
        page.train(1)
        page.pick("#restore", tmp_path / "state.safetensors")
        assert page.text("#problem") == ""
        assert page.steps == 0
        page.train(8)
        expected = [trainer.step(batch, learning_rate=RATE) for batch in batches(8)]
        np.testing.assert_allclose(page.losses(server), expected, rtol=1e-5)
        trainer.restore(page.download("#state", tmp_path / "back.safetensors"))


# ------------------------------------------------------------------------------------------------- in use


def test_it_is_stopped_goes_on_and_starts_over(browser: Any, server: Any) -> None:
    with opened(browser, server) as page:
        page.page.on("dialog", lambda dialog: dialog.accept())
        page.set(100_000)
        page.page.click("#start")
        while page.steps < 20:
            page.page.wait_for_timeout(20)
        assert page.page.is_disabled("#batch")
        page.page.click("#start")
        assert page.settle() == "ready"
        stopped = page.steps
        assert f"up to step {stopped}:" in page.text("#kept")
        page.train(5)
        assert page.steps == stopped + 5
        assert len(page.losses(server)) == stopped + 5
        page.page.click("#again")
        page.page.wait_for_selector("#steps:text-is('0')")
        page.page.reload()
        page.settle()
        assert (page.steps, page.text("#start")) == (0, "Start")


def test_a_reload_while_it_trains_goes_on_from_what_was_kept(browser: Any, server: Any) -> None:
    with opened(browser, server) as page:
        page.set(100_000)
        page.page.click("#start")
        page.page.wait_for_selector("#kept:text('up to step')", timeout=60_000)
        page.page.reload()
        assert page.settle() == "ready"
        assert page.steps == len(page.losses(server)) > 0


def test_only_one_tab_trains(browser: Any, server: Any) -> None:
    with opened(browser, server) as page:
        other = Opened(page.page.context.new_page())
        other.page.goto(server.address)
        assert other.settle() == "failed"
        assert "this training is open in another tab" in other.text("#problem")
        page.page.close()
        other.page.reload()
        assert other.settle() == "ready"


def test_examples_from_a_file_are_kept_too(browser: Any, home: Path, tmp_path: Path) -> None:
    rows = [
        dict(zip(("tokens", "labels"), row, strict=True))
        for row in zip(*[x.tolist() for x in pieces().values()], strict=True)
    ]
    (tmp_path / "pieces.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "pieces.json").write_text(json.dumps({name: x.tolist() for name, x in pieces().items()}))
    save_file(pieces(), tmp_path / "pieces.safetensors")
    np.savez(tmp_path / "pieces.npz", **pieces())
    np.savez_compressed(tmp_path / "packed.npz", **pieces())
    _, expected = on_the_desktop(home, 3)
    with served(home / "training") as server, opened(browser, server) as page:
        page.page.on("dialog", lambda dialog: dialog.accept())
        assert page.page.is_disabled("#start")
        for name in ("pieces.jsonl", "pieces.json", "pieces.npz", "packed.npz", "pieces.safetensors"):
            page.pick("#pick", tmp_path / name)
            assert (page.text("#examples"), page.text("#problem")) == (f"{name}: 64 examples", "")
            page.train(3)
            np.testing.assert_allclose(page.losses(server)[-3:], expected, rtol=1e-5)
            page.page.click("#again")
            page.page.wait_for_selector("#steps:text-is('0')")
        page.page.reload()
        page.settle()
        assert page.text("#examples") == "pieces.safetensors: 64 examples"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_on_a_phone_in_light_and_dark(browser: Any, server: Any, scheme: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with opened(browser, server, color_scheme=scheme, **phone) as page:
        page.page.tap("#start")
        page.page.wait_for_selector("#start:text-is('Stop')")
        page.page.tap("#start")
        page.settle()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 360
        paper = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(paper[4:].split(",")[0]) > 200) == (scheme == "light")


# --------------------------------------------------------------------------------------------- what is wrong


def zipped(arrays: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def headed(entry: dict[str, Any] | None) -> bytes:
    """A file of one array of int64, with eight bytes of numbers, whose header says something else."""
    text = json.dumps({"a": entry and {"dtype": "I64", **entry}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"text", "it is none of .npz, .safetensors, .json, .jsonl"),
        ("a.npz", b"", "it is no .npz"),
        ("a.npz", b"PK" * 50, "it is no .npz"),
        ("a.npz", zipped({"tokens": np.zeros(3)})[:-30] + zipped({})[-22:], "tokens, labels is missing"),
        ("a.npz", zipped({"tokens": np.zeros(3)})[60:], "it is damaged: "),
        ("a.npz", zipped({"tokens": np.zeros(300)}).replace(b"(300,)", b"(301,)"), "has not so many numbers"),
        ("a.npz", zipped({"tokens": np.zeros((2, 3), order="F")}), "an array of another kind"),
        ("a.npz", zipped({"tokens": np.array(["x"])}), "an array of another kind"),
        (
            "a.npz",
            zipped({"tokens": np.zeros((4, 12)), "labels": np.zeros(4)}),
            "tokens is int64, not float64",
        ),
        ("a.safetensors", b"", "shorter than 8 bytes"),
        ("a.safetensors", b"\xff" * 64, "its header is longer than the file"),
        ("a.safetensors", headed(None), "a: undefined is not read here"),
        ("a.safetensors", b"\x04" + bytes(7) + b"null", "its header is no object"),
        ("a.safetensors", headed({"shape": [9], "data_offsets": [0, 8]}), "do not make up the shape [9]"),
        ("a.safetensors", headed({"shape": [-1], "data_offsets": [8, 0]}), "do not make up the shape [-1]"),
        ("a.safetensors", headed({"shape": [1e15], "data_offsets": [0, 8e15]}), "do not make up the shape"),
        ("a.safetensors", headed({"shape": [1], "data_offsets": 3}), "do not make up the shape [1]"),
        ("a.safetensors", headed({"shape": None, "data_offsets": [0, 8]}), "do not make up the shape [null]"),
        ("a.json", b"{", "it is no JSON"),
        ("a.json", b"[]", "it is no object of arrays by name"),
        (
            "a.json",
            b'{"tokens": [[1, 2], [3]], "labels": []}',
            "tokens is no array: its rows differ in length",
        ),
        ("a.json", b'{"tokens": [["x"]], "labels": []}', "tokens holds something else than numbers"),
        ("a.json", b'{"tokens": [[1.5]], "labels": []}', "tokens is int64, not with fractions"),
        ("a.json", b'{"tokens": [[1]], "labels": [[1]]}', "tokens has the shape [batch, 12], not [1, 1]"),
        ("a.json", b'{"tokens": [], "labels": []}', "tokens has the shape [batch, 12], not [0]"),
        ("a.json", b"{}", "tokens, labels is missing; a step is fed tokens, labels"),
        ("a.jsonl", b'{"tokens": [1]}\nx\n', "line 2 is no JSON"),
        ("a.jsonl", b"", "tokens, labels is missing"),
    ],
)
def test_a_file_of_no_examples_changes_nothing(
    faulty: Opened, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    faulty.pick("#pick", path)
    assert faulty.text("#problem").startswith(f"{name} is not read, and all is as it was: ")
    assert said in faulty.text("#problem")
    assert "undefined (" not in faulty.text("#problem")
    assert faulty.text("#examples") == "pieces.npz: 64 examples"


@pytest.fixture(scope="module")
def faulty(browser: Any, server: Any) -> Iterator[Opened]:
    with opened(browser, server) as page:
        yield page


def test_a_state_of_another_training_changes_nothing(faulty: Opened, tmp_path: Path) -> None:
    save_file({"block/q/lora_a": np.zeros((2, 2), np.float32)}, tmp_path / "state.safetensors")
    faulty.pick("#restore", tmp_path / "state.safetensors")
    assert "block/q/lora_a is float32 [2, 2], not float32 [16, 4]" in faulty.text("#problem")
    faulty.train(1)
    assert faulty.text("#problem") == ""


def test_a_step_whose_loss_is_no_number_is_not_done(browser: Any, server: Any, tmp_path: Path) -> None:
    with opened(browser, server) as page:
        page.train(50, rate=1e30)
        assert "Stopped: the loss is NaN, and this step was not done" in page.text("#problem")
        assert page.steps < 50
        assert np.isfinite(page.losses(server)).all()
        page.set(10, batch=0)
        page.page.click("#start")
        assert page.text("#problem") == "Batch is a whole number from 1 on"


def test_what_is_kept_of_another_form_is_left_out(browser: Any, server: Any) -> None:
    with opened(browser, server) as page:
        page.train(1)
        page.page.evaluate(
            """async (key) => {
              const storage = await import("/storage.js");
              await storage.write(key, { ...(await storage.read(key)), state: new ArrayBuffer(3) });
            }""",
            server.site.identity(),
        )
        page.page.reload()
        assert page.settle() == "ready"
        assert "What this browser had kept is not of this training" in page.text("#problem")
        assert page.steps == 0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train_step.onnx", b"no model", "This training cannot be opened: "),
        ("train_step.onnx", None, "site.json: 500 Internal Server Error: "),
        ("state.safetensors", b"no state", "This training cannot be opened: not a safetensors file"),
        ("manifest.json", b"{", "This training cannot be opened: "),
    ],
)
def test_a_folder_that_is_damaged_is_said_on_the_page(
    browser: Any, home: Path, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    training = training_folder(tmp_path / "own")
    with served(training, runtime=home) as server:
        if content is None:
            (training / name).unlink()
        else:
            (training / name).write_bytes(content)
        with opened(browser, server, allowed=("500",)) as page:
            assert page.page.get_attribute("html", "data-state") == "failed"
            assert said in page.text("#problem")
            assert page.page.is_disabled("#start")


# ---------------------------------------------------------------------------------------------- other models


def test_frozen_weights_beside_the_graphs_are_loaded(
    browser: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_folders, "APART", 1)
    training = training_folder(tmp_path / "own")
    assert (training / "weights.bin").exists()
    _, expected = on_the_desktop(home, 3)
    with served(training, home / "pieces.npz", home) as server, opened(browser, server) as page:
        page.train(3)
        np.testing.assert_allclose(page.losses(server), expected, rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd:momentum=0.9", "lora": None, "learning_rate": 0.05},
        {"optimizer": "muon", "lora": None, "clip": 1.0, "accumulate": 2},
        {"schedule": "cosine:0.01,100"},
        {"precision": "float16"},
        {"batch": BATCH},
    ],
    ids=["all", "muon", "schedule", "float16", "fixed"],
)
def test_other_training_graphs_run_on_the_page_too(
    browser: Any, home: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    training = training_folder(tmp_path / "own", **options)
    trainer = sgo.Trainer(training)
    rate = {} if "schedule" in options else {"learning_rate": RATE}
    expected = [trainer.step(batch, **rate) for batch in batches(10)]
    with served(training, home / "pieces.npz", home) as server, opened(browser, server) as page:
        assert page.page.is_visible("#rate") == ("schedule" not in options)
        page.page.fill("#count", "10")
        page.page.set_checked("#shuffle", False)
        if "batch" not in options:
            page.page.fill("#batch", str(BATCH))
        if rate:
            page.page.fill("#rate", str(RATE))
        page.page.click("#start")
        assert page.settle() == "ready"
        np.testing.assert_allclose(
            page.losses(server), expected, rtol=2e-3 if "precision" in options else 1e-5
        )
