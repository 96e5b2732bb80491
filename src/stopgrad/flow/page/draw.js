"use strict";
/* The picture: boxes and edges as SVG, with panning and zooming. */

const SVG = "http://www.w3.org/2000/svg";
const SMALLEST = 0.05, LARGEST = 3;

function svg(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== null) made.textContent = text;
  return made;
}

class Picture {
  /** `act(node)` is called when a box is clicked, or Enter or Space pressed on it, `follow(node)` for a chip. */
  constructor(root, model, act, follow) {
    this.root = root;
    this.model = model;
    this.act = act;
    this.follow = follow;
    this.chips = [];
    this.view = { x: 0, y: 0, scale: 1 };
    this.boxes = new Map();
    this.elements = new Map();
    this.size = { width: 1, height: 1 };
    this.content = svg("g");
    this.root.append(this.arrows(), this.content);
    this.listen();
  }

  arrows() {
    const defs = svg("defs");
    for (const kind of EDGE_KINDS) {
      const marker = svg("marker", {
        id: `arrow-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
        orient: "auto-start-reverse", markerUnits: "userSpaceOnUse",
      });
      marker.append(svg("path", { d: "M0 0.5L8 4L0 7.5Z", class: `arrow ${kind}` }));
      defs.append(marker);
    }
    return defs;
  }

  // ------------------------------------------------------------------------------------------- drawing

  draw(layout) {
    const focused = document.activeElement?.closest?.("[data-node]")?.dataset.node;
    this.boxes = layout.boxes;
    this.size = { width: layout.width, height: layout.height };
    this.elements = new Map();
    const opened = [], lines = [], closed = [];
    for (const [node, box] of layout.boxes) {
      const isOpen = this.model.isGroup(node) && this.model.isOpen(node);
      const element = isOpen ? this.openGroup(node, box) : this.box(node, box);
      this.elements.set(node, element);
      (isOpen ? opened : closed).push([node, element]);
    }
    for (const edge of layout.edges) lines.push(...this.edge(edge));
    const labels = opened.map(([node]) => this.header(node, layout.boxes.get(node)));
    this.chips = layout.chips;
    const chips = layout.chips.map((chip, n) => this.chip(chip, n));
    if (layout.divide) labels.push(svg("text", { class: "second", x: layout.divide, y: 11 }, "made for the gradient"));
    this.content.replaceChildren(...opened.map(([, e]) => e), ...lines, ...labels, ...chips, ...closed.map(([, e]) => e));
    if (focused !== undefined) this.elements.get(Number(focused))?.focus({ preventScroll: true });
  }

  element(node, label, kind) {
    const mark = MARK_NAMES[this.model.mark(node)];
    const made = svg("g", {
      class: `node ${kind} ${mark}`, tabindex: 0, role: "button", "data-node": node, "aria-label": label,
    });
    if (this.model.isGroup(node)) made.setAttribute("aria-expanded", String(this.model.isOpen(node)));
    const op = this.model.operationOf(node);
    if (op >= 0) made.setAttribute("data-operation", this.model.name(op));
    return made;
  }

  box(node, { x, y, width, height }) {
    const { model } = this;
    const [first, second] = boxTexts(model, node);
    const isGroup = model.isGroup(node) || model.isBeside(node);
    const says = MARK_TEXTS[model.mark(node)];
    const label = isGroup ? `${first}, ${second}, folded; ${says}` : `${first}, ${second}; ${says}`;
    const made = this.element(node, label, isGroup ? "group" : "operation");
    const op = model.operationOf(node);
    const tip = op < 0 ? [label] : [`${model.type(op)} ${model.name(op)}`, model.shape(op), model.placeText(op), says];
    made.append(svg("title", {}, tip.filter(Boolean).join("\n")));
    if (isGroup) made.append(svg("rect", { class: "behind", x: x + 4, y: y + 4, width, height, rx: 7 }));
    const radius = ["cut", "partly"].includes(MARK_NAMES[model.mark(node)]) && !isGroup ? 1 : 7;
    made.append(svg("rect", { class: "face", x, y, width, height, rx: radius }));
    const cx = x + width / 2;
    made.append(svg("text", { class: "first", x: cx, y: y + 18 }, isGroup ? `+ ${first}` : first));
    made.append(svg("text", { class: "second", x: cx, y: y + 34 }, second));
    if (!isGroup && this.isRoot(op)) {
      const around = { x: x - 3, y: y - 3, width: width + 6, height: height + 6, rx: radius + 3 };
      made.append(svg("rect", { class: "root", ...around }));
    }
    return made;
  }

  /** Whether an operation is differentiated, or was asked about. */
  isRoot(op) {
    this.roots ||= new Set([...this.model.data.ys, ...this.model.data.tensors.map((tensor) => tensor.op)]);
    return this.roots.has(op);
  }

  openGroup(node, { x, y, width, height }) {
    const [first, second] = boxTexts(this.model, node);
    const made = this.element(node, `${first}, ${second}, open`, "opened");
    made.append(svg("title", {}, `${first}: ${second}`));
    made.append(svg("rect", { class: "frame", x, y, width, height, rx: 9 }));
    made.append(svg("rect", { class: "header", x, y, width, height: HEADER, rx: 9 }));
    return made;
  }

  /** The name of an open group, which is drawn above the edges. */
  header(node, { x, y }) {
    return svg("text", { class: "first title", x: x + 12, y: y + 20 }, `− ${boxTexts(this.model, node)[0]}`);
  }

  /** A chip for a long edge: the name of its source. */
  chip({ from, kind, text, x, y, width, height }, n) {
    const made = svg("g", {
      class: `chip ${EDGE_KINDS[kind]}`, "data-chip": n, role: "button", "aria-label": `from ${text}`,
    });
    made.append(svg("title", {}, `from ${boxTexts(this.model, from)[0]}`));
    made.append(svg("rect", { x, y, width, height, rx: height / 2 }));
    made.append(svg("text", { x: x + width / 2, y: y + 15 }, text));
    return made;
  }

  edge({ from, to, count, kind, points = [], path = null }) {
    const name = EDGE_KINDS[kind];
    const made = [];
    if (path) made.push(svg("path", {
      class: `edge ${name}`, d: path, "marker-end": `url(#arrow-${name})`, "data-from": from, "data-to": to,
    }));
    for (const section of points) {
      made.push(svg("path", {
        class: `edge ${name}`, d: curve(section), "marker-end": `url(#arrow-${name})`,
        "data-from": from, "data-to": to,
      }));
      if (count > 1) {
        const half = Math.floor((section.length - 1) / 2), before = section[half], after = section[half + 1];
        const at = { x: (before.x + after.x) / 2 + 4, y: (before.y + after.y) / 2 + 4 };
        made.push(svg("text", { class: "count", ...at }, `×${many(count)}`));
      }
    }
    return made;
  }

  /** Highlight the chosen boxes, and those linked to them. */
  highlight(chosen, linked) {
    for (const [node, element] of this.elements) {
      element.classList.toggle("chosen", chosen.has(node));
      element.classList.toggle("linked", linked.has(node));
    }
    for (const made of this.content.querySelectorAll(".chip")) {
      made.classList.toggle("touched", chosen.has(this.chips[Number(made.dataset.chip)].from));
    }
    for (const path of this.content.querySelectorAll(".edge")) {
      path.classList.toggle("touched", chosen.has(Number(path.dataset.from)) || chosen.has(Number(path.dataset.to)));
    }
  }

  // ----------------------------------------------------------------------------------- moving and zooming

  listen() {
    const root = this.root;
    root.addEventListener("wheel", (event) => {
      event.preventDefault();
      const step = event.deltaMode === 1 ? 16 : 1;
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * step * 0.004), event);
      else this.pan(-(event.shiftKey ? event.deltaY : event.deltaX) * step, -(event.shiftKey ? 0 : event.deltaY) * step);
    }, { passive: false });
    let last = null, moved = 0;
    root.addEventListener("pointerdown", (event) => {
      if (event.button === 0) { last = event; moved = 0; }
    });
    root.addEventListener("pointermove", (event) => {
      if (!last) return;
      moved += Math.abs(event.clientX - last.clientX) + Math.abs(event.clientY - last.clientY);
      if (moved > 4) {
        if (!root.hasPointerCapture(event.pointerId)) root.setPointerCapture(event.pointerId);
        this.pan(event.clientX - last.clientX, event.clientY - last.clientY);
        last = event;
      }
    });
    const end = () => { last = null; };
    root.addEventListener("pointerup", end);
    root.addEventListener("pointercancel", end);
    root.addEventListener("click", (event) => {
      const node = event.target.closest("[data-node]");
      const chip = event.target.closest("[data-chip]");
      if (moved <= 4 && node) this.act(Number(node.dataset.node));
      else if (moved <= 4 && chip) this.follow(this.chips[Number(chip.dataset.chip)].from);
      moved = 0;
    });
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("focusin", (event) => {
      const node = event.target.closest("[data-node]");
      if (node && !this.isInView(Number(node.dataset.node))) this.center([Number(node.dataset.node)]);
    });
  }

  key(event) {
    const node = event.target.closest?.("[data-node]");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (node && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      this.act(Number(node.dataset.node));
      return;
    }
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (event.key in moves) this.pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  apply() {
    const { x, y, scale } = this.view;
    this.content.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.apply();
  }

  zoom(factor, at = null) {
    const frame = this.root.getBoundingClientRect();
    const x = at ? at.clientX - frame.left : frame.width / 2, y = at ? at.clientY - frame.top : frame.height / 2;
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.view.scale * factor));
    const ratio = scale / this.view.scale;
    this.view = { x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio, scale };
    this.apply();
  }

  /** Fit everything into view; if that needs a scale below `smallest`, show the top. */
  fit(smallest = SMALLEST) {
    const frame = this.root.getBoundingClientRect();
    const scale = Math.max(smallest, Math.min(1.15, frame.width / this.size.width, frame.height / this.size.height));
    const x = (frame.width - this.size.width * scale) / 2;
    const y = Math.max(0, (frame.height - this.size.height * scale) / 2);
    this.view = { x, y, scale };
    this.apply();
  }

  /** Whether a layout fits into view at a scale. */
  wouldFit({ width, height }, scale) {
    const frame = this.root.getBoundingClientRect();
    return width * scale <= frame.width && height * scale <= frame.height;
  }

  isWhole() {
    const frame = this.root.getBoundingClientRect();
    return this.size.width * this.view.scale <= frame.width + 1 && this.size.height * this.view.scale <= frame.height + 1;
  }

  screen(node) {
    const box = this.boxes.get(node);
    if (!box) return null;
    const { x, y, scale } = this.view;
    return { x: x + box.x * scale, y: y + box.y * scale, width: box.width * scale, height: box.height * scale };
  }

  isInView(node) {
    const box = this.screen(node), frame = this.root.getBoundingClientRect();
    if (!box) return true;
    const right = box.x + Math.min(box.width, 80), bottom = box.y + Math.min(box.height, 40);
    return box.x >= 0 && box.y >= 0 && right <= frame.width && bottom <= frame.height;
  }

  /** Move the picture so that boxes, as many as fit, are in the middle. */
  center(nodes) {
    const found = nodes.map((node) => this.boxes.get(node)).filter(Boolean);
    if (!found.length) return;
    const frame = this.root.getBoundingClientRect(), { scale } = this.view;
    const fits = [];
    let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    for (const box of found) {
      const l = Math.min(left, box.x), r = Math.max(right, box.x + Math.min(box.width, 300));
      const t = Math.min(top, box.y), b = Math.max(bottom, box.y + Math.min(box.height, 200));
      if (fits.length && ((r - l) * scale > frame.width || (b - t) * scale > frame.height)) continue;
      [left, top, right, bottom] = [l, t, r, b];
      fits.push(box);
    }
    this.view.x = middle(frame.width, (left + right) / 2, this.size.width, scale);
    this.view.y = middle(frame.height, (top + bottom) / 2, this.size.height, scale);
    this.apply();
  }

  /** After a new layout, keep a box where it was on the screen. */
  keep(node, before) {
    const now = this.screen(node);
    if (before && now) this.pan(before.x - now.x, before.y - now.y);
  }
}

/** The offset that puts `at` into the middle of a frame, without wasting room beside the picture. */
function middle(frame, at, size, scale) {
  if (size * scale <= frame) return (frame - size * scale) / 2;
  return Math.min(0, Math.max(frame - size * scale, frame / 2 - at * scale));
}

/** A line through points with its corners rounded. */
function curve(points) {
  const at = (p) => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
  let path = `M${at(points[0])}`;
  for (let i = 1; i < points.length - 1; i++) {
    const before = towards(points[i], points[i - 1]), after = towards(points[i], points[i + 1]);
    path += `L${at(before)}Q${at(points[i])} ${at(after)}`;
  }
  return `${path}L${at(points[points.length - 1])}`;
}

/** The point a little way from a corner to another point. */
function towards(corner, point) {
  const length = Math.hypot(point.x - corner.x, point.y - corner.y) || 1;
  const part = Math.min(12, length / 2) / length;
  return { x: corner.x + (point.x - corner.x) * part, y: corner.y + (point.y - corner.y) * part };
}
