// Shows names and numbers in cells, and says which texts may be names of accounts. This file never
// asks the API.

import { h } from "./dom.js";
import { formatCount, formatName } from "./format.js";

export function nameOf(text, tag = "span") {
  return h(tag, { class: "name" }, text);
}

/** A long text that may break behind a comma, a dot, a slash or an underscore. */
export function breakable(text) {
  return text.split(/(?<=[,./_])/).flatMap((part, index) => (index ? [h("wbr"), part] : [part]));
}

export function accountAddress(name) {
  return `#/accounts/${encodeURIComponent(name)}`;
}

export function accountLink(name, text = name) {
  return h("a", { href: accountAddress(name), class: "name" }, text);
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

export const ACCOUNT_NAME_RULE =
  "Enter 1 to 128 visible ASCII characters without spaces, quotes and backslashes.";

/** Visible ASCII without quotes and backslashes, at most 128 characters. */
export function isAccountName(text) {
  return /^[!-~]{1,128}$/.test(text) && !/["'\\]/.test(text);
}
