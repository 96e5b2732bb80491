// A model file with its weights in it. Protobuf messages merge when their bytes stand one after the other: the network
// without weights, followed by a model that holds nothing but weights, is the network with them.

const TYPES = {
  float32: 1, uint8: 2, int8: 3, uint16: 4, int16: 5, int32: 6, int64: 7, bool: 9, float16: 10, float64: 11,
  uint32: 12, uint64: 13,
};
const MODEL = { graph: 7 }, GRAPH = { initializer: 5 }, TENSOR = { dims: 1, dataType: 2, name: 8, rawData: 9 };

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return [...bytes, value];
}

const number = (field, value) => Uint8Array.from([...varint(field << 3), ...varint(value)]);

/** A field whose value is bytes: their length, and they themselves. */
function bytes(field, ...parts) {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  return joined([Uint8Array.from([...varint((field << 3) | 2), ...varint(length)]), ...parts]);
}

function joined(parts) {
  const made = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}

/** The model with these tensors as the values of its inputs of their names. */
export function withWeights(model, tensors) {
  const held = Object.entries(tensors).map(([name, { type, dims, data }]) => bytes(
    GRAPH.initializer,
    ...dims.map((size) => number(TENSOR.dims, size)),
    number(TENSOR.dataType, TYPES[type]),
    bytes(TENSOR.name, new TextEncoder().encode(name)),
    bytes(TENSOR.rawData, new Uint8Array(data.buffer, data.byteOffset, data.byteLength)),
  ));
  return joined([new Uint8Array(model), bytes(MODEL.graph, ...held)]);
}
