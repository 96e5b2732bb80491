"use strict";
/* The graph of a report, and the part of it that is visible while groups are folded.

   Nodes are numbered: first the operations, then the groups, then for each group what was made for its gradient.
   An operation that runs bodies is the head of a group of its own, and stands for it: its node is the group's.

   Operations that were made for a gradient are in no group. Each lies beside the forward operation that it was
   made for; if that is in a folded group, all that was made for the group is one node.

   Marks of operations, each a letter: l live, p partly (gradients pass, and paths end here), c cut, s severed
   (leads on through cuts only), h hidden behind cuts, i idle stop, a aside, g made for a gradient. */

const MARK_NAMES = {
  l: "live", p: "partly", c: "cut", s: "severed", h: "hidden", i: "idle", a: "aside", g: "gradient",
};
const MARK_TEXTS = {
  l: "a gradient passes", p: "a gradient passes, and paths end here", c: "paths end here",
  s: "leads to the tensors asked about through cuts only", h: "hidden behind a cut",
  i: "a stop that does nothing", a: "leads to none of the tensors asked about", g: "made for a gradient",
};
/** The mark that colours a folded group: the first of these among its members. */
const SUMMARY = "lpcshiag";
/** The style of several edges that are drawn as one: the first of these among them. */
const EDGE_KINDS = ["live", "severed", "gradient", "hidden", "use", "aside"];

/** A map from first numbers to all their second ones, made of a flat list of pairs. */
function pairs(list) {
  const found = new Map();
  for (let n = 0; n < list.length; n += 2) {
    if (!found.has(list[n])) found.set(list[n], []);
    found.get(list[n]).push(list[n + 1]);
  }
  return found;
}

class Model {
  constructor(data) {
    const columns = data.operations;
    this.data = data;
    this.count = columns.type.length;
    this.forward = this.count - columns.origin.length;
    this.groups = data.groups.kind.length;
    this.marks = columns.mark;
    this.shown = { gradient: false, constants: false };
    this.open = new Uint8Array(this.groups);
    this.readNodes(columns, data.groups, data.order);
    this.readEdges(columns);
    this.readLines(pairs(data.into), pairs(data.out), new Set(data.closed));
    this.readGradients(columns.origin);
    this.readPlaces();
    this.summarise();
  }

  // ---------------------------------------------------------------------------------------- reading

  readNodes(columns, groups, order) {
    const head = new Int32Array(this.count).fill(-1);
    groups.op.forEach((op, g) => { if (op >= 0) head[op] = g; });
    this.head = head;
    this.parent = new Int32Array(this.count + 2 * this.groups).fill(-1);
    columns.group.forEach((g, op) => { this.parent[op] = g < 0 ? -1 : this.count + g; });
    groups.parent.forEach((g, n) => { this.parent[this.count + n] = g < 0 ? -1 : this.count + g; });
    this.members = [];
    let at = 0;
    const next = () => {
      const length = order[at];
      const found = order.slice(at + 1, at + 1 + length);
      at += length + 1;
      return found.map((m) => (m < 0 ? this.count - 1 - m : m));
    };
    this.top = next();
    for (let g = 0; g < this.groups; g++) this.members.push(next());
    const constant = this.data.types.indexOf("Const");
    this.constant = Uint8Array.from(columns.type, (type) => (type === constant ? 1 : 0));
    this.hasConstants = this.constant.includes(1);
  }

  readEdges(columns) {
    const total = columns.inputs.length;
    this.edgeFrom = new Int32Array(total);
    this.edgeTo = new Int32Array(total);
    this.firstEdge = new Int32Array(this.count + 1);
    let edge = 0;
    for (let op = 0; op < this.count; op++) {
      this.firstEdge[op] = edge;
      for (let i = columns.count[op]; i > 0; i--, edge++) {
        this.edgeTo[edge] = op;
        this.edgeFrom[edge] = op - columns.inputs[edge];
      }
    }
    this.firstEdge[this.count] = edge;
  }

  /** The drawn edges: at an operation with bodies they continue to parameters, and begin at results. */
  readLines(into, out, closed) {
    const from = [], to = [], edges = [], kinds = [];
    for (let edge = 0; edge < this.edgeFrom.length; edge++) {
      for (const source of out.get(edge) || [this.edgeFrom[edge]]) {
        for (const target of into.get(edge) || [this.edgeTo[edge]]) {
          from.push(source);
          to.push(target);
          edges.push(edge);
          kinds.push(this.kindOfEdge(source, target, closed.has(edge)));
        }
      }
    }
    this.drawn = {
      from: Int32Array.from(from), to: Int32Array.from(to), edge: Int32Array.from(edges), kind: Uint8Array.from(kinds),
    };
  }

  kindOfEdge(from, to, closed) {
    const source = this.marks[from], target = this.marks[to];
    const is = (mark, letters) => letters.includes(mark);
    let kind = "aside";
    if (target === "g") kind = source === "g" ? "gradient" : "use";
    else if (is(source, "lp") && is(target, "lpc")) kind = closed ? "severed" : "live";
    else if (is(source, "cs") && is(target, "lps")) kind = "severed";
    else if (is(source, "hcs") && is(target, "hcps")) kind = "hidden";
    else if (source === "l" && target === "h") kind = "hidden";
    return EDGE_KINDS.indexOf(kind);
  }

  /** For each operation, those that were made for its gradient. */
  readGradients(origins) {
    this.origin = new Int32Array(this.count).fill(-1);
    this.made = new Map();
    origins.forEach((op, n) => {
      this.origin[this.forward + n] = op;
      if (op < 0) return;
      if (!this.made.has(op)) this.made.set(op, []);
      this.made.get(op).push(this.forward + n);
    });
  }

  /** For each line of each file, its operations. */
  readPlaces() {
    this.lines = this.data.files.map(() => new Map());
    const places = this.data.places;
    this.data.operations.place.forEach((place, op) => {
      if (place < 0) return;
      const [file, line] = places[place];
      const lines = this.lines[file];
      if (!lines.has(line)) lines.set(line, []);
      lines.get(line).push(op);
    });
  }

  /** For each group, the number of operations of each mark, of those made for it, and the first and last line. */
  summarise() {
    const places = this.data.places;
    this.tally = Array.from(
      { length: this.groups }, () => ({ size: 0, hiddenSize: 0, gradient: 0, marks: {}, spans: new Map() }));
    const add = (into, file, first, last, count) => {
      const span = into.spans.get(file);
      if (!span) into.spans.set(file, [first, last, count]);
      else into.spans.set(file, [Math.min(span[0], first), Math.max(span[1], last), span[2] + count]);
    };
    for (let op = 0; op < this.count; op++) {
      const g = this.data.operations.group[op < this.forward ? op : this.origin[op]];
      if (g < 0) continue;
      const tally = this.tally[g];
      if (op >= this.forward) {
        if (!this.constant[op]) tally.gradient++;
        continue;
      }
      tally.size++;
      if (this.constant[op]) tally.hiddenSize++;
      tally.marks[this.marks[op]] = (tally.marks[this.marks[op]] || 0) + 1;
      const place = this.data.operations.place[op];
      const isLeaf = this.firstEdge[op] === this.firstEdge[op + 1]; // It is often made elsewhere.
      if (place >= 0 && !isLeaf) add(tally, places[place][0], places[place][1], places[place][1], 1);
    }
    for (let g = this.groups - 1; g >= 0; g--) {
      const parent = this.data.groups.parent[g];
      if (parent < 0) continue;
      const from = this.tally[g], into = this.tally[parent];
      into.size += from.size;
      into.hiddenSize += from.hiddenSize;
      into.gradient += from.gradient;
      for (const mark in from.marks) into.marks[mark] = (into.marks[mark] || 0) + from.marks[mark];
      for (const [file, [first, last, count]] of from.spans) add(into, file, first, last, count);
    }
  }

  // --------------------------------------------------------------------------------------- describing

  isGroup(node) { return node >= this.count && !this.isBeside(node); }
  /** Whether a node stands for all that was made for the gradient of a group. */
  isBeside(node) { return node >= this.count + this.groups; }
  /** The group for whose gradient a node stands; else the node itself. */
  forwardOf(node) { return this.isBeside(node) ? node - this.groups : node; }
  isGradient(node) { return this.isBeside(node) || (node >= this.forward && node < this.count); }
  /** The operation of a node, or of a group for its bodies; -1 for others. */
  operationOf(node) {
    if (node < this.count) return node;
    return this.isBeside(node) ? -1 : this.data.groups.op[node - this.count];
  }
  nodeOf(op) { return this.head[op] < 0 ? op : this.count + this.head[op]; }
  type(op) { return this.data.types[this.data.operations.type[op]]; }
  shape(op) { return this.data.shapes[this.data.operations.shape[op]]; }
  place(op) { return this.data.places[this.data.operations.place[op]]; }

  lastName(op) {
    const name = this.data.operations.name[op];
    return typeof name === "string" ? name : name === 0 ? this.type(op) : `${this.type(op)}_${name}`;
  }

  name(op) {
    const prefix = this.data.prefixes[this.data.operations.prefix[op]];
    return prefix ? `${prefix}/${this.lastName(op)}` : this.lastName(op);
  }

  /** The name of an operation in its box: the one that somebody gave it, else its type. */
  title(op) { return typeof this.data.operations.name[op] === "string" ? this.lastName(op) : this.type(op); }

  placeText(op) {
    const place = this.place(op);
    return place ? this.lineText(this.fileName(place[0]), place) : "";
  }

  /** A line, in a file of this name or in a cell of a notebook. */
  lineText(name, [file, line]) { return `${name}${this.data.files[file].cell ? ", line " : ":"}${line}`; }

  fileName(file) { return this.data.files[file].name; }
  baseName(file) { return this.fileName(file).split("/").pop(); }

  groupTitle(node) {
    const g = node - this.count, kind = this.data.groups.kind[g];
    if (kind === "op") return this.title(this.data.groups.op[g]);
    if (kind !== "block") return `${this.data.groups.label[g]}${kind === "call" ? this.ordinal(node) : ""}`;
    const spans = [...this.tally[g].spans].sort((a, b) => b[1][2] - a[1][2]);
    if (!spans.length) return "operations";
    const [file, [first, last]] = spans[0];
    const more = spans.length > 1 ? ", …" : "";
    const lines = this.lineText(this.baseName(file), [file, first]);
    return `${lines}${last > first ? `–${last}` : ""}${more}${this.ordinal(node)}`;
  }

  /** The number of a block among those beside it, or of a call among those of the same function. */
  ordinal(node) {
    const { kind, label } = this.data.groups, g = node - this.count;
    const siblings = this.siblings(node).filter((m) => this.isGroup(m)
      && kind[m - this.count] === kind[g] && label[m - this.count] === label[g]);
    return siblings.length > 1 ? ` · ${siblings.indexOf(node) + 1}/${siblings.length}` : "";
  }

  siblings(node) { return this.parent[node] < 0 ? this.top : this.members[this.parent[node] - this.count]; }

  size(node) {
    const tally = this.tally[node - this.count];
    return tally.size - (this.shown.constants ? 0 : tally.hiddenSize);
  }

  groupMark(node) {
    const marks = this.tally[node - this.count].marks;
    return [...SUMMARY].find((mark) => marks[mark]) || "a";
  }

  /** The number of cuts and idle stops in a group. */
  trouble(node) {
    const marks = this.tally[node - this.count].marks;
    return { cuts: (marks.c || 0) + (marks.p || 0), idle: marks.i || 0 };
  }

  mark(node) {
    if (this.isBeside(node)) return "g";
    const op = this.operationOf(node);
    return op < 0 ? this.groupMark(node) : this.marks[op];
  }

  /** The mark of an operation itself: if it runs bodies, operations in these cut. */
  ownMark(op) {
    const mark = this.marks[op];
    return this.head[op] < 0 ? mark : { p: "l", c: "s" }[mark] || mark;
  }

  /** The operations inside a group. */
  operationsIn(node) {
    const inside = new Uint8Array(this.groups), found = [];
    for (let g = 0; g < this.groups; g++) {
      const parent = this.data.groups.parent[g];
      inside[g] = g === node - this.count || (parent >= 0 && inside[parent]) ? 1 : 0;
    }
    this.data.operations.group.forEach((g, op) => { if (g >= 0 && inside[g]) found.push(op); });
    return found;
  }

  inputs(op) { return [...new Set(this.edgeFrom.subarray(this.firstEdge[op], this.firstEdge[op + 1]))]; }

  users(op) {
    const found = [];
    for (let edge = 0; edge < this.edgeFrom.length; edge++) {
      if (this.edgeFrom[edge] === op && found[found.length - 1] !== this.edgeTo[edge]) found.push(this.edgeTo[edge]);
    }
    return found;
  }

  // ------------------------------------------------------------------------------------------- folding

  isShown(op) { return (op < this.forward || this.shown.gradient) && (!this.constant[op] || this.shown.constants); }

  /** Show what a switch hides, so that an operation is visible. */
  admit(op) {
    if (op >= this.forward) this.shown.gradient = true;
    if (this.constant[op]) this.shown.constants = true;
  }

  isOpen(node) { return this.open[node - this.count] === 1; }
  toggle(node) { this.open[node - this.count] ^= 1; }

  ancestors(op) {
    const found = [];
    const node = this.nodeOf(op < this.forward ? op : this.origin[op]);
    for (let p = op < this.forward ? this.parent[node] : node; p >= 0; p = this.parent[p]) {
      if (this.isGroup(p)) found.push(p);
    }
    return found.reverse();
  }

  /** Open groups until operations are visible: the first in any case, others while there are few boxes. */
  reveal(ops, limit) {
    let boxes = this.visible().nodes.length;
    ops.forEach((op, n) => {
      const closed = this.ancestors(op).filter((g) => !this.isOpen(g));
      const more = closed.reduce((sum, g) => sum + this.members[g - this.count].length, 0);
      if (n > 0 && boxes + more > limit) return;
      for (const g of closed) this.open[g - this.count] = 1;
      boxes += more;
    });
  }

  /** The visible node of each operation, -1 for none. */
  representatives() {
    const folded = new Int32Array(this.groups);
    const parents = this.data.groups.parent;
    for (let g = 0; g < this.groups; g++) {
      const p = parents[g];
      folded[g] = p >= 0 && folded[p] >= 0 ? folded[p] : this.open[g] ? -1 : g;
    }
    const seen = new Int32Array(this.count);
    const groups = this.data.operations.group;
    for (let op = 0; op < this.count; op++) {
      const g = groups[op < this.forward ? op : this.origin[op]];
      if (!this.isShown(op)) seen[op] = -1;
      else if (g >= 0 && folded[g] >= 0) seen[op] = this.count + folded[g] + (op < this.forward ? 0 : this.groups);
      else seen[op] = g >= 0 && this.head[op] === g ? this.count + g : op;
    }
    return seen;
  }

  /** The visible nodes, outer before inner and otherwise in order, and the edges between them; of what was made for
      the gradient, each node with the forward node that it lies beside. */
  visible() {
    const seen = this.representatives();
    const present = new Uint8Array(this.count + 2 * this.groups);
    for (let op = 0; op < this.count; op++) if (seen[op] >= 0) present[seen[op]] = 1;
    const nodes = [];
    const stack = [...this.top].reverse();
    while (stack.length) {
      const node = stack.pop();
      if (!this.isGroup(node) || !this.isOpen(node)) {
        if (present[node]) nodes.push(node);
      } else if (this.hasShown(node)) {
        nodes.push(node);
        stack.push(...[...this.members[node - this.count]].reverse());
      }
    }
    const beside = new Map();
    for (let op = this.forward; op < this.count; op++) {
      if (seen[op] >= 0) beside.set(seen[op], seen[op] < this.count ? this.nodeOf(this.origin[op]) : this.forwardOf(seen[op]));
    }
    const all = this.visibleEdges(seen);
    const edges = all.filter((edge) => !this.isGradient(edge.to));
    return { nodes, edges, seen, beside, across: all.filter((edge) => this.isGradient(edge.to)) };
  }

  hasShown(node) {
    return this.size(node) > 0;
  }

  visibleEdges(seen) {
    const edges = new Map(), span = this.count + 2 * this.groups, { drawn } = this;
    for (let n = 0; n < drawn.from.length; n++) {
      const from = seen[drawn.from[n]], to = seen[drawn.to[n]];
      if (from < 0 || to < 0 || from === to) continue;
      const key = from * span + to;
      const edge = edges.get(key);
      if (!edge) edges.set(key, { from, to, count: 1, kind: drawn.kind[n], last: drawn.edge[n] });
      else {
        if (edge.last !== drawn.edge[n]) edge.count++;
        edge.last = drawn.edge[n];
        edge.kind = Math.min(edge.kind, drawn.kind[n]);
      }
    }
    return [...edges.values()];
  }

  // ------------------------------------------------------------------------------------------ searching

  /** Operations whose name, type or file:line contains a text, and the number of all matches. */
  search(text, limit) {
    const wanted = text.trim().toLowerCase();
    const found = [];
    if (!wanted) return { found, total: 0 };
    const types = this.data.types.map((type) => type.toLowerCase().includes(wanted));
    const places = this.data.places.map(
      ([file, line]) => `${this.fileName(file)}:${line}`.toLowerCase().includes(wanted));
    const columns = this.data.operations;
    let total = 0;
    for (let op = 0; op < this.count; op++) {
      const place = columns.place[op];
      if (types[columns.type[op]] || (place >= 0 && places[place]) || this.name(op).toLowerCase().includes(wanted)) {
        total++;
        if (found.length < limit) found.push(op);
      }
    }
    return { found, total };
  }
}
