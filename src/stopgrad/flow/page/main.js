"use strict";
/* The behaviour of the page: opening, folding, choosing, searching, switching. */

/** The most boxes when the page opens, as many as fit into view; and when more are opened automatically later. */
const FIRST = [60, 30, 15, 0], LATER = 150;
/** The scales down to which texts can be read, and to which a picture is a good overview. */
const READABLE = 0.6, OVERVIEW = 0.35;

class Page {
  constructor(data, engine) {
    this.model = new Model(data);
    this.layout = new Layout(this.model, engine);
    this.picture = new Picture(
      document.getElementById("graph"), this.model, (node) => this.act(node), (node) => this.follow(node));
    this.panels = new Panels(this.model, (ops, place) => this.chooseInList(ops, place));
    this.source = new SourcePanel(
      this.model, document.getElementById("source"), document.getElementById("file"),
      (file, line) => this.chooseLine(file, line));
    this.chosen = [];
    this.waiting = null;
    this.state = document.documentElement.dataset;
  }

  async open() {
    this.controls();
    document.getElementById("summary").textContent = this.model.data.summary;
    this.source.show(this.firstPlace());
    this.legend();
    this.panels.showDetails(document.getElementById("details"), null);
    await this.openFitted();
    this.state.opened = performance.now().toFixed(1);
  }

  /** Open as many groups as leave everything in view and readable. */
  async openFitted() {
    let before = null, layout = null;
    for (const limit of FIRST) {
      this.openFirst(limit);
      if (this.folding() === before) continue;
      before = this.folding();
      layout = await this.layout.run(this.model.visible());
      if (this.picture.wouldFit(layout, READABLE)) break;
    }
    await this.draw(layout);
    this.look([]);
  }

  /** Fit everything into view if that is an overview; else show some operations, or what is differentiated. */
  look(ops) {
    this.picture.fit(OVERVIEW);
    if (this.picture.isWhole()) return;
    this.picture.fit(READABLE);
    this.picture.center(this.nodesOf(ops.length ? ops : this.model.data.ys));
  }

  /** The first cut, or else what is differentiated. */
  firstPlace() {
    const { places, cuts, ys } = this.model.data;
    return places[cuts[0]?.place] || this.model.place(ys[0]) || places[0];
  }

  /** Show the entries of the legend that occur in this graph. */
  legend() {
    for (const mark in MARK_NAMES) {
      document.querySelector(`.legend .${MARK_NAMES[mark]}`).hidden = !this.model.marks.includes(mark);
    }
  }

  /** The important operations: what is differentiated, cuts, findings, and the tensors asked about. */
  important() {
    const { cuts, findings, tensors, ys } = this.model.data;
    return [...new Set([
      ...ys, ...cuts.flatMap((cut) => cut.ops.slice(0, 20)), ...findings.flatMap((finding) => finding.ops.slice(0, 20)),
      ...tensors.map((tensor) => tensor.op),
    ])];
  }

  /** Open small graphs completely; else, while there are few boxes, open the way to what is important. */
  openFirst(limit) {
    const { model } = this;
    model.open.fill(0);
    let whole = model.groups;
    for (let op = 0; op < model.count; op++) whole += model.isShown(op) ? 1 : 0;
    if (whole <= limit) {
      model.open.fill(1);
      return;
    }
    for (let only = model.top; only.length === 1 && model.isGroup(only[0]);) {
      model.open[only[0] - model.count] = 1;
      only = model.members[only[0] - model.count];
    }
    let boxes = model.visible().nodes.length;
    for (const op of this.important().filter((op) => model.isShown(op))) {
      const folded = model.ancestors(op).filter((group) => !model.isOpen(group));
      const more = folded.reduce((sum, group) => sum + model.members[group - model.count].length, 0);
      if (boxes + more > limit) continue;
      boxes += more;
      folded.forEach((group) => model.toggle(group));
    }
  }

  // ------------------------------------------------------------------------------------------- drawing

  /** Lay out and draw what is visible, unless that has its layout. One layout runs at a time; of later requests, the
      last one counts. */
  async draw(layout = null) {
    if (this.running) {
      this.again = true;
      return this.running;
    }
    this.running = this.drawUntilSettled(layout);
    try { await this.running; } finally { this.running = null; }
  }

  async drawUntilSettled(ready) {
    const busy = document.getElementById("busy");
    this.state.state = "busy";
    busy.hidden = false;
    try {
      do {
        this.again = false;
        const visible = this.model.visible();
        this.seen = visible.seen;
        const layout = ready || await this.layout.run(visible);
        ready = null;
        if (!this.again) this.picture.draw(layout);
      } while (this.again);
      this.showChoice();
      this.state.layouts = Number(this.state.layouts || 0) + 1;
      this.state.state = "ready";
    } catch (error) {
      this.state.state = "failed";
      busy.textContent = `The layout failed: ${error.message || error}`;
      throw error;
    }
    busy.hidden = true;
  }

  nodesOf(ops) { return [...new Set(ops.map((op) => this.seen[op]).filter((node) => node >= 0))]; }

  showChoice() {
    const chosen = new Set(this.nodesOf(this.chosen));
    if (this.chosenGroup !== undefined && this.picture.boxes.has(this.chosenGroup)) chosen.add(this.chosenGroup);
    const linked = new Set(this.nodesOf(this.linked(this.chosen)));
    for (const node of chosen) linked.delete(node);
    this.picture.highlight(chosen, linked);
  }

  /** The forward operation of gradient operations, and the other way round. */
  linked(ops) {
    return ops.slice(0, 200).flatMap((op) => [
      ...(this.model.origin[op] >= 0 ? [this.model.origin[op]] : []), ...(this.model.made.get(op) || [])]);
  }

  // ------------------------------------------------------------------------------------------ choosing

  /** A box was clicked: a group opens or closes, an operation is chosen. */
  async act(node) {
    if (node < this.model.count) {
      await this.choose([node], {});
      return;
    }
    const group = this.model.forwardOf(node), before = this.picture.screen(node);
    this.model.toggle(group);
    this.chooseGroup(group);
    await this.draw();
    this.picture.keep(node, before);
  }

  /** Show the details and the source of a group. */
  chooseGroup(group) {
    this.chosen = [];
    this.chosenGroup = group;
    this.panels.showDetails(document.getElementById("details"), group);
    this.source.mark(this.placesOfGroup(group));
  }

  /** The lines on which a group's operations were made, those of the file that has most of them. */
  placesOfGroup(group) {
    const { places, operations } = this.model.data;
    const spans = [...this.model.tally[group - this.model.count].spans].sort((a, b) => b[1][2] - a[1][2]);
    if (!spans.length) return [];
    const found = new Set(this.model.operationsIn(group).filter((op) => this.model.inputs(op).length)
      .map((op) => operations.place[op]).filter((place) => place >= 0 && places[place][0] === spans[0][0]));
    return [...found].map((place) => places[place]).sort((a, b) => a[1] - b[1]);
  }

  /** A chip was clicked: show the box that it stands for. */
  async follow(node) {
    const op = this.model.operationOf(node);
    if (op >= 0) await this.choose([op]);
    else {
      this.chooseGroup(node);
      this.showChoice();
    }
    this.picture.center([node]);
  }

  /** An entry of a list was clicked: where the graph is not beside the lists, go there. */
  async chooseInList(ops, place) {
    await this.choose(ops, { place });
    if (matchMedia("(max-width: 1000px)").matches) document.querySelector("section.graph").scrollIntoView();
  }

  /** Show operations in the graph, their lines in the source, and the details of the first. */
  async choose(ops, { place = null, lines = true } = {}) {
    this.chosen = ops;
    this.chosenGroup = undefined;
    const { model } = this;
    const before = this.folding();
    ops.slice(0, 1).forEach((op) => model.admit(op));
    if (ops.length && model.visible().nodes.length > 2 * LATER) model.open.fill(0);
    model.reveal(ops.filter((op) => model.isShown(op)).slice(0, 500), LATER);
    if (ops.length === 1) {
      const linked = this.linked(ops).filter((op) => model.isShown(op)).slice(0, 8);
      if (linked.length) model.reveal([ops[0], ...linked], LATER);
    }
    this.showSwitches();
    if (lines) this.source.mark(this.placesOf(ops, place));
    this.panels.showDetails(document.getElementById("details"), ops.length ? model.nodeOf(ops[0]) : null);
    if (this.folding() !== before) await this.draw();
    else this.showChoice();
    const nodes = this.nodesOf(ops);
    if (nodes.length && !nodes.every((node) => this.picture.isInView(node))) this.picture.center(nodes);
  }

  /** The state that decides which boxes are visible, as a text. */
  folding() { return `${JSON.stringify(this.model.shown)} ${this.model.open.join("")}`; }

  placesOf(ops, place) {
    if (place !== null && place >= 0) return [this.model.data.places[place]];
    return ops.slice(0, 200).map((op) => this.model.place(op)).filter(Boolean);
  }

  async chooseLine(file, line) {
    const ops = (this.model.lines[file].get(line) || []).filter((op) => this.model.isShown(op));
    const all = ops.length ? ops : this.model.lines[file].get(line) || [];
    this.source.mark([[file, line, line, -1, -1, ""]], false);
    await this.choose(all, { lines: false });
  }

  // ------------------------------------------------------------------------------------------ controls

  controls() {
    const at = (id) => document.getElementById(id);
    this.toggles = { gradient: at("show-gradient"), constants: at("show-constants") };
    this.toggles.gradient.closest("label").hidden = this.model.count === this.model.forward;
    if (this.model.data.generated) {
      this.toggles.gradient.closest("label").title = "generated for this page: nobody has built a gradient yet";
    }
    this.toggles.constants.closest("label").hidden = !this.model.hasConstants;
    for (const [what, input] of Object.entries(this.toggles)) {
      input.addEventListener("change", () => this.show(what, input.checked));
    }
    at("fold").addEventListener("click", async () => {
      this.model.open.fill(0);
      await this.draw();
      this.look([]);
    });
    at("unfold").addEventListener("click", async () => {
      this.unfoldOnce();
      await this.draw();
    });
    at("fit").addEventListener("click", () => this.picture.fit());
    at("larger").addEventListener("click", () => this.picture.zoom(1.25));
    at("smaller").addEventListener("click", () => this.picture.zoom(0.8));
    this.searching(at("search"), at("found"));
    this.themes(at("theme"));
    document.addEventListener("keydown", (event) => this.key(event));
    this.showSwitches();
  }

  async show(what, wanted) {
    this.model.shown[what] = wanted;
    await this.draw();
    this.look(this.chosen);
  }

  showSwitches() {
    this.toggles.gradient.checked = this.model.shown.gradient;
    this.toggles.constants.checked = this.model.shown.constants;
  }

  /** Open all visible folded groups, one after the other, while the picture stays small enough. */
  unfoldOnce() {
    const { model } = this;
    let boxes = model.visible().nodes.length;
    for (const node of model.visible().nodes) {
      if (!model.isGroup(node) || model.isOpen(node)) continue;
      boxes += model.members[node - model.count].length;
      if (boxes > 2 * LATER) break;
      model.toggle(node);
    }
  }

  searching(input, list) {
    const section = list.closest("details");
    const run = () => {
      section.hidden = !input.value.trim();
      const { found, total } = this.panels.showSearch(list, input.value);
      section.querySelector(".tally").textContent = many(total);
      section.dataset.searched = input.value;
      return found;
    };
    let timer = 0;
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(run, 120); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        clearTimeout(timer);
        const found = run();
        if (found.length) this.choose([found[0]]);
      } else if (event.key === "Escape") {
        input.value = "";
        run();
        input.blur();
      }
    });
  }

  key(event) {
    if (event.key === "/" && !["INPUT", "SELECT"].includes(event.target.tagName) && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      document.getElementById("search").focus();
    } else if (event.key === "Escape" && event.target.id !== "search") {
      this.choose([]);
    }
  }

  themes(select) {
    const remembered = () => { try { return localStorage.getItem("stopgrad-theme"); } catch { return null; } };
    const set = (theme) => {
      if (theme === "light" || theme === "dark") this.state.theme = theme;
      else delete this.state.theme;
    };
    select.value = remembered() || "auto";
    set(select.value);
    select.addEventListener("change", () => {
      set(select.value);
      try { localStorage.setItem("stopgrad-theme", select.value); } catch { /* Not every browser lets a file remember. */ }
    });
  }
}

const engine = startEngine();
const page = new Page(JSON.parse(document.getElementById("data").textContent), engine);
page.open();
