// The training step of a folder, run by onnxruntime-web. Nothing here knows the model: manifest.json says what is fed, and
// which output becomes which input of the next step.

import * as safetensors from "./safetensors.js";

const HELD = ["parameter", "state"];
const OFF = 0.02; // The most that WebGPU's result of a step may be off, as a part of its size.

export class Unsupported extends Error {}

async function runtime(provider, threads) {
  const ort = await import(provider === "webgpu" ? "./runtime/ort.webgpu.min.mjs" : "./runtime/ort.wasm.min.mjs");
  Object.assign(ort.env.wasm, { wasmPaths: new URL("./runtime/", import.meta.url).href, numThreads: threads });
  return ort;
}

export class Training {
  /** @param given {manifest, model, external, initial}: the bytes of the folder's files, and the first state. */
  static async open(provider, threads, given) {
    const ort = await runtime(provider, threads);
    const found = new Training(ort, provider, given);
    found.session = await found.opened(provider);
    if (found.checked) found.forget();
    return found;
  }

  constructor(ort, provider, { manifest, model, external, initial }) {
    const { inputs, outputs } = manifest.graphs.train_step;
    Object.assign(this, { ort, provider, manifest, model, external, inputs, outputs, checked: provider !== "webgpu" });
    this.loss = outputs.find((one) => one.role === "loss").name;
    this.renewed = outputs.filter((one) => one.updates);
    this.initial = initial;
    this.restore(initial);
  }

  opened(provider) {
    const options = { executionProviders: [provider], externalData: this.external, logSeverityLevel: 3 };
    if (provider === "webgpu") { // There the state stays from step to step.
      const stays = this.renewed.filter(({ dtype, shape }) => dtype === "float32" && shape.length);
      options.preferredOutputLocation = Object.fromEntries(stays.map(({ name }) => [name, "gpu-buffer"]));
    }
    return this.ort.InferenceSession.create(this.model, options);
  }

  /** The sessions hold what the files say. */
  forget() {
    this.model = this.external = undefined;
  }

  tensor({ dtype, data, shape }) {
    return new this.ort.Tensor(dtype, data, shape);
  }

  /** Go on from a state: arrays by name. If they are not of this training, all is as it was. */
  restore(arrays) {
    const wanted = this.inputs.filter(({ role }) => HELD.includes(role));
    for (const { name, dtype, shape } of wanted) {
      const found = arrays.get(name);
      if (!found) throw new Error(`the state has no ${name}`);
      if (found.dtype !== dtype || found.shape.join() !== shape.join())
        throw new Error(`${name} is ${found.dtype} [${found.shape.join(", ")}], not ${dtype} [${shape.join(", ")}]`);
    }
    this.release(this.state);
    this.state = Object.fromEntries(wanted.map(({ name }) => [name, this.tensor(arrays.get(name))]));
  }

  release(tensors = {}) {
    for (const tensor of Object.values(tensors)) if (tensor.location === "gpu-buffer") tensor.dispose();
  }

  feeds(batch, rate) {
    const made = { ...this.state };
    for (const { name, role, dtype } of this.inputs) {
      if (role === "learning_rate") made[name] = new this.ort.Tensor(dtype, [rate], []);
      else if (!HELD.includes(role)) made[name] = this.tensor(batch[name]);
    }
    return made;
  }

  /** One step on a batch: the loss before it. Where that is no number, nothing is changed. */
  async step(batch, rate) {
    if (!this.checked) await this.check(batch, rate);
    const results = await this.session.run(this.feeds(batch, rate));
    const loss = Number(results[this.loss].data[0]);
    const next = Object.fromEntries(this.renewed.map(({ name, updates }) => [updates, results[name]]));
    if (!Number.isFinite(loss) && !this.manifest.loss_scale) { // With a scale, the graph itself leaves such a step out.
      this.release(next);
      throw new Error(`the loss is ${loss}, and this step was not done; try a lower learning rate`);
    }
    this.release(this.state);
    this.state = next;
    return loss;
  }

  /** Refuse WebGPU where it does not make the step that WebAssembly makes. What is compared is told to the page. */
  async check(batch, rate) {
    this.comparing?.();
    let most = 0;
    const feeds = this.feeds(batch, rate);
    const session = await this.opened("wasm");
    const right = await session.run(feeds);
    await session.release();
    const found = await this.session.run(feeds).catch((error) => { throw new Unsupported(told(error)); });
    for (const name of [this.loss, ...this.renewed.map((one) => one.name)]) {
      const off = distance(await found[name].getData(), right[name].data);
      if (!(off <= OFF)) throw new Unsupported(`${name} is off by ${(100 * off).toPrecision(2)} % in the first step`);
      most = Math.max(most, off);
    }
    this.comparing?.(most);
    this.release(found);
    this.checked = true;
    this.forget();
  }

  /** The state as it is now, or a part of it: arrays by name. */
  async arrays(names = Object.keys(this.state)) {
    const made = new Map();
    for (const name of names) {
      const { type, dims } = this.state[name];
      made.set(name, { dtype: type, shape: [...dims], data: await this.state[name].getData() });
    }
    return made;
  }

  /** A file of all that is carried from step to step, or of what merges into the model alone. */
  async saved(adapter = false) {
    const names = adapter ? this.manifest.graphs.merge.inputs.map((one) => one.name) : undefined;
    return safetensors.write(await this.arrays(names), { format: "stopgrad", made_for: this.manifest.format });
  }
}

/** The length of the difference of two lists of numbers, as a part of the second's. */
function distance(found, right) {
  let difference = 0, size = 0;
  for (let i = 0; i < right.length; i++) {
    difference += (Number(found[i]) - Number(right[i])) ** 2;
    size += Number(right[i]) ** 2;
  }
  return difference === 0 ? 0 : Math.sqrt(difference / size);
}

/** What an error says; the runtime throws numbers and strings, too. */
export const told = (error) => error?.message ?? `the runtime failed with ${error}`;
