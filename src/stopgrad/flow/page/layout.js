"use strict";
/* The layout of boxes and edges, by the Eclipse Layout Kernel, which runs in a worker if possible. */

const CHARACTER = 7.85, BOX = 42, CHIP = 22, HEADER = 30;
const SPACING = {
  "elk.algorithm": "layered",
  "elk.direction": "DOWN",
  "elk.hierarchyHandling": "INCLUDE_CHILDREN",
  "elk.edgeRouting": "POLYLINE",
  "elk.json.shapeCoords": "ROOT",
  "elk.json.edgeCoords": "ROOT",
  "elk.spacing.nodeNode": "22",
  "elk.spacing.edgeNode": "14",
  "elk.spacing.edgeEdge": "10",
  "elk.layered.spacing.nodeNodeBetweenLayers": "34",
  "elk.layered.spacing.edgeNodeBetweenLayers": "14",
  "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
  "elk.layered.nodePlacement.bk.fixedAlignment": "BALANCED",
  "elk.padding": "[top=16,left=16,bottom=16,right=16]",
};
const GROUP_PADDING = `[top=${HEADER + 14},left=14,bottom=14,right=14]`;

function shorten(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

/** A number with a noun, in singular or plural. */
function many(number) { return number.toLocaleString("en"); }
function plural(number, one) { return `${many(number)} ${one}${number === 1 ? "" : "s"}`; }

/** The two lines of a box. */
function boxTexts(model, node) {
  if (model.isBeside(node)) {
    const group = model.forwardOf(node);
    return [`gradient of ${shorten(model.groupTitle(group), 30)}`, `${many(model.tally[group - model.count].gradient)} ops`];
  }
  if (!model.isGroup(node)) return [shorten(model.title(node), 30), shorten(model.shape(node), 34)];
  const { cuts, idle } = model.trouble(node);
  const parts = [`${many(model.size(node))} ops`];
  if (cuts) parts.push(plural(cuts, "cut"));
  if (idle) parts.push(`${many(idle)} idle`);
  return [shorten(model.groupTitle(node), 40), parts.join(" · ")];
}

/** The layout engine, warmed up by a first small layout while the page is still loading. */
async function startEngine() {
  const code = await unpacked(document.getElementById("layout-engine").textContent);
  try {
    return await warmed(new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" }))));
  } catch {
    // Not every browser allows workers in a page from a file: then it runs here.
    const module = { exports: {} };
    new Function("module", "exports", code)(module, module.exports);
    return warmed(new module.exports.Worker());
  }
}

async function warmed(worker) {
  const engine = new ELK({ workerFactory: () => worker });
  const failed = new Promise((_, reject) => worker.addEventListener?.("error", reject, { once: true }));
  const box = (id) => ({ id, width: 9, height: 9 });
  const edge = (from, to) => ({ id: from + to, sources: [from], targets: [to] });
  const group = { id: "g", children: [box("b"), box("c")], edges: [edge("b", "c")] };
  const graph = { id: "root", layoutOptions: SPACING, children: [group, box("a")], edges: [edge("a", "b")] };
  await Promise.race([engine.layout(graph), failed]);
  return engine;
}

/** The number of edges from one box from which on each is drawn as a chip: for inputs, and for others. */
const FAN_OF_INPUT = 5, FAN = 12;
/** The room between two boxes beside the forward operations, between two lines of them, and left of all these. */
const GAP = 14, LINE = 10, DIVIDE = 60;
/** The width from which on a row of them goes on in a second line, unless the forward operations are wider. */
const ROW = 1300;

class Layout {
  /** `engine` is the promise of :func:`startEngine`. */
  constructor(model, engine) {
    this.model = model;
    this.engine = engine;
  }

  /** The edges that are lines, and those that are chips: those from boxes with users all over the graph. */
  split(edges) {
    const out = new Map(), into = new Set();
    for (const edge of edges) {
      out.set(edge.from, (out.get(edge.from) || 0) + 1);
      into.add(edge.to);
    }
    const lines = [], chips = [];
    for (const edge of edges) {
      if (out.get(edge.from) < (into.has(edge.from) ? FAN : FAN_OF_INPUT)) lines.push(edge);
      else chips.push({ from: edge.from, to: edge.to, kind: edge.kind });
    }
    return { lines, chips };
  }

  chipText(chip) { return shorten(boxTexts(this.model, chip.from)[0], 22); }

  /** Boxes and chips with x, y, width and height, the boxes as a map from nodes; and edges with their points. */
  async run(visible) {
    const { model } = this;
    const boxes = new Map();
    const root = { id: "root", layoutOptions: this.options(visible), children: [], edges: [] };
    for (const node of visible.nodes) {
      const box = this.box(node);
      boxes.set(node, box);
      const parent = model.parent[node];
      (parent < 0 ? root : boxes.get(parent)).children.push(box);
    }
    const { lines, chips } = this.split(visible.edges);
    lines.forEach((edge, n) => {
      root.edges.push({
        id: `e${n}`, sources: [`n${edge.from}`], targets: [`n${edge.to}`],
        layoutOptions: { "elk.layered.priority.straightness": "10" },
      });
    });
    chips.forEach((chip, n) => {
      chip.text = this.chipText(chip);
      const box = { id: `c${n}`, width: 16 + CHARACTER * 0.9 * chip.text.length, height: CHIP };
      const parent = model.parent[chip.to];
      (parent < 0 ? root : boxes.get(parent)).children.push(box);
      root.edges.push({ id: `d${n}`, sources: [box.id], targets: [`n${chip.to}`] });
    });
    const placed = this.read(await (await this.engine).layout(root), visible.nodes, lines, chips);
    return visible.beside.size ? this.withGradient(placed, visible) : placed;
  }

  /** Add what was made for the gradient: each box at the right, in the row of the forward box that it lies beside. */
  withGradient(placed, { beside, across }) {
    const { boxes } = placed, divide = placed.width + DIVIDE, most = Math.max(ROW, placed.width);
    const rows = new Map(); // For each band of the picture the boxes that begin in it.
    const waiting = [...beside].filter(([, forward]) => boxes.get(forward));
    waiting.sort(([, one], [, other]) => boxes.get(one).y - boxes.get(other).y);
    for (const [node, forward] of waiting) {
      const { width, height } = this.box(node);
      let { y } = boxes.get(forward), x = divide, row;
      for (;; y += height + LINE) { // A row that is full goes on below.
        row = Math.floor(y / height);
        const near = [row - 1, row, row + 1].flatMap((n) => rows.get(n) || []);
        x = near.filter((box) => Math.abs(box.y - y) < height + 4)
          .reduce((right, box) => Math.max(right, box.x + box.width + GAP), divide);
        if (x === divide || x + width <= divide + most) break;
      }
      boxes.set(node, { x, y, width, height });
      rows.set(row, [...(rows.get(row) || []), boxes.get(node)]);
      placed.width = Math.max(placed.width, x + width + GAP);
      placed.height = Math.max(placed.height, y + height + GAP);
    }
    const drawn = across.filter(({ from, to }) => boxes.get(from) && boxes.get(to));
    const edges = drawn.map((edge) => ({ ...edge, path: bent(boxes.get(edge.from), boxes.get(edge.to)) }));
    return { ...placed, divide, edges: [...placed.edges, ...edges] };
  }

  read(placed, nodes, lines, chips) {
    const boxes = new Map(nodes.map((node) => [node, null])); // In their order: outer before inner.
    const stack = [placed];
    while (stack.length) {
      for (const box of stack.pop().children || []) {
        const n = Number(box.id.slice(1));
        if (box.id[0] === "n") boxes.set(n, box);
        else Object.assign(chips[n], { x: box.x, y: box.y, width: box.width, height: box.height });
        stack.push(box);
      }
    }
    const all = [...lines, ...chips.map((chip) => ({ ...chip, count: 1 }))];
    const edges = placed.edges.map((edge, n) => ({ ...all[n], points: pointsOf(edge) }));
    return { boxes, chips, edges, width: placed.width, height: placed.height };
  }

  options(visible) {
    const size = visible.nodes.length + visible.edges.length;
    return { ...SPACING, "elk.layered.thoroughness": size > 400 ? "2" : "7" };
  }

  box(node) {
    const { model } = this;
    const [first, second] = boxTexts(model, node);
    const letters = Math.max(first.length + (node < model.count ? 0 : 3), second.length * 0.86);
    const width = Math.max(64, 22 + CHARACTER * letters);
    if (model.isGroup(node) && model.isOpen(node)) {
      return {
        id: `n${node}`,
        children: [],
        layoutOptions: {
          "elk.padding": GROUP_PADDING,
          "elk.nodeSize.constraints": "MINIMUM_SIZE",
          "elk.nodeSize.minimum": `(${width + 20},${HEADER + 20})`,
        },
      };
    }
    return { id: `n${node}`, width, height: BOX, children: [] };
  }
}

/** A curve from one box to another, from side to side in a row, else from the edges that face each other. */
function bent(from, to) {
  const middle = (box) => box.x + box.width / 2, centre = (box) => box.y + box.height / 2;
  if (Math.abs(from.y - to.y) < from.height / 2) {
    const [start, end] = from.x < to.x ? [from.x + from.width, to.x] : [from.x, to.x + to.width];
    return `M${start} ${centre(from)}L${end} ${centre(to)}`;
  }
  const below = to.y > from.y;
  const y1 = below ? from.y + from.height : from.y, y2 = below ? to.y : to.y + to.height, half = (y1 + y2) / 2;
  return `M${middle(from)} ${y1}C${middle(from)} ${half} ${middle(to)} ${half} ${middle(to)} ${y2}`;
}

function pointsOf(edge) {
  return (edge.sections || []).map((s) => [s.startPoint, ...(s.bendPoints || []), s.endPoint]);
}

/** The text of gzipped data in base 64. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
