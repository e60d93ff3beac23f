// The hosts of a job, with their limits and the reasons.

import { h, keep, say } from "./dom.js";
import { count, latency, number, words } from "./format.js";

const BOUNDS = {
  start: "not measured yet",
  round_trips: "more requests would wait there",
  refusals: "it refused more",
  user: "the setting concurrency or rows_per_second",
  quota: "the limit of requests or tokens",
};
const BREAKERS = { closed: ["in use", "good"], open: ["left out", "bad"], half_open: ["being tested", "warn"] };

const HEADS = ["Host", "State", "Rows/s", "Requests", "Round trip", "Failures"];

/** Draws a row for each host of each worker. */
export function hosts(place, workers) {
  const rows = workers.flatMap((worker) => worker.hosts.map((host) => ({ worker, host, several: workers.length > 1 })));
  if (rows.length === 0) {
    place.replaceChildren(h("p", { class: "empty" }, "No worker is at work."));
    return;
  }
  if (!place.querySelector("tbody")) {
    place.replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, HEADS.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {})));
  }
  keep(place.querySelector("tbody"), rows, ({ worker, host }) => `${worker.worker} ${host.host}`, make, update);
}

function make({ host }) {
  return h("tr", { "data-host": host.host },
    h("th", { scope: "row" }, h("b", { class: "name" }), h("span", { class: "quiet worker" })),
    h("td", { "data-label": HEADS[1] }, h("span", { class: "pill" })),
    h("td", { "data-label": HEADS[2], class: "rate" }),
    h("td", { "data-label": HEADS[3] }, h("span", { class: "limit" }), h("span", { class: "age quiet bound" })),
    h("td", { "data-label": HEADS[4], class: "figure" }),
    h("td", { "data-label": HEADS[5] }, h("span", { class: "ends wrap" }), h("span", { class: "age wrap trouble last" })));
}

function update(row, { worker, host, several }) {
  const at = (selector) => row.querySelector(selector);
  const [state, outcome] = BREAKERS[host.breaker] ?? [host.breaker, "warn"];
  say(at(".name"), host.host);
  say(at(".worker"), several ? ` worker ${worker.worker}` : "");
  say(at(".pill"), state);
  at(".pill").dataset.outcome = outcome;
  say(at(".rate"), number(host.rows_per_second));
  say(at(".limit"), `${count(host.in_flight)} of ${count(host.limit)}`);
  say(at(".bound"), BOUNDS[host.bound] ?? host.bound);
  at(".bound").dataset.bound = host.bound;
  say(at(".figure"), host.round_trip_ms === null ? "–" : latency(host.round_trip_ms));
  const failed = Object.entries(host.ends).filter(([end, times]) => end !== "scored" && times > 0);
  const ends = failed.map(([end, times]) => `${count(times)} ${words(end)}`).join(", ");
  say(at(".ends"), `${ends || "none"} of ${count(host.calls)}`);
  say(at(".last"), host.last_failure?.message ?? "");
  at(".last").title = host.last_failure?.time ?? "";
}
