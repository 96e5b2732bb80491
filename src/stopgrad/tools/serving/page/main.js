// The page: buttons, figures, the curve. What trains is in worker.js.

import { Chart } from "./chart.js";

const $ = (id) => document.getElementById(id);
const CORES = Math.min(navigator.hardwareConcurrency || 1, 8);
const HALF = Math.min(4, Math.ceil(CORES / 2)); // What the runtime itself takes: threads that wait for a core cost more than they give.
const CONTROLS = ["again", "count", "batch", "rate", "shuffle", "pick", "adapter", "state", "restore", "backend"];
const REMEMBERED = "stopgrad backend";

const chart = new Chart($("loss-chart"), {
  scale: "log", name: "Loss of each batch", shown: (v) => (v < 0.0001 ? v.toExponential(0) : String(+v.toPrecision(3))),
});
const state = { worker: null, calls: new Map(), next: 0, running: false, examples: null, from: 0, until: 0, time: 0, drawn: false };

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

const ready = (kind) => { document.documentElement.dataset.state = kind; };

// ------------------------------------------------------------------------------------------------- worker

class WorkerError extends Error {
  constructor({ error, unsupported }) {
    super(error);
    this.unsupported = unsupported;
  }
}

function call(name, given, transfer = []) {
  const id = state.next++;
  return new Promise((resolve, reject) => {
    state.calls.set(id, { resolve, reject });
    state.worker.postMessage({ id, call: name, given }, transfer);
  });
}

function start() {
  state.worker?.terminate();
  for (const { reject } of state.calls.values()) reject(new Error("ended"));
  state.calls.clear();
  const worker = state.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }) => {
    if (worker !== state.worker) return;
    if (data.event) return events[data.event](data);
    const { resolve, reject } = state.calls.get(data.id);
    state.calls.delete(data.id);
    if ("error" in data) reject(new WorkerError(data));
    else resolve(data.result);
  };
  worker.onerror = (event) => {
    event.preventDefault();
    for (const { reject } of state.calls.values()) reject(new Error(event.message || "a script of this page cannot be loaded"));
  };
}

const events = {
  step({ step, passes, loss, time }) {
    chart.add(step, loss);
    state.time = state.time ? 0.9 * state.time + 0.1 * time : time;
    $("loss").textContent = loss.toPrecision(4);
    figures({ step, passes });
    draw();
  },
  comparing({ off }) {
    $("why").textContent = off === undefined
      ? "The first step is compared with that of WebAssembly."
      : `The first step is that of WebAssembly, to ${off.toExponential(0)} of its size.`;
  },
  kept({ step }) {
    $("kept").textContent = `Kept in this browser up to step ${step}: a reload goes on from there.`;
  },
  unkept({ why }) {
    $("kept").textContent = `This browser keeps nothing (${why}): a reload begins anew. Download the state to go on later.`;
  },
};

/** Once in a frame. */
function draw() {
  if (state.drawn) return;
  state.drawn = true;
  requestAnimationFrame(() => {
    state.drawn = false;
    chart.draw();
  });
}

// ------------------------------------------------------------------------------------------------ figures

function duration(milliseconds) {
  if (milliseconds < 1000) return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  const seconds = Math.round(milliseconds / 1000);
  if (seconds < 60) return `${(milliseconds / 1000).toFixed(milliseconds < 10000 ? 1 : 0)} s`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function figures({ step, passes }) {
  $("steps").textContent = step;
  $("passes").textContent = passes.toFixed(2);
  $("time").textContent = state.time ? duration(state.time) : "–";
  $("left").textContent = state.running ? duration(state.time * (state.until - step)) : "–";
  $("progress").max = Math.max(1, state.until - state.from);
  $("progress").value = step - state.from;
  state.step = step;
}

function curve(losses) {
  chart.clear();
  losses.forEach((loss, i) => chart.add(i + 1, loss));
  $("loss").textContent = losses.length ? losses.at(-1).toPrecision(4) : "–";
  chart.draw();
}

function buttons() {
  const { running, examples } = state;
  for (const id of CONTROLS) $(id).disabled = running;
  $("start").disabled = !examples;
  $("start").textContent = running ? "Stop" : state.step ? "Go on" : "Start";
  $("examples").textContent = examples
    ? `${examples.name}${Number.isFinite(examples.count) ? `: ${examples.count} examples` : ""}`
    : "None yet: choose a file, or name one with stopgrad serve --data.";
  if (state.fixed) $("batch").disabled = true;
}

// ----------------------------------------------------------------------------------------------- training

function settings() {
  const number = (id) => Number($(id).value);
  const given = { count: number("count"), batch: number("batch"), rate: number("rate"), shuffled: $("shuffle").checked };
  for (const [id, name] of [["count", "Steps"], ["batch", "Batch"]])
    if (!Number.isInteger(given[id]) || given[id] < 1) throw new Error(`${name} is a whole number from 1 on`);
  if (!$("rate-label").hidden && !(given.rate >= 0 && Number.isFinite(given.rate))) throw new Error("Learning rate is a number from 0 on");
  return given;
}

async function train() {
  let given;
  try {
    given = settings();
  } catch (error) {
    return problem(error.message);
  }
  problem("");
  Object.assign(state, { running: true, from: state.step, until: state.step + given.count, time: 0 });
  ready("training");
  buttons();
  try {
    await call("train", given);
  } catch (error) {
    if (error.unsupported) return instead(error.message);
    problem(`Stopped: ${error.message}`);
  }
  state.running = false;
  figures({ step: state.step, passes: Number($("passes").textContent) });
  buttons();
  ready("ready");
}

/** WebGPU does not do it: say why, and go on by WebAssembly. */
async function instead(why) {
  const going = state.running;
  state.running = false;
  $("backend").value = `wasm:${usual()}`;
  await open(`WebGPU does not make this training's step (${why}), so WebAssembly is used.`);
  if (going && document.documentElement.dataset.state === "ready") await train();
}

/** Do something with a file that somebody chose; if that fails, all is as it was. */
async function withFile(input, name) {
  const [file] = input.files;
  if (!file) return;
  try {
    const buffer = await file.arrayBuffer();
    const found = await call(name, { name: file.name, buffer });
    if (found.examples) state.examples = found.examples;
    else curve([]);
    Object.assign(state, { from: found.step, until: found.step });
    problem("");
    figures(found);
  } catch (error) {
    problem(`${file.name} is not read, and all is as it was: ${error.message}`);
  }
  input.value = "";
  buttons();
}

async function download(name, adapter) {
  const made = await call("file", { adapter });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([made], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function again() {
  if (state.step && !confirm(`Forget ${state.step} steps, and begin with the first state?`)) return;
  const found = await call("begin");
  Object.assign(state, { from: 0, until: 0, time: 0 });
  curve([]);
  figures(found);
  problem("");
  buttons();
}

// --------------------------------------------------------------------------------------------------- page

function describe({ site, manifest }) {
  const { inputs } = manifest.graphs.train_step;
  const trained = inputs.filter((one) => one.role === "parameter");
  const numbers = trained.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const adapters = manifest.adapters?.length ?? 0;
  document.title = $("name").textContent = `Training ${site.name}`;
  $("described").textContent =
    `${adapters ? `${adapters} LoRA adapters: ` : ""}${trained.length} arrays, ${numbers.toLocaleString("en")} numbers, by ${manifest.optimizer.name}; `
    + `the loss is ${manifest.loss.name}. All is computed in this browser.`;
  const rate = manifest.learning_rate.default;
  $("rate-label").hidden = rate === undefined; // A schedule gives it.
  $("rate").value = rate ?? 0;
  state.fixed = site.batch;
  if (site.batch) $("batch").value = site.batch;
  $("fed").tBodies[0].replaceChildren(...site.fed.map(({ name, dtype, shape }) => {
    const row = document.createElement("tr");
    for (const text of [name, dtype, `[${shape.join(", ")}]`]) row.insertCell().textContent = text;
    return row;
  }));
  $("runtime").textContent = `onnxruntime-web ${site.runtime || "of an unknown version"}`
    + (site.runtime === site.tested ? "." : `; this page is tested with ${site.tested}.`);
  state.file = `${adapters ? "adapter" : "weights"}.safetensors`;
  if (!adapters) $("adapter").textContent = "Download the weights";
  $("merge").textContent = `stopgrad merge ${site.folder} ${state.file} -o trained.onnx`;
}

function apply(kept) {
  if (!kept) return;
  Object.assign($("count"), { value: kept.count });
  if (!state.fixed) $("batch").value = kept.batch;
  $("rate").value = kept.rate;
  $("shuffle").checked = kept.shuffled;
}

/** Open the training by what is chosen. */
async function open(why) {
  ready("opening");
  const [provider, threads] = $("backend").value.split(":");
  $("why").textContent = why;
  start();
  try {
    const found = await call("open", { provider, threads: Number(threads ?? usual()) });
    describe(found);
    apply(found.settings);
    Object.assign(state, { examples: found.examples, step: found.step, from: found.step, until: found.step });
    curve(found.losses);
    figures(found);
    problem(found.lost ? `What this browser had kept is not of this training: ${found.lost}` : "");
    if (found.step) events.kept(found);
    buttons();
    ready("ready");
  } catch (error) {
    if (error.unsupported) return instead(error.message);
    problem(`This training cannot be opened: ${error.message}`);
    ready("failed");
  }
}

/** Threads need memory that they share, which only a page has that is isolated from others. */
const usual = () => (crossOriginIsolated ? HALF : 1);

/** What this browser can train on, and why not on the rest. */
async function backends() {
  const add = (value, text) => $("backend").add(new Option(text, value));
  for (const threads of new Set([usual(), 1, ...(crossOriginIsolated ? [HALF, CORES] : [])]))
    add(`wasm:${threads}`, `WebAssembly, ${threads} thread${threads > 1 ? "s" : ""}`);
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  if (!adapter) return navigator.gpu ? "WebGPU: the browser finds no graphics processor that it may use." : "WebGPU: this browser has none.";
  const { vendor, architecture } = adapter.info ?? {};
  add("webgpu", `WebGPU (${[vendor, architecture].filter(Boolean).join(" ") || "an adapter without a name"})`);
  const software = adapter.info?.isFallbackAdapter ?? architecture === "swiftshader";
  if (software) return "WebGPU: only one in software, which is slower than WebAssembly.";
  $("backend").value = "webgpu";
  return "";
}

/** A browser may be told to keep nothing. */
function memory(use) {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

async function main() {
  const why = await backends();
  const remembered = memory((storage) => storage.getItem(REMEMBERED));
  if ([...$("backend").options].some(({ value }) => value === remembered)) $("backend").value = remembered;
  $("start").addEventListener("click", () => (state.running ? state.worker.postMessage({ call: "stop" }) : train()));
  const guarded = (work) => () => work().catch((error) => problem(`This does not work: ${error.message}`));
  $("again").addEventListener("click", guarded(again));
  $("pick").addEventListener("change", () => withFile($("pick"), "choose"));
  $("restore").addEventListener("change", () => withFile($("restore"), "restore"));
  $("adapter").addEventListener("click", guarded(() => download(state.file, true)));
  $("state").addEventListener("click", guarded(() => download("state.safetensors", false)));
  $("backend").addEventListener("change", () => {
    memory((storage) => storage.setItem(REMEMBERED, $("backend").value));
    open(why);
  });
  await open(why);
}

main().catch((error) => {
  problem(`This does not work: ${error.message ?? error}`);
  ready("failed");
});
