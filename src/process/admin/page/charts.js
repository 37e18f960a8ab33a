// Draws line and bar charts as SVG, each with a summary and a table. This file never asks for data.

import { h, nextId, quiet, setChildren, svg, table } from "./dom.js";
import { formatClock } from "./format.js";

const HEIGHT = 180;
const TOP = 10;
const BOTTOM = HEIGHT - 24;
const LEFT = 54;
const RIGHT = 10;
const MAX_TABLE_ROWS = 24;
/** The chart draws points that have neighbours only if they are this number of pixels apart. */
const MIN_POINT_WIDTH = 9;
const MINUTE = 60_000;
const TIME_STEPS = [5, 10, 15, 30, 60, 120, 180, 240, 360];

function chartCard(title, testid, draw, buildTable, ...extra) {
  const id = nextId("chart");
  const plot = h("div", { class: "plot" });
  const summary = quiet();
  const content = h("div", {
    class: "scroll", tabindex: "0", role: "region", "aria-label": `${title} as a table`,
  });
  const details = h("details", { ontoggle: () => showTable() },
    h("summary", {}, "Show as a table"), content);
  const node = h("figure", { class: "card", testid, "aria-labelledby": id },
    h("figcaption", {}, h("h2", { id }, title)), summary, plot, extra, details);
  let data = null;
  const show = () => data && plot.clientWidth > 0 &&
    setChildren(plot, draw(data, plot.clientWidth, `${title}. ${data.summary}`));
  const showTable = () => {
    // The table stays while a reader is on it.
    if (!details.open || !data || document.activeElement === content) return;
    const { node: box } = table({ caption: title, ...buildTable(data) });
    box.classList.add("plain-table");
    setChildren(content, box);
  };
  new ResizeObserver(show).observe(plot);
  return {
    node,
    update(next) {
      data = next;
      summary.textContent = data.summary;
      show();
      showTable();
    },
  };
}

/** The axes of a chart, and a scale for its values. */
function createFrame(width, highest, format, label) {
  const least = (highest || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * power).find((size) => size >= least * 0.999);
  const steps = Math.max(1, Math.ceil(highest / step - 0.001));
  const y = (value) => BOTTOM - (value / (steps * step)) * (BOTTOM - TOP);
  const end = width - RIGHT;
  const node = svg("svg", {
    width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label,
  });
  const add = (tag, properties, text) => node.append(svg(tag, properties, text));
  const addText = (x, atY, anchor, text) =>
    add("text", { class: "tick", x, y: atY, "text-anchor": anchor }, text);
  for (let number = 0; number <= steps; number += 1) {
    const at = y(number * step);
    add("line", { class: number === 0 ? "axis" : "grid", x1: LEFT, x2: end, y1: at, y2: at });
    addText(LEFT - 6, at + 4, "end", format(number * step));
  }
  const addLabel = (x, text) => {
    add("line", { class: "axis", x1: x, x2: x, y1: BOTTOM, y2: BOTTOM + 4 });
    addText(Math.min(x, end - 14), HEIGHT - 6, "middle", text);
  };
  return { node, add, addLabel, y, width: end - LEFT };
}

/** The mean of the known values, or the largest. Null if none is known. */
function foldValues(values, fold) {
  const known = values.filter(isKnown);
  if (known.length === 0) return null;
  return fold === "max" ? Math.max(...known)
    : known.reduce((sum, value) => sum + value, 0) / known.length;
}

export function isKnown(value) {
  return value !== null && value !== undefined;
}

/**
 * A chart of values over time. `update` takes `{from, step, series, format, summary}`: `from` and
 * `step` in milliseconds, `series` as `[{name, values}]`, and `format`, which writes one value.
 */
export function lineChart(title, testid, fold = "mean") {
  const slots = new Map();
  const legend = h("div", {});
  const chart = chartCard(title, testid, (data, width, label) =>
    drawLines(data, width, label, slots, legend), (data) => describePeriods(data, fold), legend);
  return {
    node: chart.node,
    update(data) {
      for (const { name } of data.series) {
        // A series keeps its colour and dashes, even if others come and go.
        if (!slots.has(name)) slots.set(name, slots.size % 7);
      }
      setChildren(legend, data.series.length > 0 && createLegend(title, data, slots));
      chart.update(data);
    },
  };
}

function formatOrDash({ format }, value) {
  return isKnown(value) ? format(value) : "–";
}

function createLegend(title, data, slots) {
  const heads = ["Last", "Average", "Highest"].map((text, column) =>
    h("th", { scope: "col", class: "number", "data-at": column === 0 }, text));
  const rows = data.series.map(({ name, values }) => h("tr", {},
    h("th", { scope: "row" },
      svg("svg", { width: 26, height: 10, "aria-hidden": "true" },
        svg("line", { class: `line s${slots.get(name)}`, x1: 1, y1: 5, x2: 25, y2: 5 })), name),
    [values.at(-1), foldValues(values), foldValues(values, "max")].map((value, column) =>
      h("td", { class: "number", "data-value": column === 0 }, formatOrDash(data, value)))));
  const caption = h("caption", { class: "out-of-sight" }, `${title}: legend`);
  return h("table", { class: "legend" }, caption,
    h("thead", {}, h("tr", {}, h("td", {}), heads)), h("tbody", {}, rows));
}

function drawLines(data, width, label, slots, legend) {
  const { from, step, series } = data;
  const highest = foldValues(series.flatMap(({ values }) => values), "max") ?? 0;
  const frame = createFrame(width, highest, data.format, label);
  const last = Math.max(1, ...series.map(({ values }) => values.length - 1));
  const x = (index) => LEFT + (index / last) * frame.width;
  for (const at of chooseTimes(from, from + last * step, frame.width)) {
    frame.addLabel(x((at - from) / step), formatClock(at));
  }
  for (const { name, values } of series) {
    const look = `s${slots.get(name)}`;
    frame.add("path", { class: `line ${look}`, d: tracePath(values, x, frame.y) });
    for (const [index, value] of values.entries()) {
      // A line needs two points, so a point without a neighbour would not be seen.
      const isAlone = !isKnown(values[index - 1]) && !isKnown(values[index + 1]);
      if (isKnown(value) && (isAlone || frame.width / last >= MIN_POINT_WIDTH)) {
        frame.add("circle", { class: `point ${look}`, cx: x(index), cy: frame.y(value), r: 2.5 });
      }
    }
  }
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: BOTTOM, visibility: "hidden" });
  frame.node.append(cursor);
  // The legend shows the values at the pointer.
  const mark = (index) => {
    cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
    cursor.setAttribute("x1", x(index ?? 0));
    cursor.setAttribute("x2", x(index ?? 0));
    legend.querySelector("[data-at]").textContent = index === null ? "Last"
      : `At ${formatClock(from + index * step)}`;
    for (const [number, cell] of legend.querySelectorAll("[data-value]").entries()) {
      cell.textContent = formatOrDash(data, series[number].values.at(index ?? -1));
    }
  };
  if (series.length === 0) return frame.node;
  frame.node.addEventListener("pointerleave", () => mark(null));
  frame.node.addEventListener("pointermove", (event) => {
    const left = event.clientX - frame.node.getBoundingClientRect().left - LEFT;
    mark(Math.max(0, Math.min(last, Math.round((left / frame.width) * last))));
  });
  return frame.node;
}

function tracePath(values, x, y) {
  return values.map((value, index) => {
    if (!isKnown(value)) return "";
    const point = `${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    return isKnown(values[index - 1]) ? `L${point}` : `M${point}h0`;
  }).join("");
}

function chooseTimes(from, to, width) {
  const minutes = (to - from) / MINUTE;
  const step = (TIME_STEPS.find((size) => minutes / size <= width / 70) ?? 720) * MINUTE;
  const offset = new Date(from).getTimezoneOffset() * MINUTE;
  const times = [];
  let at = Math.ceil((from - offset) / step) * step + offset;
  for (; at <= to; at += step) times.push(at);
  return times;
}

/** A table of at most 24 periods. */
function describePeriods(data, fold) {
  const { from, step, series } = data;
  const count = Math.max(0, ...series.map(({ values }) => values.length));
  const size = Math.max(1, Math.ceil(count / MAX_TABLE_ROWS));
  const time = (index) => formatClock(from + index * step);
  const kind = fold === "max" ? "highest value" : "average";
  return {
    items: Array.from({ length: Math.ceil(count / size) }, (_, row) => row * size),
    columns: [{
      title: `Time (${kind})`, cell: (index) => `${time(index)} to ${time(index + size)}`,
    }, ...series.map(({ name, values }) => ({
      title: name, number: true,
      cell: (index) => formatOrDash(data, foldValues(values.slice(index, index + size), fold)),
    }))],
  };
}

/** A chart of one value for each item. `update` takes `{items, format, formatTick, summary}`. */
export function barChart(title, testid, itemTitle, valueTitle) {
  return chartCard(title, testid, drawBars, ({ items, format }) => ({
    items,
    columns: [{ title: itemTitle, cell: ({ label }) => label },
      { title: valueTitle, number: true, cell: ({ value }) => format(value) }],
  }));
}

function drawBars({ items, format, formatTick }, width, label) {
  const highest = Math.max(0, ...items.map(({ value }) => value));
  const frame = createFrame(width, highest, formatTick, label);
  const slot = frame.width / Math.max(1, items.length);
  const every = Math.max(1, Math.ceil(54 / slot));
  for (const [index, { label: name, value }] of items.entries()) {
    const left = LEFT + index * slot;
    const top = frame.y(value);
    frame.add("rect", {
      class: "bar-value", x: left + slot * 0.12, width: slot * 0.76, y: top, height: BOTTOM - top,
    }, svg("title", {}, `${name}: ${format(value)}`));
    if (index % every === 0) frame.addLabel(left + slot / 2, name);
  }
  return frame.node;
}
