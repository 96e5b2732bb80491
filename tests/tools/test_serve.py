"""``stopgrad serve`` without a browser: what is handed out, and to whom; ``stopgrad merge``."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import blocks
from safetensors.numpy import load, load_file, save_file

import stopgrad as sg
from stopgrad.base.errors import FileError
from stopgrad.tools import cli

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from language_models import pieces, training_folder

import stopgrad.onnx as sgo
from stopgrad.tools.serving import site as sites
from stopgrad.tools.serving.examples import Feeds, feeds_of, read_examples
from stopgrad.tools.serving.server import Server
from stopgrad.tools.serving.web_runtime import web_runtime
from stopgrad_trainer.contents import Port, contents


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training folder, and beside it what looks like onnxruntime-web."""
    found = tmp_path_factory.mktemp("served")
    training_folder(found)
    runtime_in(found)
    np.savez(found / "pieces.npz", **pieces())
    return found


def runtime_in(folder: Path, version: str = "1.30.0") -> Path:
    package = folder / "node_modules/onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "onnxruntime-web", "version": version}))
    for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.js"):
        (package / "dist" / name).write_text(f"// {name}")
    return package


@contextmanager
def running(site: sites.Site) -> Iterator[Server]:
    with Server(site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    with running(sites.site(home / "training", home / "pieces.npz")) as found:
        yield found


def asked(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def raw(server: Server, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


# ------------------------------------------------------------------------------------------ what is served


def test_every_file_has_its_type_and_the_headers_that_threads_need(server: Server) -> None:
    kinds = {
        "/": "text/html; charset=utf-8",
        "/main.js": "text/javascript; charset=utf-8",
        "/style.css": "text/css; charset=utf-8",
        "/site.json": "application/json",
        "/training/manifest.json": "application/json",
        "/training/train_step.onnx": "application/octet-stream",
        "/runtime/ort.wasm.min.mjs": "text/javascript; charset=utf-8",
        "/runtime/ort-wasm-simd-threaded.wasm": "application/wasm",
    }
    for path, kind in kinds.items():
        status, headers, body = asked(server, path)
        assert (status, headers["Content-Type"]) == (200, kind), path
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert int(headers["Content-Length"]) == len(body) > 0


def test_what_is_handed_out_is_what_lies_there(server: Server, home: Path) -> None:
    for name in ("manifest.json", "state.safetensors", "train_step.onnx"):
        assert asked(server, f"/training/{name}")[2] == (home / "training" / name).read_bytes()
    examples = load(asked(server, "/examples.safetensors?now")[2])
    for name, x in pieces().items():
        np.testing.assert_array_equal(examples[name], x)


def test_head_is_get_without_the_file(server: Server) -> None:
    for path in ("/", "/training/state.safetensors", "/nothing"):
        status, headers, body = asked(server, path, "HEAD")
        same, others, whole = asked(server, path)
        assert (status, body) == (same, b"")
        assert headers["Content-Length"] == others["Content-Length"] == str(len(whole))


def test_one_connection_is_asked_often(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for path, status in (("/", 200), ("/nothing", 404), ("/main.js", 200)):
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == status
    connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/training/eval.onnx",
        "/training/",
        "/training/../../etc/passwd",
        "/training/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/training/train_step.onnx/",
        "/training/train_step.onnx%00.js",
        "/runtime/ort.js",
        "/runtime/../package.json",
        "/page/main.js",
        "/index.html/..",
        "/\\..\\..",
        "/%ff%fe",
        "//[",
        "*",
    ],
)
def test_nothing_else_is_there(server: Server, path: str) -> None:
    status, headers, body = asked(server, path)
    assert status == 404
    assert headers["Content-Type"].startswith("text/plain")
    assert b"root:" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"])
def test_only_get_and_head_are_answered(server: Server, method: str) -> None:
    status, headers, _ = asked(server, "/", method)
    assert status == (501 if method == "BREW" else 405)
    if status == 405:
        assert headers["Allow"] == "GET, HEAD"


def test_only_this_machines_names_are_answered(server: Server) -> None:
    """Another site's name may be made to lead to 127.0.0.1; its page would read what is served."""
    for host in (f"127.0.0.1:{server.port}", f"localhost:{server.port}"):
        assert asked(server, "/", Host=host)[0] == 200
    for host in (
        "127.0.0.1",
        "evil.example",
        f"evil.example:{server.port}",
        "",
        f"127.0.0.1:{server.port + 1}",
    ):
        assert asked(server, "/", Host=host)[0] == 421, host
    name = f"127.0.0.1:{server.port}".encode()
    assert raw(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 421")
    as_a_proxy = b"GET http://[/ HTTP/1.1\r\nHost: " + name + b"\r\n\r\n"
    assert raw(server, as_a_proxy).startswith(b"HTTP/1.1 404")
    twice = b"GET / HTTP/1.1\r\nHost: " + name + b"\r\nHost: evil.example\r\n\r\n"
    assert raw(server, twice).startswith(b"HTTP/1.1 421")
    assert raw(server, b"GET / HTTP/1.0\r\nHost: " + name + b"\r\n\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_", [b"", b"\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\xff", b"A" * 70_000]
)
def test_what_is_no_request_harms_nothing(
    server: Server, request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    raw(server, request_)
    assert asked(server, "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_what_a_request_carries_is_no_request(server: Server) -> None:
    name = f"127.0.0.1:{server.port}".encode()
    inner = b"GET /site.json HTTP/1.1\r\nHost: " + name + b"\r\n\r\n"
    outer = b"GET /style.css HTTP/1.1\r\nHost: " + name + b"\r\nContent-Length: %d\r\n\r\n" % len(inner)
    assert raw(server, outer + inner).count(b"HTTP/1.1 200") == 1
    assert raw(server, inner + inner).count(b"HTTP/1.1 200") == 2


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"


# ------------------------------------------------------------------------------------------- what changes


@pytest.fixture
def own(home: Path, tmp_path: Path) -> Path:
    """A copy of the folder that may be changed."""
    shutil.copytree(home, tmp_path / "own")
    return tmp_path / "own"


def test_a_file_that_is_gone_or_became_a_link_is_not_handed_out(own: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    state = own / "training/state.safetensors"
    with running(sites.site(own / "training")) as server:
        state.unlink()
        assert asked(server, "/training/state.safetensors")[0] == 500
        state.symlink_to(secret)
        status, _, body = asked(server, "/training/state.safetensors")
        assert (status, b"secret\n" in body) == (500, False)
        assert b"is no plain file" in body


def test_links_are_refused_at_the_beginning(own: Path, tmp_path: Path) -> None:
    step = own / "training/train_step.onnx"
    step.rename(tmp_path / "elsewhere.onnx")
    step.symlink_to(tmp_path / "elsewhere.onnx")
    with pytest.raises(FileError, match="is no plain file"):
        sites.site(own / "training")


def test_a_training_has_its_own_identity(own: Path) -> None:
    """What a browser has kept is of these weights and this step, and of no others."""
    found = sites.site(own / "training")
    first = found.identity()
    assert found.identity() == first
    step = own / "training/train_step.onnx"
    step.write_bytes(step.read_bytes() + b"\0")
    assert found.identity() != first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is no training folder: it has no manifest.json"),
        ("", "cannot be read"),
        ("[]", "is no manifest"),
        ('{"format": "stopgrad.training", "version": 2}', "install a newer stopgrad"),
        ('{"format": "stopgrad.training", "version": 1, "graphs": {}}', "is damaged"),
        ("../../etc/passwd", "is no file of the folder"),
    ],
    ids=["missing", "empty", "list", "later", "damaged", "outside"],
)
def test_a_folder_that_is_none_is_refused_in_one_line(
    own: Path, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = own / "training/manifest.json"
    if text is None:
        manifest.unlink()
    elif text.startswith(".."):
        held = json.loads(manifest.read_text())
        held["graphs"]["train_step"]["file"] = text
        manifest.write_text(json.dumps(held))
    else:
        manifest.write_text(text)
    assert cli.main(["serve", str(own / "training"), "--port", "0"]) == cli.ERROR
    told = capsys.readouterr().err
    assert told.startswith("stopgrad: ")
    assert said in told
    assert told.count("\n") == 1


# ---------------------------------------------------------------------------------------------- the runtime


def test_the_runtime_is_in_the_nearest_node_modules(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = own / "training"
    assert web_runtime(training).version == "1.30.0"
    for named in ("", "node_modules", "node_modules/onnxruntime-web", "node_modules/onnxruntime-web/dist"):
        found = web_runtime(training, own / named)
        assert found.files == (
            "ort-wasm-simd-threaded.mjs",
            "ort-wasm-simd-threaded.wasm",
            "ort.wasm.min.mjs",
        )
    nearer = own / "project"
    nearer.mkdir()
    runtime_in(nearer, "1.29.0")
    monkeypatch.chdir(nearer)
    assert web_runtime(training).version == "1.30.0"
    shutil.rmtree(own / "node_modules")
    assert web_runtime(training).version == "1.29.0"


def test_without_a_runtime_the_command_that_fetches_it_is_said(own: Path, tmp_path: Path) -> None:
    shutil.rmtree(own / "node_modules")
    command = f"npm install --prefix {own} onnxruntime-web@"
    with pytest.raises(FileError, match=command):
        web_runtime(own / "training")
    with pytest.raises(FileError, match=f"--runtime: .* holds no ort.wasm.min.mjs; .*{command}"):
        web_runtime(own / "training", tmp_path)


# ------------------------------------------------------------------------------------------------ examples


def written(path: Path, arrays: dict[str, Any]) -> Path:
    lists = {name: np.asarray(x).tolist() for name, x in arrays.items()}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        save_file(arrays, path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(lists))
    else:
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".json", ".jsonl", ".NPZ"])
def test_examples_are_read_from_every_kind_of_file(home: Path, tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"pieces{suffix.lower()}", pieces())
    path = path.rename(tmp_path / f"pieces{suffix}")
    found = read_examples(path, feeds_of(contents(home / "training")))
    for name, x in pieces().items():
        np.testing.assert_array_equal(found[name], x)
        assert found[name].dtype == np.int64


def test_the_examples_that_the_docs_write_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = blocks("ship.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "ship.md", "exec"), {})
    ports = [Port(name, "input", "int64", ("batch", 32), "", "") for name in ("tokens", "labels")]
    feeds = Feeds(tuple(ports), ("tokens", "labels"), None)
    whole, lines = (read_examples(Path(name), feeds) for name in ("fox.npz", "fox.jsonl"))
    for name in ("tokens", "labels"):
        np.testing.assert_array_equal(whole[name], lines[name])
    np.testing.assert_array_equal(whole["tokens"][:, 1:], whole["labels"][:, :-1])


TOKENS, LABELS = pieces(4).values()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"a text", "is none of .npz, .safetensors, .json, .jsonl"),
        ("missing.npz", None, "there is no "),
        ("a.npz", b"", "cannot be read"),
        ("a.npz", b"PK\x03\x04 no archive", "cannot be read"),
        (
            "a.npz",
            {"tokens": np.array([None, "x"], object), "labels": LABELS},
            "cannot be read: Object arrays",
        ),
        ("a.npz", {"tokens": TOKENS}, "labels is missing; it takes tokens, labels"),
        ("a.npz", {"tokens": TOKENS, "labels": LABELS, "mask": TOKENS}, "there is no input 'mask'"),
        ("a.npz", {"tokens": TOKENS.astype(np.int32), "labels": LABELS}, "tokens is int64, not int32"),
        ("a.npz", {"tokens": TOKENS[:, :5], "labels": LABELS}, "has the shape [batch, 12], not [4, 5]"),
        ("a.npz", {"tokens": TOKENS[:3], "labels": LABELS}, "and batch is 3 in tokens"),
        ("a.npz", {"tokens": TOKENS[:0], "labels": LABELS[:0]}, "holds 0 examples, and a step takes 1"),
        ("a.npz", b"\x93NUMPY", "cannot be read"),
        ("a.safetensors", b"\xff" * 64, "cannot be read"),
        ("a.json", b"[1, 2]", "is no object that holds arrays by name"),
        ("a.json", b"{", "cannot be read"),
        ("a.json", b"[" * 100_000, "cannot be read"),
        ("a.json", b'{"tokens": [[1], [1, 2]], "labels": 1}', "its rows differ in length"),
        ("a.json", b'{"tokens": [[1.5]], "labels": [[1]]}', "tokens is int64, not float64"),
        ("a.json", b'{"tokens": "abc", "labels": [[1]]}', "tokens is int64, not something else than numbers"),
        ("a.jsonl", b'{"tokens": [1]}\n[]\n', "a.jsonl:2: this is no object with tokens"),
        ("a.jsonl", b'{"tokens": [1]}\n{"token": [1]}\n', "a.jsonl:2: this is no object with tokens"),
        ("a.jsonl", b'{"tokens": [1]}\n{\n', "a.jsonl:2: this is no JSON"),
        ("a.jsonl", b"", "tokens, labels is missing"),
        ("a.jsonl", b"\xff\xfe", "cannot be read"),
    ],
)
def test_examples_that_do_not_fit_are_refused_in_one_line(
    home: Path, tmp_path: Path, name: str, content: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if isinstance(content, dict):
        np.savez(path, **content)
    elif content is not None:
        path.write_bytes(content)
    assert cli.main(["serve", str(home / "training"), "--data", str(path), "--port", "0"]) == cli.ERROR
    told = capsys.readouterr().err
    assert told.startswith("stopgrad: --data: ")
    assert said in told
    assert told.count("\n") == 1


def test_a_graph_of_one_batch_size_takes_examples_in_any_number(tmp_path: Path) -> None:
    folder = training_folder(tmp_path / "fixed", batch=4)
    feeds = feeds_of(contents(folder))
    assert (feeds.batch, feeds.cut) == (4, ("tokens", "labels"))
    path = written(tmp_path / "pieces.npz", pieces(9))
    assert len(read_examples(path, feeds)["tokens"]) == 9
    with pytest.raises(FileError, match="holds 3 examples, and a step takes 4"):
        read_examples(written(tmp_path / "few.npz", pieces(3)), feeds)


# ---------------------------------------------------------------------------------------------- the command


def test_the_command_says_where_and_stops_quietly(home: Path) -> None:
    command = [sys.executable, "-m", "stopgrad", "serve", str(home / "training"), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(sg.__file__).parents[1])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("http://127.0.0.1:")
        port = int(first.split()[0].rstrip("/").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/site.json")
        assert json.loads(connection.getresponse().read())["fed"][0]["name"] == "tokens"
        connection.close()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
        assert (process.returncode, told) == (0, "")


def test_a_port_that_is_taken_is_said(home: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", str(home / "training"), "--port", str(server.port)]) == cli.ERROR
    assert f"--port: port {server.port} is taken; name another" in capsys.readouterr().err
    assert cli.main(["serve", str(home / "training"), "--port", "65536"]) == cli.ERROR
    assert "65536 is no port" in capsys.readouterr().err


def test_open_opens_the_page(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)
    assert cli.main(["serve", str(home / "training"), "--port", "0", "--open"]) == cli.OK
    assert len(opened) == 1
    assert opened[0].startswith("http://127.0.0.1:")


# ------------------------------------------------------------------------------------------------- merging


@pytest.fixture
def trainer(home: Path) -> Any:
    found = sgo.Trainer(home / "training")
    for _ in range(3):
        found.step({name: x[:8] for name, x in pieces().items()}, learning_rate=0.01)
    return found


def test_weights_alone_are_saved_and_merged_into_the_model(trainer: Any, home: Path, tmp_path: Path) -> None:
    trainer.save_weights(tmp_path / "adapter.safetensors")
    trainer.save(tmp_path / "state.safetensors")
    adapter = load_file(tmp_path / "adapter.safetensors")
    assert sorted(adapter) == sorted(
        f"block/{w}/lora_{i}" for w in ("q", "k", "v", "out", "up", "down") for i in "ab"
    )
    trainer.export(tmp_path / "expected.onnx")
    for name in ("adapter", "state"):
        words = ["merge", str(home / "training"), str(tmp_path / f"{name}.safetensors"), "-o"]
        assert cli.main([*words, str(tmp_path / "merged.onnx")]) == cli.OK
        assert (tmp_path / "merged.onnx").read_bytes() == (tmp_path / "expected.onnx").read_bytes()


def test_loaded_weights_begin_with_a_new_optimiser(trainer: Any, home: Path, tmp_path: Path) -> None:
    trainer.save_weights(tmp_path / "adapter.safetensors")
    other = sgo.Trainer(home / "training")
    first = other.state
    other.load_weights(tmp_path / "adapter.safetensors")
    for name, x in other.state.items():
        np.testing.assert_array_equal(
            x, (trainer.state if "lora" in name[-6:] and name[:5] == "block" else first)[name]
        )


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, "it lacks block/q/lora_a"),
        ({"x": np.zeros(3)}, "is the state of another training"),
        (None, "there is no such file"),
        (b"no safetensors", "cannot be read"),
    ],
    ids=["empty", "other", "missing", "damaged"],
)
def test_weights_of_another_training_are_refused(
    home: Path, tmp_path: Path, arrays: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "adapter.safetensors"
    if isinstance(arrays, bytes):
        path.write_bytes(arrays)
    elif arrays is not None:
        save_file(arrays, path)
    words = ["merge", str(home / "training"), str(path), "-o", str(tmp_path / "merged.onnx")]
    assert cli.main(words) == cli.ERROR
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "merged.onnx").exists()


def test_a_wrong_shape_is_refused(trainer: Any, tmp_path: Path) -> None:
    trainer.save_weights(tmp_path / "adapter.safetensors")
    adapter = load_file(tmp_path / "adapter.safetensors")
    save_file({**adapter, "block/q/lora_a": np.zeros((2, 2), np.float32)}, tmp_path / "adapter.safetensors")
    before = trainer.state
    with pytest.raises(FileError, match=r"for block/q/lora_a it holds float32\[2, 2\], not float32\[16, 4\]"):
        trainer.load_weights(tmp_path / "adapter.safetensors")
    assert all(np.array_equal(x, before[name]) for name, x in trainer.state.items())
