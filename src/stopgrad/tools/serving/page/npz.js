// Files of numpy.savez and numpy.savez_compressed: a zip archive with one array in each entry.

const KINDS = {
  f4: ["float32", Float32Array], f8: ["float64", Float64Array], f2: ["float16", Uint16Array], b1: ["bool", Uint8Array],
  i8: ["int64", BigInt64Array], i4: ["int32", Int32Array], i2: ["int16", Int16Array], i1: ["int8", Int8Array],
  u8: ["uint64", BigUint64Array], u4: ["uint32", Uint32Array], u2: ["uint16", Uint16Array], u1: ["uint8", Uint8Array],
};
const DIRECTORY = 0x02014b50, END = 0x06054b50, LOCAL = 0x04034b50;
const STORED = 0, DEFLATED = 8;

/** The arrays of a file, by name: {dtype, shape, data}. */
export async function read(buffer) {
  const found = new Map();
  try {
    for (const { name, bytes } of entries(buffer)) found.set(name.replace(/\.npy$/, ""), array(name, await bytes()));
  } catch (error) {
    throw error instanceof RangeError ? new Error("it is damaged: it ends too early") : error;
  }
  return found;
}

/** What the archive's directory, at its end, lists. */
function* entries(buffer) {
  const view = new DataView(buffer);
  let end = buffer.byteLength - 22;
  while (end >= 0 && view.getUint32(end, true) !== END) end--;
  if (end < 0) throw new Error("it is no .npz: it does not end as a zip archive does");
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    if (view.getUint32(at, true) !== DIRECTORY) throw new Error("it is damaged: its directory is not where it says");
    const [method, size, start] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true), view.getUint32(at + 42, true)];
    const lengths = [28, 30, 32].map((offset) => view.getUint16(at + offset, true));
    const name = new TextDecoder().decode(new Uint8Array(buffer, at + 46, lengths[0]));
    yield { name, bytes: () => unpacked(name, view, method, start, size) };
    at += 46 + lengths[0] + lengths[1] + lengths[2];
  }
}

async function unpacked(name, view, method, start, size) {
  if (view.getUint32(start, true) !== LOCAL) throw new Error(`it is damaged: ${name} is not where its directory says`);
  const from = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
  const held = new Uint8Array(view.buffer, from, size);
  if (method === STORED) return held.slice().buffer;
  if (method !== DEFLATED) throw new Error(`${name} is packed in a way that is not read here`);
  const stream = new Blob([held]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer().catch(() => { throw new Error(`it is damaged: ${name} cannot be unpacked`); });
}

/** The array in the bytes of one .npy: a text that says what it is, then its numbers. */
function array(name, buffer) {
  const view = new DataView(buffer);
  if (view.getUint32(0) !== 0x934e554d) throw new Error(`${name} is no array of NumPy`);
  const [length, from] = view.getUint8(6) === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  const header = new TextDecoder().decode(new Uint8Array(buffer, from, length));
  const [, order, code] = /'descr': '([<|])(\w+)'/.exec(header) ?? [];
  const said = /'fortran_order': False, 'shape': \(([\d, ]*)\)/.exec(header);
  if (!order || !KINDS[code] || !said) throw new Error(`${name} is an array of another kind than is read here: ${header.trim()}`);
  const [dtype, kind] = KINDS[code];
  const shape = said[1].split(",").filter((side) => side.trim()).map(Number);
  const size = shape.reduce((a, b) => a * b, 1);
  if (buffer.byteLength !== from + length + size * kind.BYTES_PER_ELEMENT) throw new Error(`it is damaged: ${name} has not so many numbers as it says`);
  return { dtype, shape, data: new kind(buffer.slice(from + length)) };
}
