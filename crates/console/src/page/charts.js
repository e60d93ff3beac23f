// Small charts, drawn as SVG. Each has a label that describes it in words.

import { svg } from "./dom.js";
import { number } from "./format.js";

const round = (value) => Math.round(value * 10) / 10;
const path = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${round(x)} ${round(y)}`).join("");

/**
 * A line over time without axes. `values` are [milliseconds, value], with null for a
 * missing value; `from` and `to` limit the time. A single peak is cut off, because it
 * would make all other values flat.
 */
export function spark(values, { from, to, width, height, label }) {
  const known = values.map(([, value]) => value).filter((value) => value !== null).sort((a, b) => a - b);
  const usual = known[Math.floor(known.length / 2)] ?? 0;
  const most = Math.max(Math.min(known.at(-1) ?? 0, usual * 3 || Infinity), 1e-9);
  const x = (at) => ((at - from) / Math.max(to - from, 1)) * (width - 4) + 2;
  const y = (value) => height - 3 - (Math.min(value, most) / most) * (height - 7);
  const runs = [[]];
  for (const [at, value] of values) {
    if (value === null) runs.push([]);
    else runs.at(-1).push([x(at), y(value)]);
  }
  const area = (line) => `${path(line)}L${round(line.at(-1)[0])} ${height - 1}L${round(line[0][0])} ${height - 1}Z`;
  const long = runs.filter((run) => run.length > 1);
  // Dots for single points and for the end of the line.
  const dots = [...runs.filter((run) => run.length === 1).map(([only]) => only), ...(runs.at(-1).slice(-1))];
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    long.length > 0 && svg("path", { class: "area", d: long.map(area).join("") }),
    long.length > 0 && svg("path", { class: "line", d: long.map(path).join("") }),
    // A stroke without length stays round when the picture is stretched.
    dots.length > 0 && svg("path", { class: "dot", d: dots.map(([dotX, dotY]) => `M${round(dotX)} ${round(dotY)}h0`).join("") }),
  );
}

// Signals whose difference is never below 0.
const ABSOLUTE = ["scores", "disagreement", "skew"];
const whisker = (x, top, bottom) => `M${round(x - 4)} ${round(top)}h8m-4 0V${round(bottom)}m-4 0h8`;

/**
 * A chart of the bounds of a difference over time: `points` are at least one [seconds,
 * difference, lower, upper], with null for an unknown bound. The green range is harmless;
 * the whisker at the end shows the present bounds.
 */
export function closing(points, finding, { label }) {
  const [width, height, left, bottom] = [320, 150, 52, 18];
  const { tolerance, margin, signal } = finding;
  const unit = Math.max(tolerance, margin, 1e-9);
  // The vertical range follows the later bounds, but keeps the margin visible.
  const late = points.slice(Math.floor(points.length / 3)).flatMap(([, ...bounds]) => bounds.filter((bound) => bound !== null));
  const [, difference, lowest, highest] = points.at(-1);
  const end = [highest, lowest];
  // The last bounds are always visible.
  const far = Math.max(6 * unit, finding.state === "harmful" ? Math.abs(highest ?? 0) * 1.1 : Math.abs(difference ?? 0) * 1.2);
  const low = Math.min(-unit * (ABSOLUTE.includes(signal) ? 0.3 : 1.6), Math.max(Math.min(...late, 0) * 1.1, -far));
  const high = Math.max(unit * 1.8, Math.min(Math.max(...late, 0) * 1.1, far));
  const most = Math.max(points.at(-1)?.[0] ?? 0, 1);
  const first = points[0]?.[0] ?? 0;
  // A single point is drawn in the middle.
  const place = (seconds) => (points.length > 1 ? (seconds - first) / Math.max(most - first, 1) : 0.5);
  const x = (seconds) => left + place(seconds) * (width - left - 12);
  const y = (value) => 6 + ((high - Math.min(Math.max(value, low), high)) / (high - low)) * (height - bottom - 6);
  const upper = points.map(([at, , , bound]) => [x(at), y(bound ?? high)]);
  const lower = points.map(([at, , bound]) => [x(at), y(bound ?? low)]);
  const middle = points.filter(([, difference]) => difference !== null).map(([at, difference]) => [x(at), y(difference)]);
  const scale = signal === "scores" ? 1 : 100;
  const tick = (value, name, text) => [
    svg("line", { class: name, x1: left, x2: width - 6, y1: round(y(value)), y2: round(y(value)) }),
    // Figures do not overlap.
    (value === 0 || Math.abs(y(value) - y(0)) > 9) && svg("text", { class: "tick", x: left - 5, y: round(y(value)) + 3.5, "text-anchor": "end" }, text),
  ];
  const figure = (value) => `${value > 0 ? "+" : ""}${number(value * scale)}${scale === 100 ? " %" : ""}`;
  const seconds = (value) => (value < 120 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);
  return svg(
    "svg",
    { class: "closing", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("rect", { class: "harmless", x: left, width: width - left - 6, y: round(y(margin)), height: round(y(low) - y(margin)) }),
    points.length > 1 && svg("path", { class: "band", d: `${path(upper)}${path(lower.toReversed()).replace("M", "L")}Z` }),
    points.length > 1 && svg("path", { class: "bound", d: path(upper) + path(lower) }),
    tick(margin, "margin", figure(margin)),
    tolerance !== 0 && tick(tolerance, "tolerance", figure(tolerance)),
    tick(0, "zero", "0"),
    middle.length > 1 && svg("path", { class: "difference", d: path(middle) }),
    svg("path", { class: "whisker", d: whisker(x(points.length > 1 ? most : first), y(end[0] ?? high), y(end[1] ?? low)) }),
    middle.length > 0 && svg("circle", { class: "now", cx: round(middle.at(-1)[0]), cy: round(middle.at(-1)[1]), r: 3 }),
    points.length > 1 && svg("text", { class: "tick", x: left, y: height - 4 }, seconds(first)),
    points.length > 1 && svg("text", { class: "tick", x: width - 6, y: height - 4, "text-anchor": "end" }, seconds(most)),
  );
}
