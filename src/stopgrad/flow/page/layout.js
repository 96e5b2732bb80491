"use strict";
/* Where boxes and edges go: asked of the Eclipse Layout Kernel, which runs in a worker where there can be one. */

const CHARACTER = 7.3, LINE = 16, BOX = 40, HEADER = 30;
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
  "elk.layered.considerModelOrder.strategy": "PREFER_EDGES",
  "elk.padding": "[top=16,left=16,bottom=16,right=16]",
};
const GROUP_PADDING = `[top=${HEADER + 14},left=14,bottom=14,right=14]`;

function shorten(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

/** The two lines of a box. */
function boxTexts(model, node) {
  if (!model.isGroup(node)) return [shorten(model.title(node), 30), shorten(model.shape(node), 34)];
  const { cuts, idle } = model.trouble(node);
  const parts = [`${model.size(node).toLocaleString("en")} ops`];
  if (cuts) parts.push(`${cuts.toLocaleString("en")} ${cuts === 1 ? "cut" : "cuts"}`);
  if (idle) parts.push(`${idle.toLocaleString("en")} idle`);
  return [shorten(model.groupTitle(node), 40), parts.join(" · ")];
}

class Layout {
  constructor(model) {
    this.model = model;
    this.engine = null;
    this.url = null;
  }

  async start() {
    const code = await unpacked(document.getElementById("layout-engine").textContent);
    this.engine = new ELK({ workerFactory: () => this.worker(code) });
  }

  worker(code) {
    try {
      this.url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
      return new Worker(this.url);
    } catch (error) {
      // Not every browser allows one in a page that is a file: then it computes here.
      const module = { exports: {} };
      new Function("module", "exports", code)(module, module.exports);
      return new module.exports.Worker();
    }
  }

  /** Boxes, as a map from nodes to x, y, width and height, and edges with their points. */
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
    visible.edges.forEach((edge, n) => {
      root.edges.push({ id: `e${n}`, sources: [`n${edge.from}`], targets: [`n${edge.to}`] });
    });
    const placed = await this.engine.layout(root);
    const found = new Map();
    const stack = [placed];
    while (stack.length) {
      for (const box of stack.pop().children || []) {
        found.set(Number(box.id.slice(1)), box);
        stack.push(box);
      }
    }
    const edges = placed.edges.map((edge, n) => ({ ...visible.edges[n], points: pointsOf(edge) }));
    return { boxes: found, edges, width: placed.width, height: placed.height };
  }

  options(visible) {
    const size = visible.nodes.length + visible.edges.length;
    return { ...SPACING, "elk.layered.thoroughness": size > 400 ? "2" : "7" };
  }

  box(node) {
    const { model } = this;
    const [first, second] = boxTexts(model, node);
    const width = Math.max(64, 22 + CHARACTER * Math.max(first.length + (model.isGroup(node) ? 3 : 0), second.length * 0.88));
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

function pointsOf(edge) {
  return (edge.sections || []).map((s) => [s.startPoint, ...(s.bendPoints || []), s.endPoint]);
}

/** Text that was packed with gzip, in base 64. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
