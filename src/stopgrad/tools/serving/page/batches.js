// Examples, cut into batches. Where one is in them is two numbers, a pass and a place in it, so that after a reload the same
// batches follow that would have followed without it.

import * as npz from "./npz.js";
import * as safetensors from "./safetensors.js";

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array, int16: Int16Array, int8: Int8Array,
  uint64: BigUint64Array, uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array, bool: Uint8Array,
};

/** Arrays by name out of a file that somebody chose. */
export async function readFile(name, buffer, fed) {
  if (/\.npz$/i.test(name)) return npz.read(buffer);
  if (/\.safetensors$/i.test(name)) return safetensors.read(buffer);
  const text = new TextDecoder().decode(buffer);
  if (/\.jsonl$/i.test(name)) {
    const rows = [];
    text.split("\n").forEach((line, i) => {
      if (line.trim()) rows.push(parsed(line, `line ${i + 1}`));
    });
    return new Map(Object.keys(rows[0] ?? {}).map((key) => [key, array(key, rows.map((row) => row[key]), fed)]));
  }
  if (/\.json$/i.test(name))
    return new Map(Object.entries(parsed(text, "it")).map(([key, value]) => [key, array(key, value, fed)]));
  throw new Error("it is none of .npz, .safetensors, .json, .jsonl");
}

function parsed(text, what) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error(`${what} is no JSON`);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error(`${what} is no object of arrays by name`);
  return found;
}

/** Nested lists as an array of the dtype that is fed under this name. */
function array(name, value, fed) {
  const wanted = fed.find((one) => one.name === name);
  if (!wanted) return { dtype: "", shape: [], data: [] }; // It is named as one too many.
  const shape = [];
  for (let level = value; Array.isArray(level); level = level[0]) shape.push(level.length);
  const flat = [];
  const walk = (level, depth) => {
    if (depth === shape.length) {
      if (typeof level !== "number" && typeof level !== "boolean") throw new Error(`${name} holds something else than numbers`);
      flat.push(Number(level));
    } else {
      if (!Array.isArray(level) || level.length !== shape[depth]) throw new Error(`${name} is no array: its rows differ in length`);
      for (const one of level) walk(one, depth + 1);
    }
  };
  walk(value, 0);
  const kind = ARRAYS[wanted.dtype];
  if (!kind) throw new Error(`${name}: ${wanted.dtype} is not read from JSON; take safetensors`);
  if (!wanted.dtype.startsWith("float") && !flat.every(Number.isSafeInteger)) throw new Error(`${name} is ${wanted.dtype}, not with fractions`);
  const whole = kind === BigInt64Array || kind === BigUint64Array;
  return { dtype: wanted.dtype, shape, data: whole ? kind.from(flat, BigInt) : kind.from(flat) };
}

/** A random order of so many, the same for the same pass. */
function order(count, pass) {
  let seed = (pass + 1) * 0x9e3779b9;
  const random = () => { // mulberry32
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const made = Uint32Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [made[i], made[j]] = [made[j], made[i]];
  }
  return made;
}

export class Batches {
  /** @param fed what a step is fed: {name, dtype, shape, cut}. @param fixed the size of a batch, if there is only one. */
  constructor(arrays, fed, fixed) {
    const known = fed.map((one) => one.name);
    const lacking = known.filter((name) => !arrays.has(name)), more = [...arrays.keys()].filter((name) => !known.includes(name));
    if (lacking.length) throw new Error(`${lacking.join(", ")} is missing; a step is fed ${known.join(", ")}`);
    if (more.length) throw new Error(`there is no input ${more[0]}; a step is fed ${known.join(", ")}`);
    const sizes = {};
    this.count = Infinity;
    for (const { name, dtype, shape, cut } of fed) {
      const found = arrays.get(name);
      if (found.dtype !== dtype) throw new Error(`${name} is ${dtype}, not ${found.dtype}`);
      const fits = found.shape.length === shape.length && shape.every((size, axis) => {
        if (axis === 0 && cut) return true;
        if (typeof size === "number") return found.shape[axis] === size;
        return (sizes[size] ??= found.shape[axis]) === found.shape[axis] || !/^\w+$/.test(size);
      });
      if (!fits) throw new Error(`${name} has the shape [${shape.join(", ")}], not [${found.shape.join(", ")}]`);
      if (!cut) continue;
      if (this.count !== Infinity && this.count !== found.shape[0])
        throw new Error(`${name} holds ${found.shape[0]} examples, and another array ${this.count}`);
      this.count = found.shape[0];
    }
    if (this.count < (fixed ?? 1)) throw new Error(`${this.count} examples, and a step takes ${fixed ?? 1}`);
    Object.assign(this, { arrays, fed, order: null, pass: -1 });
  }

  /** The next batch, and where one is after it. What is too little for a batch at the end of a pass is left out. */
  next(size, { pass, at }, shuffled) {
    const batch = Math.min(size, this.count);
    if (at + batch > this.count) [pass, at] = [pass + 1, 0];
    const made = {};
    for (const { name, dtype, shape, cut } of this.fed) {
      const { data, shape: whole } = this.arrays.get(name);
      made[name] = cut ? { dtype, shape: [batch, ...whole.slice(1)], data: this.rows(data, batch, pass, at, shuffled) } : { dtype, shape: whole, data };
    }
    return { batch: made, place: { pass, at: at + (this.count === Infinity ? 0 : batch) } };
  }

  rows(data, batch, pass, from, shuffled) {
    const each = data.length / this.count;
    if (!shuffled) return data.slice(each * from, each * (from + batch));
    if (this.pass !== pass) [this.order, this.pass] = [order(this.count, pass), pass];
    const made = new data.constructor(batch * each);
    for (let i = 0; i < batch; i++) made.set(data.subarray(each * this.order[from + i], each * (this.order[from + i] + 1)), i * each);
    return made;
  }
}
