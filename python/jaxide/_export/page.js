// The page of a program. The first part knows the data and no document, and is tested without a
// browser; the second shows it. Text of the program is only ever put into text nodes.

const ROW_HEIGHT = 22;
// Deeper rows are not indented further.
const MAX_INDENT = 24;
const INDENT = 14;
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

  scope(place, eqn) {
    return this.data.scopes[this.programs[place].scopes[eqn]];
  }

  stack(place, eqn) {
    return this.data.stacks[this.programs[place].stacks[eqn]];
  }

  /** What is searched of an equation. */
  text(place, eqn) {
    const text = this.equation(place, eqn).map((part) => part[1]).join("");
    return `${text}\n${this.line(place, eqn)}\n${this.stack(place, eqn)}\n${this.scope(place, eqn)}`.toLowerCase();
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

  /** The values that are alive at the peak. */
  alive() {
    return this.data.memory.alive.map(([kind, name, type, size, line, at, groups]) => ({
      kind,
      name,
      type: this.data.types[type],
      bytes: size,
      line: line === null ? "" : this.data.lines[line],
      at,
      groups,
      scope: at === null ? "" : this.scope(...at),
    }));
  }

  /** How wide the text of rows has to be for each primitive to be whole, in letters. */
  get widestPrimitive() {
    return Math.max(0, ...this.data.primitives.map((name) => name.length));
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
    this.report = new Report(this);
    this.tabs();
  }

  // ---- views ----

  tabs() {
    const tabs = [...this.element("tabs").children];
    for (const tab of tabs) tab.addEventListener("click", () => this.view(tab.getAttribute("aria-controls")));
    this.element("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      const at = tabs.indexOf(document.activeElement);
      const next = tabs[(at + step + tabs.length) % tabs.length];
      this.view(next.getAttribute("aria-controls"));
      next.focus();
    });
  }

  view(id) {
    for (const tab of this.element("tabs").children) {
      const controls = tab.getAttribute("aria-controls");
      tab.setAttribute("aria-selected", String(controls === id));
      tab.tabIndex = controls === id ? 0 : -1;
      this.element(controls).hidden = controls !== id;
    }
    if (id === "equations") this.draw();
    else this.report.open(id);
  }

  /** Shows an equation among all. */
  show(place, eqn) {
    this.view("equations");
    const index = this.rows.reveal(place, eqn);
    if (index >= 0) this.choose(index, true);
  }

  /** Shows the equations that have some words. */
  showFound(query) {
    this.view("equations");
    this.element("search").value = query;
    this.find(query);
    this.element("search").focus();
  }

  titles() {
    const { data } = this.model;
    this.element("title").textContent = data.function;
    const parts = [
      plural(this.model.size(0), "equation"),
      plural(data.programs.length - 1, "nested program"),
      `${count(data.cost.total[FLOPS])} flops`,
      `${bytes(data.cost.total[BYTES])} read and written`,
      `${bytes(data.memory.peak)} at the peak`,
    ];
    this.element("totals").replaceChildren(...parts.map((part) => make("span", "", part)));
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

  /** Makes room for all rows, without which one cannot scroll to the last ones. */
  makeRoom() {
    this.element("space").style.height = `${this.rows.length * ROW_HEIGHT * this.scale}px`;
  }

  draw() {
    this.makeRoom();
    const from = Math.max(0, Math.min(this.first(), this.rows.length - 1) - 4);
    const to = Math.min(this.rows.length, from + this.visible + 8);
    const holder = this.element("rows");
    holder.style.top = `${from * ROW_HEIGHT * this.scale}px`;
    const made = [];
    for (let index = from; index < to; index += 1) made.push(this.row(index));
    holder.replaceChildren(...made);
    const deepest = made.length ? Math.max(...this.rows.rows.slice(from, to).map((row) => row.level)) : 0;
    const indent = INDENT * Math.min(deepest, MAX_INDENT);
    // Results have some letters of their own, the primitive all of them.
    this.element("sheet").style.setProperty("--text", `calc(${this.model.widestPrimitive + 24}ch + ${indent + 40}px)`);
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
    text.style.paddingLeft = `${8 + INDENT * Math.min(row.level, MAX_INDENT)}px`;
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
    text.append(...this.groups(parts, row));
    element.append(text);
    if (row.kind === "equation") this.columns(element, row);
    return element;
  }

  /** The parts of a row: those before and behind the primitive give way, the primitive never. */
  groups(parts, row) {
    const spans = parts.map(([style, part]) => this.part(style, part, row.place));
    if (row.kind !== "equation") {
      const whole = make("span", "operands");
      whole.append(...spans);
      return [whole];
    }
    const at = parts.findIndex(([style]) => style === "primitive");
    const results = make("span", "results");
    // The last part before it is the sign of equality.
    results.append(...spans.slice(0, Math.max(0, at - 1)));
    const operands = make("span", "operands");
    const hasParams = parts[at + 1]?.[0] === "params";
    const params = hasParams ? [spans[at + 1]] : [];
    operands.append(...spans.slice(at + 1 + params.length));
    return [results, ...spans.slice(Math.max(0, at - 1), at + 1), ...params, operands];
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
    this.makeRoom();
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
      add("scope", this.model.scope(place, eqn));
      if (this.model.stack(place, eqn) !== this.model.scope(place, eqn)) {
        add("name stack", this.model.stack(place, eqn));
      }
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
      this.report.resize();
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

/** The views of costs and memory. */
class Report {
  constructor(page) {
    this.page = page;
    this.model = page.model;
    this.opened = new Set();
    this.element = page.element;
    this.of = this.model.data.cost.total[FLOPS] > 0 ? FLOPS : BYTES;
    this.by = this.hasScopes() ? "scopes" : "lines";
  }

  /** Whether most of the cost is in name scopes. */
  hasScopes() {
    const { scopes, total } = this.model.data.cost;
    const outermost = scopes.filter((row) => !row[NAME].includes("/"));
    const within = outermost.reduce((sum, row) => sum + row[this.of], 0);
    return scopes.length > 0 && 2 * within >= total[this.of];
  }

  open(id) {
    if (!this.opened.has(id)) {
      this.opened.add(id);
      if (id === "cost") this.costs();
      else this.memory();
    }
    this.resize();
  }

  resize() {
    this.costFlame?.draw();
    this.memoryFlame?.draw();
  }

  // ---- costs ----

  costs() {
    const { cost } = this.model.data;
    const text = (found, root) => {
      const amount = this.of === BYTES ? `${bytes(found.value)} read and written` : `${count(found.value)} flops`;
      const parts = [found.path.join(" / ") || "all", amount, percent(found.value, root.value), found.detail];
      return parts.filter(Boolean).join("  ·  ");
    };
    this.costFlame = new Flame(this.element("cost-flame"), this.element("cost-note"), text);
    const choices = cost.scopes.length ? [["scopes", "Scopes"], ["lines", "Lines"]] : [["lines", "Lines"]];
    this.choice("cost-by", choices, this.by, (by) => this.flameOf(by, this.of));
    this.choice("cost-of", [[FLOPS, "Flops"], [BYTES, "Bytes"]], this.of, (of) => this.flameOf(this.by, of));
    this.flameOf(this.by, this.of);
    const tables = [this.shares("by-line", cost.lines), this.shares("by-primitive", cost.primitives)];
    this.element("by-scope").hidden = cost.scopes.length === 0;
    if (cost.scopes.length) tables.push(this.shares("by-scope", cost.scopes));
    this.filter("cost-filter", [this.costFlame, ...tables]);
    const remarks = [
      ...cost.unknown.map(([name, number]) => `Not counted: ${name}, ${times(number)}.`),
      ...cost.loops.map((line) => `Taken to run ${times(cost.while_trips)}: the while loop at ${line}.`),
    ];
    this.element("cost-remarks").hidden = remarks.length === 0;
    this.element("cost-remarks").replaceChildren(...remarks.map((remark) => make("li", "", remark)));
  }

  flameOf(by, of) {
    const { cost } = this.model.data;
    this.by = by;
    this.of = of;
    this.costFlame.show((by === "scopes" ? scopeTree : lineTree)(cost[by], cost.total, of));
  }

  /** Buttons of which one is pressed. */
  choice(id, choices, chosen, choose) {
    const buttons = choices.map(([value, text]) => {
      const button = make("button", "", text);
      button.type = "button";
      button.setAttribute("aria-pressed", String(value === chosen));
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        choose(value);
      });
      return button;
    });
    this.element(id).replaceChildren(...buttons);
    this.element(id).hidden = choices.length < 2;
  }

  filter(id, shown) {
    this.element(id).addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      const [flame, ...tables] = shown;
      flame.highlight(words);
      for (const table of tables) table.filter(words);
    });
  }

  shares(id, rows) {
    const { total } = this.model.data.cost;
    // As `Share.part_of`: of the arithmetic; of the bytes where there is none.
    const work = (row) => row[FLOPS] + row[TRANSCENDENTALS];
    const part = (row) => (work(total) ? work(row) / work(total) : total[BYTES] ? row[BYTES] / total[BYTES] : 0);
    const what = { "by-scope": "scope", "by-line": "line", "by-primitive": "primitive" }[id];
    const amount = (name, column, text, title) => ({
      name,
      title,
      value: (row) => row[column],
      show: (row) => (row[column] ? text(row[column]) : "0"),
    });
    const columns = [
      { name: what, isText: true, value: (row) => row[NAME], show: (row) => this.name(row[NAME], what) },
      {
        name: "share",
        title: "Of the flops and transcendental functions of the program",
        value: part,
        show: (row) => share(part(row)),
      },
      amount("flops", FLOPS, count),
      amount("transcendentals", TRANSCENDENTALS, count, "Evaluations of transcendental functions"),
      amount("bytes", BYTES, bytes, "Bytes that are read or written"),
      {
        name: "ops / byte",
        title: "Flops and transcendental functions for each byte",
        value: (row) => (row[BYTES] ? work(row) / row[BYTES] : 0),
        show: (row) => (row[BYTES] ? work(row) / row[BYTES] : 0).toFixed(2),
      },
    ];
    const whole = (number) => number.toLocaleString();
    if (what === "scope") columns.push(amount("parameters", PARAMETERS, whole, "Elements of weights that its equations read"));
    columns.push(amount("runs", TIMES, whole, "How often its equations run"));
    return new SortedTable(this.element(id).querySelector(".table"), columns, rows, (row) => row[NAME], 1);
  }

  /** A name that leads to its equations. */
  name(name, what) {
    const button = make("button", "link");
    button.type = "button";
    const at = name.lastIndexOf("/") + 1;
    button.title = `${name}: show its equations`;
    if (what === "scope" && at) button.append(make("span", "weak", name.slice(0, at)));
    button.append(what === "primitive" ? name : name.slice(at));
    button.addEventListener("click", () => this.page.showFound(name));
    return button;
  }

  // ---- memory ----

  memory() {
    const { memory } = this.model.data;
    const alive = this.model.alive();
    const peak = this.element("peak");
    peak.append(make("strong", "", bytes(memory.peak)), ` in ${plural(alive.length, "value")}`);
    if (memory.at === null) peak.append(memory.peak ? ", before the first equation or after the last one" : "");
    else {
      const [place, eqn] = memory.at;
      const button = make("button", "link", `${this.model.primitive(place, eqn)}, equation ${eqn} of ${this.model.programs[place].name}`);
      button.type = "button";
      button.addEventListener("click", () => this.page.show(place, eqn));
      peak.append(", at ", button);
    }
    const text = (found, root) =>
      [found.path.join(" / ") || "all", bytes(found.value), percent(found.value, root.value)].filter(Boolean).join("  ·  ");
    this.memoryFlame = new Flame(this.element("memory-flame"), this.element("memory-note"), text);
    this.memoryFlame.show(memoryTree(alive, memory.peak));
    const columns = [
      { name: "value", isText: true, value: (value) => value.name, show: (value) => this.value(value) },
      { name: "what", isText: true, value: (value) => value.kind, show: (value) => value.kind },
      { name: "type", isText: true, value: (value) => value.type, show: (value) => make("span", "type", value.type) },
      { name: "bytes", value: (value) => value.bytes, show: (value) => bytes(value.bytes) },
      { name: "share", value: (value) => value.bytes, show: (value) => share(memory.peak ? value.bytes / memory.peak : 0) },
      { name: "scope", isText: true, value: (value) => value.scope, show: (value) => make("span", "weak", value.scope) },
      { name: "line", isText: true, value: (value) => value.line, show: (value) => this.place(value.line) },
    ];
    const nameOf = (value) => `${value.name} ${value.kind} ${value.type} ${value.scope} ${value.line}`;
    const table = new SortedTable(this.element("alive").querySelector(".table"), columns, alive, nameOf, 3);
    this.filter("memory-filter", [this.memoryFlame, table]);
  }

  value(value) {
    if (value.at === null) return make("span", "", value.name);
    const button = make("button", "link", value.name);
    button.type = "button";
    button.title = "Show its equation";
    button.addEventListener("click", () => this.page.show(...value.at));
    return button;
  }

  place(line) {
    const element = make("span", "weak", line.slice(line.lastIndexOf("/") + 1));
    element.title = line;
    return element;
  }
}

/** A share of the whole, with a bar. */
function share(part) {
  const element = make("span", "share", percent(part, 1));
  element.style.backgroundSize = `${100 * Math.min(1, part)}% 100%`;
  return element;
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
