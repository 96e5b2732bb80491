// A pad to draw a digit on, and the digit as the network knows them.

const SIZE = 512, PEN = 56, FINE = 32, CELLS = 8;

/** Paint a digit of 8 by 8 numbers from 0 to 1 in a canvas's own colour. */
export function paint(canvas, digit) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, CELLS, CELLS);
  context.fillStyle = getComputedStyle(canvas).color;
  digit.forEach((value, i) => {
    context.globalAlpha = value;
    context.fillRect(i % CELLS, Math.floor(i / CELLS), 1, 1);
  });
}

export class Pad {
  /** @param changed called when something was drawn or cleared. */
  constructor(canvas, changed) {
    Object.assign(this, { canvas, changed, strokes: [], down: null, pen: [SIZE / 2, SIZE / 4], drawing: false });
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.down = event.pointerId;
      this.strokes.push([this.place(event)]);
      this.draw();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.down !== event.pointerId) return;
      this.strokes.at(-1).push(this.place(event));
      this.draw();
    });
    for (const end of ["pointerup", "pointercancel"])
      canvas.addEventListener(end, () => { if (this.down !== null) { this.down = null; this.changed(); } });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => this.draw());
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * SIZE, ((event.clientY - box.top) / box.height) * SIZE];
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (moves[event.key]) {
      this.pen = this.pen.map((p, i) => Math.min(SIZE, Math.max(0, p + 16 * moves[event.key][i])));
      if (this.drawing) { this.strokes.at(-1).push([...this.pen]); this.changed(); }
    } else if (event.key === " ") {
      this.drawing = !this.drawing;
      if (this.drawing) { this.strokes.push([[...this.pen]]); this.changed(); }
    } else if (event.key === "Delete" || event.key === "Backspace") this.clear();
    else return;
    event.preventDefault();
    this.draw();
  }

  clear() {
    Object.assign(this, { strokes: [], drawing: false });
    this.draw();
    this.changed();
  }

  /** The strokes again, in the colours of now; what is inked can be read off the opacity. */
  draw() {
    const { context } = this;
    this.ink();
    if (document.activeElement === this.canvas && this.down === null && this.canvas.matches(":focus-visible")) {
      context.lineWidth = 3;
      context.beginPath();
      context.arc(...this.pen, this.drawing ? PEN / 2 : PEN / 4, 0, 7);
      context.strokeStyle = getComputedStyle(this.canvas).outlineColor;
      context.stroke();
    }
  }

  ink() {
    const { context } = this;
    context.clearRect(0, 0, SIZE, SIZE);
    context.strokeStyle = getComputedStyle(this.canvas).color;
    Object.assign(context, { lineWidth: PEN, lineCap: "round", lineJoin: "round" });
    for (const stroke of this.strokes) {
      context.beginPath();
      context.moveTo(stroke[0][0], stroke[0][1] + 0.1); // A canvas draws nothing from a point to itself.
      for (const point of stroke) context.lineTo(...point);
      context.stroke();
    }
  }

  /** The drawn digit as 64 numbers from 0 to 1, or null where nothing is drawn.
   *
   * As the digits of the data set were made: what is inked is brought to 32 points of height, and of each 4 by 4
   * points those are counted that are inked.
   */
  digit() {
    this.ink();
    const { data } = this.context.getImageData(0, 0, SIZE, SIZE);
    this.draw();
    let [left, top, right, bottom] = [SIZE, SIZE, -1, -1];
    for (let i = 0; i < SIZE * SIZE; i++)
      if (data[4 * i + 3] > 127) {
        const x = i % SIZE, y = Math.floor(i / SIZE);
        left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
      }
    if (right < 0) return null;
    const step = Math.max(bottom + 1 - top, ((right + 1 - left) * FINE) / 28) / FINE;
    const x0 = (left + right + 1 - FINE * step) / 2, y0 = (top + bottom + 1 - FINE * step) / 2;
    const digit = new Float32Array(CELLS * CELLS);
    for (let row = 0; row < FINE; row++)
      for (let column = 0; column < FINE; column++) {
        const x = Math.floor(x0 + (column + 0.5) * step), y = Math.floor(y0 + (row + 0.5) * step);
        const inside = x >= 0 && x < SIZE && y >= 0 && y < SIZE;
        if (inside && data[4 * (y * SIZE + x) + 3] > 127)
          digit[CELLS * Math.floor(row / 4) + Math.floor(column / 4)] += 1 / 16;
      }
    return digit;
  }
}
