"use strict";
/* The lists beside the graph: the tensors asked about, cuts, findings, search results, and details. */

const SEARCHED = 100, MANY = 12;

function button(className, act, ...children) {
  const made = element("button", className, null, ...children);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}


function statusClass(status) {
  return `status ${status.replaceAll(" ", "-")}`;
}

class Panels {
  /** `choose(operations, place)` shows operations in the graph and their lines. */
  constructor(model, choose) {
    this.model = model;
    this.choose = choose;
    this.fillTensors(document.getElementById("tensors"));
    this.fillCuts(document.getElementById("cuts"));
    this.fillFindings(document.getElementById("findings"));
  }

  placeText(number) {
    const place = this.model.data.places[number];
    return place ? this.model.lineText(this.model.baseName(place[0]), place) : "";
  }

  /** The text of a place's first line, from where the expression begins to where it ends. */
  expression(number) {
    const place = this.model.data.places[number];
    if (!place) return "";
    const [file, line, last, start, end] = place;
    for (const [first, text] of this.model.data.files[file].parts) {
      const lines = text.split("\n");
      if (line < first || line >= first + lines.length) continue;
      const found = lines[line - first];
      const from = start >= 0 ? units(found, start) : 0;
      return found.slice(from, end >= 0 && last === line ? units(found, end) : undefined).trim();
    }
    return "";
  }

  // --------------------------------------------------------------------------------------------- lists

  fill(root, items, empty) {
    root.replaceChildren(...(items.length ? items : [element("li", "empty", empty)]));
    const count = root.closest("details")?.querySelector(".tally");
    if (count) count.textContent = many(items.length);
  }

  /** The tensors asked about; if there are many, grouped by status. */
  fillTensors(root) {
    const { tensors } = this.model.data;
    const items = tensors.map((tensor) => this.tensor(tensor));
    this.fill(root, items, "No tensor was asked about.");
    if (tensors.length <= MANY) return;
    const statuses = [...new Set(tensors.map((tensor) => tensor.status))];
    root.replaceChildren(...statuses.map((status) => {
      const list = element("ul", "", null, ...items.filter((_, n) => tensors[n].status === status));
      const head = element("summary", "", null,
        element("span", statusClass(status), status), element("span", "tally", ` ${many(list.children.length)}`));
      return element("li", "", null, element("details", "inner", null, head, list));
    }));
  }

  tensor(tensor) {
    const { cuts } = this.model.data;
    const ops = [tensor.op, ...tensor.cuts.flatMap((n) => cuts[n].ops)];
    return element("li", "", null, button("item", () => this.choose(ops, null),
      element("span", "label", tensor.label),
      element("span", statusClass(tensor.status), tensor.status),
      element("span", "more", tensor.paths)));
  }

  fillCuts(root) {
    this.fill(root, this.model.data.cuts.map((cut) => {
      const lines = [element("span", "label", this.placeText(cut.place) || this.nameOf(cut.ops)),
        element("span", statusClass(cut.status), cut.switched ? `${cut.status} (switched)` : cut.status)];
      const expression = this.expression(cut.place);
      if (expression) lines.push(element("code", "", shorten(expression, 120)));
      const uses = cut.uses > 1 ? ` (${many(cut.uses)} uses)` : "";
      lines.push(element("span", "more", `${cut.reason}${uses}`));
      if (cut.behind) lines.push(element("span", "more", `behind it: ${cut.behind}`));
      if (cut.opens) lines.push(element("span", "more", `removing it alone opens: ${cut.opens}`));
      return element("li", "", null, button("item", () => this.choose(cut.ops, cut.place), ...lines));
    }), "No path is cut.");
  }

  nameOf(ops) {
    return ops.length ? this.model.name(ops[0]) : "";
  }

  fillFindings(root) {
    const { findings } = this.model.data;
    this.fill(root, findings.map((finding) => {
      const lines = [element("span", "label", finding.message)];
      const place = this.placeText(finding.place);
      if (place) lines.push(element("span", "more", `${place}  ${shorten(this.expression(finding.place), 80)}`));
      const made = button("item", () => this.choose(finding.ops, finding.place), ...lines);
      made.dataset.kind = finding.kind;
      return element("li", "", null, made);
    }), "Nothing.");
  }

  showSearch(root, text) {
    const { found, total } = this.model.search(text, SEARCHED);
    const items = found.map((op) => element("li", "", null, button("item", () => this.choose([op], null),
      element("span", "label", this.model.name(op)),
      element("span", "more", [this.model.type(op), this.model.placeText(op)].filter(Boolean).join(" · ")))));
    if (total > found.length) items.push(element("li", "empty", `and ${many(total - found.length)} more`));
    root.replaceChildren(...(items.length ? items : [element("li", "empty", "Nothing found.")]));
    return { found, total };
  }

  // -------------------------------------------------------------------------------------------- details

  /** The details of an operation or a group. */
  showDetails(root, node) {
    if (node === null) {
      root.replaceChildren(element("p", "empty", "Choose a box of the graph or a line of the source."));
      return;
    }
    const op = this.model.operationOf(node);
    root.replaceChildren(...(op < 0 ? this.detailsOfGroup(node) : this.detailsOfOperation(op)));
  }

  detailsOfGroup(node) {
    const { model } = this;
    const { marks, size } = model.tally[node - model.count];
    const list = element("dl");
    for (const mark of SUMMARY) {
      if (marks[mark]) list.append(element("dt", "", many(marks[mark])), element("dd", "", MARK_TEXTS[mark]));
    }
    return [element("h3", "", model.groupTitle(node)), element("p", "more", plural(size, "operation")), list];
  }

  detailsOfOperation(op) {
    const { model } = this;
    const list = element("dl");
    const row = (name, ...values) => list.append(element("dt", "", name), element("dd", "", null, ...values));
    row("type", model.type(op));
    row("gives", model.shape(op));
    row("flow", MARK_TEXTS[model.marks[op]]);
    const place = model.placeText(op);
    if (place) row("built at", place);
    if (model.inputs(op).length) row("takes", ...this.links(model.inputs(op)));
    const users = model.users(op).filter((user) => model.isShown(user));
    if (users.length) row("goes to", ...this.links(users));
    if (model.origin[op] >= 0) row("made for", ...this.links([model.origin[op]]));
    const made = model.made.get(op);
    if (made) row("its gradient", ...this.links(made));
    return [element("h3", "", model.name(op)), list];
  }

  links(ops) {
    const most = 12;
    const made = ops.slice(0, most).map((op) => button("link", () => this.choose([op], null), this.model.name(op)));
    if (ops.length > most) made.push(element("span", "more", `and ${many(ops.length - most)} more`));
    return made;
  }
}
