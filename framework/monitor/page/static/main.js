// Chooses the view by the address, takes what the job says, and shows it. The page asks; it never acts.
import { changelog, letters, state, topics } from "./browse.js";
import { history } from "./charts.js";
import { el, show, time } from "./dom.js";
import { checkpoint, follow, overview, tasks } from "./overview.js";

const views = {
  "": { title: "Overview", draw: overview, live: true },
  tasks: { title: "Tasks", draw: tasks, live: true },
  checkpoint: { title: "Checkpoint", draw: checkpoint, live: true },
  history: { title: "History", draw: history },
  state: { title: "State", draw: state },
  topics: { title: "Topics", draw: topics },
  letters: { title: "Dead letters", draw: letters },
  changelog: { title: "Changelog", draw: changelog },
};

const content = document.getElementById("content");
const badge = document.getElementById("state");
let graph = null;
let now = null;
let connected = false;
let leave = () => {};
let told = new Set();

export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: Object.hasOwn(views, path) ? path : "", query: new URLSearchParams(query) };
}

export function go(name, query) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== null)).toString();
  location.hash = `/${name}${text ? `?${text}` : ""}`;
}

function selecting() {
  const selection = getSelection();
  return selection && !selection.isCollapsed && content.contains(selection.anchorNode);
}

// Draws a live view anew with each event, the other ones only when they are opened.
function draw(opened) {
  const { name } = place();
  const view = views[name];
  if (!graph || (view.live && !now)) {
    show(content, el("p", {}, graph ? "The job is starting …" : "Connecting …"));
    return;
  }
  if (!opened && (!view.live || selecting())) return;
  const scrolled = [...content.querySelectorAll(".wide, .graph")].map((node) => node.scrollLeft);
  if (opened) leave();
  const done = view.draw(content, { graph, now, query: place().query, go, redraw: () => draw(false) });
  if (opened) leave = done ?? (() => {});
  if (!opened) content.querySelectorAll(".wide, .graph").forEach((node, index) => { node.scrollLeft = scrolled[index] ?? 0; });
}

function open() {
  const { name } = place();
  document.title = `${views[name].title} · ${graph ? graph.job : "Grete"}`;
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.getAttribute("href") === `#/${name}`;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  draw(true);
}

function health() {
  if (now && (now.ended?.kind === "halted" || now.workers.some((worker) => worker.halted))) return ["halted", "bad"];
  if (now?.ended) return [now.ended.kind, now.ended.kind === "stopped" ? "warn" : "bad"];
  if (!connected) return [now ? `connection lost: as of ${time(now.at_ms)}` : "connecting …", "warn"];
  if (!now) return ["starting", "warn"];
  const bad = now.findings.filter((each) => each.level === "error").length;
  if (bad) return [`${bad} ${bad === 1 ? "problem" : "problems"}`, "bad"];
  const running = now.tasks.filter((task) => task.state === "running").length;
  return running === now.tasks.length ? ["running", "good"] : [`${running} of ${now.tasks.length} tasks running`, "warn"];
}

function status() {
  const [text, kind] = health();
  if (badge.textContent !== text) badge.textContent = text;
  badge.className = `badge ${kind}`;
}

const said = (finding) => `${finding.where}: ${finding.what}`;

// Says aloud what is new among what is wrong.
function announce() {
  const news = now.findings.filter((each) => each.level === "error" && !told.has(said(each))).map(said);
  told = new Set(now.findings.map(said));
  if (news.length) document.getElementById("announce").textContent = news.join(". ");
}

async function connect() {
  try {
    graph = await (await fetch("/page/graph.json")).json();
  } catch {
    setTimeout(connect, 1000);
    return;
  }
  document.getElementById("job").textContent = graph.job;
  document.getElementById("foot").textContent =
    `This page only reads.${{ all: "", keys: " Values are hidden.", none: " Keys and values are hidden." }[graph.show_records]} Ages go by the clock of the log.`;
  open();
  const events = new EventSource("/page/live");
  events.onopen = () => { connected = true; status(); };
  events.onerror = () => { connected = false; status(); };
  events.onmessage = (event) => {
    connected = true;
    now = JSON.parse(event.data);
    follow(graph, now);
    status();
    announce();
    draw(false);
  };
}

addEventListener("hashchange", () => { open(); content.focus({ preventScroll: true }); scrollTo(0, 0); });
connect();
