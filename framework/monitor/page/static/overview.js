// The views of what goes on now: overview, tasks, and the checkpoint in progress.
import { bytes, count, date, el, rate, seconds, show, stageOf, table, time } from "./dom.js";
import { lastHours } from "./charts.js";
import { draw } from "./graph.js";

const BOUNDS = {
  unacked_bytes_max: "the log is slow to acknowledge",
  sink_buffer_bytes_max: "outputs wait for their sink",
  downstream_lag_messages_max: "downstream tasks are too far behind",
  sink: "no connection to the sink yet",
};
const STATES = {
  running: ["running", "good"], dead: ["dead: it starts again", "bad"], fenced: ["fenced", "bad"],
  silent: ["its process says nothing", "bad"], blocked: ["your code blocks", "bad"],
  ended: ["ended: it starts again", "bad"], halted: ["halted", "bad"],
  starting: ["starting", "warn"], genesis: ["starting", "warn"], announcing: ["starting", "warn"],
  reclaiming: ["rolling back", "warn"], stopped: ["stopped", "warn"], unknown: ["unknown", "warn"],
};
const ENDED = ["dead", "fenced", "ended", "halted", "silent", "blocked"];
const STEPS = {
  outputs: "waits until its outputs are acknowledged", data: "writes its changes to the changelog",
  commit: "waits until its commit is durable", verify: "checks that no other process took over", apply: "writes to its store",
};
const WAITING = 10; // messages between two stages from which on they are told: a few always are on their way
const LATE = 30; // s since the last report of a machine, from which on it is told
const FEW = 12; // tasks of a stage that are all shown
const WORST = 6; // of more, these
const open = new Set(); // stages of which all tasks are shown, and problems of which all places are

const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
const figure = (value, text) => el("div", { class: "figure" }, el("b", {}, value), el("span", {}, text));

export function tag(state) {
  const [text, kind] = STATES[state] ?? [state, "warn"];
  return el("span", { class: `tag ${kind}` }, text);
}

function stages(graph, now) {
  return graph.nodes.filter((node) => node.kind === "stage").map((node) => ({
    node, tasks: now.tasks.filter((task) => task.stage === node.name),
  })).filter((each) => each.tasks.length);
}

// What was found at the other places, folded: eight partitions may have one cause.
function others(each) {
  if (!each.others.length) return null;
  const turn = (event) => { if (event.target.open) open.add(`/${each.what}`); else open.delete(`/${each.what}`); };
  return el("details", { open: open.has(`/${each.what}`), ontoggle: turn }, el("summary", { id: `others-${each.what}` }, `${each.others.length} more`), el("ul", {}, each.others.map((text) => el("li", {}, text))));
}

function link(graph, { link: to }) {
  const [view, query = ""] = to.split("?");
  const topic = new URLSearchParams(query).get("topic");
  if (!to || (topic && !graph.topics.includes(topic))) return null;
  return el("p", {}, el("a", { href: `#/${to}` }, { topics: "The record", letters: "The records", tasks: "The tasks" }[view]));
}

function findings(graph, now) {
  if (!now.findings.length && !now.tasks.some((task) => task.restore)) return el("p", { class: "soft" }, "No problem found.");
  return now.findings.map((each) =>
    el("section", { class: `finding ${each.level}` },
      el("h3", {}, `${each.where}: ${each.what}`, each.code && el("span", { class: "tag" }, each.code)),
      el("p", { class: "soft" }, "since ", el("time", { datetime: date(each.since_ms) }, time(each.since_ms)), `, for ${seconds((now.at_ms - each.since_ms) / 1000)}`),
      each.value.includes("\n") ? el("pre", {}, each.value) : el("p", {}, each.value),
      traceback(now, each), others(each), link(graph, each),
      each.remedy && el("p", { class: "soft" }, `What to do: ${each.remedy}.`)));
}

// The lines of the user's code that ended the worker of a finding.
function traceback(now, finding) {
  const worker = now.workers.find((each) => finding.places.includes(each.place) && each.traceback);
  return worker?.traceback && el("pre", {}, worker.traceback);
}

function incidents(now) {
  if (!now.incidents.length) return el("p", { class: "soft" }, "None since this process began.");
  return el("ol", { class: "incidents" }, now.incidents.map((each) =>
    el("li", {}, el("time", { datetime: date(each.at_ms) }, time(each.at_ms)),
      each.text.includes("\n") ? el("pre", {}, each.text) : el("span", {}, each.text))));
}

function worst(tasks) {
  if (tasks.some((task) => ENDED.includes(task.state) || task.sink_trouble)) return "bad";
  return tasks.every((task) => task.state === "running") ? "" : "warn";
}

function restores(now) {
  return now.tasks.filter((task) => task.restore).map((task) => el("section", { class: "finding warning" }, el("h3", {}, task.name), restore(task)));
}

export function overview(content, { graph, now, redraw }) {
  const running = now.tasks.filter((task) => task.state === "running").length;
  const sources = graph.edges.flatMap((edge, index) => (edge.source.startsWith("topic:") ? [now.rates[index]] : []));
  const lags = now.tasks.filter((task) => task.lag !== null && task.lag !== undefined);
  const look = (node) => {
    const own = now.tasks.filter((task) => task.stage === node.name);
    if (node.kind !== "stage") return { first: node.kind === "topic" ? "topic" : node.text };
    const up = own.filter((task) => task.state === "running").length;
    const bad = now.findings.some((each) => each.level === "error" && each.places.some((place) => stageOf(place) === node.name));
    return { kind: bad ? "bad" : worst(own), first: `${up} of ${own.length} ${own.length === 1 ? "task" : "tasks"} running`,
      second: own.length ? `checkpoint ${seconds(Math.max(...own.map((task) => task.age_s ?? 0)))} old` : "elsewhere" };
  };
  const flow = (edge, index) => {
    const value = now.rates[index];
    const waiting = now.waiting[index] >= WAITING ? `, ${count(now.waiting[index])} wait` : "";
    return { text: value === null ? "" : rate(value) + waiting, flows: value > 0 && !now.ended };
  };
  show(content,
    el("h2", {}, "Problems"), findings(graph, now), restores(now),
    el("div", { class: "figures" },
      figure(`${running} of ${now.tasks.length}`, "tasks run"),
      figure(seconds(now.gap_s), `from the freshest task to the slowest${now.gap_s > 1 ? `, ${now.slowest}` : ""}`),
      figure(rate(sources.some((value) => value !== null) ? sum(sources) : null), "input records committed"),
      figure(lags.length ? count(sum(lags.map((task) => task.lag))) : "–", "input records waiting")),
    lastHours(content.clientWidth, redraw), machines(now),
    el("h2", {}, "The graph"),
    el("div", { class: "graph" }, draw(graph, content.clientWidth, look, flow, `The graph of ${graph.job}, with rates`)),
    now.tasks.length > FEW && [el("h2", {}, "Checkpoint ages"), stages(graph, now).map(({ node, tasks: own }) =>
      own.length > 1 && el("div", { class: "strip" }, el("a", { href: `#/tasks?stage=${encodeURIComponent(node.name)}` }, node.name), strip(own)))],
    el("h2", {}, "Events"), incidents(now));
}

// The members of the job: all see the whole of it.
function machines(now) {
  if (!now.machines.length) return null;
  const state = (each) => (each.leaving ? tag("leaving") : each.here ? el("span", { class: "tag good" }, "this machine")
    : each.reported_s === null ? tag("no report yet") : el("span", { class: `tag ${each.reported_s < LATE ? "good" : "warn"}` }, `reported ${seconds(each.reported_s)} ago`));
  const rows = now.machines.map((each) => ({
    cells: [each.machine, state(each), count(each.owns), count(each.running), count(each.standbys), rate(each.rate), count(each.lag),
      bytes(each.disk_free_bytes), each.code || "–", each.since_ms ? el("time", { datetime: date(each.since_ms) }, date(each.since_ms)) : "–"],
  }));
  return [el("h2", {}, "Machines"),
    table("Machines", ["machine", "state", "partitions", "tasks running", "standbys", "in", "lag", "free on disk", "code", "since"], rows, { class: "rows" }), moves(now)];
}

const WHY = { start: "it had no machine", join: "a machine has joined", leave: "its machine stops", death: "its machine was silent",
  balance: "the load is shared again", halt: "it has halted" };

function moves(now) {
  const turn = (event) => { if (event.target.open) open.add("/moves"); else open.delete("/moves"); };
  return now.moves.length > 0 && el("details", { open: open.has("/moves"), ontoggle: turn }, el("summary", { id: "moves" }, `${now.moves.length} moves of partitions in the last hours`),
    table("Moves of partitions", ["when", "partition", "from", "to", "why"], now.moves.map((each) => ({
      cells: [el("time", { datetime: date(each.at_ms) }, date(each.at_ms)), each.partition, each.source || "–", each.target || "–", WHY[each.cause]] })), { class: "rows" }));
}

// --- tasks ---

function waits(task) {
  if (task.behind?.tasks.length) return `${task.behind.tasks.join(", ")}, for ${seconds(task.behind.since_s)}`;
  return task.waits ? task.waits : "–";
}

function holds(graph, task) {
  if (task.held_up && task.held_by) {
    const bound = graph.bounds[task.held_by];
    const shown = bound === undefined ? "" : ` (${task.held_by} = ${task.held_by.includes("bytes") ? bytes(bound) : count(bound)})`;
    return el("span", { class: "tag warn" }, `held: ${BOUNDS[task.held_by] ?? ""}${shown}`);
  }
  return task.held_up ? "held" : "–";
}

function buffers(task) {
  const has = task.buffers ?? {};
  const early = has.early_bytes ?? { memory: 0, disk: 0 };
  const parts = [
    ["uncommitted", has.uncommitted_bytes], ["unacknowledged", has.unacknowledged_bytes], ["held outputs", has.held_bytes],
    ["early, memory", early.memory], ["early, disk", early.disk], ["for sinks", has.sink_bytes],
  ].filter(([, size]) => size > 0);
  return parts.length ? parts.map(([name, size]) => `${name} ${bytes(size)}`).join(", ") : "empty";
}

function restore(task) {
  const { done, end, left_s } = task.restore;
  const text = `restoring: ${count(done)} of ${count(end)} messages, ${left_s === null ? "time not known yet" : `about ${seconds(left_s)} left`}`;
  return [tag(task.state), " ", text, el("progress", { max: end, value: done, "aria-label": `restore of ${task.name}` })];
}

function lag(task) {
  const streams = task.stream_lag === null || task.stream_lag === undefined ? null : `${count(task.stream_lag)} messages`;
  return task.lag === null || task.lag === undefined ? streams ?? "–" : [count(task.lag), streams && `, ${streams}`];
}

function taskTable(graph, now, stage, tasks) {
  const columns = ["task", "host", "state", "checkpoint age", "lag", "waits for", "back-pressure", "buffers", "in", "out"];
  const rows = tasks.map((task) => ({
    class: ENDED.includes(task.state) ? "bad" : null,
    cells: [task.name, `${task.host}${task.pid ? `, pid ${task.pid}` : ""}`, task.restore ? restore(task) : tag(task.state),
      seconds(task.age_s), lag(task), waits(task), holds(graph, task), buffers(task), rate(task.in), rate(task.out)],
  }));
  return table(`Tasks of ${stage}`, columns, rows, { class: "rows" });
}

const heat = (age) => (age === null || age === undefined ? "var(--line)"
  : `color-mix(in srgb, var(--bad) ${Math.min(100, Math.round(Math.max(0, age - 1) * 11))}%, rgb(var(--heat)))`);

// A cell for each task, by the age of its checkpoint: 64 partitions at a glance.
function strip(tasks) {
  const oldest = tasks.reduce((old, task) => ((task.age_s ?? -1) > (old.age_s ?? -1) ? task : old), tasks[0]);
  const bar = el("div", { class: "bars", role: "img",
    "aria-label": `ages of checkpoints, ${tasks.length} tasks: the oldest is ${seconds(oldest.age_s)}, ${oldest.name}` });
  for (const task of tasks) {
    const cell = el("span", { title: `${task.name}${task.host && `, ${task.host}`}: ${seconds(task.age_s)}` });
    cell.style.flex = "1";
    cell.style.background = task.state === "dead" ? "var(--bad)" : heat(task.age_s);
    bar.append(cell);
  }
  return bar;
}

export function tasks(content, { graph, now, query, redraw }) {
  const wanted = query.get("stage");
  const parts = stages(graph, now).filter(({ node }) => !wanted || node.name === wanted).map(({ node, tasks: own }) => {
    const all = own.length <= FEW || open.has(node.name);
    const severity = (task) => (task.state === "running" ? 0 : 1e9) + (task.sink_trouble ? 1e8 : 0)
      + (task.held_up || task.behind ? 1e7 : 0) + (task.age_s ?? 1e6);
    const shown = all ? own : [...own].sort((a, b) => severity(b) - severity(a)).slice(0, WORST);
    const ages = own.map((task) => task.age_s).filter((age) => age !== null);
    return [
      el("h2", {}, node.name),
      el("p", { class: "soft" }, `${own.length} ${own.length === 1 ? "task" : "tasks"}, ${node.mode}, in ${rate(sum(own.map((task) => task.in)))}, `,
        `out ${rate(sum(own.map((task) => task.out)))}, lag ${count(own.some((task) => task.lag !== null) ? sum(own.map((task) => task.lag)) : null)}, `,
        `checkpoints ${ages.length ? `${seconds(Math.min(...ages))} to ${seconds(Math.max(...ages))}` : "none"} old`),
      own.length > 1 && strip(own),
      taskTable(graph, now, node.name, shown),
      own.length > FEW && more(node.name, all, own.length, "tasks", "furthest behind", redraw),
    ];
  });
  show(content, wanted && el("p", {}, el("a", { href: "#/tasks" }, "All stages")), parts, !wanted && workers(now, redraw), !wanted && standbys(now));
}

function standbys(now) {
  const rows = now.standbys.map((each) => ({
    cells: [String(each.partition), each.host, el("span", { class: `tag ${each.running && each.state !== "stopped" ? "good" : "bad"}` },
      each.running ? `${each.state}, pid ${each.pid}` : "does not run"), count(each.behind), count(each.starts)],
  }));
  return rows.length > 0 && [el("h2", {}, "Standbys"),
    table("Standbys", ["partition", "machine", "state", "messages behind", "starts"], rows, { class: "rows" })];
}

function workers(now, redraw) {
  const all = now.workers.length <= FEW || open.has("/workers");
  const severity = (worker) => (worker.running ? 0 : 1e6) + worker.starts * 10 + (worker.busy ?? 0);
  const shown = all ? now.workers : [...now.workers].sort((a, b) => severity(b) - severity(a)).slice(0, WORST);
  const rows = shown.map((worker) => ({
    cells: [String(worker.number), worker.host, count(worker.partitions.length), el("span", { class: `tag ${worker.running ? "good" : "bad"}` },
      worker.running ? `runs, pid ${worker.pid}` : worker.fenced ? "fenced" : "does not run"), count(worker.starts),
    worker.busy === null ? "–" : `${Math.min(100, Math.round(worker.busy * 100))} %`, bytes(worker.rocksdb_memory_bytes), bytes(worker.state_disk_bytes)],
  }));
  return [el("h2", {}, "Workers"),
    table("Workers", ["worker", "machine", "partitions", "state", "starts", "busy", "RocksDB memory", "state on disk"], rows, { class: "rows" }),
    now.workers.length > FEW && more("/workers", all, now.workers.length, "workers", "started most often, or busiest", redraw)];
}

// A button that shows all rows of a table, or only the first ones again.
function more(key, all, length, what, which, redraw) {
  const turn = () => { if (all) open.delete(key); else open.add(key); redraw(); };
  return el("button", { class: "plain", id: `all-${key}`, "aria-expanded": String(all), onclick: turn },
    all ? `Only the ${WORST} ${which}` : `All ${length} ${what} (these are the ${WORST} ${which})`);
}

// --- the checkpoint in progress ---

let followed = null; // {id, since_ms, arrived: stage → ms}
const complete = []; // the last ones, newest first

const reached = (task, id) => (task.checkpoint_id ?? -1) >= id;

// Follows one checkpoint until all tasks have it, then the next one: a reader can see it move.
export function follow(graph, now) {
  const first = new Set(graph.edges.flatMap((edge) => (edge.source.startsWith("topic:") ? [edge.target.slice(6)] : [])));
  const sources = now.tasks.filter((task) => first.has(task.stage));
  const known = (sources.length ? sources : now.tasks).filter((task) => task.checkpoint_id);
  if (followed && now.tasks.every((task) => reached(task, followed.id))) {
    complete.unshift({ id: followed.id, at_ms: now.at_ms, took_s: Math.max(0, (now.log_ms - followed.id) / 1000) });
    complete.length = Math.min(complete.length, 20);
    followed = null;
  }
  if (!followed && known.length) {
    const id = Math.max(...known.map((task) => task.checkpoint_id));
    if (!complete.some((each) => each.id >= id)) followed = { id, since_ms: now.at_ms };
  }
}

function step(task, id) {
  if (reached(task, id)) return "has it";
  if (task.state !== "running") return (STATES[task.state] ?? [task.state])[0];
  if (task.commit) return `commits ${task.commit[0] >= id ? "it" : "an earlier one"}: ${STEPS[task.commit[1]] ?? task.commit[1]}`;
  if (task.behind?.tasks.length) return `waits for the markers of ${task.behind.tasks.join(", ")}`;
  const [arrived, of] = task.channels ?? [0, 0];
  return of ? `aligns: ${arrived} of ${of} markers have arrived` : "has not closed it yet";
}

export function checkpoint(content, { graph, now }) {
  const id = followed?.id ?? complete[0]?.id ?? null;
  if (id === null) { show(content, el("p", {}, "No task has committed a checkpoint yet.")); return; }
  const look = (node) => {
    if (node.kind !== "stage") return { first: node.kind === "topic" ? "topic" : node.text };
    const own = now.tasks.filter((task) => task.stage === node.name);
    const there = own.filter((task) => reached(task, id)).length;
    return { kind: there === own.length ? "" : "warn", first: `${there} of ${own.length} have it`, done: own.length ? there / own.length : 0 };
  };
  const flow = (edge) => {
    const from = now.tasks.filter((task) => `stage:${task.stage}` === edge.source);
    const to = now.tasks.filter((task) => `stage:${task.stage}` === edge.target);
    const crosses = from.some((task) => reached(task, id)) && to.some((task) => !reached(task, id));
    return { text: crosses ? "markers" : "", flows: crosses };
  };
  const missing = now.tasks.filter((task) => !reached(task, id));
  show(content,
    el("h2", {}, `Checkpoint ${id}`),
    el("p", {}, missing.length
      ? `Closed at ${time(id)}; ${now.tasks.length - missing.length} of ${now.tasks.length} tasks have it after ${seconds((now.log_ms - id) / 1000)}.`
      : `Closed at ${time(id)}; all tasks have it. The next one is not closed yet: an idle job closes them seldom.`),
    el("div", { class: "graph" }, draw(graph, content.clientWidth, look, flow, `Checkpoint ${id} on its way through the graph`)),
    missing.length > 0 && [el("h2", {}, "Who does not have it yet"),
      table("Tasks without this checkpoint", ["task", "what it does", "its last checkpoint"],
        missing.slice(0, 50).map((task) => ({ cells: [task.name, step(task, id), task.checkpoint_id ? `${task.checkpoint_id} (${seconds(task.age_s)} old)` : "none"] })), { class: "rows" })],
    el("h2", {}, "Complete checkpoints, as this page saw them"),
    complete.length
      ? table("Complete checkpoints", ["checkpoint", "closed", "complete within"], complete.map((each) => ({
        cells: [el("a", { href: `#/state?checkpoint=${each.id}` }, each.id), time(each.id), seconds(each.took_s)] })), { class: "rows" })
      : el("p", { class: "soft" }, "None yet."));
}

export const recent = () => complete.map((each) => each.id);
