// The page of a batch job: draws the events of the stream.

import * as changes from "./changes.js";
import { byId, h, say } from "./dom.js";
import { bytes, count, duration, exactly, many, number, percent, setClock, short, words } from "./format.js";
import { hosts } from "./hosts.js";
import { plot } from "./plot.js";
import { listen } from "./stream.js";

const state = { job: undefined, letters: [] };

/** Draws the page, at most once per frame. */
let due = false;
function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const { job } = state;
    if (!job) return;
    say(byId("version"), `v${job.version}`);
    trouble(job);
    changes.draw(job);
    if (!job.status) return;
    const { status } = job;
    say(byId("job"), status.output);
    document.title = `${percent(part(status))} · ${status.output}`;
    byId("tiles").replaceChildren(whole(status), rows(status), rate(status), memory(status));
    byId("throughput").replaceChildren(...plot(status.history));
    hosts(byId("hosts"), status.workers);
    letters(status);
    runs(status);
  });
}

function trouble({ trouble: why }) {
  const banner = byId("trouble");
  banner.hidden = !why;
  say(banner, why ? `The job's state cannot be read: ${why}` : "");
}

const sum = (workers, of) => workers.reduce((total, worker) => total + of(worker), 0);

/** The rows that need no more work: those of the commits, and what workers have scored since. */
function done(status) {
  const begun = sum(status.workers, (worker) => worker.open_rows);
  return Math.min(status.rows, status.scored + status.dead + Math.max(0, begun));
}

const part = (status) => (status.rows === 0 ? 1 : done(status) / status.rows);

function tile(title, health, value, ...lines) {
  return h("article", { class: "tile", "data-health": health },
    h("h2", {}, title),
    h("p", { class: "value" }, value),
    lines.filter(Boolean).map((line) => (typeof line === "string" ? h("p", { class: "quiet" }, line) : line)));
}

const HEALTH = { running: "good", finished: "good", paused: "warn", stopped: "bad" };

function whole(status) {
  const version = status.version ? h("span", { title: status.version }, ` version ${short(status.version)}`) : null;
  return tile("Job", HEALTH[status.state], words(status.state),
    h("p", { class: "quiet" }, status.model, version),
    `planned ${exactly(Date.parse(status.created))}`,
    many(status.workers.length, "worker"));
}

function rows(status) {
  const meter = h("meter", { min: 0, max: 1, value: part(status), "aria-label": "Part of the rows that is done" });
  return tile("Rows", null,
    [percent(part(status)), h("small", {}, ` of ${count(status.rows)}`)],
    meter,
    `${count(status.scored)} committed in ${count(status.committed)} of ${many(status.chunks, "chunk")}`,
    status.dead > 0 ? h("p", { class: "trouble" }, many(status.dead, "dead letter")) : "no dead letters");
}

function rate(status) {
  const perSecond = sum(status.workers, (worker) => worker.rows_per_second);
  const left = (status.rows - done(status)) / perSecond;
  return tile("Rate", null,
    [number(perSecond), h("small", {}, " rows/s")],
    status.state === "running" && Number.isFinite(left) && `${duration(left)} left at this rate`,
    `${many(sum(status.workers, (worker) => sum(worker.hosts, (host) => host.in_flight)), "request")} in flight`);
}

function memory(status) {
  const used = sum(status.workers, (worker) => worker.memory);
  const limit = sum(status.workers, (worker) => worker.memory_limit);
  const peak = sum(status.workers, (worker) => worker.memory_peak);
  const blocked = sum(status.workers, (worker) => worker.blocked_seconds);
  const meter = h("meter", { min: 0, max: 1, high: 0.95, optimum: 0, value: limit > 0 ? Math.min(used / limit, 1) : 0, "aria-label": "Part of the memory for rows and answers that is used" });
  return tile("Memory", null,
    [bytes(used), h("small", {}, ` of ${bytes(limit)}`)],
    meter,
    `at most ${bytes(peak)} so far`,
    `${number(blocked)} s blocked by writers`);
}

/** A table with a row for each item; a cell is a text or an element. */
function table(heads, items, cells) {
  const row = (item) => h("tr", {}, cells(item).map((cell, at) => h(at === 0 ? "th" : "td", at === 0 ? { scope: "row" } : { "data-label": heads[at] }, cell)));
  return h("table", {},
    h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, items.map(row)));
}

const empty = (text) => h("p", { class: "empty" }, text);

function letters(status) {
  const shown = state.letters;
  const heads = ["Row", "Reason", "Error", "Hosts", "Attempts", "Last"];
  const cells = (letter) => [
    h("span", { class: "wrap" }, `${letter.file} · ${count(letter.row)}`),
    words(letter.reason),
    h("span", { class: "wrap" }, letter.error),
    letter.hosts.join(", ") || "never sent",
    count(letter.attempts),
    exactly(Date.parse(letter.last)),
  ];
  const more = shown.length > 0 && status.dead > shown.length && h("p", { class: "quiet" }, `The first ${count(shown.length)} of ${count(status.dead)}.`);
  byId("letters").replaceChildren(shown.length > 0 ? table(heads, shown, cells) : empty("No row is dead in the chunks that are committed."), ...[more].filter(Boolean));
}

function runs(status) {
  const now = new Set(status.workers.map((worker) => worker.worker));
  const cells = (run) => [
    h("code", {}, run.worker),
    now.has(run.worker) ? "at work" : "ended",
    exactly(run.from * 1000),
    duration(run.to + 1 - run.from),
    count(run.rows),
  ];
  const known = status.runs.toReversed();
  byId("runs").replaceChildren(known.length > 0 ? table(["Worker", "State", "Begun", "Time", "Rows"], known, cells) : empty("No worker has stored its history yet."));
}

function connection(now, since) {
  byId("live").dataset.state = now;
  say(byId("live"), now === "live" ? "Live" : "Disconnected");
  document.body.dataset.connection = now;
  const banner = byId("lost");
  banner.hidden = now === "live";
  if (now === "live") say(banner, "");
  else if (banner.textContent === "") say(banner, `Disconnected. The state is of ${new Date(since).toLocaleTimeString()}; the worker has ended, or does not answer. Reconnecting…`);
}

const handlers = {
  job(job) {
    state.job = job;
    setClock(job.now);
    draw();
  },
  letters(letters) {
    state.letters = letters;
    draw();
  },
};

changes.connect();
listen(new URL("./events", import.meta.url), handlers, connection);
