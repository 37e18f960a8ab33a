// Shows rates, outcomes and latencies of the last minutes and hours. This file never adds up nodes:
// the history is that of the process that answers.

import { get } from "./api.js";
import { isKnown, lineChart } from "./charts.js";
import { h, sectionHead } from "./dom.js";
import { errorPlace, load } from "./forms.js";
import { formatDuration, formatName, formatPercent, formatShort } from "./format.js";

/** The minutes shown, and their words. The first choice is for a process that has just started. */
const PERIODS = [["15", "15 minutes"], ["60", "1 hour"], ["360", "6 hours"], ["1440", "24 hours"]];
const MAX_SERIES = 6;
/** Outcomes of requests that riskgate served. All others are refusals and failures. */
const SERVED = ["ok", "fallback"];

export function mount(ctx) {
  let [minutes, words] = PERIODS.find(([value]) => value === ctx.params.get("minutes")) ??
    PERIODS[0];
  const place = errorPlace();
  const charts = {
    requests: lineChart("Requests", "chart-requests"),
    refused: lineChart("Refused or failed requests", "chart-refused"),
    latency: lineChart("Latency", "chart-latency", "max"),
    verdicts: lineChart("Verdicts that are not safe", "chart-verdicts"),
  };
  const grid = h("div", { class: "columns" }, Object.values(charts).map(({ node }) => node));
  const refresh = () => load(grid, place, async () => {
    const asked = minutes;
    const history = await get("/history", { minutes }, ctx.signal);
    if (asked === minutes) showHistory(charts, history, words);
  }, refresh);
  const choices = PERIODS.map(([value, text]) => h("label", {}, h("input", {
    type: "radio", name: "minutes", value, checked: value === minutes, testid: `minutes-${value}`,
    onchange: () => {
      [minutes, words] = [value, text];
      ctx.setParams({ minutes });
      refresh();
    },
  }), h("span", {}, text)));
  ctx.node.append(sectionHead("Traffic",
    "What this process has answered. Point at a chart to read the values at a time.",
    h("fieldset", { class: "choice" },
      h("legend", { class: "out-of-sight" }, "Time shown"), choices)),
  place, grid);
  return { refresh, isLive: true };
}

function showHistory(charts, history, period) {
  const { requests, latency_seconds: latency, verdicts } = history;
  const base = { from: Date.parse(history.from), step: history.interval_seconds * 1000 };
  const all = sumSeries(Object.values(requests));
  const served = toSeries(requests, (name) => SERVED.includes(name));
  const refused = toSeries(requests, (name) => !SERVED.includes(name));
  const flagged = toSeries(verdicts, (name) => name !== "safe");
  showRates(charts.requests, base, [{ name: "all", values: all }, ...served],
    (format) => `${format(mean(all))} on average in ${period}.`);
  showRates(charts.refused, base, refused,
    () => `${shareOf(refused, requests)} of all requests in ${period}.`);
  showRates(charts.verdicts, base, flagged,
    () => `${shareOf(flagged, verdicts)} of all verdicts in ${period}.`);
  const highest = Math.max(0, ...latency.p99);
  charts.latency.update({
    ...base,
    series: ["p50", "p99"].map((name) => ({ name, values: latency[name] })),
    format: formatDuration,
    summary: !latency.p99.some(isKnown) ? `No request in ${period}.`
      : `p50 ${formatDuration(mean(latency.p50))} on average in ${period}, p99 at most ` +
        `${formatDuration(highest)}.`,
  });
}

function toSeries(countsByName, isChosen) {
  const series = Object.entries(countsByName).filter(([name]) => isChosen(name))
    .map(([name, values]) => ({ name: formatName(name), values }))
    .sort((one, other) => total(other.values) - total(one.values));
  if (series.length <= MAX_SERIES) return series;
  const rest = series.splice(MAX_SERIES - 1).map(({ values }) => values);
  return [...series, { name: "others", values: sumSeries(rest) }];
}

function showRates(chart, base, series, summarise) {
  const seconds = base.step / 1000;
  const isFrequent = Math.max(0, ...series.flatMap(({ values }) => values)) >= seconds;
  const [factor, unit] = isFrequent ? [1 / seconds, "/s"] : [60 / seconds, "/min"];
  const format = (value) => `${formatShort(value)}${unit}`;
  const scaled = series.map(({ name, values }) => ({
    name, values: values.map((value) => (isKnown(value) ? value * factor : null)),
  }));
  chart.update({
    ...base, series: scaled, format, summary: summarise((count) => format(count * factor)),
  });
}

function total(values) {
  return values.reduce((sum, value) => sum + (value ?? 0), 0);
}

function mean(values) {
  return total(values) / Math.max(1, values.filter(isKnown).length);
}

function shareOf(series, countsByName) {
  const all = total(Object.values(countsByName).flat());
  return formatPercent(all > 0 ? (total(series.flatMap(({ values }) => values)) / all) * 100 : 0);
}

/** Adds series point by point; a point that all lack stays missing. */
function sumSeries(lists) {
  const length = Math.max(0, ...lists.map((values) => values.length));
  return Array.from({ length }, (_, index) => {
    const known = lists.map((values) => values[index]).filter(isKnown);
    return known.length > 0 ? total(known) : null;
  });
}
