"""The page that trains in a browser: its numbers are those of the graphs in Python, and it can be used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples_references import example
from page_tools import started
from pages import blocks
from web_packages import package

pytestmark = pytest.mark.slow

onnxruntime = pytest.importorskip("onnxruntime")
stopgrad_trainer = pytest.importorskip("stopgrad_trainer")
pytest.importorskip("onnx")
safetensors = pytest.importorskip("safetensors.numpy")

DRAWN = {3: [[(0.35, 0.2), (0.65, 0.2), (0.5, 0.45)], [(0.5, 0.45), (0.7, 0.6), (0.5, 0.85), (0.3, 0.75)]]}


@pytest.fixture(scope="module")
def runtime() -> Path:
    return package("TRAINING IN A BROWSER")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    example("onnx/digits/prepare").main(folder)
    return folder


@contextmanager
def served(folder: Path, runtime: Path) -> Iterator[str]:
    """Where the page and what is in the folder are served."""
    serve = example("onnx/digits/serve")
    with serve.server(serve.site(folder, runtime), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def address(prepared: Path, runtime: Path) -> Iterator[str]:
    with served(prepared, runtime) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@dataclass
class Opened:
    """The page in a browser, and what it complained about."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector).replace("\xa0", " ")

    def percent(self, selector: str) -> float:
        return float(self.text(selector).removesuffix(" %")) / 100

    def still(self) -> None:
        """Wait until nothing is trained."""
        self.page.wait_for_selector("#one:enabled")

    def restart(self) -> None:
        self.page.click("#again")
        self.page.wait_for_selector("#status:text('beginning')", state="attached")
        assert self.text("#steps") == "0"

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.page.click("#one")
            self.still()

    def train(self, selector: str = "#steps", at_least: int = 300) -> None:
        """Start, wait for so many steps, stop."""
        self.page.click("#start")
        while int(self.text(selector)) < at_least:
            self.page.wait_for_timeout(50)
        self.page.click("#start")
        self.still()

    def download(self, button: str, path: Path) -> Path:
        if not self.page.is_visible(button):
            self.page.click("summary")
        with self.page.expect_download() as found:
            self.page.click(button)
        found.value.save_as(path)
        return path

    def draw(self, strokes: list[list[tuple[float, float]]]) -> None:
        box = self.page.locator("#pad").bounding_box()
        for stroke in strokes:
            points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            self.page.mouse.move(*points[0])
            self.page.mouse.down()
            for point in points[1:]:
                self.page.mouse.move(*point, steps=5)
            self.page.mouse.up()


@contextmanager
def opened(browser: Any, address: str, allowed: str = "", **options: Any) -> Iterator[Opened]:
    """The page, ready; afterwards nothing may have gone wrong on it, nor been asked for elsewhere."""
    settings = {"viewport": {"width": 1280, "height": 1000}} | options
    with browser.new_context(**settings) as context:
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.complaints.append(f"console: {message.text}"))
        found.page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
        found.page.on("request", lambda request: elsewhere(request.url, address, found))
        found.page.goto(address)
        found.page.wait_for_selector("html[data-state]", timeout=60_000)
        yield found
        assert [c for c in found.complaints if not allowed or allowed not in c] == []


def elsewhere(url: str, address: str, found: Opened) -> None:
    if not url.startswith((address, "data:", f"blob:{address}")):
        found.complaints.append(f"request: {url}")


@pytest.fixture(scope="module")
def only(browser: Any, address: str) -> Iterator[Opened]:
    with opened(browser, address) as found:
        assert found.page.get_attribute("html", "data-state") == "ready"
        yield found


@pytest.fixture
def page(only: Opened) -> Iterator[Opened]:
    """The page as it begins: opening it anew costs seconds for each test."""
    yield only
    assert only.complaints == []
    only.page.context.set_offline(False)
    only.still()
    for _ in range(only.page.locator("#examples li").count()):
        only.page.locator("#examples button").first.click()
    only.page.click("#clear")
    only.restart()


def held_out(prepared: Path) -> tuple[Any, Any]:
    digits = safetensors.load_file(prepared / "digits.safetensors")
    return digits["held_out/images"], digits["held_out/labels"]


def accuracy(model: Path, prepared: Path) -> float:
    """Of a model file, by onnxruntime in Python."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # Weights that could be fed, too, are worth a warning to it.
    session = onnxruntime.InferenceSession(str(model), options)
    images, labels = held_out(prepared)
    (logits,) = session.run(None, {"image": images})
    return float((logits.argmax(axis=1) == labels).mean())


def moved(before: Path, after: Path) -> float:
    """The most that a parameter of the head changed between two states."""
    old, new = (safetensors.load_file(path) for path in (before, after))
    return max(float(np.abs(new[name] - old[name]).max()) for name in ("head/w", "head/b"))


# ------------------------------------------------------------------------------------------------ numbers


def test_the_page_trains_and_what_it_shows_and_saves_is_what_onnxruntime_computes(
    page: Opened, prepared: Path, tmp_path: Path
) -> None:
    before = accuracy(prepared / "model.onnx", prepared)
    assert page.percent("#before") == pytest.approx(before, abs=5e-4)
    page.steps(1)
    first = float(page.text("#loss"))
    page.train()
    assert float(page.text("#loss")) < 0.5 * first
    now = page.percent("#now")
    assert now > before + 0.3
    assert now > 0.9
    saved = page.download("#export", tmp_path / "trained.onnx")
    assert accuracy(saved, prepared) == pytest.approx(now, abs=5e-4)
    wrong = page.page.locator("#digits .wrong").count()
    assert wrong <= round((1 - now) * len(held_out(prepared)[1]))
    page.restart()
    assert page.percent("#before") == pytest.approx(before, abs=5e-4)


def test_steps_in_the_browser_are_the_steps_in_python(page: Opened, prepared: Path) -> None:
    """The same batches and rates: the same losses and the same state."""
    trainer = stopgrad_trainer.Trainer(prepared / "training")
    digits = safetensors.load_file(prepared / "digits.safetensors")
    images, labels = digits["train/images"], digits["train/labels"]
    rates = [0.01, 0.01, 0.003, 0.001]
    expected = []
    for i, rate in enumerate(rates):
        some = slice(64 * i, 64 * (i + 1))
        loss = trainer.step(image=images[some], labels=labels[some], learning_rate=rate)
        expected.append(float(loss))
    found = page.page.evaluate(
        """async (rates) => {
          const { Training, arrays } = await import("/training.js");
          const training = await Training.open("training/"), digits = await arrays("digits.safetensors");
          const part = (name, from, to) => {
            const { dtype, shape, data } = digits.get(name), each = data.length / shape[0];
            return { dtype, shape: [to - from, ...shape.slice(1)], data: data.slice(each * from, each * to) };
          };
          const losses = [];
          for (const [i, rate] of rates.entries())
            losses.push(await training.step(
              part("train/images", 64 * i, 64 * (i + 1)), part("train/labels", 64 * i, 64 * (i + 1)), rate));
          return { losses, state: Array.from(training.saved()) };
        }""",
        rates,
    )
    np.testing.assert_allclose(found["losses"], expected, rtol=1e-5)
    state = safetensors.load(bytes(found["state"]))
    assert set(state) == set(trainer.state)
    for name, value in trainer.state.items():
        assert state[name].dtype == np.asarray(value).dtype
        np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_loop_that_the_docs_show_trains(page: Opened) -> None:
    (shown,) = blocks("ship.md", "js")
    used = """
      const digits = read(await bytes("digits.safetensors")), losses = [];
      const some = (name, count, shape) =>
        new ort.Tensor(digits.get(name).dtype, digits.get(name).data.slice(0, count), shape);
      const image = some("train/images", 64 * 64, [64, 1, 8, 8]), labels = some("train/labels", 64, [64]);
      for (let i = 0; i < 30; i++) losses.push(await step(image, labels, 0.01));
      return losses;
    """
    losses = page.page.evaluate(f"async () => {{ {shown} {used} }}")
    assert losses[-1] < 0.2 * losses[0]


def test_a_saved_state_is_read_again_here_and_in_python(page: Opened, prepared: Path, tmp_path: Path) -> None:
    trainer = stopgrad_trainer.Trainer(prepared / "training")
    page.train(at_least=100)
    now = page.percent("#now")
    saved = page.download("#save", tmp_path / "state.safetensors")
    images, labels = held_out(prepared)
    trainer.restore(saved)
    (logits,) = trainer.predict(image=images).values()
    assert (logits.argmax(axis=1) == labels).mean() == pytest.approx(now, abs=5e-4)
    page.restart()
    assert page.percent("#now") < now
    page.page.set_input_files("#load", saved)
    page.page.wait_for_selector("#status:text('loaded')", state="attached")
    assert page.percent("#now") == now


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "shorter than 8 bytes"),
        (b"\xff" * 64, "header is longer"),
        (b"\x08" + bytes(7) + b"no JSON!", "not JSON"),
        (b"\x02" + bytes(7) + b"{}", "the state has no head/w"),
        ({"head/w": np.zeros((3, 10), np.float32)}, "head/w is float32 [3,10], not float32 [128,10]"),
        ({"head/w": np.zeros((128, 10))}, "head/w is float64 [128,10], not float32 [128,10]"),
    ],
    ids=["empty", "length", "JSON", "nothing", "shape", "dtype"],
)
def test_a_file_that_is_no_state_changes_nothing(
    page: Opened, tmp_path: Path, content: Any, said: str
) -> None:
    file = tmp_path / "other.safetensors"
    file.write_bytes(content if isinstance(content, bytes) else safetensors.save(content))
    page.steps(1)
    page.page.set_input_files("#load", file)
    page.page.wait_for_selector("#problem:visible")
    assert page.text("#problem").startswith("other.safetensors is not loaded, and all is as it was: ")
    assert said in page.text("#problem")
    page.steps(1)
    assert page.text("#steps") == "2"
    saved = page.download("#save", tmp_path / "state.safetensors")
    page.page.set_input_files("#load", saved)
    page.page.wait_for_selector("#problem", state="hidden")


def test_the_learning_rate_is_that_of_the_slider(page: Opened, prepared: Path, tmp_path: Path) -> None:
    """A first step of AdamW moves by the rate."""
    start = prepared / "training" / "state.safetensors"
    for place, shown, rate in (("-5", "0.000010", 1e-5), ("-1", "0.10", 0.1)):
        page.page.fill("#rate", place)
        assert page.text("#rate-value") == shown
        page.steps(1)
        after = page.download("#save", tmp_path / f"{rate}.safetensors")
        assert moved(start, after) == pytest.approx(rate, rel=0.05)
        page.restart()


# ------------------------------------------------------------------------------------------------- in use


def test_a_drawn_digit_is_named_and_learnt(page: Opened) -> None:
    page.draw(DRAWN[3])
    page.page.wait_for_selector("#bars .best")
    page.page.click(".labels button:text-is('7')")
    page.page.wait_for_selector("#steps:text-is('30')")
    for _ in range(20):  # A 3 is a 7, then, if that is said often enough.
        page.still()
        if page.page.locator("#bars .best").inner_text().startswith("7"):
            break
        page.page.click(".labels button:text-is('7')")
    assert page.page.locator("#bars .best").inner_text().startswith("7")
    page.still()
    count = page.page.locator("#examples li").count()
    page.page.locator("#examples button").first.click()
    assert page.page.locator("#examples li").count() == count - 1
    page.page.click("#clear")
    assert page.page.locator("#bars .best").count() == 0
    assert page.page.locator(".labels button:enabled").count() == 0


def test_one_draws_while_it_is_trained(page: Opened) -> None:
    page.page.click("#start")
    page.draw(DRAWN[3])
    page.page.click(".labels button:text-is('3')")
    page.page.wait_for_selector("#examples li")
    said = int(page.text("#steps"))
    while int(page.text("#steps")) < said + 50:
        page.page.wait_for_timeout(20)
    page.page.click("#start")
    page.still()
    assert page.page.locator("#bars .best").inner_text().startswith("3")


def test_a_curve_keeps_so_much_however_long_it_is(page: Opened) -> None:
    found = page.page.evaluate(
        """async () => {
          const { Chart } = await import("/chart.js");
          const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
          document.body.append(svg);
          const chart = new Chart(svg, { scale: "log", name: "a curve", shown: String });
          for (let step = 1; step <= 100001; step++) chart.add(step, step === 500 ? NaN : 1 + (step % 2));
          chart.draw();
          svg.remove();
          const sum = (key) => chart.values.reduce((total, v) => total + v[key], 0);
          return [chart.values.length, sum("count"), sum("sum"), svg.getAttribute("aria-label")];
        }"""
    )
    assert found[0] <= 800
    assert found[1:] == [100_000, 150_001, "a curve: 2 after 100001 steps"]


def test_everything_is_done_by_keyboard(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        keyboard_alone(page)


def keyboard_alone(page: Opened) -> None:
    press = page.page.keyboard.press
    reached = []
    for _ in range(20):
        press("Tab")
        reached.append(page.page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if reached[-1] == "pad":
            break
    assert reached == ["theme", "start", "one", "again", "rate", "batch", "SUMMARY", "pad"]
    press("Space")
    for key in ["ArrowDown"] * 14:
        press(key)
    press("Space")
    page.page.wait_for_selector("#bars .best")
    press("1")
    page.page.wait_for_selector("#steps:text-is('30')")
    page.still()
    assert page.page.locator("#examples li").inner_text().startswith("1")
    press("Delete")
    assert page.page.locator("#bars .best").count() == 0
    page.page.focus("#start")
    press("Enter")
    page.page.wait_for_selector("#start:text-is('Stop')")
    press("Enter")
    page.still()
    assert "Accuracy on held-out digits" in page.page.locator("#status").inner_text()


def test_it_goes_on_without_a_network(page: Opened) -> None:
    page.page.context.set_offline(True)
    page.train(at_least=20)
    assert page.percent("#now") > page.percent("#before")


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_and_the_button_that_changes_them(page: Opened, scheme: str) -> None:
    colours = "(s) => ['body', '#pad'].map((n, i) => getComputedStyle(document.querySelector(n))[s[i]])"
    page.page.emulate_media(color_scheme=scheme)
    paper, ink = (luminance(c) for c in page.page.evaluate(colours, ["backgroundColor", "color"]))
    assert (paper > 0.9) == (scheme == "light")
    assert abs(paper - ink) > 0.7
    assert page.text("#theme") == {"light": "Dark", "dark": "Light"}[scheme]
    page.page.click("#theme")
    changed, _ = (luminance(c) for c in page.page.evaluate(colours, ["backgroundColor", "color"]))
    assert (changed > 0.9) != (scheme == "light")
    page.page.evaluate("delete document.documentElement.dataset.theme")


def test_on_a_phone_it_fits_and_is_drawn_on_by_touch(browser: Any, address: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with opened(browser, address, **phone) as page:
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 360
        page.page.tap("#pad")
        page.page.wait_for_selector("#bars .best")
        page.page.tap("#start")
        page.page.wait_for_selector("#start:text-is('Stop')")
        page.page.tap("#start")
        page.still()


def test_what_is_missing_is_said_on_the_page(
    browser: Any, prepared: Path, runtime: Path, tmp_path: Path
) -> None:
    (tmp_path / "training").mkdir()
    for name in ("manifest.json", "state.safetensors"):
        (tmp_path / "training" / name).write_bytes((prepared / "training" / name).read_bytes())
    (tmp_path / "digits.safetensors").write_bytes((prepared / "digits.safetensors").read_bytes())
    with served(tmp_path, runtime) as address, opened(browser, address, allowed="404") as page:
        assert page.page.get_attribute("html", "data-state") == "failed"
        assert ".onnx: 404" in page.text("#problem")
        assert page.page.locator("#start:disabled").count() == 1


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "sgd:momentum=0.9", "learning_rate": 0.03},
        {"lora": ["head/w"], "learning_rate": 0.03},
        {"freeze": ["backbone/*"], "schedule": "cosine:0.02,500"},
        {"optimizer": "muon", "learning_rate": 0.01, "clip": 1.0, "accumulate": 2},
    ],
    ids=["all", "lora", "schedule", "muon"],
)
def test_other_training_graphs_run_on_the_page_too(
    browser: Any, prepared: Path, runtime: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    sgo = pytest.importorskip("stopgrad.onnx")
    sgo.training(prepared / "model.onnx", loss="cross-entropy", folder=tmp_path / "training", **settings)
    (tmp_path / "digits.safetensors").write_bytes((prepared / "digits.safetensors").read_bytes())
    with served(tmp_path, runtime) as address, opened(browser, address) as page:
        assert page.page.is_visible("#rate") == ("schedule" not in settings)
        page.train(at_least=250)
        now = page.percent("#now")
        assert now > page.percent("#before") + 0.3
        saved = page.download("#export", tmp_path / "trained.onnx")
        assert accuracy(saved, prepared) == pytest.approx(now, abs=5e-4)
