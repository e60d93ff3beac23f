// The page: draws the events of the stream.

import * as canaries from "./canaries.js";
import { byId, say } from "./dom.js";
import { setClock } from "./format.js";
import * as model from "./model.js";
import * as models from "./models.js";
import { tiles } from "./overview.js";
import { listen } from "./stream.js";

/** Samples of requests and latencies by model, over the last minutes. */
class Traffic {
  static MOST = 60;
  // The least time that charts show, in milliseconds.
  static LEAST = 30000;
  samples = [];

  add(...samples) {
    this.samples.push(...samples);
    this.samples.splice(0, this.samples.length - Traffic.MOST);
  }

  get at() {
    return this.samples.at(-1)?.at ?? 0;
  }

  /** The time that charts show. */
  window() {
    const span = Math.max(Traffic.LEAST, this.at - (this.samples[0]?.at ?? this.at));
    return { from: this.at - span, to: this.at };
  }

  seconds() {
    return (this.at - (this.samples[0]?.at ?? this.at)) / 1000;
  }

  /** A point for each sample of a model; its latencies are null if no request was answered. */
  of(name) {
    return this.samples.map(({ at, models }) => (models[name] ? point(at, models[name]) : { at, rate: 0, failed: 0, median: null, p95: null }));
  }

  /** Whether any sample has requests of this model. */
  has(name) {
    return this.samples.some(({ models }) => models[name]);
  }

  latest(name) {
    const last = this.samples.at(-1);
    return last?.models[name] && point(last.at, last.models[name]);
  }

  /** Points of all models together, with the slowest model. */
  total() {
    return this.samples.map(({ at, models }) => {
      const all = Object.entries(models).map(([name, figures]) => ({ name, ...point(at, figures) }));
      const slowest = all.reduce((worst, each) => (each.p95 > (worst?.p95 ?? 0) ? each : worst), undefined);
      const sum = (of) => all.reduce((total, each) => total + each[of], 0);
      return { at, rate: sum("rate"), failed: sum("failed"), p95: slowest?.p95, slowest: slowest?.name };
    });
  }
}

const point = (at, [rate, failed, median, p95]) => ({ at, rate, failed, median, p95 });

const state = { overview: undefined, models: undefined, canaries: new Map(), decisions: [], traffic: new Traffic() };

/** The model in the page's address, if any. */
const named = () => {
  const name = /^#\/models\/(.+)$/.exec(location.hash)?.[1];
  try {
    return name && decodeURIComponent(name);
  } catch {
    return undefined;
  }
};

function route() {
  const name = named();
  byId("home").hidden = Boolean(name);
  byId("detail").hidden = !name;
  document.title = name ? `${name} · Outrigger` : "Outrigger";
  if (name) model.open(name, state);
  else model.close();
  draw();
}

/** Draws the visible part of the page, at most once per frame. */
let due = false;
function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    if (state.overview) say(byId("version"), `v${state.overview.about.version}`);
    if (named()) return model.tick(state);
    tiles(state);
    canaries.list(state);
    models.list(state);
  });
}

const handlers = {
  overview(overview) {
    state.overview = overview;
    setClock(overview.now);
  },
  models({ models: rows }) {
    state.models = new Map(rows.map((row) => [row.name, row]));
    model.load(state);
  },
  "models-step"({ models: rows, gone }) {
    for (const name of gone) state.models.delete(name);
    for (const row of rows) state.models.set(row.name, row);
    if (rows.some((row) => row.name === named()) || gone.includes(named())) model.load(state);
  },
  canaries: (all) => canaries.takeAll(state, all),
  "canaries-step": (step) => canaries.takeStep(state, step),
  traffic(samples) {
    state.traffic = new Traffic();
    state.traffic.add(...samples);
  },
  "traffic-step": (sample) => state.traffic.add(sample),
};
const drawing = ([name, handler]) => [name, (data) => {
  handler(data);
  draw();
}];

function connection(now, since) {
  byId("live").dataset.state = now;
  say(byId("live"), now === "live" ? "Live" : "Disconnected");
  document.body.dataset.connection = now;
  const banner = byId("lost");
  banner.hidden = now === "live";
  if (now === "live") say(banner, "");
  else if (banner.textContent === "") say(banner, `Disconnected. What you see is of ${new Date(since).toLocaleTimeString()}; reconnecting…`);
}

models.connect(draw);
addEventListener("hashchange", route);
route();
listen(new URL("./events", import.meta.url), Object.fromEntries(Object.entries(handlers).map(drawing)), connection);
