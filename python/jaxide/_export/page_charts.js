"use strict";

// Flame graphs and tables of the page. The first part knows no document and is tested without a
// browser; the second shows it. Text of the program is only ever put into text nodes.

// The columns of rows of costs (`_costs` in html.py).
const [NAME, TIMES, FLOPS, TRANSCENDENTALS, BYTES, PARAMETERS] = [0, 1, 2, 3, 4, 5];
// Narrower boxes are not drawn, and narrower ones than a few letters have no text.
const MIN_BOX = 1;
const MIN_LABEL = 30;
// Tables show so many rows, and so many more each time they are asked to.
const FIRST_ROWS = 30;
const MORE_ROWS = 500;

// ---- trees and orders ----------------------------------------------------------------------------

/** A node of a flame graph. What no child has is the node's own. */
function node(name, path, value = 0) {
  return { name, path, value, children: new Map(), parent: null, detail: "" };
}

/** The child of a name, made where there is none. */
function child(parent, name) {
  let found = parent.children.get(name);
  if (found === undefined) {
    found = node(name, [...parent.path, name]);
    found.parent = parent;
    parent.children.set(name, found);
  }
  return found;
}

/** Adds a value to the node at the end of some steps, and to those on the way. */
function add(root, steps, value) {
  let at = root;
  for (const step of steps) {
    at = child(at, step);
    at.value += value;
  }
  return at;
}

/** The rest of the root that no child has, as a child of its own. */
function addRest(root, name) {
  let rest = root.value;
  for (const each of root.children.values()) rest -= each.value;
  if (rest > 0 && root.children.size) {
    const found = child(root, name);
    found.value = rest;
    found.isRest = true;
  }
  return root;
}

/** What scopes cost: rows have what is within. */
function scopeTree(rows, total, column) {
  const root = node("program", [], total[column]);
  for (const row of rows) {
    let at = root;
    for (const step of row[NAME].split("/")) at = child(at, step);
    at.value = row[column];
    at.detail = `${plural(row[PARAMETERS], "parameter")}`;
  }
  return addRest(root, "outside of all scopes");
}

/** A line of code as file, function and line: "/a/train.py:7 (loss)". */
function lineParts(line) {
  const found = /^(.*):(\d+)(?: \((.*)\))?$/s.exec(line);
  if (found === null) return [line];
  const [, file, number, name] = found;
  return [file, ...(name === undefined ? [] : [name]), `line ${number}`];
}

/** What lines cost, by file and function. */
function lineTree(rows, total, column) {
  const root = node("program", [], total[column]);
  for (const row of rows) {
    const found = add(root, lineParts(row[NAME]), row[column]);
    found.line = row[NAME];
  }
  return root;
}

/** What is alive, by the groups that it is in; results outside of all scopes by their lines. */
function memoryTree(alive, peak) {
  const root = node("alive at the peak", [], peak);
  for (const { groups, line, name, bytes: size, at } of alive) {
    const lines = at !== null && groups.length === 1 && line ? lineParts(line) : [];
    // The last step to an input is the input.
    add(root, [...groups, ...lines, ...(groups.length > 1 && at === null ? [] : [name])], size);
  }
  return root;
}

const largestFirst = (found) => [...found.children.values()].sort((a, b) => b.value - a.value);

/** The nodes from the root to one. */
function lineage(found) {
  const all = [];
  for (let at = found; at !== null; at = at.parent) all.push(at);
  return all.reverse();
}

/** The boxes of a flame graph in which one node is as wide as all: node, depth, left and width. */
function flameBoxes(focus, width) {
  const around = lineage(focus);
  const boxes = around.map((found, depth) => ({ node: found, depth, left: 0, width }));
  const pending = [boxes[boxes.length - 1]];
  while (pending.length) {
    const box = pending.pop();
    if (!(box.node.value > 0)) continue;
    let { left } = box;
    for (const found of largestFirst(box.node)) {
      const own = { node: found, depth: box.depth + 1, left, width: (box.width * found.value) / box.node.value };
      left += own.width;
      if (own.width < MIN_BOX) continue;
      boxes.push(own);
      pending.push(own);
    }
  }
  return boxes.sort((a, b) => a.depth - b.depth || a.left - b.left);
}

/** Rows in the order of a column; rows without a value are last. */
function sorted(rows, value, isDescending) {
  const sign = isDescending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [one, other] = [value(a), value(b)];
    if (one === null || other === null) return (one === null) - (other === null);
    if (typeof one === "string") return sign * one.localeCompare(other);
    return sign * (one - other);
  });
}

/** A part of a whole, as a percentage. */
function percent(part, whole) {
  if (!(whole > 0)) return "";
  const value = (100 * part) / whole;
  return value >= 10 || value === 0 ? `${value.toFixed(0)}%` : value < 0.1 ? "<0.1%" : `${value.toFixed(1)}%`;
}

/** Which colour of eight a name has: always the same one. */
function tone(name) {
  let hash = 7;
  for (let at = 0; at < name.length; at += 1) hash = (hash * 31 + name.charCodeAt(at)) >>> 0;
  return hash % 8;
}

// ---- what shows them -----------------------------------------------------------------------------

function make(tag, style = "", text = "") {
  const element = document.createElement(tag);
  if (style) element.className = style;
  if (text) element.textContent = text;
  return element;
}

/** A flame graph: the root is above. A click or Enter makes a box as wide as all. */
class Flame {
  constructor(holder, note, text) {
    this.holder = holder;
    this.note = note;
    this.text = text;
    this.words = [];
    holder.addEventListener("click", (event) => {
      const box = this.boxOf(event);
      if (box !== null) this.zoom(box.node);
    });
    holder.addEventListener("mouseover", (event) => this.say(this.boxOf(event)?.node));
    holder.addEventListener("mouseleave", () => this.say());
    holder.addEventListener("focusin", (event) => this.say(this.boxOf(event)?.node));
    holder.addEventListener("keydown", (event) => this.key(event));
  }

  boxOf(event) {
    const found = event.target.closest(".box");
    return found === null ? null : this.boxes[Number(found.dataset.box)];
  }

  show(root) {
    this.root = root;
    this.zoom(root, false);
  }

  zoom(found, focus = true) {
    // Once more, and the box is as it was.
    this.focus = found === this.focus && focus && found.parent !== null ? found.parent : found;
    this.current = found;
    this.draw();
    if (focus) this.holder.querySelector('[tabindex="0"]')?.focus();
    this.say();
  }

  draw() {
    const { clientWidth } = this.holder;
    if (!clientWidth || !this.root) return;
    this.boxes = flameBoxes(this.focus, clientWidth);
    let at = this.boxes.findIndex((box) => box.node === this.current);
    if (at < 0) at = 0;
    this.holder.replaceChildren(...this.boxes.map((box, number) => this.element(box, number, number === at)));
    const deepest = this.boxes[this.boxes.length - 1].depth;
    this.holder.style.height = `calc(${deepest + 1} * var(--box))`;
  }

  element({ node: found, depth, left, width }, number, isCurrent) {
    const isAround = depth < this.focus.path.length;
    const style = isAround ? "around" : found.isRest || depth === 0 ? "rest" : `tone-${tone(found.name)}`;
    const element = make("div", `box ${style}`);
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", String(depth + 1));
    element.setAttribute("aria-label", this.text(found, this.root));
    element.setAttribute("aria-selected", String(found === this.focus));
    element.tabIndex = isCurrent ? 0 : -1;
    element.title = this.text(found, this.root);
    element.dataset.box = String(number);
    element.style.left = `${left}px`;
    element.style.top = `calc(${depth} * var(--box))`;
    element.style.width = `${Math.max(1, width - 1)}px`;
    if (this.words.length) {
      const lower = found.name.toLowerCase();
      const isFound = this.words.every((word) => lower.includes(word));
      element.classList.add(isFound ? "found" : "other");
    }
    // The end of a path says more than its beginning.
    if (width >= MIN_LABEL) element.append(make("span", "", found.name.slice(found.name.lastIndexOf("/") + 1)));
    return element;
  }

  highlight(words) {
    this.words = words;
    this.draw();
  }

  say(found = this.focus) {
    const hint = found === this.root && this.root.children.size ? "  ·  a click or Enter zooms, Escape goes back" : "";
    this.note.textContent = this.text(found, this.root) + hint;
  }

  key(event) {
    const box = this.boxOf(event);
    if (box === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const inRow = this.boxes.filter((other) => other.depth === box.depth);
    const place = inRow.indexOf(box);
    const below = this.boxes.find((other) => other.node.parent === box.node);
    const above = this.boxes.find((other) => other.node === box.node.parent);
    const moves = { ArrowLeft: inRow[place - 1], ArrowRight: inRow[place + 1], ArrowDown: below, ArrowUp: above };
    moves.Home = this.boxes[0];
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.zoom(box.node);
    else if (event.key === "Escape") this.zoom(this.root);
    else return;
    event.preventDefault();
  }

  move(box) {
    if (box === undefined) return;
    this.current = box.node;
    const elements = this.holder.children;
    for (const element of elements) element.tabIndex = -1;
    const element = elements[this.boxes.indexOf(box)];
    element.tabIndex = 0;
    element.focus();
  }
}

/**
 * A table that is sorted by a click on a head. A column has a name, the value that it is sorted by,
 * and what is shown: a text, or an element.
 */
class SortedTable {
  constructor(holder, columns, rows, nameOf, firstSorted = null) {
    this.columns = columns;
    this.rows = rows;
    this.nameOf = nameOf;
    this.words = [];
    this.shown = FIRST_ROWS;
    this.by = firstSorted;
    this.isDescending = true;
    this.table = make("table");
    this.head = make("tr");
    this.body = make("tbody");
    const head = make("thead");
    head.append(this.head);
    this.table.append(head, this.body);
    const box = make("div", "sideways");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", holder.parentElement.querySelector("h2").textContent);
    box.append(this.table);
    this.more = make("button", "more");
    this.more.type = "button";
    this.more.addEventListener("click", () => {
      this.shown += MORE_ROWS;
      this.draw();
    });
    holder.replaceChildren(box, this.more);
    this.heads();
    this.draw();
  }

  heads() {
    this.head.replaceChildren(
      ...this.columns.map((column, number) => {
        const head = make("th", column.isText ? "" : "amount");
        head.scope = "col";
        const button = make("button", "", column.name);
        button.type = "button";
        if (column.title) button.title = column.title;
        button.addEventListener("click", () => this.sort(number));
        head.append(button);
        return head;
      }),
    );
  }

  sort(number) {
    // Names begin with the first, amounts with the largest.
    this.isDescending = this.by === number ? !this.isDescending : !this.columns[number].isText;
    this.by = number;
    this.draw();
  }

  filter(words) {
    this.words = words;
    this.shown = FIRST_ROWS;
    this.draw();
  }

  draw() {
    [...this.head.children].forEach((head, number) => {
      const order = this.isDescending ? "descending" : "ascending";
      head.setAttribute("aria-sort", number === this.by ? order : "none");
    });
    const wanted = this.rows.filter((row) => {
      const name = this.nameOf(row).toLowerCase();
      return this.words.every((word) => name.includes(word));
    });
    const column = this.columns[this.by];
    const rows = column ? sorted(wanted, column.value, this.isDescending) : wanted;
    this.body.replaceChildren(...rows.slice(0, this.shown).map((row) => this.row(row)));
    if (!rows.length) this.body.replaceChildren(this.nothing());
    const left = rows.length - this.shown;
    this.more.hidden = left <= 0;
    this.more.textContent = `${Math.min(left, MORE_ROWS).toLocaleString()} more of ${rows.length.toLocaleString()}`;
  }

  nothing() {
    const row = make("tr");
    const cell = make("td", "weak", this.rows.length ? "no name has these words" : "none");
    cell.colSpan = this.columns.length;
    row.append(cell);
    return row;
  }

  row(row) {
    const element = make("tr");
    for (const column of this.columns) {
      const cell = make("td", column.isText ? "" : "amount");
      const shown = column.show(row);
      cell.append(shown ?? "");
      element.append(cell);
    }
    return element;
  }
}
