"use strict";

// Tables sorted by a column or without jax's own functions, and the choice of a theme. The page is
// complete without.

const valueOf = (row, column) => {
  const cell = row.cells[column];
  const number = cell.dataset.value;
  return number === undefined ? cell.textContent : Number(number);
};

const compare = (one, other) =>
  typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));

const sortBy = (table, column) => {
  const heads = [...table.tHead.rows[0].cells];
  const head = heads[column];
  // Numbers begin with the largest.
  const first = head.classList.contains("number") ? "descending" : "ascending";
  const second = first === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? second : first;
  for (const each of heads) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
  rows.sort((one, other) => sign * compare(one[0], other[0]));
  body.append(...rows.map((pair) => pair[1]));
};

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(table, column));
    head.append(button);
  });
}

const own = document.getElementById("own");
if (own) {
  own.hidden = false;
  own.firstElementChild.addEventListener("change", (event) => {
    for (const table of document.querySelectorAll("table")) table.classList.toggle("own", event.target.checked);
  });
}

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement.classList;
  const isDark = root.contains("dark") || (!root.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  root.toggle("dark", !isDark);
  root.toggle("light", isDark);
});
