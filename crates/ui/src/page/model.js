// The page of one model: its tags, its versions, and the history of each with reasons.

import { spark } from "./charts.js";
import { card } from "./canaries.js";
import { byId, digest, h, redraw, say } from "./dom.js";
import { ago, bytes, duration, exactly, latency, many, number, secondsSince, short } from "./format.js";
import { label, pill } from "./models.js";

const STATES = ["new", "downloaded", "loaded", "available"];

let shown;

/** Shows the model with this name. */
export function open(name, state) {
  const heading = h("h1", { tabindex: -1 }, name);
  const page = {
    name,
    heading,
    traffic: h("div", { class: "pair" }),
    trials: h("div", {}),
    body: h("div", { "aria-live": "polite", "aria-busy": true }, h("p", { class: "quiet" }, "Looking…")),
  };
  shown = page;
  byId("detail").replaceChildren(
    h("p", {}, h("a", { href: "#/", class: "back" }, "← All models")), heading, page.traffic, page.trials, page.body);
  heading.focus({ preventScroll: true });
  scrollTo(0, 0);
  load(state);
}

/** Closes the page of the model. */
export function close() {
  shown = undefined;
  byId("detail").replaceChildren();
}

/** Loads the shown model again. */
export async function load(state) {
  const page = shown;
  if (!page) return;
  const path = page.name.split("/").map(encodeURIComponent).join("/");
  let answer;
  try {
    const response = await fetch(new URL(`./models/${path}`, import.meta.url));
    answer = await response.json();
    if (!response.ok) answer = { failed: answer.error?.message ?? `the server answered ${response.status}` };
  } catch (error) {
    // The banner shows that the server is unreachable; the last state stays visible.
    if (page.model) return;
    answer = { failed: `the server does not answer (${error.message})` };
  }
  if (page !== shown) return;
  page.body.setAttribute("aria-busy", "false");
  page.model = answer.model;
  page.by = answer.default;
  page.failed = answer.failed;
  body(page);
  tick(state);
}

/** Draws the parts that change every second. */
export function tick(state) {
  if (!shown) return;
  traffic(shown, state);
  const trials = [...state.canaries.values()].filter((canary) => canary.model === shown.name);
  if (shown.drawn?.length !== trials.length || trials.some((canary, at) => canary !== shown.drawn[at])) {
    shown.drawn = trials;
    redraw(shown.trials, ...trials.map((canary) => card(canary, { heading: "h2" })));
  }
  for (const element of shown.body.querySelectorAll("[data-ago]")) say(element, ago(Number(element.dataset.ago)));
  for (const element of shown.body.querySelectorAll("[data-retry]")) say(element, outlook(Number(element.dataset.retry)));
}

function traffic(page, state) {
  if (page.sampled === state.traffic.at) return;
  page.sampled = state.traffic.at;
  const points = state.traffic.of(page.name);
  if (!state.traffic.has(page.name)) {
    page.traffic.replaceChildren(h("p", { class: "quiet" }, `No requests in the last ${duration(Math.max(state.traffic.seconds(), 60))}.`));
    return;
  }
  const latest = state.traffic.latest(page.name);
  const chart = (title, value, figure, text) => h("figure", { class: "tile" },
    h("figcaption", {}, title),
    h("p", { class: "value" }, text),
    spark(points.map((point) => [point.at, value(point)]), { ...state.traffic.window(), width: 320, height: 60, label: `${title} over the last ${duration(state.traffic.seconds())}` }),
    figure);
  page.traffic.replaceChildren(
    chart("Requests", (point) => point.rate, h("p", { class: latest?.failed ? "trouble" : "quiet" }, latest?.failed ? `${number(latest.failed)} failed/s` : "none failed"), `${number(latest?.rate ?? 0)}/s`),
    chart("Latency, 95th percentile", (point) => point.p95, h("p", { class: "quiet" }, latest ? `median ${latency(latest.median)}` : "now idle"), latest ? latency(latest.p95) : "–"));
}

function body(page) {
  if (page.failed) {
    page.body.replaceChildren(h("p", { class: "trouble" }, page.failed));
    return;
  }
  const { image, tags, versions } = page.model;
  const start = (version) => Date.parse(version.history?.at(-1)?.at ?? version.failure?.at ?? 0);
  const sorted = versions.toSorted((a, b) => start(b) - start(a));
  redraw(page.body,
    image ? h("p", { class: "quiet wrap" }, image) : "",
    h("section", { "aria-label": "Tags" }, h("h2", {}, "Tags"), tags.length > 0 ? h("ul", { class: "plainlist" }, tags.map((tag) => tagLine(tag, page.by))) : h("p", { class: "quiet" }, "No tag is known.")),
    h("section", { "aria-label": "Versions" }, h("h2", {}, "Versions"), sorted.map((version) => life(version, tags))));
}

function tagLine(tag, by) {
  const { serving_digest: serving, registry_digest: registry } = tag;
  const moved = registry && registry !== serving;
  return h("li", {},
    label({ name: tag.name }), " ",
    serving ? ["answered by ", digest(serving, short(serving))] : "answered by nothing yet",
    moved && [", in the registry it is ", digest(registry, short(registry))],
    by === `:${tag.name}` && h("span", { class: "quiet" }, " · default"),
    tag.checked_at && h("span", { class: "quiet" }, " · looked up ", time(tag.checked_at)),
    tag.failure && h("p", { class: "trouble" }, h("b", {}, tag.failure.reason), ` ${tag.failure.message}`));
}

function life(version, tags) {
  const mine = tags.filter((tag) => tag.serving_digest === version.digest).map((tag) => label({ name: tag.name }));
  const facts = [
    ["Activity", version.activity],
    ["Memory", ["loaded", "available"].includes(version.state) && version.size_bytes > 0 && `≈ ${bytes(version.size_bytes)}`],
    ["On disk", version.size_bytes > 0 && bytes(version.size_bytes)],
    ["Last used", version.last_used_at && time(version.last_used_at)],
    ["Engine", version.engine],
    ["In the engine", version.servable && `${version.servable}, version ${version.servable_version}`],
    ["Platform", version.platform_digest && version.platform_digest !== version.digest && digest(version.platform_digest, short(version.platform_digest))],
  ];
  const history = version.history ?? [];
  const steps = history.map((step, at) => event(step, history[at + 1]));
  if (version.failure) steps.push(failed(version.failure));
  return h("article", { class: "card version", "data-digest": version.digest },
    h("h3", {}, digest(version.digest, short(version.digest)), pill(version.state, version.failure), mine),
    h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    steps.length > 0 ? h("ol", { class: "timeline", "aria-label": "Life of this version" }, steps) : h("p", { class: "quiet" }, "Nothing has happened yet."));
}

function event(step, next) {
  const stayed = next ? (Date.parse(next.at) - Date.parse(step.at)) / 1000 : secondsSince(Date.parse(step.at));
  const back = STATES.indexOf(step.to) < STATES.indexOf(step.from);
  return h("li", { "data-state": step.to, "data-back": back },
    h("p", {}, h("b", {}, step.to), h("span", { class: "quiet" }, ` from ${step.from}`)),
    h("p", {}, step.cause),
    h("p", { class: "quiet when" }, time(step.at), next ? `, for ${duration(stayed)}` : ""));
}

function failed(failure) {
  const retry = failure.retry_at && Date.parse(failure.retry_at);
  return h("li", { "data-state": "failed" },
    h("p", {}, h("b", {}, failure.reason)),
    h("p", { class: "wrap" }, failure.message),
    h("p", { class: "quiet when" }, time(failure.at), failure.permanent ? ", not tried again until something changes" : ", ", !failure.permanent && (retry ? h("span", { "data-retry": retry }, outlook(retry)) : "tried again")));
}

function outlook(at) {
  const left = at / 1000 - secondsSince(0);
  return left > 1 ? `tried again in ${duration(left)}` : "being tried again";
}

function time(text) {
  const at = Date.parse(text);
  return h("time", { datetime: text, title: exactly(at), "data-ago": at }, ago(at));
}
