// The tiles: server, engines, store, memory, traffic.

import { spark } from "./charts.js";
import { byId, h } from "./dom.js";
import { ago, bytes, count, duration, exactly, latency, many, number } from "./format.js";

const KINDS = { tree: "models", blob: "layers", partial: "in download" };

/** Draws the tiles. */
export function tiles(state) {
  const { overview, traffic } = state;
  if (!overview) return;
  const parts = [server(overview), ...overview.engines.map(engine), store(overview), memory(overview), requests(traffic)];
  byId("tiles").replaceChildren(...parts.filter(Boolean));
}

function tile(title, health, value, ...lines) {
  const shown = lines.flat().filter(Boolean);
  return h("article", { class: "tile", "data-health": health },
    h("h2", {}, title),
    h("p", { class: "value" }, value),
    shown.map((line) => (typeof line === "string" ? h("p", { class: "quiet" }, line) : line)));
}

function server({ about, not_ready: why, in_flight: inFlight, last_reload: reload, versions }) {
  const [available, all] = [versions.available, Object.values(versions).reduce((sum, each) => sum + each, 0)];
  return tile("Server", why ? "bad" : "good", why ? "Not ready" : "Ready",
    why ?? `${count(available)} of ${many(all, "version")} available`,
    `${many(inFlight, "request")} in flight`,
    processors(about.cpus),
    reload && configuration(reload));
}

function processors({ cores, quota, threads }) {
  const limit = quota === null ? "no CPU limit" : `a limit of ${number(quota)} CPUs`;
  return `${many(threads, "thread")} on ${many(cores, "core")}, ${limit}`;
}

function configuration({ at, outcome, error }) {
  const done = error ? `not reloaded (${outcome})` : outcome === "ok" ? "reloaded" : "unchanged";
  return h("p", { class: error ? "trouble" : "quiet", title: exactly(at) },
    `Configuration ${done} ${ago(at)}${error ? `: ${error}` : ""}`);
}

function engine(engine) {
  const reloads = Object.values(engine.reloads).reduce((sum, each) => sum + each, 0);
  const refused = reloads - (engine.reloads.ok ?? 0);
  const life = engine.in_process
    ? "in this process"
    : `${many(reloads, "reload")}${refused > 0 ? ` (${count(refused)} not ok)` : ""}, ${many(engine.restarts, "restart")}`;
  return tile(`Engine ${engine.name}`, engine.reachable ? "good" : "bad",
    engine.reachable ? (engine.reloading ? "Reloading" : "Reachable") : "Unreachable",
    `${many(engine.loaded, "version")} loaded, ${many(engine.calls, "call")} open`,
    life,
    engine.failure && h("p", { class: "trouble" }, engine.failure));
}

function store({ store }) {
  const used = Object.values(store.bytes).reduce((sum, each) => sum + each, 0);
  const part = store.max_bytes > 0 ? used / store.max_bytes : 0;
  const meter = h("meter", { min: 0, max: 1, high: 0.9, optimum: 0, value: Math.min(part, 1), "aria-label": "Part of the store that is used" });
  const kinds = Object.entries(KINDS).filter(([kind]) => store.bytes[kind] > 0);
  return tile("Store", part > 0.95 ? "warn" : "good",
    [bytes(used), h("small", {}, ` of ${bytes(store.max_bytes)}`)],
    meter,
    kinds.map(([kind, name]) => `${bytes(store.bytes[kind])} ${name}`).join(" · ") || "empty",
    store.evictions > 0 && `${many(store.evictions, "eviction")} so far`);
}

function memory({ memory }) {
  const accounts = Object.entries(memory);
  const full = ([, { used, limit }]) => (limit > 0 ? used / limit : 0);
  const fullest = accounts.reduce((most, each) => (full(each) > full(most) ? each : most), accounts[0]);
  if (!fullest) return null;
  const [name, { used, limit }] = fullest;
  const part = full(fullest);
  const meter = h("meter", { min: 0, max: 1, high: 0.9, optimum: 0, value: Math.min(part, 1), "aria-label": `Part of the memory for ${name} that is used` });
  return tile("Memory", part > 0.9 ? "warn" : "good",
    [bytes(used), h("small", {}, ` of ${bytes(limit)} for ${name}`)],
    meter,
    table(accounts));
}

/** The use and the limit of each account, and its refusals by reason. */
function table(accounts) {
  const refusals = (refused) => Object.entries(refused).filter(([, times]) => times > 0).map(([reason, times]) => `${count(times)} ${reason}`).join(", ");
  const row = ([name, { used, limit, refused }]) => h("tr", { "data-account": name },
    h("th", { scope: "row" }, name),
    [bytes(used), bytes(limit), refusals(refused) || "none"].map((cell) => h("td", {}, cell)));
  return h("table", { class: "accounts" },
    h("thead", {}, h("tr", {}, ["account", "used", "limit", "refused"].map((name) => h("th", { scope: "col" }, name)))),
    accounts.map(row));
}

function requests(traffic) {
  const total = traffic.total();
  const last = total.at(-1);
  const line = (at) => total.map((point) => [point.at, point[at]]);
  const failed = last?.failed ?? 0;
  return tile("Traffic", failed > 0 ? "warn" : "good",
    [number(last?.rate ?? 0), h("small", {}, " requests/s")],
    total.length > 1 && spark(line("rate"), { ...traffic.window(), width: 200, height: 34, label: `Requests a second over the last ${duration(traffic.seconds())}` }),
    failed > 0 ? h("p", { class: "trouble" }, `${number(failed)} failed/s`) : "none failed",
    last?.slowest && `slowest p95 ${latency(last.p95)}: ${last.slowest}`);
}
