// Files of named arrays: eight bytes of length, a header in JSON, the data.

const KINDS = {
  F32: { dtype: "float32", array: Float32Array },
  F64: { dtype: "float64", array: Float64Array },
  I64: { dtype: "int64", array: BigInt64Array },
  I32: { dtype: "int32", array: Int32Array },
  I16: { dtype: "int16", array: Int16Array },
  I8: { dtype: "int8", array: Int8Array },
  U64: { dtype: "uint64", array: BigUint64Array },
  U32: { dtype: "uint32", array: Uint32Array },
  U16: { dtype: "uint16", array: Uint16Array },
  U8: { dtype: "uint8", array: Uint8Array },
  F16: { dtype: "float16", array: Uint16Array }, // Bits, as onnxruntime-web takes them.
  BOOL: { dtype: "bool", array: Uint8Array },
};
const CODES = Object.fromEntries(Object.entries(KINDS).map(([code, { dtype }]) => [dtype, code]));

/** The arrays of a file, by name: {dtype, shape, data}, each with memory of its own. */
export function read(buffer) {
  if (buffer.byteLength < 8) throw new Error("not a safetensors file: it is shorter than 8 bytes");
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  if (8 + length > buffer.byteLength) throw new Error("not a safetensors file: its header is longer than the file");
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  } catch {
    throw new Error("not a safetensors file: its header is not JSON");
  }
  if (header === null || typeof header !== "object") throw new Error("not a safetensors file: its header is no object");
  const found = new Map();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const kind = KINDS[entry?.dtype];
    if (!kind) throw new Error(`${name}: ${entry?.dtype} is not read here`);
    const { shape } = entry, [from, to] = Array.isArray(entry.data_offsets) ? entry.data_offsets : [];
    const size = Array.isArray(shape) && shape.every(isSize) ? shape.reduce((a, b) => a * b, 1) : NaN;
    if (![from, to].every(isSize) || to - from !== size * kind.array.BYTES_PER_ELEMENT || 8 + length + to > buffer.byteLength)
      throw new Error(`${name}: its bytes do not make up the shape [${shape}]`);
    // A copy: views of several bytes must begin at a multiple of their size.
    found.set(name, { dtype: kind.dtype, shape, data: new kind.array(buffer.slice(8 + length + from, 8 + length + to)) });
  }
  return found;
}

const isSize = (number) => Number.isSafeInteger(number) && number >= 0;

/** The bytes of a file that holds these arrays, and notes about them. */
export function write(arrays, notes) {
  const header = notes ? { __metadata__: notes } : {};
  let at = 0;
  // The largest numbers first, so that all are aligned.
  const ordered = [...arrays].sort(([, a], [, b]) => b.data.BYTES_PER_ELEMENT - a.data.BYTES_PER_ELEMENT);
  for (const [name, { dtype, shape, data }] of ordered) {
    header[name] = { dtype: CODES[dtype], shape, data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
  }
  let text = JSON.stringify(header);
  const encoder = new TextEncoder();
  text += " ".repeat((8 - (encoder.encode(text).length % 8)) % 8);
  const head = encoder.encode(text);
  const file = new Uint8Array(8 + head.length + at);
  new DataView(file.buffer).setBigUint64(0, BigInt(head.length), true);
  file.set(head, 8);
  at = 8 + head.length;
  for (const [, { data }] of ordered) {
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return file;
}
