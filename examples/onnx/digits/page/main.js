// The page: buttons, figures, curves, drawn digits. What is trained, and how, is in training.js.

import { Chart } from "./chart.js";
import { Pad, paint } from "./drawing.js";
import { arrays, best, softmax, Training } from "./training.js";

const SLICE = 12; // Milliseconds of training between two frames.
const DRAWN = 100; // Milliseconds between two drawings of the curve while training.
const MEASURED = 400; // Milliseconds between two measurements of the accuracy while training.
const SHOWN = 48; // Held-out digits on the page.
const LESSON = 30; // Steps after a drawn digit was named.
const OWN = 4; // One in so many of a batch is one of the drawn digits, once there are some.

const $ = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
const say = (text) => { $("status").textContent = text; };

const losses = new Chart($("loss-chart"), {
  scale: "log", name: "Loss of each batch", shown: (v) => (v < 0.0001 ? v.toExponential(0) : String(+v.toPrecision(3))),
});
const accuracies = new Chart($("accuracy-chart"), {
  scale: [0, 1], name: "Accuracy on held-out digits", shown: (v) => `${Math.round(100 * v)} %`, kind: "good",
});
const pad = new Pad($("pad"), () => guess());
const state = { training: null, train: null, heldOut: null, own: [], steps: 0, running: false, queue: Promise.resolve() };

/** One thing at a time: a step and a measurement never share the state. */
function alone(work) {
  const done = state.queue.then(work);
  state.queue = done.catch(() => {});
  return done.catch(failed);
}

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

function failed(error) {
  state.running = false;
  problem(`This does not work: ${error.message ?? error}`);
  document.documentElement.dataset.state = "failed";
}

// ------------------------------------------------------------------------------------------------ training

/** A random batch of the training digits, with some of the drawn ones among them. */
function batch(size) {
  const { images, labels } = state.train, points = images.data.length / labels.data.length;
  const picked = { images: new Float32Array(size * points), labels: new BigInt64Array(size) };
  for (let i = 0; i < size; i++) {
    const own = state.own.length > 0 && i % OWN === 0;
    const at = Math.floor(Math.random() * (own ? state.own.length : labels.data.length));
    const image = own ? state.own[at].digit : images.data.subarray(at * points, (at + 1) * points);
    picked.images.set(image, i * points);
    picked.labels[i] = own ? BigInt(state.own[at].label) : labels.data[at];
  }
  return {
    images: { dtype: "float32", shape: [size, ...images.shape.slice(1)], data: picked.images },
    labels: { dtype: "int64", shape: [size], data: picked.labels },
  };
}

const rate = () => 10 ** Number($("rate").value);

async function step() {
  const { images, labels } = batch(Number($("batch").value));
  const loss = await state.training.step(images, labels, rate());
  losses.add(++state.steps, loss);
  return loss;
}

function show(loss) {
  $("steps").textContent = state.steps;
  $("loss").textContent = Number.isFinite(loss) ? loss.toPrecision(3) : String(loss);
}

/** The accuracy on all held-out digits, and what the page shows of them. */
async function measure() {
  const { images, labels } = state.heldOut;
  const said = best(await state.training.logits(images));
  const right = said.filter((digit, i) => BigInt(digit) === labels.data[i]).length / said.length;
  accuracies.add(state.steps, right);
  accuracies.draw();
  $("now").textContent = percent(right);
  [...$("digits").children].forEach((item, i) => {
    item.lastChild.textContent = said[i];
    item.classList.toggle("wrong", BigInt(said[i]) !== labels.data[i]);
  });
  return right;
}

const frame = () => new Promise((resolve) => {
  requestAnimationFrame(resolve);
  setTimeout(resolve, 100); // Where no frames are drawn, in a hidden tab.
});

/** Steps until the count is reached or somebody stops, a few between two frames. */
async function train(count = Infinity) {
  const from = { time: performance.now(), steps: state.steps };
  let measured = { time: from.time, steps: from.steps }, drawn = from.time;
  while (state.running && state.steps - from.steps < count) {
    const until = performance.now() + SLICE;
    let loss;
    do loss = await step();
    while (performance.now() < until && state.running && state.steps - from.steps < count);
    show(loss);
    const now = performance.now();
    if (now - drawn > DRAWN) {
      losses.draw();
      drawn = performance.now();
    }
    if (now - measured.time > MEASURED || state.steps > 1.5 * measured.steps) { // Often at first: then it changes.
      await measure();
      await guess();
      measured = { time: performance.now(), steps: state.steps };
    }
    $("speed").textContent = ((1000 * (state.steps - from.steps)) / (now - from.time)).toFixed(0);
    await frame();
  }
  state.running = false;
  losses.draw();
  const right = await measure();
  await guess();
  say(`Stopped after ${state.steps} steps. Accuracy on held-out digits: ${percent(right)}.`);
}

function run(count) {
  if (state.running) return Promise.resolve();
  state.running = true;
  buttons();
  say("Training.");
  return alone(() => train(count)).finally(buttons);
}

function buttons() {
  $("start").textContent = state.running ? "Stop" : "Start";
  for (const id of ["one", "again", "save", "export", "load"]) $(id).disabled = state.running;
  $("start").disabled = false;
}

function again() {
  return alone(async () => {
    state.training.restart();
    state.steps = 0;
    losses.clear();
    accuracies.clear();
    for (const id of ["loss", "speed"]) $(id).textContent = "–";
    $("steps").textContent = 0;
    $("before").textContent = percent(await measure());
    await guess();
    say("Back at the beginning.");
  });
}

// ------------------------------------------------------------------------------------------------- drawing

const asImage = (digit) => ({ dtype: "float32", shape: [1, ...state.train.images.shape.slice(1)], data: digit });

/** What the network says of the drawn digit. */
async function guess() {
  const digit = pad.digit();
  paint($("seen"), digit ?? new Float32Array(64));
  for (const button of document.querySelectorAll(".labels button")) button.disabled = digit === null;
  if (!state.training) return;
  const shares = digit && softmax((await state.training.logits(asImage(digit))).data);
  [...$("bars").children].forEach((row, i) => {
    const share = shares ? shares[i] : 0;
    row.classList.toggle("best", Boolean(shares) && share === Math.max(...shares));
    row.children[1].firstChild.style.width = `${100 * share}%`;
    row.children[2].textContent = shares ? percent(share) : "";
  });
}

/** The drawn digit has a name: it joins the training digits, and some steps are done. */
async function teach(label) {
  const digit = pad.digit();
  if (digit === null) return;
  state.own.push({ digit, label });
  own();
  $("told").textContent = `Your ${label} is among the training digits now.`;
  await run(LESSON);
}

function tile(digit, text) {
  const item = document.createElement("li"), canvas = document.createElement("canvas");
  canvas.width = canvas.height = 8;
  item.append(canvas, text);
  item.repaint = () => paint(canvas, digit);
  return item;
}

function own() {
  $("examples").replaceChildren(...state.own.map((example) => {
    const remove = document.createElement("button");
    Object.assign(remove, { type: "button", textContent: `${example.label} ×` });
    remove.setAttribute("aria-label", `Remove your ${example.label}`);
    remove.addEventListener("click", () => {
      state.own = state.own.filter((other) => other !== example);
      own();
    });
    return tile(example.digit, remove);
  }));
  repaint($("examples"));
}

const repaint = (list) => [...list.children].forEach((item) => item.repaint());

// ---------------------------------------------------------------------------------------------------- page

function themed() {
  pad.draw();
  guess();
  for (const id of ["digits", "examples"]) repaint($(id));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  return theme;
}

function build() {
  for (let digit = 0; digit < 10; digit++) {
    const row = document.createElement("li"), track = document.createElement("span"), bar = document.createElement("div");
    const [name, share] = [document.createElement("span"), document.createElement("span")];
    name.textContent = digit;
    bar.className = "bar";
    share.className = "share";
    track.append(bar);
    row.append(name, track, share);
    $("bars").append(row);
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: digit, disabled: true });
    button.addEventListener("click", () => teach(digit));
    document.querySelector(".labels").append(button);
  }
  $("pad").addEventListener("keydown", (event) => {
    if (/^[0-9]$/.test(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey) teach(Number(event.key));
  });
  $("start").addEventListener("click", () => { state.running ? (state.running = false) : run(); });
  $("one").addEventListener("click", () => run(1));
  $("again").addEventListener("click", again);
  $("clear").addEventListener("click", () => pad.clear());
  $("rate").addEventListener("input", () => { $("rate-value").textContent = rate().toPrecision(2); });
  $("save").addEventListener("click", () => download("state.safetensors", state.training.saved()));
  $("export").addEventListener("click", async () => download("digits.onnx", await state.training.exported()));
  $("load").addEventListener("change", load);
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = themed() === "dark" ? "light" : "dark";
    themed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
}

function download(name, bytes) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function load() {
  const [file] = $("load").files;
  if (!file) return;
  const buffer = await file.arrayBuffer();
  await alone(async () => {
    try {
      state.training.restore(buffer);
    } catch (error) {
      problem(`${file.name} is not loaded, and all is as it was: ${error.message}`);
      return;
    }
    problem("");
    await measure();
    await guess();
    say("The state of the file is loaded.");
  });
  $("load").value = "";
}

function describe() {
  const { inputs } = state.training.manifest.graphs.train_step;
  const size = ({ shape }) => shape.reduce((a, b) => a * b, 1);
  const total = (role) => inputs.filter((i) => i.role === role).reduce((sum, input) => sum + size(input), 0);
  const names = inputs.filter((i) => i.role === "parameter").map(({ name, shape }) => `${name} [${shape.join(" × ")}]`);
  const { frozen } = state.training.manifest;
  $("described").textContent =
    `Trained: ${names.join(", ")}: ${total("parameter")} numbers, and ${total("state")} of the optimiser's. `
    + (frozen.length ? `Frozen: ${frozen.join(", ")}.` : "Nothing is frozen.");
}

async function main() {
  build();
  const [training, digits] = await Promise.all([Training.open("training/"), arrays("digits.safetensors")]);
  const part = (name) => ({ images: digits.get(`${name}/images`), labels: digits.get(`${name}/labels`) });
  Object.assign(state, { training, train: part("train"), heldOut: part("held_out") });
  const { default: rate } = training.manifest.learning_rate;
  $("rate-label").hidden = rate === undefined; // A schedule gives it.
  $("rate").value = Math.log10(rate ?? 1);
  $("rate").dispatchEvent(new Event("input"));
  $("held-out-count").textContent = state.heldOut.labels.data.length;
  describe();
  const { images } = state.heldOut;
  $("digits").replaceChildren(...Array.from({ length: SHOWN }, (_, i) => {
    const item = tile(images.data.subarray(64 * i, 64 * (i + 1)), document.createElement("span"));
    return item;
  }));
  themed();
  await again();
  buttons();
  document.documentElement.dataset.state ??= "ready";
}

main().catch(failed);
