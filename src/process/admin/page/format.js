// Writes numbers, times and names for people, in British English. This file never changes a value
// that is sent to the API, and never reads the page.

import { h } from "./dom.js";

const LOCALE = "en-GB";
const number = (options) => new Intl.NumberFormat(LOCALE, options);
const date = (options) => new Intl.DateTimeFormat(LOCALE, options);
const whole = number({ maximumFractionDigits: 0 });
const tenth = number({ maximumFractionDigits: 1 });
const three = number({ maximumSignificantDigits: 3 });
const two = number({ maximumSignificantDigits: 2 });
const compact = number({ notation: "compact", maximumFractionDigits: 1 });
const dateTime = date({ dateStyle: "medium", timeStyle: "short" });
const clock = date({ timeStyle: "short" });
const day = date({ day: "numeric", month: "short", timeZone: "UTC" });
const month = date({ month: "long", year: "numeric", timeZone: "UTC" });
const relative = new Intl.RelativeTimeFormat(LOCALE, { numeric: "auto" });

export function formatCount(value) {
  return typeof value === "number" ? whole.format(value) : "not known";
}

/** "1.2K" or "0.034", for axes and averages */
export function formatShort(value) {
  if (value >= 1000) return compact.format(value);
  return (value < 1 ? two : three).format(value);
}

/** "82 %". From 10 on, the number is rounded down, because 99.8 % is not spent. */
export function formatPercent(value) {
  return `${value < 10 ? tenth.format(value) : Math.floor(value)} %`;
}

export function formatDuration(seconds) {
  if (seconds >= 1) return `${three.format(seconds)} s`;
  return seconds < 0.001 && seconds > 0 ? `${three.format(seconds * 1e6)} µs`
    : `${three.format(seconds * 1000)} ms`;
}

export function formatLimit(limit) {
  return limit === "unlimited" ? limit : formatCount(limit);
}

export function plural(count, one, many = `${one}s`) {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

export function formatClock(time) {
  return clock.format(time);
}

/** "26 Nov" of "2026-11-26". A day of riskgate is a day in UTC. */
export function formatDay(text) {
  return day.format(new Date(`${text}T00:00:00Z`));
}

export function formatMonth(text) {
  return /^\d{4}-\d{2}$/.test(text ?? "") ? month.format(new Date(`${text}-01T00:00:00Z`)) : text;
}

function formatAge(text) {
  const seconds = (Date.parse(text) - Date.now()) / 1000;
  const size = Math.abs(seconds);
  if (size < 45) return "just now";
  const [length, unit] = size < 3600 ? [60, "minute"] : size < 129_600 ? [3600, "hour"]
    : [86_400, "day"];
  return relative.format(Math.round(seconds / length), unit);
}

/** A local time whose title and `datetime` have the UTC time; `missing` if there is none. */
export function timeOf(text, missing = "never") {
  return text ? timeElement(text, () => dateTime.format(new Date(text))) : missing;
}

/** The age of a time, with the UTC time as title. */
export function ageOf(text, missing = "never") {
  return text ? timeElement(text, () => formatAge(text)) : missing;
}

export function timeAndAge(text) {
  return [timeOf(text), " (", ageOf(text), ")"];
}

function timeElement(text, format) {
  if (Number.isNaN(Date.parse(text))) return text;
  const title = `${text.replace("T", " ").replace("Z", "")} UTC`;
  return h("time", { datetime: text, title }, format());
}

export function formatName(name) {
  return String(name).replaceAll("_", " ");
}
