// A folder of training graphs, run by onnxruntime-web. Nothing here knows the network: manifest.json says what is fed
// and which output becomes which input of the next step.

import * as ort from "./ort/ort.wasm.min.mjs";
import { withWeights } from "./exported.js";
import * as safetensors from "./safetensors.js";

ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
ort.env.wasm.numThreads = 1;

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return response;
}

const bytes = async (url) => (await fetched(url)).arrayBuffer();
const tensor = ({ dtype, data, shape }) => new ort.Tensor(dtype, data, shape);

/** Arrays of a safetensors file by name. */
export const arrays = async (url) => safetensors.read(await bytes(url));

export class Training {
  /** The folder at an address that ends in "/". */
  static async open(folder) {
    const manifest = await (await fetched(`${folder}manifest.json`)).json();
    const files = {}, sessions = {};
    await Promise.all(["train_step", "predict", "merge"].map(async (name) => {
      files[name] = await bytes(folder + manifest.graphs[name].file);
      sessions[name] = await ort.InferenceSession.create(files[name]);
    }));
    return new Training(manifest, files, sessions, await arrays(folder + manifest.state_file));
  }

  constructor(manifest, files, sessions, initial) {
    Object.assign(this, { manifest, files, sessions, initial });
    this.restart();
  }

  /** Begin again with the state of the file. */
  restart() {
    this.state = this.tensors(this.initial);
  }

  tensors(arrays) {
    const state = {};
    for (const { name, role, dtype, shape } of this.manifest.graphs.train_step.inputs) {
      if (role !== "parameter" && role !== "state") continue;
      const found = arrays.get(name);
      if (!found) throw new Error(`the state has no ${name}`);
      if (found.dtype !== dtype || found.shape.join() !== shape.join())
        throw new Error(`${name} is ${found.dtype} [${found.shape}], not ${dtype} [${shape}]`);
      state[name] = tensor(found);
    }
    return state;
  }

  /** Run a graph: its inputs by their roles, and what is left from tensors by name. */
  async run(graph, given, held) {
    const feeds = {};
    for (const { name, role, dtype } of this.manifest.graphs[graph].inputs) {
      if (role === "input") feeds[name] = tensor(given.images);
      else if (role === "labels") feeds[name] = tensor(given.labels);
      else if (role === "learning_rate") feeds[name] = new ort.Tensor(dtype, [given.learningRate], []);
      else feeds[name] = held[name];
    }
    return this.sessions[graph].run(feeds);
  }

  /** One step on a batch: the loss. The new state is what the runtime gave back, kept for the next step. */
  async step(images, labels, learningRate) {
    const results = await this.run("train_step", { images, labels, learningRate }, this.state);
    let loss;
    for (const { name, role, updates } of this.manifest.graphs.train_step.outputs) {
      if (updates) this.state[updates] = results[name];
      else if (role === "loss") loss = results[name].data[0];
    }
    return loss;
  }

  /** The weights of the network as it is used, by the names that it has for them. */
  async weights() {
    const results = await this.run("merge", {}, this.state);
    return Object.fromEntries(this.manifest.graphs.merge.outputs.map(({ name, of }) => [of, results[name]]));
  }

  /** The network's output for some images: rows of ten numbers. */
  async logits(images) {
    const results = await this.run("predict", { images }, await this.weights());
    return results[this.manifest.graphs.predict.outputs[0].name];
  }

  /** The trained network as a model file of its own. */
  async exported() {
    return withWeights(this.files.predict, await this.weights());
  }

  /** The state as a file, which Trainer.restore in Python reads too. */
  saved() {
    const held = Object.entries(this.state).map(([name, { type, dims, data }]) =>
      [name, { dtype: type, shape: [...dims], data }]);
    return safetensors.write(new Map(held));
  }

  /** Go on from the state in a file. */
  restore(buffer) {
    this.state = this.tensors(safetensors.read(buffer));
  }
}

/** For each row of logits, which is the largest. */
export function best({ data, dims }) {
  const width = dims[1];
  return Array.from({ length: dims[0] }, (_, row) => {
    let at = 0;
    for (let i = 1; i < width; i++) if (data[row * width + i] > data[row * width + at]) at = i;
    return at;
  });
}

/** One row of logits as probabilities. */
export function softmax(logits) {
  const most = Math.max(...logits);
  const raised = Array.from(logits, (z) => Math.exp(z - most));
  const sum = raised.reduce((a, b) => a + b, 0);
  return raised.map((e) => e / sum);
}
