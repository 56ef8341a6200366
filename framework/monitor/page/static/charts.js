// The last hours: how far the slowest task is behind the freshest one, and the ages of checkpoints of a stage's tasks.
import { count, el, rate, seconds, show, svg, table, time } from "./dom.js";

const HEIGHT = 240;
const SMALL = 120;
const LEFT = 56;
const BOTTOM = 24;
const EVERY_MS = 5000;

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function chart(points, key, words, label, room, height = HEIGHT) {
  const width = Math.max(300, room - 24);
  const known = points.filter((point) => point[key] !== null);
  if (known.length < 2) return el("p", { class: "soft" }, "There are no points yet: one is kept every 5 s.");
  const [begin, end] = [points[0].at_ms, points[points.length - 1].at_ms];
  const top = Math.max(key === "busy" ? 1 : 2, nice(Math.max(...known.map((point) => point[key]))));
  const x = (ms) => LEFT + ((width - LEFT - 8) * (ms - begin)) / Math.max(1, end - begin);
  const y = (value) => 8 + (height - BOTTOM - 8) * (1 - value / top);
  const path = known.map((point, index) => `${index ? "L" : "M"}${x(point.at_ms).toFixed(1)} ${y(point[key]).toFixed(1)}`).join(" ");
  const grid = [0, 0.5, 1].map((part) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(top * part), y2: y(top * part) }),
    svg("text", { x: LEFT - 8, y: y(top * part) + 4, "text-anchor": "end" }, words(top * part)),
  ]);
  const parts = width < 600 ? 2 : 4;
  const ticks = Array.from({ length: parts + 1 }, (_, part) => {
    const at = begin + ((end - begin) * part) / parts;
    return svg("text", { x: x(at), y: height - 6, "text-anchor": part === 0 ? "start" : part === parts ? "end" : "middle" }, time(at));
  });
  return el("div", { class: "chart" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    grid, ticks,
    svg("path", { class: "area", d: `${path} L${x(known[known.length - 1].at_ms).toFixed(1)} ${y(0)} L${x(known[0].at_ms).toFixed(1)} ${y(0)} Z` }),
    svg("path", { class: "line", d: path })));
}

// A row for each task, a column for each stretch of time.
function heat(ages, stage) {
  const columns = Math.max(...ages.map((row) => row.ages.length), 1);
  const canvas = el("canvas", { class: "heat", width: columns, height: ages.length, role: "img",
    "aria-label": `ages of the checkpoints of ${ages.length} tasks of ${stage}` });
  canvas.style.height = `${Math.max(18, Math.min(18 * ages.length, 420))}px`;
  const context = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const [none, good, bad] = ["--line", "--good", "--bad"].map((name) => style.getPropertyValue(name));
  ages.forEach((row, line) => row.ages.forEach((age, column) => {
    context.globalAlpha = age === null ? 1 : 0.45; // quiet where all is well
    context.fillStyle = age === null ? none : good;
    context.fillRect(column, line, 1, 1);
    if (age !== null) {
      context.globalAlpha = Math.min(1, Math.max(0, age - 1) / 9);
      context.fillStyle = bad;
      context.fillRect(column, line, 1, 1);
    }
  }));
  return el("div", { class: "chart" }, canvas);
}

function worst(points) {
  const top = points.filter((point) => point.gap_s !== null).sort((a, b) => b.gap_s - a.gap_s).slice(0, 5);
  return table("The largest distances", ["at", "distance", "slowest task", "records waiting"],
    top.map((point) => ({ cells: [time(point.at_ms), seconds(point.gap_s), point.slowest, count(point.lag)] })), { class: "rows" });
}

const OF_JOB = [
  ["rate", rate, "Input records committed a second"],
  ["age_s", seconds, "Age of the oldest checkpoint"],
  ["lag", count, "Input records waiting"],
  ["busy", (share) => `${Math.round(share * 100)} %`, "Busy share of the busiest task"],
];
const kept = { asked_ms: 0, points: [] };

async function look(redraw) {
  kept.asked_ms = Date.now();
  const answer = await fetch("/page/history.json").then((each) => each.json()).catch(() => null);
  if (!answer) return;
  kept.points = answer.points;
  redraw();
}

// Four small charts of the job as a whole, asked for every few seconds, however often they are drawn.
export function lastHours(room, redraw) {
  if (Date.now() - kept.asked_ms >= EVERY_MS) look(redraw);
  if (kept.points.length < 2) return null;
  const columns = room < 600 ? 1 : 2;
  return el("div", { class: "small" }, OF_JOB.map(([key, words, label]) =>
    el("div", {}, el("p", { class: "soft" }, label), chart(kept.points, key, words, `${label}, over time`, room / columns - 12, SMALL))));
}

export function history(content, { graph, query, go }) {
  const names = graph.nodes.filter((node) => node.kind === "stage").map((node) => node.name);
  const stage = names.includes(query.get("stage")) ? query.get("stage") : names[names.length - 1];
  const choose = el("select", { id: "stage", onchange: (event) => go("history", { stage: event.target.value }) },
    names.map((name) => el("option", { value: name, selected: name === stage }, name)));
  const charts = el("div", {});
  const rows = el("div", {});
  show(content,
    el("h2", {}, "From the freshest task to the slowest"),
    el("p", { class: "soft" }, "The distance between their last checkpoints. It is small while all tasks keep up, and grows when one task is delayed."),
    charts,
    el("h2", {}, "Checkpoint ages by task"),
    el("form", {}, el("label", {}, "stage", choose)), rows);
  const ask = async () => {
    const answer = await fetch(`/page/history.json?stage=${encodeURIComponent(stage)}`).then((each) => each.json()).catch(() => null);
    if (!answer) return;
    const { points, ages } = answer;
    const last = points[points.length - 1];
    show(charts, chart(points, "gap_s", seconds, "distance between the freshest and the slowest task over time", content.clientWidth),
      last && el("p", {}, `Now ${seconds(last.gap_s)}. ${points.length} stretches of time since ${time(points[0].at_ms)}.`),
      points.length > 1 && worst(points),
      el("h2", {}, "Input records waiting"), chart(points, "lag", count, "input records waiting over time", content.clientWidth));
    show(rows, ages.length ? heat(ages, stage) : el("p", {}, "The tasks of this stage are run by another process."),
      el("ul", { class: "legend" }, el("li", {}, "a row for each task, time from left to right"), el("li", {}, "green: up to 1 s old"),
        el("li", {}, "red: 10 s and more"), el("li", {}, "grey: no checkpoint yet")));
  };
  ask();
  const timer = setInterval(ask, EVERY_MS);
  return () => clearInterval(timer);
}
