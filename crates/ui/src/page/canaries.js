// Canaries on trial, and the latest decisions.

import { closing } from "./charts.js";
import { byId, digest, h, keep, redraw } from "./dom.js";
import { ago, count, duration, exactly, latency, many, number, percent, short, words } from "./format.js";
import { link } from "./models.js";

// The maximum number of points of a chart; beyond it, every second point is dropped.
const POINTS = 240;

const SIGNALS = {
  error_rate: "Error rate",
  latency: "Latency",
  scores: "Scores",
  non_finite: "NaN or infinite",
  disagreement: "Disagreement",
  skew: "Feature skew",
};
const nameOf = ({ signal }) => SIGNALS[signal] ?? words(signal);
const OUTCOMES = {
  promoted: "good",
  rolled_back: "bad",
  refused: "bad",
  recommended: "good",
  superseded: "quiet",
};

/** Replaces unbounded values, which are sent as the largest number, by null. */
function withBounds(of) {
  const known = (value) => (Math.abs(value) < 1e300 ? value : null);
  const bounds = ({ live, canary, difference, lower, upper }) =>
    Object.fromEntries(Object.entries({ live, canary, difference, lower, upper }).map(([name, value]) => [name, known(value)]));
  const findings = of.verdict?.findings.map((finding) => ({ ...finding, ...bounds(finding) }));
  return of.verdict ? { ...of, verdict: { ...of.verdict, findings } } : of;
}

/** Replaces all canaries and the latest decisions. */
export function takeAll(state, { canaries, decisions }) {
  state.canaries = new Map(canaries.map((canary) => [canary.id, withBounds(canary)]));
  state.decisions = decisions.map((decision) => ({ ...withBounds(decision), at: Date.parse(decision.at) }));
}

/** Updates the changed canaries; their present figures become the next point of their charts. */
export function takeStep(state, { canaries, gone }) {
  for (const id of gone) state.canaries.delete(id);
  for (const canary of canaries.map(withBounds)) {
    const points = state.canaries.get(canary.id)?.points ?? {};
    for (const finding of canary.verdict?.findings ?? []) {
      const of = points[finding.signal] ?? [];
      if (!(of.at(-1)?.[0] >= canary.elapsed)) of.push([canary.elapsed, finding.difference, finding.lower, finding.upper]);
      points[finding.signal] = of.length > POINTS ? of.filter((_, at) => at % 2 === 0) : of;
    }
    state.canaries.set(canary.id, { ...canary, points });
  }
}

/** Draws canaries and decisions. */
export function list(state) {
  const canaries = [...state.canaries.values()];
  byId("canaries").hidden = canaries.length === 0 && state.decisions.length === 0;
  keep(byId("trials"), canaries, (canary) => canary.id, () => h("div", {}), (element, canary) => {
    if (element.drawn === canary) return;
    element.drawn = canary;
    redraw(element, card(canary, { heading: "h3" }));
  });
  byId("decisions-title").hidden = state.decisions.length === 0;
  const key = (decision) => `${decision.at} ${decision.model}:${decision.tag} ${decision.canary_digest}`;
  keep(byId("decisions"), state.decisions, key, made, (element, decision) => {
    const time = element.querySelector("time");
    if (time.textContent !== ago(decision.at)) time.textContent = ago(decision.at);
  });
}

/** Makes the card of a canary, with its arms and bounds. */
export function card(canary, { heading }) {
  const { verdict } = canary;
  return h("article", { class: "card canary", "data-id": canary.id },
    h(heading, { class: "line" },
      h("a", { href: link(canary.model) }, canary.model),
      h("span", { class: "tag" }, canary.canary_tag), h("span", { class: "quiet" }, "against"), h("span", { class: "tag" }, canary.tag),
      h("span", { class: "pill", "data-phase": canary.phase }, words(canary.phase))),
    canary.message && h("p", { class: "trouble wrap" }, canary.message),
    arms(canary),
    verdict && h("p", { class: "verdict", "data-decision": verdict.decision }, h("b", {}, verdict.decision), ` ${why(verdict)}`),
    happened(canary.arms),
    verdict && figures(verdict, canary.points),
    verdict && h("p", { class: "quiet legend" }, "Line and band: the canary's difference from live, and where it surely lies, over the time on trial. In the green it is harmless; dashed is the margin."));
}

/** The judge's summary without the decision; without a decision, the signals that are still open. */
function why({ decision, summary, findings }) {
  if (decision !== "continue") return summary.startsWith(decision) ? summary.slice(decision.length).replace(/^:\s*/, "") : summary;
  const open = findings.filter((finding) => finding.state === "open").map(nameOf);
  if (open.length > 0) return `${open.join(", ")}: nothing is proved yet`;
  return "every signal is within its margin; the minimum time or requests, or the ramp, are not through";
}

function arms({ live_digest: live, canary_digest: canary, share, elapsed, verdict }) {
  const all = verdict ? verdict.live_requests + verdict.canary_requests : 0;
  const arm = (name, of, requests) => h("div", { class: "arm", "data-arm": name },
    h("span", { class: "dot" }), h("b", {}, name), of ? digest(of, short(of)) : "–",
    verdict && h("span", { class: "quiet" }, `${many(requests, "request")}${all > 0 ? `, ${percent(requests / all)}` : ""}`));
  const part = h("span", { class: "part" });
  part.style.inlineSize = `${share * 100}%`;
  return [
    share > 0 && h("div", { class: "split", role: "img", "aria-label": `The canary has ${percent(share)} of the traffic` }, part),
    h("div", { class: "arms" }, arm("live", live, verdict?.live_requests), arm("canary", canary, verdict?.canary_requests),
      h("span", { class: "quiet" }, share > 0 ? `${percent(share)} of the traffic, on trial for ${duration(elapsed)}` : "no share of the traffic")),
    verdict && !verdict.shares_fit && h("p", { class: "trouble" }, `The arms' sizes do not fit the share: ${percent(verdict.expected_share)} was drawn, ${percent(verdict.seen_share)} came. Requests are lost or misrouted; do not trust the comparison.`),
  ];
}

/** The figures of each arm since the split and in the last minutes. */
function happened(arms) {
  if (!arms?.length) return null;
  const time = (seconds) => (seconds === null ? "–" : latency(seconds * 1000));
  const row = (name, when, { requests, failed, non_finite, latency_median, latency_p95, score_median }) => h("tr", {},
    h("th", { scope: "row" }, `${name}, ${when}`),
    [count(requests), count(failed), count(non_finite), time(latency_median), time(latency_p95), number(score_median)].map((cell) => h("td", {}, cell)));
  return h("div", { class: "happened" }, h("table", {},
    h("thead", {}, h("tr", {}, ["", "requests", "failed", "NaN", "median latency", "95th percentile", "median score"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, arms.flatMap(({ arm, trial, lately }) => [row(arm, "since the split", trial), row(arm, "last 5 minutes", lately)]))));
}

function figures({ findings, shadowed, deviations }, points) {
  return [
    h("div", { class: "signals" }, findings.map((finding) => signal(finding, points?.[finding.signal] ?? []))),
    shadowed && h("p", { class: "shadowed" }, h("b", {}, "Shadowed"), ` ${many(shadowed.requests, "request")}: both put the same first in ${percent(shadowed.agreement)}; the canary's score less live's is ${number(shadowed.median)}, mostly in [${number(shadowed.lower)}, ${number(shadowed.upper)}]`),
    deviations?.length > 0 && h("details", { class: "deviations" },
      h("summary", { class: "line" }, h("b", {}, "Features farthest from their profile")),
      h("ul", { class: "plainlist" }, deviations.map(({ arm, place, expected, seen, requests }) => h("li", {}, h("b", {}, arm), ` ${place}: ${percent(seen)} of ${many(requests, "request")} instead of ${percent(expected)}`)))),
  ];
}

function signal(finding, points) {
  const name = nameOf(finding);
  const { difference, lower, upper } = finding;
  const shown = (value) => (value === null ? "unknown" : finding.signal === "scores" ? number(value) : `${value > 0 ? "+" : ""}${number(value * 100)} %`);
  const figure = (value) => (value === null ? "–" : finding.signal === "latency" ? latency(value * 1000) : finding.signal === "scores" ? number(value) : percent(value));
  const interval = `${shown(difference)}, between ${shown(lower)} and ${shown(upper)}`;
  // A canary that is known by its decision only has a single point.
  const line = points.length > 0 ? points : [[0, difference, lower, upper]];
  return h("figure", { class: "signal", "data-signal": finding.signal, "data-state": finding.state },
    h("figcaption", {}, h("span", { class: "wrap" }, h("b", {}, name), finding.detail && ` ${finding.detail}`), h("span", { class: "pill", "data-finding": finding.state }, finding.state)),
    h("p", { class: "quiet" }, `live ${figure(finding.live)}, canary ${figure(finding.canary)}`),
    closing(line, finding, { label: `${name}: difference ${interval}; harmless below ${shown(finding.margin)}` }),
    h("p", { class: "interval" }, h("b", {}, shown(difference)), ` in [${shown(lower)}, ${shown(upper)}]`));
}

function made(decision) {
  const { verdict } = decision;
  const line = [
    h("span", { class: "pill", "data-outcome": OUTCOMES[decision.outcome] ?? "quiet" }, words(decision.outcome)),
    h("span", { class: "name" }, `${decision.model}:${decision.tag}`),
    h("code", {}, short(decision.canary_digest)),
    h("span", { class: "quiet" }, "by ", decision.by, ", ", h("time", { datetime: new Date(decision.at).toISOString(), title: exactly(decision.at) }, ago(decision.at))),
  ];
  const reason = h("p", { class: "wrap" }, decision.reason);
  if (!verdict) return h("li", { class: "card" }, h("p", { class: "line" }, line), reason);
  return h("li", { class: "card" }, h("details", {},
    h("summary", { class: "line" }, line, h("span", { class: "wrap reason" }, decision.reason)),
    h("p", { class: "quiet" }, `${count(verdict.live_requests)} requests on live, ${count(verdict.canary_requests)} on the canary`),
    figures(verdict, decision.points)));
}
