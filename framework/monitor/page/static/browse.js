// The views of what is stored: state, topics, dead letters, changelogs. Each is a question that the address holds.
import { count, date, el, show, table } from "./dom.js";
import { recent } from "./overview.js";

function select(id, label, values, value, texts = values) {
  return el("label", {}, label, el("select", { id, name: id },
    values.map((each, index) => el("option", { value: each, selected: each === value }, texts[index]))));
}

const field = (id, label, value, attributes = {}) =>
  el("label", {}, label, el("input", { id, name: id, value: value ?? "", autocomplete: "off", spellcheck: "false", ...attributes }));

function form(name, go, ...fields) {
  const submit = (event) => {
    event.preventDefault();
    go(name, Object.fromEntries(new FormData(event.target)));
  };
  return el("form", { onsubmit: submit, id: "question" }, fields, el("button", {}, "Read"));
}

// Asks; shows what comes, or the error with what to do. An answer to an older question is dropped.
function ask(place, path, query, draw) {
  let over = false;
  show(place, el("p", { role: "status" }, "Reading …"));
  fetch(`/page/${path}.json?${new URLSearchParams(query)}`)
    .then((answer) => answer.json())
    .catch(() => ({ error: "the process that serves this page does not answer" }))
    .then((answer) => {
      if (over) return;
      if (answer.error) show(place, el("section", { class: "finding bad", role: "alert" }, el("h3", {}, "This could not be read"), el("p", {}, answer.error)));
      else show(place, draw(answer));
    });
  return () => { over = true; };
}

const given = (query, names) => Object.fromEntries(names.map((name) => [name, query.get(name)]).filter(([, value]) => value));

export function state(content, { graph, query, go }) {
  if (!graph.stores.length) { show(content, el("p", {}, "The tasks of this job keep no state.")); return undefined; }
  const store = query.get("store") ?? graph.stores[0].name;
  const declared = graph.stores.find((each) => each.name === store) ?? graph.stores[0];
  const rows = el("div", {});
  show(content,
    el("h2", {}, "State"),
    el("p", { class: "soft" }, `Committed state, decoded by the declared serdes: ${declared.key} → ${declared.value}. A key of bytes is given in hex digits.`),
    form("state", go,
      select("store", "store", graph.stores.map((each) => each.name), declared.name),
      field("key", "key", query.get("key")), field("prefix", "or keys that begin with", query.get("prefix")),
      field("checkpoint", "as of checkpoint", query.get("checkpoint"), { list: "known", inputmode: "numeric", placeholder: "the newest" }),
      el("datalist", { id: "known" }, recent().map((id) => el("option", { value: id })))),
    rows);
  return ask(rows, "state", { ...given(query, ["key", "prefix", "checkpoint", "after"]), store: declared.name }, (answer) => [
    answer.notes.map((note) => el("p", { class: "soft" }, note)),
    answer.rows.length
      ? table(`Entries of ${store}`, ["key", "value", "partition"], answer.rows.map((row) => ({ cells: [row.key, row.value, row.partition] })), { class: "data" })
      : el("p", {}, "No entry."),
    pages(answer.next && { ...given(query, ["prefix", "checkpoint"]), store: declared.name, after: answer.next }, query.get("after") && { ...given(query, ["prefix", "checkpoint"]), store: declared.name }, "state", go),
  ]);
}

function pages(next, first, name, go, texts = ["From the beginning", "Next"]) {
  return el("p", {}, first && el("button", { class: "plain", id: "first", onclick: () => go(name, first) }, texts[0]), " ",
    next && el("button", { id: "next", onclick: () => go(name, next) }, texts[1]));
}

const MOST_READ = 1_000_000; // rows, by itself, until something is found: each question is a short one

// Asks for the latest rows that match, again and again until there is one; older ones are behind a button.
function latest(place, path, query, draw, name, go, read = 0) {
  let stop = ask(place, path, query, (answer) => {
    const all = read + answer.read;
    if (!answer.rows.length && answer.next && all < MOST_READ) {
      setTimeout(() => { if (stop) stop = latest(place, path, { ...query, after: answer.next }, draw, name, go, all); });
      return [el("p", { role: "status" }, `Nothing among ${count(all)} records. Reading older ones …`)];
    }
    const { after, ...first } = query;
    return [
      el("p", { class: "soft" }, `${count(all)} records read, of ${answer.partitions} ${answer.partitions === 1 ? "partition" : "partitions"}; ${answer.next ? "there are older ones." : "there are no older ones."}`),
      answer.rows.length ? draw(answer.rows) : el("p", {}, "Nothing here."),
      pages(answer.next && { ...first, after: answer.next }, after && first, name, go, ["The latest", "Older"]),
      answer.command && redrive(answer.command),
    ];
  });
  return () => { stop(); stop = null; };
}

// The command is made by the server, which quotes it; to copy it, the browser needs no permission.
function redrive(command) {
  const text = el("code", { id: "command" }, command);
  const copy = (event) => {
    getSelection().selectAllChildren(text);
    event.target.textContent = document.execCommand("copy") ? "Copied" : "Copy it by hand: it is selected";
  };
  return el("details", {}, el("summary", {}, "Send these again"),
    el("p", { class: "soft" }, "Repair the code, then run this where the job was started. It sends all letters that the filter selects, also older ones and those that come meanwhile, each once. This page cannot."),
    el("pre", {}, text), el("button", { class: "plain", id: "copy", onclick: copy }, "Copy"));
}

function records(content, { graph, query, go }, name, names, empty, draw) {
  if (!names.length) { show(content, el("p", {}, empty)); return undefined; }
  const topic = names.includes(query.get("topic")) ? query.get("topic") : names[0];
  const rows = el("div", {});
  const isLetters = name === "letters";
  const path = isLetters ? "letters" : "topic";
  const time = { placeholder: "2026-11-01T09:30 (UTC)" };
  show(content, el("h2", {}, isLetters ? "Dead letters" : "Topics"),
    el("p", { class: "soft" }, isLetters ? "Records that failed, with the error and the record as it came, the latest first." : "Records of the job's external topics, the latest first; from an offset of a partition on, in its order."),
    form(name, go, select("topic", "topic", names, topic), graph.show_records !== "none" && field("key", "key", query.get("key")),
      isLetters && field("error", graph.show_records === "all" ? "error contains" : "class of the error", query.get("error")),
      field("from", "from", query.get("from"), time), field("to", "before", query.get("to"), time),
      field("partition", "partition", query.get("partition"), { inputmode: "numeric", placeholder: "all" }),
      field("begin", "from offset", query.get("begin"), { inputmode: "numeric", placeholder: "the latest" })),
    rows);
  const asked = { topic, ...given(query, ["partition", "begin", "key", "error", "from", "to", "after"]) };
  if (!asked.begin) return latest(rows, path, asked, draw, name, go);
  return ask(rows, path, asked, (answer) => [
    el("p", { class: "soft" }, `Partition ${asked.partition} of ${answer.partitions}, offsets ${count(answer.start)} to ${count(answer.end)}.`),
    answer.rows.length ? draw(answer.rows) : el("p", {}, "Nothing here."),
    pages(answer.next && { ...asked, begin: answer.next }, answer.start < answer.end && { ...asked, begin: answer.start }, name, go),
  ]);
}

const headers = (pairs) => (pairs.length ? pairs.map(([name, value]) => `${name}: ${value}`).join("\n") : "–");

export function topics(content, view) {
  return records(content, view, "topics", view.graph.topics, "This job has no external topic.", (rows) =>
    table("Records", ["offset", "partition", "time", "key", "value", "headers"], rows.map((row) => ({
      cells: [row.offset, row.partition, date(row.timestamp_ms), row.key, row.value, headers(row.headers)] })), { class: "data" }));
}

export function letters(content, view) {
  return records(content, view, "letters", view.graph.dead_letters, "No input of this job has a dead-letter topic: Input(…, errors=DeadLetter(topic)) makes one.",
    (rows) => rows.map((row) => {
      const { error, traceback, ...told } = row.told;
      return el("section", { class: "finding bad" },
        el("h3", {}, error, row.again && [" ", el("span", { class: "badge" }, "sent again")]),
        el("p", { class: "soft" }, `Letter ${row.partition}/${row.offset}, ${date(row.timestamp_ms)}; ${Object.entries(told).map(([name, text]) => `${name} ${text}`).join(", ")}`),
        el("p", {}, "Key: ", el("code", {}, row.key)), el("p", {}, "Value: ", el("code", {}, row.value)),
        row.headers.length > 0 && el("pre", {}, headers(row.headers)),
        traceback && el("details", {}, el("summary", {}, "Traceback"), el("pre", {}, traceback)));
    }));
}

export function changelog(content, { graph, query, go }) {
  const stages = graph.nodes.filter((node) => node.kind === "stage").map((node) => node.name);
  const stage = stages.includes(query.get("stage")) ? query.get("stage") : stages[0];
  const partition = query.get("partition") ?? "0";
  const rows = el("div", {});
  show(content, el("h2", {}, "Changelog"),
    el("p", { class: "soft" }, "Messages of a task: its claims, the changes of its state, its commits. Without an offset: the last messages."),
    form("changelog", go, select("stage", "stage", stages, stage), field("partition", "partition", partition, { inputmode: "numeric" }),
      field("begin", "from offset", query.get("begin"), { inputmode: "numeric", placeholder: "the last ones" })),
    rows);
  return ask(rows, "changelog", { stage, partition, ...given(query, ["begin"]) }, (answer) => [
    el("p", { class: "soft" }, `Offsets ${count(answer.start)} to ${count(answer.end)}.`),
    table(`Changelog of ${stage}-${partition}`, ["offset", "appended", "generation", "seq", "type", "says"], answer.rows.map((row) => ({
      cells: [row.offset, date(row.append_time_ms), row.generation ?? "–", row.seq ?? "–", row.type, row.text] })), { class: "data" }),
    pages(answer.next && { stage, partition, begin: answer.next }, answer.start < answer.end && { stage, partition, begin: answer.start }, "changelog", go),
  ]);
}
