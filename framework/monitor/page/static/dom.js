// Makes elements. What comes from a job only ever becomes text: nothing here parses markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// Puts children in the place of what a node has, and keeps the focus on the element of the same id.
export function show(node, ...children) {
  const focus = document.activeElement && node.contains(document.activeElement) ? document.activeElement.id : "";
  node.replaceChildren(...children.flat(3).filter(Boolean));
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

export function table(caption, columns, rows, options = {}) {
  const head = el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map((row) =>
    el("tr", { class: row.class }, row.cells.map((cell, index) =>
      index === 0 ? el("th", { scope: "row" }, cell) : el("td", { "data-label": columns[index], class: options.classes?.[index] }, cell))));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: options.class }, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body)));
}

// --- numbers and times in words ---

export const count = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return `${value === 0 ? "0" : value < 10 ? value.toFixed(1) : count(value)}/s`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < 4; unit += 1) value /= 1024;
  return `${unit ? value.toFixed(value < 10 ? 1 : 0) : value} ${units[unit]}`;
}

export const time = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const date = (ms) => new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z$/, "Z");

// The stage of a task's name.
export const stageOf = (task) => task.slice(0, task.lastIndexOf("-"));
