// The list of models, with the version that answers and the failure of the next one.

import { spark } from "./charts.js";
import { byId, digest, h, keep, say } from "./dom.js";
import { bytes, count, duration, exactly, latency, many, number, secondsSince, short } from "./format.js";

// The number of rows drawn at first; there may be thousands of models.
const PAGE = 100;

let shown = PAGE;
let table;

/** The address of a model's page. */
export const link = (name) => `#/models/${name.split("/").map(encodeURIComponent).join("/")}`;

/** Connects the filter; `draw` draws the list again. */
export function connect(draw) {
  const anew = () => {
    shown = PAGE;
    draw();
  };
  byId("filter").addEventListener("input", anew);
  byId("troubled").addEventListener("change", anew);
  byId("more").addEventListener("click", () => {
    shown += PAGE;
    draw();
  });
}

/** Draws the list. */
export function list(state) {
  if (!state.models) return;
  const all = [...state.models.values()];
  const found = all.filter(matcher());
  const filtered = found.length < all.length;
  say(byId("count"), filtered ? `${count(found.length)} of ${count(all.length)}` : all.length > 0 ? count(all.length) : "");
  const more = byId("more");
  more.hidden = found.length <= shown;
  say(more, `Show more: ${many(found.length - shown, "model")} left`);
  const place = byId("models");
  if (found.length === 0) {
    table = undefined;
    const note = all.length === 0 ? empty(state) : h("p", { class: "empty" }, "No model matches.");
    if (place.dataset.note !== note.textContent) place.replaceChildren(note);
    place.dataset.note = note.textContent;
    return;
  }
  delete place.dataset.note;
  if (!table) {
    table = frame();
    place.replaceChildren(table);
  }
  const rows = found.sort(order).slice(0, shown);
  keep(table.tBodies[0], rows, (row) => row.name, make, (element, row) => update(element, row, state));
}

// Models with failures come first.
const order = (a, b) => Boolean(b.failure) - Boolean(a.failure) || (a.name < b.name ? -1 : 1);

function matcher() {
  const wanted = byId("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const troubled = byId("troubled").checked;
  return (row) => {
    if (troubled && !row.failure) return false;
    if (wanted.length === 0) return true;
    const text = [row.name, row.image, row.state, row.digest, row.failure?.reason, row.failure?.message, ...row.tags.map((tag) => tag.name)].join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
}

function empty({ overview }) {
  const where = overview?.about.repository ?? "registry.example/team";
  const tag = overview?.about.default_tag ?? "latest";
  return h("div", { class: "empty" },
    h("p", {}, h("strong", {}, "No models yet."), " One is known here once somebody asks for it, or when the configuration lists it under ", h("code", {}, "models"), "."),
    h("p", {}, "Push one, and ask for it:"),
    h("pre", {}, `outrigger push churn/ ${where}/churn:${tag}\noutrigger predict --model churn request.json`));
}

function frame() {
  const columns = ["Model", "State", "Version", "Tags", "Memory", "Traffic", "Latency, p95"];
  return h("table", { class: "list" },
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}));
}

function make() {
  const cell = (name) => h("td", { class: name });
  return h("tr", {}, h("th", { scope: "row" }), ["state", "version", "tags", "memory", "rate", "latency"].map(cell));
}

function update(element, row, state) {
  const [name, stage, version, tags, memory, rate, took] = element.cells;
  if (element.drawn !== row) {
    element.drawn = row;
    name.replaceChildren(h("a", { href: link(row.name) }, row.name), ...trouble(row));
    stage.replaceChildren(pill(row.state, row.failure), h("span", { class: "quiet age" }));
    version.replaceChildren(row.digest ? digest(row.digest, short(row.digest)) : "–", row.versions > 1 ? h("span", { class: "quiet" }, many(row.versions, "version")) : "");
    tags.replaceChildren(...row.tags.filter((tag) => tag.digest || tag.behind).map(label));
    memory.replaceChildren(row.memory_bytes > 0 ? `≈ ${bytes(row.memory_bytes)}` : "–", row.size_bytes > 0 ? h("span", { class: "quiet" }, `${bytes(row.size_bytes)} on disk`) : "");
    memory.title = "what the versions in the engine take by the size of their files; an engine does not tell";
  }
  age(stage.lastElementChild, row);
  const latest = state.traffic.latest(row.name);
  say(rate, latest ? `${number(latest.rate)}/s` : "–");
  if (element.sampled !== state.traffic.at) {
    element.sampled = state.traffic.at;
    took.replaceChildren(...(state.traffic.has(row.name) ? lines(state.traffic.of(row.name), latest, state) : ["–"]));
  }
}

function lines(points, latest, state) {
  const values = points.map((point) => [point.at, point.p95]);
  const label = `95th percentile over the last ${duration(state.traffic.seconds())}`;
  return [spark(values, { ...state.traffic.window(), width: 110, height: 26, label }), h("span", { class: "figure" }, latest ? latency(latest.p95) : "")];
}

function age(element, row) {
  const activity = ["idle", ""].includes(row.activity) ? "" : row.activity;
  const since = row.since ? duration(secondsSince(row.since)) : "";
  say(element, [activity, since].filter(Boolean).join(", "));
  if (row.since) element.title = `since ${exactly(row.since)}`;
}

function trouble(row) {
  if (!row.failure) return [];
  return [h("span", { class: "trouble", title: row.failure.message }, h("b", {}, row.failure.reason), ` ${row.failure.message}`)];
}

/** A state as a mark with a word. */
export function pill(state, failure) {
  return h("span", { class: "pill", "data-state": failure && state !== "available" ? "failed" : state }, state);
}

/** A tag as a mark; a tag that differs from the registry's is marked. */
export function label(tag) {
  return h("span", { class: "tag", "data-behind": tag.behind, title: tag.behind ? "the registry has another version" : null }, tag.name, tag.behind && h("span", { class: "quiet" }, tag.digest ? " moving" : " coming"));
}
