// A curve over steps: means, and from the least to the most, of as many values as make a few hundred places. However long
// it is, so much is kept and drawn.

const LEFT = 44, RIGHT = 8, TOP = 6, BOTTOM = 18;
const KEPT = 800;

/** Neighbouring values as one. */
const together = (a, b) => ({
  steps: a.steps + b.steps, sum: a.sum + b.sum, count: a.count + b.count,
  low: Math.min(a.low, b.low), high: Math.max(a.high, b.high),
});

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

/** The next of 1, 2, 5, 10, 20, ... below or above a number. */
function round(value, way) {
  const power = 10 ** Math.floor(Math.log10(value)), found = [1, 2, 5, 10].map((m) => m * power);
  return way === Math.floor ? found.findLast((v) => v <= value) ?? power : found.find((v) => v >= value) ?? 10 * power;
}

/** Of 1, 2, 5, 10, ... between two numbers, as many as can be read. */
function decades(low, high) {
  const powers = Array.from({ length: Math.round(Math.log10(high / low)) + 3 }, (_, i) => 10 ** (Math.floor(Math.log10(low)) + i));
  const between = (steps) => powers.flatMap((p) => steps.map((m) => m * p)).filter((v) => v >= low * 0.999 && v <= high * 1.001);
  const fine = between([1, 2, 5]);
  return fine.length <= 8 ? fine : between([1]);
}

export class Chart {
  /** @param scale "log", or the range [low, high] of a linear one. */
  constructor(svg, { scale, name, shown, kind = "" }) {
    Object.assign(this, { svg, scale, name, shown, kind });
    new ResizeObserver(() => this.draw()).observe(svg);
    this.clear();
  }

  clear() {
    Object.assign(this, { values: [], each: 1, last: null });
    this.draw();
  }

  add(step, value) {
    this.last = { step, value };
    if (!isFinite(value)) return;
    const one = { steps: step, sum: value, count: 1, low: value, high: value };
    const { values } = this;
    if (values.length && values.at(-1).count < this.each) values.push(together(values.pop(), one));
    else values.push(one);
    if (values.length <= KEPT) return;
    this.each *= 2;
    this.values = values.flatMap((v, i) => (i % 2 ? [] : i + 1 < values.length ? [together(v, values[i + 1])] : [v]));
  }

  range() {
    if (this.scale !== "log") return this.scale;
    const above = this.values.filter((v) => v.low > 0);
    if (!above.length) return [0.01, 10];
    const low = Math.min(...above.map((v) => v.low)), high = Math.max(...above.map((v) => v.high));
    return [round(low, Math.floor), round(high * 1.0001, Math.ceil)];
  }

  draw() {
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!width) return;
    const log = this.scale === "log", place = log ? Math.log10 : (v) => v;
    const [low, high] = this.range(), last = Math.max(10, this.last?.step ?? 0);
    const x = (step) => LEFT + ((width - LEFT - RIGHT) * step) / last;
    const y = (value) => {
      const at = (place(Math.max(value, log ? low : value)) - place(low)) / (place(high) - place(low));
      return height - BOTTOM - (height - TOP - BOTTOM) * at;
    };
    const parts = [];
    const marks = log ? decades(low, high) : ticks(low, high, 4);
    for (const v of marks) {
      parts.push(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }));
      parts.push(element("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, this.shown(v)));
    }
    for (const step of ticks(0, last, Math.max(2, width / 110))) {
      const anchor = x(step) > width - 24 ? "end" : "middle";
      parts.push(element("text", { x: x(step), y: height - 4, "text-anchor": anchor }, step));
    }
    if (this.values.length) {
      const line = (value, from = this.values) =>
        from.map((v) => `${x(v.steps / v.count).toFixed(1)},${y(value(v)).toFixed(1)}`).join("L");
      const band = `M${line((v) => v.high)}L${line((v) => v.low, [...this.values].reverse())}Z`;
      parts.push(element("path", { class: "band", d: band }));
      parts.push(element("path", { class: `curve ${this.kind}`, d: `M${line((v) => v.sum / v.count)}` }));
      this.svg.setAttribute("aria-label", `${this.name}: ${this.shown(this.last.value)} after ${this.last.step} steps`);
    }
    this.svg.replaceChildren(...parts);
  }
}
