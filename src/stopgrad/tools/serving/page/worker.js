// Trains beside the page, so that the page can be used meanwhile. One call after the other; only "stop" comes between.

import { Batches, readFile } from "./batches.js";
import * as safetensors from "./safetensors.js";
import * as storage from "./storage.js";
import { Training, Unsupported, told } from "./training.js";

const KEPT = 5000; // Milliseconds of training, at least, between two times that all is kept,
const SHARE = 20; // and as many times longer than keeping takes.
const LEFT = 3000; // Milliseconds until another tab has let go.
const START = { step: 0, place: { pass: 0, at: 0 } };

const now = { ...START, losses: [], settings: null, running: false };
let site, training, batches, picked;

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${(await response.text()).trim()}`);
  return response;
}

const bytes = async (url) => (await fetched(url)).arrayBuffer();
const part = (name) => `training/${encodeURIComponent(name)}`;

/** Only one tab may train: two would keep their states over each other. */
function alone(key) {
  return new Promise((resolve) => {
    const signal = AbortSignal.timeout(LEFT); // The worker before a reload may not have ended yet.
    navigator.locks.request(`stopgrad ${key}`, { signal }, () => {
      resolve(true);
      return new Promise(() => {}); // Held until this worker ends.
    }).catch(() => resolve(false));
  });
}

async function open({ provider, threads }) {
  site = await (await fetched("site.json")).json();
  const manifest = await (await fetched("training/manifest.json")).json();
  if (!(await alone(site.identity))) throw new Error("this training is open in another tab; close one of them, and load this page anew");
  const { file } = manifest.graphs.train_step;
  const [model, initial, ...held] = await Promise.all([file, manifest.state_file, ...site.external].map((name) => bytes(part(name))));
  const external = site.external.map((path, i) => ({ path, data: new Uint8Array(held[i]) }));
  const given = { manifest, model: new Uint8Array(model), external, initial: safetensors.read(initial) };
  training = await Training.open(provider, threads, given).catch((error) => {
    throw provider === "webgpu" ? new Unsupported(told(error)) : error;
  });
  training.comparing = (off) => postMessage({ event: "comparing", off });
  const kept = (key) => storage.read(key).catch(() => undefined);
  const record = await kept(site.identity), examplesFile = await kept(chosen());
  const lost = record && resumed(record);
  if (site.data) batches = new Batches(safetensors.read(await bytes("examples.safetensors")), site.fed, site.batch);
  else if (examplesFile) await choose(examplesFile);
  return { site, manifest, lost, ...shown(), losses: now.losses, settings: now.settings, examples: examples() };
}

const chosen = () => `${site.identity} examples`;

/** Take up what was kept; what is wrong with it, if it cannot be. */
function resumed({ state, step, place, losses, settings }) {
  try {
    training.restore(safetensors.read(state));
  } catch (error) {
    return told(error);
  }
  Object.assign(now, { step, place, losses: [...losses], settings });
  return undefined;
}

async function choose(file) {
  batches = new Batches(await readFile(file.name, file.buffer, site.fed), site.fed, site.batch);
  picked = file;
  now.place = batches.count > now.place.at ? now.place : START.place;
}

const examples = () => batches && { name: picked?.name ?? site.data, count: batches.count };
const shown = () => ({ step: now.step, passes: now.place.pass + (batches ? now.place.at / batches.count : 0) });

/** Write down all that is needed to go on after a reload. */
async function keep() {
  try {
    const { step, place, settings } = now;
    const state = (await training.saved()).buffer;
    await storage.write(site.identity, { state, step, place, settings, losses: Float32Array.from(now.losses) });
    postMessage({ event: "kept", step });
  } catch (error) {
    postMessage({ event: "unkept", why: told(error) });
  }
}

const channel = new MessageChannel();
/** Let messages in. */
const pause = () => new Promise((resolve) => {
  channel.port1.onmessage = resolve;
  channel.port2.postMessage(0);
});

async function train(settings) {
  now.settings = settings;
  const until = now.step + settings.count;
  let due = performance.now() + KEPT;
  try {
    while (now.running && now.step < until) {
      const begun = performance.now();
      const { batch, place } = batches.next(site.batch ?? settings.batch, now.place, settings.shuffled);
      const loss = await training.step(batch, settings.rate);
      Object.assign(now, { place, step: now.step + 1 });
      now.losses.push(loss);
      postMessage({ event: "step", ...shown(), loss, time: performance.now() - begun });
      const time = performance.now();
      if (time > due) {
        await keep();
        due = performance.now() + Math.max(KEPT, SHARE * (performance.now() - time));
      }
      await pause();
    }
  } finally {
    now.running = false;
    await keep();
  }
}

async function begin() {
  training.restore(training.initial);
  Object.assign(now, START, { losses: [] });
  await keep();
  return shown();
}

const calls = {
  open,
  train,
  begin,
  async choose({ name, buffer }) {
    await choose({ name, buffer });
    await storage.write(chosen(), picked).catch((error) => postMessage({ event: "unkept", why: told(error) }));
    return { ...shown(), examples: examples() };
  },
  async restore({ buffer }) {
    training.restore(safetensors.read(buffer));
    Object.assign(now, START, { losses: [] });
    await keep();
    return shown();
  },
  file: ({ adapter }) => training.saved(adapter),
};

let queue = Promise.resolve();
addEventListener("message", ({ data: { id, call, given } }) => {
  if (call === "stop") now.running = false;
  else {
    if (call === "train") now.running = true;
    queue = queue.then(() => calls[call](given)).then(
      (result) => postMessage({ id, result }),
      (error) => postMessage({ id, error: told(error), unsupported: error instanceof Unsupported }),
    );
  }
});
