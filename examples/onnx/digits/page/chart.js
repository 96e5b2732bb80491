// A curve over steps: the mean of what falls into each column of pixels, and from the least to the most of it.

const LEFT = 44, RIGHT = 8, TOP = 6, BOTTOM = 18;

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Round steps between two numbers, at most about so many. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + 1e-9; t += step) found.push(t);
  return found;
}

export class Chart {
  /** @param scale "log", or the range [low, high] of a linear one. */
  constructor(svg, { scale, name, shown, kind = "" }) {
    Object.assign(this, { svg, scale, name, shown, kind });
    new ResizeObserver(() => this.draw()).observe(svg);
    this.clear();
  }

  clear() {
    this.points = [];
    this.draw();
  }

  add(step, value) {
    this.points.push([step, value]);
  }

  columns(x, width) {
    const columns = new Map();
    for (const [step, value] of this.points) {
      const at = Math.round(x(step) * 2) / 2;
      const c = columns.get(at) ?? { x: at, low: Infinity, high: -Infinity, sum: 0, count: 0 };
      Object.assign(c, {
        low: Math.min(c.low, value), high: Math.max(c.high, value), sum: c.sum + value, count: c.count + 1,
      });
      columns.set(at, c);
    }
    return [...columns.values()];
  }

  range() {
    if (this.scale !== "log") return this.scale;
    const values = this.points.map(([, value]) => value).filter((v) => v > 0 && isFinite(v));
    if (!values.length) return [0.01, 10];
    const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.0001))];
  }

  draw() {
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!width) return;
    const log = this.scale === "log", place = log ? Math.log10 : (v) => v;
    const [low, high] = this.range(), last = Math.max(10, this.points.at(-1)?.[0] ?? 0);
    const x = (step) => LEFT + ((width - LEFT - RIGHT) * step) / last;
    const y = (value) => {
      const at = (place(Math.max(value, log ? low : value)) - place(low)) / (place(high) - place(low));
      return height - BOTTOM - (height - TOP - BOTTOM) * at;
    };
    const parts = [];
    const marks = log ? ticks(place(low), place(high), 4).filter(Number.isInteger).map((e) => 10 ** e) : ticks(low, high, 4);
    for (const v of marks) {
      parts.push(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }));
      parts.push(element("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, this.shown(v)));
    }
    for (const step of ticks(0, last, Math.max(2, width / 110))) {
      const anchor = x(step) > width - 24 ? "end" : "middle";
      parts.push(element("text", { x: x(step), y: height - 4, "text-anchor": anchor }, step));
    }
    const columns = this.columns(x, width).filter((c) => isFinite(c.sum));
    if (columns.length) {
      const line = (value, from = columns) => from.map((c) => `${c.x.toFixed(1)},${y(value(c)).toFixed(1)}`).join("L");
      const band = `M${line((c) => c.high)}L${line((c) => c.low, [...columns].reverse())}Z`;
      parts.push(element("path", { class: "band", d: band }));
      parts.push(element("path", { class: `curve ${this.kind}`, d: `M${line((c) => c.sum / c.count)}` }));
      const [step, value] = this.points.at(-1);
      this.svg.setAttribute("aria-label", `${this.name}: ${this.shown(value)} after ${step} steps`);
    }
    this.svg.replaceChildren(...parts);
  }
}
