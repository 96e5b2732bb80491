"use strict";
/* The source beside the graph: files, their lines, and marks in them. */

const CHUNK = 50;

/** An element with a class, a text and further elements. Users' text is only ever inserted as text. */
function element(name, className = "", text = null, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

/** A column in characters, converted to UTF-16 units, which JavaScript counts. */
function units(text, column) {
  if (column >= text.length) return text.length;
  return Array.from(text).slice(0, column).join("").length;
}

class SourcePanel {
  /** `choose(file, line)` is called when a line that has operations is clicked. */
  constructor(model, root, choice, choose) {
    this.model = model;
    this.root = root;
    this.choice = choice;
    this.choose = choose;
    this.file = -1;
    this.lines = new Map();
    this.marked = [];
    model.data.files.forEach((file, n) => {
      const option = element("option", "", file.name);
      option.value = n;
      choice.append(option);
    });
    choice.hidden = model.data.files.length < 2;
    choice.addEventListener("change", () => this.open(Number(choice.value)));
    root.addEventListener("click", (event) => this.act(event.target));
    root.addEventListener("keydown", (event) => this.key(event));
    this.cuts = this.spansOfCuts();
  }

  /** The expressions that cut, or that do nothing, by file and line. */
  spansOfCuts() {
    const found = this.model.data.files.map(() => new Map());
    const add = (number, className) => {
      const place = this.model.data.places[number];
      if (!place) return;
      for (const [line, from, to] of this.spans(place)) {
        if (!found[place[0]].has(line)) found[place[0]].set(line, []);
        found[place[0]].get(line).push([from, to, className]);
      }
    };
    for (const cut of this.model.data.cuts) add(cut.place, "cut");
    for (const place of this.model.data.idle) add(place, "idle");
    return found;
  }

  /** The lines of a place, each with its first and last character. */
  spans([, line, last, start, end]) {
    const found = [];
    for (let n = line; n <= last && n < line + 200; n++) {
      found.push([n, n === line && start >= 0 ? start : 0, n === last && end >= 0 ? end : Infinity]);
    }
    return found;
  }

  open(file) {
    if (file === this.file || file < 0) return;
    this.file = file;
    this.choice.value = file;
    this.lines = new Map();
    this.marked = [];
    const chunks = [];
    for (const [first, text] of this.model.data.files[file].parts) {
      if (chunks.length) chunks.push(element("div", "gap", "⋯"));
      const lines = text.split("\n");
      for (let n = 0; n < lines.length; n += CHUNK) {
        const chunk = element("div", "chunk");
        const part = lines.slice(n, n + CHUNK);
        chunk.style.containIntrinsicSize = `auto ${part.length * 20}px`;
        chunk.append(...part.map((line, i) => this.line(first + n + i, line)));
        chunks.push(chunk);
      }
    }
    if (!chunks.length) chunks.push(element("p", "empty", "The file could not be read when this page was made."));
    this.root.replaceChildren(...chunks);
    const focusable = this.root.querySelector(".line.linked-line");
    if (focusable) focusable.tabIndex = 0;
  }

  /** Open the file of a place, and scroll to it. */
  show(place) {
    if (!place) return;
    this.open(place[0]);
    this.scrollTo(place[1]);
  }

  /** Scroll the source, and nothing around it, to a line. */
  scrollTo(line) {
    const found = this.lines.get(line)?.made;
    if (!found) return;
    const at = found.getBoundingClientRect().top - this.root.getBoundingClientRect().top;
    this.root.scrollTop += at - this.root.clientHeight / 2;
  }

  line(number, text) {
    const made = element("div", "line");
    made.dataset.line = number;
    const ops = this.model.lines[this.file].get(number);
    const sign = element("span", "sign");
    if (ops) {
      const marks = new Set(ops.map((op) => this.model.ownMark(op)));
      sign.classList.add(MARK_NAMES[[...SUMMARY].find((mark) => marks.has(mark))]);
      if (marks.has("c") || marks.has("p")) sign.classList.add("has-cut");
      made.classList.add("linked-line");
      made.tabIndex = -1;
      made.setAttribute("role", "button");
      made.setAttribute("aria-label", `line ${number}, ${plural(ops.length, "operation")}: ${text.trim()}`);
    }
    made.append(element("span", "number", String(number)), sign, this.code(text, this.cuts[this.file].get(number) || []));
    this.lines.set(number, { made, text });
    return made;
  }

  /** A line's text, with parts underlined. */
  code(text, spans) {
    const made = element("code");
    const indent = text.length - text.trimStart().length;
    const cuts = spans.map(([from, to, name]) => [Math.max(units(text, from), indent), units(text, to), name]);
    const borders = [...new Set([0, text.length, ...cuts.flatMap(([from, to]) => [from, to])])];
    borders.sort((a, b) => a - b);
    for (let n = 0; n + 1 < borders.length; n++) {
      const names = cuts.filter(([from, to]) => from <= borders[n] && to >= borders[n + 1]).map((span) => span[2]);
      const part = text.slice(borders[n], borders[n + 1]);
      made.append(names.length ? element("span", `under ${[...new Set(names)].join(" ")}`, part) : part);
    }
    return made;
  }

  /** Mark places, and scroll to the first one. */
  mark(places, scroll = true) {
    for (const { made, text, number } of this.marked) {
      made.classList.remove("marked");
      made.querySelector("code").replaceWith(this.code(text, this.cuts[this.file].get(number) || []));
    }
    this.marked = [];
    if (!places.length) return;
    this.open(places[0][0]);
    const spans = new Map();
    for (const place of places) {
      if (place[0] !== this.file) continue;
      for (const [line, from, to] of this.spans(place)) {
        if (!spans.has(line)) spans.set(line, []);
        spans.get(line).push([from, to, "chosen"]);
      }
    }
    for (const [number, found] of spans) {
      const line = this.lines.get(number);
      if (!line) continue;
      line.made.classList.add("marked");
      const all = [...found, ...(this.cuts[this.file].get(number) || [])];
      line.made.querySelector("code").replaceWith(this.code(line.text, all));
      this.marked.push({ ...line, number });
    }
    if (scroll) this.scrollTo(places[0][1]);
  }

  act(target) {
    const line = target.closest(".linked-line");
    if (line) this.choose(this.file, Number(line.dataset.line));
  }

  key(event) {
    const line = event.target.closest(".linked-line");
    if (!line) return;
    if (event.key === "Enter" || event.key === " ") this.act(line);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const all = [...this.root.querySelectorAll(".linked-line")];
      const next = all[all.indexOf(line) + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) {
        line.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    } else return;
    event.preventDefault();
  }
}
