"use strict";

// The page of a program. The first part knows the data and no document, and is tested without a
// browser; the second shows it. Text of the program is only ever put into text nodes.

const ROW_HEIGHT = 22;
// Browsers lay out no higher elements than about 17 million pixels.
const MAX_HEIGHT = 8_000_000;
// "Expand all" stops at so many rows.
const MAX_ROWS = 300_000;

// ---- data ----------------------------------------------------------------------------------------

/** A number in at most three digits and a unit. */
function short(number, step, units) {
  let value = number;
  let unit = 0;
  while (value >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits) + units[unit];
}

const count = (number) => short(number, 1000, ["", " k", " M", " G", " T", " P", " E"]);
const bytes = (number) => short(number, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);

const plural = (number, what) => `${number.toLocaleString()} ${what}${number === 1 ? "" : "s"}`;
const times = (number) => (number === 1 ? "once" : `${number.toLocaleString()} times`);

/** The programs, with what pages ask of them. */
class Model {
  constructor(data) {
    this.data = data;
    this.programs = data.programs;
    // The first equation that runs each program, by which it is reached.
    this.callers = new Array(this.programs.length).fill(null);
    const queue = [0];
    for (let at = 0; at < queue.length; at += 1) {
      const place = queue[at];
      this.programs[place].params.forEach((params, eqn) => {
        for (const within of data.params[params].programs) {
          if (within !== 0 && this.callers[within] === null) {
            this.callers[within] = [place, eqn];
            queue.push(within);
          }
        }
      });
    }
    this.most = {
      flops: this.largest("flops"),
      bytes: this.largest("bytes"),
      live: this.largest("live"),
    };
    this.searched = null;
  }

  largest(column) {
    let most = 0;
    for (const program of this.programs) {
      for (const value of program[column] ?? []) {
        if (value > most) most = value;
      }
    }
    return most;
  }

  size(place) {
    return this.programs[place].params.length;
  }

  within(place, eqn) {
    return this.data.params[this.programs[place].params[eqn]].programs;
  }

  /** The parts of an operand or variable: class and text. */
  atom(place, atom, typed) {
    const program = this.programs[place];
    if (atom < 0) return [["literal", program.literals[-1 - atom]]];
    const name = ["variable", program.names[atom]];
    return typed ? [name, ["type", ":" + this.data.types[program.types[atom]]]] : [name];
  }

  atoms(place, atoms, typed, separator = " ") {
    return atoms.flatMap((atom, number) => [
      ...(number ? [["", separator]] : []),
      ...this.atom(place, atom, typed),
    ]);
  }

  outputs(place, eqn) {
    const program = this.programs[place];
    const first = program.first[eqn];
    const end = eqn + 1 < program.first.length ? program.first[eqn + 1] : program.names.length;
    return Array.from({ length: end - first }, (_, number) => first + number);
  }

  primitive(place, eqn) {
    return this.data.primitives[this.programs[place].primitives[eqn]];
  }

  paramText(value) {
    if (typeof value === "string") return value;
    return value.map((place) => this.programs[place].name).join(", ");
  }

  /** The text of an equation, in parts. */
  equation(place, eqn) {
    const program = this.programs[place];
    const outputs = this.outputs(place, eqn);
    const { shown } = this.data.params[program.params[eqn]];
    const listed = shown.map(([key, value]) => `${key}=${this.paramText(value)}`).join(" ");
    return [
      ...this.atoms(place, outputs, true),
      ...(outputs.length ? [["", " = "]] : []),
      ["primitive", this.primitive(place, eqn)],
      ...(listed ? [["params", `[${listed}]`]] : []),
      ["", " "],
      ...this.atoms(place, program.inputs_of[eqn], false),
    ];
  }

  /** What a program begins with, in parts. */
  head(place) {
    const program = this.programs[place];
    const range = (from, to) => Array.from({ length: to - from }, (_, number) => from + number);
    const { constants, inputs } = program;
    return [
      ["keyword", program.name],
      ["", " { "],
      ["keyword", "lambda "],
      ...this.atoms(place, range(0, constants), true),
      ["", "; "],
      ...this.atoms(place, range(constants, constants + inputs), true),
      ["", "."],
    ];
  }

  /** What a program ends with, in parts. */
  tail(place) {
    const parts = this.atoms(place, this.programs[place].outputs, false, ", ");
    return [["keyword", "in "], ["", "("], ...parts, ["", ") }"]];
  }

  line(place, eqn) {
    return this.data.lines[this.programs[place].lines[eqn]];
  }

  stack(place, eqn) {
    return this.data.stacks[this.programs[place].stacks[eqn]];
  }

  /** What is searched of an equation. */
  text(place, eqn) {
    const text = this.equation(place, eqn).map((part) => part[1]).join("");
    return `${text}\n${this.line(place, eqn)}\n${this.stack(place, eqn)}`.toLowerCase();
  }

  /** The equations whose text has all words of a query: pairs of a program and an equation. */
  search(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    // Made once, when somebody searches.
    this.searched ??= this.programs.map((program, place) =>
      program.params.map((_, eqn) => this.text(place, eqn)),
    );
    const found = [];
    this.searched.forEach((texts, place) => {
      texts.forEach((text, eqn) => {
        if (words.every((word) => text.includes(word))) found.push([place, eqn]);
      });
    });
    return found;
  }

  /** The equations on the way to a program, the outermost first; null where there is none. */
  way(place) {
    const steps = [];
    for (let at = place; at !== 0; ) {
      const caller = this.callers[at];
      if (caller === null) return null;
      steps.push([...caller, at]);
      at = caller[0];
    }
    return steps.reverse();
  }
}

/** The rows that are shown, in order: programs, equations and what programs end with. */
class Rows {
  constructor(model) {
    this.model = model;
    this.collapse();
  }

  collapse() {
    this.rows = [{ kind: "program", place: 0, eqn: -1, level: 0, open: false }];
    this.toggle(0);
  }

  get length() {
    return this.rows.length;
  }

  at(index) {
    return this.rows[index];
  }

  canOpen(index) {
    const row = this.rows[index];
    if (row.kind === "program") return true;
    return row.kind === "equation" && this.model.within(row.place, row.eqn).length > 0;
  }

  /** The rows directly below one. */
  children(row) {
    const level = row.level + 1;
    if (row.kind === "equation") {
      const programs = this.model.within(row.place, row.eqn);
      return programs.map((place) => ({ kind: "program", place, eqn: -1, level, open: false }));
    }
    const { place } = row;
    const rows = [];
    for (let eqn = 0; eqn < this.model.size(place); eqn += 1) {
      rows.push({ kind: "equation", place, eqn, level, open: false });
    }
    rows.push({ kind: "end", place, eqn: -1, level, open: false });
    return rows;
  }

  /** Where the rows below one end. */
  end(index) {
    const { level } = this.rows[index];
    let end = index + 1;
    while (end < this.rows.length && this.rows[end].level > level) end += 1;
    return end;
  }

  replace(from, to, rows) {
    this.rows = this.rows.slice(0, from).concat(rows, this.rows.slice(to));
  }

  /** Shows what is below a row, or hides it. */
  toggle(index) {
    const row = this.rows[index];
    if (!this.canOpen(index)) return;
    if (row.open) {
      this.replace(index + 1, this.end(index), []);
      row.open = false;
      return;
    }
    row.open = true;
    this.replace(index + 1, index + 1, this.children(row));
    // An equation with one program shows that one's equations at once.
    if (row.kind === "equation" && this.model.within(row.place, row.eqn).length === 1) {
      this.toggle(index + 1);
    }
  }

  parent(index) {
    const { level } = this.rows[index];
    let at = index - 1;
    while (at >= 0 && this.rows[at].level >= level) at -= 1;
    return at;
  }

  /** Shows an equation. Its row; -1 where there is no way to it. */
  reveal(place, eqn) {
    const way = this.model.way(place);
    if (way === null) return -1;
    let at = 0;
    if (!this.rows[0].open) this.toggle(0);
    for (const [caller, calling, called] of way) {
      at = this.find(at, (row) => row.kind === "equation" && row.place === caller && row.eqn === calling);
      if (!this.rows[at].open) this.toggle(at);
      at = this.find(at, (row) => row.kind === "program" && row.place === called);
      if (!this.rows[at].open) this.toggle(at);
    }
    return this.find(at, (row) => row.kind === "equation" && row.place === place && row.eqn === eqn);
  }

  /** The first row directly below one that is as wanted. */
  find(index, wanted) {
    const level = this.rows[index].level + 1;
    for (let at = index + 1; at < this.rows.length && this.rows[at].level >= level; at += 1) {
      if (this.rows[at].level === level && wanted(this.rows[at])) return at;
    }
    return -1;
  }

  /** Shows all there is, up to a bound. Whether that is all. */
  expand() {
    const shown = [];
    const pending = [{ kind: "program", place: 0, eqn: -1, level: 0, open: false }];
    let all = true;
    while (pending.length) {
      const row = pending.pop();
      shown.push(row);
      const opens = row.kind === "program" || (row.kind === "equation" && this.model.within(row.place, row.eqn).length);
      if (!opens) continue;
      const below = this.children(row);
      if (shown.length + pending.length + below.length > MAX_ROWS && row.level > 0) {
        all = false;
        continue;
      }
      row.open = true;
      for (let at = below.length - 1; at >= 0; at -= 1) pending.push(below[at]);
    }
    this.rows = shown;
    return all;
  }
}

/** The outline of values over a width: for each column the largest of its values. */
function outline(values, width) {
  const columns = Math.min(values.length, Math.max(1, Math.floor(width)));
  const points = [];
  for (let column = 0; column < columns; column += 1) {
    const from = Math.floor((column * values.length) / columns);
    const to = Math.max(from + 1, Math.floor(((column + 1) * values.length) / columns));
    let most = 0;
    for (let at = from; at < to; at += 1) most = Math.max(most, values[at]);
    points.push(most);
  }
  return points;
}

/** A text in pieces, those marked that are among some words. */
function marked(text, words) {
  const lower = text.toLowerCase();
  const pieces = [];
  let at = 0;
  // Where lower case has another length, places would not fit.
  while (words.length && lower.length === text.length && at < text.length) {
    let start = -1;
    let length = 0;
    for (const word of words) {
      const found = lower.indexOf(word, at);
      if (found >= 0 && (start < 0 || found < start || (found === start && word.length > length))) {
        start = found;
        length = word.length;
      }
    }
    if (start < 0) break;
    if (start > at) pieces.push([text.slice(at, start), false]);
    pieces.push([text.slice(start, start + length), true]);
    at = start + length;
  }
  if (at < text.length) pieces.push([text.slice(at), false]);
  return pieces;
}

// ---- page ----------------------------------------------------------------------------------------

class Page {
  constructor(model) {
    this.model = model;
    this.rows = new Rows(model);
    this.chosen = 0;
    this.matches = [];
    this.match = -1;
    this.words = [];
    this.variable = null;
    this.plotted = -1;
    this.element = (id) => document.getElementById(id);
    this.titles();
    this.events();
    this.plot(0);
    this.choose(0);
  }

  titles() {
    const { data } = this.model;
    this.element("title").textContent = data.function;
    const parts = [
      plural(this.model.size(0), "equation"),
      plural(data.programs.length - 1, "nested program"),
      `${count(data.total.flops)} flops`,
      `${bytes(data.total.bytes)} read and written`,
    ];
    this.element("totals").textContent = parts.join("  ·  ");
    const names = ["equation", "line", "flops", "bytes", "live"];
    const head = this.element("head");
    names.forEach((name, number) => {
      head.append(cell(number < 2 ? "cell" : "cell number", name, "columnheader"));
    });
  }

  // ---- rows ----

  /** How far one scrolls for a row. */
  get scale() {
    const height = this.rows.length * ROW_HEIGHT;
    return height > MAX_HEIGHT ? MAX_HEIGHT / height : 1;
  }

  get visible() {
    return Math.ceil(this.element("scroll").clientHeight / ROW_HEIGHT) + 1;
  }

  first() {
    return Math.floor(this.element("scroll").scrollTop / (ROW_HEIGHT * this.scale));
  }

  draw() {
    const space = this.element("space");
    space.style.height = `${this.rows.length * ROW_HEIGHT * this.scale}px`;
    const from = Math.max(0, Math.min(this.first(), this.rows.length - 1) - 4);
    const to = Math.min(this.rows.length, from + this.visible + 8);
    const holder = this.element("rows");
    holder.style.top = `${from * ROW_HEIGHT * this.scale}px`;
    const made = [];
    for (let index = from; index < to; index += 1) made.push(this.row(index));
    holder.replaceChildren(...made);
    this.element("scroll").setAttribute("aria-rowcount", String(this.rows.length));
    this.element("scroll").setAttribute("aria-activedescendant", `row-${this.chosen}`);
  }

  row(index) {
    const row = this.rows.at(index);
    const element = document.createElement("div");
    element.id = `row-${index}`;
    element.className = index === this.chosen ? "row chosen" : "row";
    element.setAttribute("role", "row");
    element.setAttribute("aria-level", String(row.level + 1));
    element.setAttribute("aria-rowindex", String(index + 1));
    element.setAttribute("aria-selected", String(index === this.chosen));
    element.dataset.index = String(index);
    const text = cell("cell text", "");
    // Deep nesting must not push the text out of sight.
    text.style.paddingLeft = `${8 + 14 * Math.min(row.level, 24)}px`;
    const toggle = document.createElement("span");
    toggle.className = "toggle";
    if (this.rows.canOpen(index)) {
      toggle.textContent = row.open ? "▾" : "▸";
      element.setAttribute("aria-expanded", String(row.open));
    }
    text.append(toggle);
    const parts =
      row.kind === "equation"
        ? this.model.equation(row.place, row.eqn)
        : row.kind === "program"
          ? this.model.head(row.place)
          : this.model.tail(row.place);
    for (const [style, part] of parts) text.append(this.part(style, part, row.place));
    element.append(text);
    if (row.kind === "equation") this.columns(element, row);
    return element;
  }

  part(style, text, place) {
    const span = document.createElement("span");
    span.className = style;
    if (style === "variable" && this.variable?.[0] === place && this.variable[1] === text) {
      span.classList.add("same");
    }
    for (const [piece, isMarked] of marked(text, this.words)) {
      if (!isMarked) {
        span.append(piece);
        continue;
      }
      const mark = document.createElement("mark");
      mark.textContent = piece;
      span.append(mark);
    }
    return span;
  }

  columns(element, { place, eqn }) {
    const program = this.model.programs[place];
    const line = cell("cell line", "");
    const whole = this.model.line(place, eqn);
    // The end of a path says more than its beginning.
    const name = whole.slice(whole.lastIndexOf("/") + 1);
    for (const [piece, isMarked] of marked(name, this.words)) {
      const part = document.createElement(isMarked ? "mark" : "span");
      part.textContent = piece;
      line.append(part);
    }
    line.title = whole;
    element.append(line);
    const columns = [
      ["flops", count],
      ["bytes", bytes],
      ["live", bytes],
    ];
    for (const [column, text] of columns) {
      const value = program[column]?.[eqn] ?? null;
      const unknown = program[column] === null ? "" : "?";
      const number = cell("cell number", value === null ? unknown : value === 0 ? "" : text(value));
      if (value) {
        const part = value / this.model.most[column];
        number.dataset.part = String(part);
        number.style.backgroundSize = `${100 * part}% 100%`;
      }
      element.append(number);
    }
  }

  // ---- what is chosen ----

  choose(index, focus = false) {
    this.chosen = Math.max(0, Math.min(index, this.rows.length - 1));
    const scroll = this.element("scroll");
    const top = this.chosen * ROW_HEIGHT * this.scale;
    const height = scroll.clientHeight;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    // The head is above the first row.
    if (top + ROW_HEIGHT * 2 > scroll.scrollTop + height) {
      scroll.scrollTop = top - height + ROW_HEIGHT * 2;
    }
    this.draw();
    this.details();
    const row = this.rows.at(this.chosen);
    this.plot(row.place);
    this.mark(row);
    if (focus) scroll.focus();
  }

  toggle(index) {
    this.rows.toggle(index);
    this.choose(index);
  }

  details() {
    const row = this.rows.at(this.chosen);
    const holder = this.element("details");
    const title = document.createElement("h2");
    const list = document.createElement("dl");
    const add = (term, text) => {
      if (text === "" || text === null) return;
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      dt.textContent = term;
      dd.textContent = text;
      list.append(dt, dd);
    };
    const program = this.model.programs[row.place];
    if (row.kind === "equation") {
      const { place, eqn } = row;
      const typed = (atoms) =>
        atoms.map((atom) => this.model.atom(place, atom, true).map((part) => part[1]).join("")).join("\n");
      title.textContent = `${this.model.primitive(place, eqn)}, equation ${eqn} of ${program.name}`;
      add("results", typed(this.model.outputs(place, eqn)));
      add("operands", typed(program.inputs_of[eqn]));
      for (const [key, value] of this.model.data.params[program.params[eqn]].shown) {
        add(key, this.model.paramText(value));
      }
      add("line", this.model.line(place, eqn));
      add("name stack", this.model.stack(place, eqn));
      add("effects", this.model.data.effects[program.effects[eqn]].join("\n"));
      const flops = program.flops[eqn];
      add("flops", flops === null ? "not known" : flops.toLocaleString());
      if (flops !== null) {
        add("transcendentals", program.transcendentals[eqn].toLocaleString());
        add("bytes", program.bytes[eqn].toLocaleString());
      }
      const live = place === 0 ? "live bytes" : "live bytes within";
      if (program.live !== null) add(live, program.live[eqn].toLocaleString());
      add("runs", times(program.times));
    } else {
      title.textContent = program.name;
      add("function", program.function);
      add("equations", this.model.size(row.place).toLocaleString());
      add("runs", times(program.times));
      add("constants", String(program.constants));
      add("inputs", String(program.inputs));
      add("outputs", String(program.outputs.length));
    }
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = "Arrows move and open, Home and End go to the ends, / searches, a click on a variable shows where it is used.";
    holder.replaceChildren(title, list, hint);
  }

  // ---- search ----

  find(query) {
    this.words = query.toLowerCase().split(/\s+/).filter(Boolean);
    this.matches = this.model.search(query);
    this.match = -1;
    if (this.matches.length) this.go(1);
    else this.draw();
    this.counted();
  }

  counted() {
    const total = this.matches.length.toLocaleString();
    const text = !this.words.length ? "" : this.matches.length ? `${(this.match + 1).toLocaleString()} of ${total}` : "no match";
    this.element("count").textContent = text;
  }

  go(step) {
    const { length } = this.matches;
    if (!length) return;
    this.match = (this.match + step + length) % length;
    const index = this.rows.reveal(...this.matches[this.match]);
    if (index >= 0) this.choose(index);
    this.counted();
  }

  // ---- plot ----

  /** Plots the live bytes of a program. */
  plot(place) {
    const { live, name } = this.model.programs[place];
    // What is not known of a program leaves the plot of the last one.
    if (live === null || live.length === 0) return;
    if (this.plotted === place) return;
    this.plotted = place;
    this.element("plot").hidden = false;
    const chart = this.element("chart");
    const points = outline(live, chart.clientWidth || 1000);
    const most = Math.max(1, ...points);
    chart.setAttribute("viewBox", `0 0 ${Math.max(1, points.length)} 100`);
    const at = (value) => 100 - (96 * value) / most;
    // Steps: a value holds for the width of its equation.
    const steps = points.map((value, column) => `L${column} ${at(value)}L${column + 1} ${at(value)}`);
    const area = svg("path", { class: "area", d: `M0 100${steps.join("")}L${points.length} 100Z` });
    const peak = svg("line", { class: "peak", x1: 0, x2: points.length, y1: at(most), y2: at(most) });
    this.line = svg("line", { class: "cursor", x1: -1, x2: -1, y1: 0, y2: 100 });
    chart.replaceChildren(area, peak, this.line);
    const own = place === 0 ? "" : " beside those of what runs it";
    this.element("plot-title").textContent = `Bytes live at each equation of ${name}${own}, at most ${bytes(Math.max(0, ...points))}`;
  }

  /** Shows where a row is in the plot. */
  mark(row) {
    this.cursor(row.place === this.plotted ? row.eqn : -1);
  }

  cursor(eqn) {
    if (!this.line || this.plotted < 0) return;
    const { live } = this.model.programs[this.plotted];
    const columns = Number(this.element("chart").getAttribute("viewBox").split(" ")[2]);
    const x = eqn < 0 ? -1 : ((eqn + 0.5) / live.length) * columns;
    this.line.setAttribute("x1", String(x));
    this.line.setAttribute("x2", String(x));
  }

  plottedEquation(event) {
    const box = this.element("chart").getBoundingClientRect();
    const { live } = this.model.programs[this.plotted];
    const at = Math.floor(((event.clientX - box.left) / box.width) * live.length);
    return Math.max(0, Math.min(live.length - 1, at));
  }

  // ---- events ----

  events() {
    const on = (id, name, run) => this.element(id).addEventListener(name, run);
    let isDrawn = false;
    on("scroll", "scroll", () => {
      if (isDrawn) return;
      isDrawn = true;
      requestAnimationFrame(() => {
        isDrawn = false;
        this.draw();
      });
    });
    on("rows", "click", (event) => {
      const row = event.target.closest(".row");
      if (row === null) return;
      const index = Number(row.dataset.index);
      const variable = event.target.closest(".variable");
      if (variable !== null) {
        const own = [this.rows.at(index).place, variable.textContent];
        this.variable = String(own) === String(this.variable) ? null : own;
      }
      if (event.target.closest(".toggle") !== null) this.toggle(index);
      else this.choose(index, true);
    });
    on("rows", "dblclick", (event) => {
      const row = event.target.closest(".row");
      if (row !== null) this.toggle(Number(row.dataset.index));
    });
    on("scroll", "keydown", (event) => this.key(event));
    let waiting = 0;
    on("search", "input", (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.find(event.target.value), 120);
    });
    on("search", "keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        event.target.value = "";
        this.find("");
        this.element("scroll").focus();
      }
    });
    on("next", "click", () => this.go(1));
    on("previous", "click", () => this.go(-1));
    on("expand", "click", () => {
      const all = this.rows.expand();
      this.choose(0);
      this.element("count").textContent = all ? "" : `the first ${MAX_ROWS.toLocaleString()} rows`;
    });
    on("collapse", "click", () => {
      this.rows.collapse();
      this.choose(0);
    });
    on("chart", "mousemove", (event) => {
      const eqn = this.plottedEquation(event);
      const { live } = this.model.programs[this.plotted];
      this.element("plot-note").textContent = `equation ${eqn}, ${this.model.primitive(this.plotted, eqn)}: ${bytes(live[eqn])}`;
      this.cursor(eqn);
    });
    on("chart", "mouseleave", () => {
      this.element("plot-note").textContent = "";
      this.mark(this.rows.at(this.chosen));
    });
    on("chart", "click", (event) => {
      const index = this.rows.reveal(this.plotted, this.plottedEquation(event));
      if (index >= 0) this.choose(index, true);
    });
    on("theme", "click", () => {
      const { classList } = document.documentElement;
      const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
      const wasDark = classList.contains("dark") || (isDark && !classList.contains("light"));
      classList.toggle("dark", !wasDark);
      classList.toggle("light", wasDark);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== this.element("search")) {
        event.preventDefault();
        this.element("search").focus();
      }
    });
    addEventListener("resize", () => {
      const { plotted } = this;
      this.plotted = -1;
      if (plotted >= 0) this.plot(plotted);
      this.draw();
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.rows.at(this.chosen);
    const page = Math.max(1, this.visible - 3);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) this.choose(this.chosen + moves[event.key]);
    else if (event.key === "Home") this.choose(0);
    else if (event.key === "End") this.choose(this.rows.length - 1);
    else if (event.key === "ArrowRight") {
      if (this.rows.canOpen(this.chosen) && !row.open) this.toggle(this.chosen);
      else this.choose(this.chosen + 1);
    } else if (event.key === "ArrowLeft") {
      if (row.open) this.toggle(this.chosen);
      else this.choose(Math.max(0, this.rows.parent(this.chosen)));
    } else if (event.key === "Enter" || event.key === " ") this.toggle(this.chosen);
    else return;
    event.preventDefault();
  }
}

function cell(style, text, role = "gridcell") {
  const element = document.createElement("div");
  element.className = style;
  element.setAttribute("role", role);
  element.textContent = text;
  return element;
}

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

if (typeof document !== "undefined") {
  const page = new Page(new Model(JSON.parse(document.getElementById("data").textContent)));
  page.element("scroll").focus();
}
