// Shows names and numbers in cells, and says which texts may be names of accounts. It never asks
// the API.

import { h } from "./dom.js";
import { formatCount, formatName } from "./format.js";

export function nameOf(text, tag = "span") {
  return h(tag, { class: "name" }, text);
}

export function accountLink(name, text = name) {
  return h("a", { href: `#/accounts/${encodeURIComponent(name)}`, class: "name" }, text);
}

export function domainLink(domain) {
  return h("a", { href: `#/domains?domain=${encodeURIComponent(domain)}`, class: "name" }, domain);
}

/** Columns of a table that show the member `name` of each item. */
export function nameColumn(title, name, tag) {
  return { title, cell: (item) => nameOf(item[name] || "–", tag) };
}

export function wordColumn(title, name) {
  return { title, cell: (item) => formatName(item[name]) };
}

export function numberColumn(title, name) {
  return { title, number: true, cell: (item) => formatCount(item[name]) };
}

/** Visible ASCII without quotes and backslashes, at most 128 characters. */
export function isAccountName(text) {
  return /^[!-~]{1,128}$/.test(text) && !/["'\\]/.test(text);
}
