// Draws the graph of a job: layers from the inputs to the outputs, left to right, or downwards where it is narrow.
import { svg } from "./dom.js";

const WIDE = { width: 164, height: 58, along: 104, across: 26 };
const NARROW = { width: 150, height: 56, along: 52, across: 14 };
const MARGIN = 14;

function layers(graph) {
  const layer = new Map(graph.nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < graph.nodes.length; round += 1) {
    let moved = false;
    for (const edge of graph.edges) {
      if (layer.get(edge.target) <= layer.get(edge.source)) {
        layer.set(edge.target, layer.get(edge.source) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  // A topic that is only read stands just before its first reader.
  for (const node of graph.nodes) {
    const out = graph.edges.filter((edge) => edge.source === node.id).map((edge) => layer.get(edge.target));
    if (out.length && !graph.edges.some((edge) => edge.target === node.id)) layer.set(node.id, Math.min(...out) - 1);
  }
  const rows = [];
  for (const node of graph.nodes) (rows[layer.get(node.id)] ??= []).push(node.id);
  return rows.filter(Boolean);
}

// Orders each layer by where its neighbours in the layer before are.
function ordered(graph) {
  const rows = layers(graph);
  const at = new Map();
  rows.forEach((row) => row.forEach((id, index) => at.set(id, index)));
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const row of forward ? rows : [...rows].reverse()) {
      const middle = (id) => {
        const near = graph.edges.flatMap((edge) =>
          (forward ? edge.target === id : edge.source === id) ? [at.get(forward ? edge.source : edge.target)] : []);
        return near.length ? near.reduce((sum, each) => sum + each, 0) / near.length : at.get(id);
      };
      const sorted = row.map((id) => [middle(id), at.get(id), id]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      sorted.forEach(([, , id], index) => { row[index] = id; at.set(id, index); });
    }
  }
  return rows;
}

function places(graph, narrow) {
  const size = narrow ? NARROW : WIDE;
  const rows = ordered(graph);
  const [step, side] = narrow
    ? [size.height + size.along, size.width + size.across]
    : [size.width + size.along, size.height + size.across];
  const widest = Math.max(...rows.map((row) => row.length));
  const found = new Map();
  rows.forEach((row, layer) => row.forEach((id, index) => {
    const along = MARGIN + layer * step;
    const across = MARGIN + (index + (widest - row.length) / 2) * side;
    found.set(id, narrow ? { x: across, y: along } : { x: along, y: across });
  }));
  const far = 2 * MARGIN + (rows.length - 1) * step + (narrow ? size.height : size.width);
  const broad = 2 * MARGIN + (widest - 1) * side + (narrow ? size.width : size.height);
  return { found, size, width: narrow ? broad : far, height: narrow ? far : broad };
}

const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// ``look`` gives for a stage: class, two lines of text, and perhaps how much of it is done (0 to 1); ``flow`` for an
// edge its text and whether something flows.
export function draw(graph, room, look, flow, title) {
  const narrow = room < 620;
  const { found, size, width, height } = places(graph, narrow);
  const lines = graph.edges.map((edge, index) => {
    const from = found.get(edge.source);
    const to = found.get(edge.target);
    const [x1, y1, x2, y2] = narrow
      ? [from.x + size.width / 2, from.y + size.height, to.x + size.width / 2, to.y - 7]
      : [from.x + size.width, from.y + size.height / 2, to.x - 7, to.y + size.height / 2];
    const [dx, dy] = narrow ? [0, Math.max(24, (y2 - y1) / 2)] : [Math.max(40, (x2 - x1) / 2), 0];
    const { text, flows } = flow(edge, index);
    return [
      svg("path", { class: `edge${flows ? " flows" : ""}`, "marker-end": "url(#head)",
        d: `M${x1} ${y1} C${x1 + dx} ${y1 + dy} ${x2 - dx} ${y2 - dy} ${x2} ${y2}` }, svg("title", {}, `${edge.name}: ${text}`)),
      text && svg("text", { class: "rate", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - (narrow ? 0 : 6), "text-anchor": "middle" }, text),
    ];
  });
  const boxes = graph.nodes.map((node) => {
    const { x, y } = found.get(node.id);
    const { kind = "", first, second = "", done = null } = look(node);
    const texts = [
      svg("title", {}, `${node.name}: ${first}${second ? `, ${second}` : ""}`),
      svg("rect", { class: "node", x, y, width: size.width, height: size.height, rx: node.kind === "stage" ? 9 : 26 }),
      svg("text", { x: x + size.width / 2, y: y + 20, "text-anchor": "middle", "font-weight": 600 }, short(node.name, 21)),
      svg("text", { class: "small", x: x + size.width / 2, y: y + 36, "text-anchor": "middle" }, short(first, 27)),
      done === null
        ? svg("text", { class: "small", x: x + size.width / 2, y: y + 50, "text-anchor": "middle" }, short(second, 27))
        : [svg("rect", { class: "meter", x: x + 12, y: y + 43, width: size.width - 24, height: 6, rx: 3 }),
          svg("rect", { class: "done", x: x + 12, y: y + 43, width: (size.width - 24) * done, height: 6, rx: 3 })],
    ];
    return node.kind === "stage"
      ? svg("a", { href: `#/tasks?stage=${encodeURIComponent(node.name)}`, class: `stage ${kind}`, id: `node-${node.id}` }, texts)
      : svg("g", { class: node.kind }, texts);
  });
  const head = svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
    markerUnits: "userSpaceOnUse" }, svg("path", { class: "head", d: "M0 0 L8 4 L0 8 z" }));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title },
    svg("defs", {}, head), lines, boxes);
}
