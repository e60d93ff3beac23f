// The throughput of a job over time, as an SVG with axes.

import { h, svg } from "./dom.js";
import { duration, exactly, number } from "./format.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [1100, 220, 64, 22, 10];
const round = (value) => Math.round(value * 10) / 10;

/** The points [second, rows a second, seconds] of a history: the first and the last step may be shorter. */
export function rates({ from, to, step_seconds: step, rows }) {
  return rows.map((count, index) => {
    const start = (Math.floor(from / step) + index) * step;
    const begin = Math.max(start, from);
    const seconds = Math.max(1, Math.min(start + step, to + 1) - begin);
    return [begin, count / seconds, seconds];
  });
}

/** The least round number that is not below `value`: 1, 2 or 5 times a power of ten. */
function above(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value) ?? value;
}

/** The elements of the plot. */
export function plot(history) {
  const points = rates(history);
  if (points.length < 2) return [h("p", { class: "quiet" }, "The plot begins with the second point in time.")];
  const [from, to] = [history.from, history.to + 1];
  const most = above(Math.max(...points.map(([, rate]) => rate)) || 1);
  const x = (at) => round(LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - 8));
  const y = (rate) => round(TOP + (1 - rate / most) * (HEIGHT - TOP - BOTTOM));
  // Each step is a horizontal line.
  const line = points.map(([at, rate, seconds], index) => `${index === 0 ? "M" : "L"}${x(at)} ${y(rate)}L${x(at + seconds)} ${y(rate)}`).join("");
  const grid = [0, most / 2, most].map((rate) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(rate), y2: y(rate) }),
    svg("text", { class: "tick", x: LEFT - 8, y: y(rate) + 4, "text-anchor": "end" }, number(rate)),
  ]);
  const total = history.rows.reduce((sum, count) => sum + count, 0);
  const label = `Rows a second over ${duration(to - from)}: ${number(total / (to - from))} on average, at most ${number(Math.max(...points.map(([, rate]) => rate)))}`;
  return [
    svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
      grid,
      svg("path", { class: "area", d: `${line}L${x(to)} ${y(0)}L${x(from)} ${y(0)}Z` }),
      svg("path", { class: "line", d: line }),
      svg("text", { class: "tick", x: LEFT, y: HEIGHT - 4 }, exactly(from * 1000)),
      svg("text", { class: "tick", x: WIDTH - 8, y: HEIGHT - 4, "text-anchor": "end" }, exactly(to * 1000))),
    h("p", { class: "quiet" }, `${label}.`),
  ];
}
