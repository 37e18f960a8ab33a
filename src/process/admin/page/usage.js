// Shows the usage of a month as a table with its sum, and saves it as CSV. This file never
// estimates: each row is what the API says.

import { ownAccount, readPages } from "./api.js";
import { accountLink, nameColumn, numberColumn } from "./cells.js";
import { formatRow, saveFile } from "./csv.js";
import { h, sectionHead, setChildren } from "./dom.js";
import { button, createFilters, errorPlace, runOnce, textInput } from "./forms.js";
import { formatCount, formatMonth, plural } from "./format.js";
import { pagedList } from "./list.js";

const COLUMNS = ["day", "account", "route", "key_id", "calls"];

export function mount(ctx) {
  const place = errorPlace();
  const month = h("input", { type: "month", testid: "usage-month" });
  const search = (testid) => textInput(testid, { type: "search" });
  const filters = createFilters(ctx, [["month", "Month", month],
    ...(ownAccount() ? [] : [["account", "Account", search("usage-account")]]),
    ["route", "Route", search("usage-route")], ["key_id", "Key id", search("usage-key")]],
  () => {
    setChildren(total);
    list.reload();
  });
  const total = h("p", { role: "status", testid: "usage-sum" });
  const sumAll = button("Add up all rows", {
    testid: "usage-sum-all",
    onclick: () => runOnce(sumAll, place, () => addUpUsage(ctx, filters.values(), total)),
  });
  const list = pagedList({
    ctx, path: "/usage", noun: "rows", caption: "Calls by day, account, route and key",
    query: filters.values,
    onPage: (page) => {
      month.value ||= page.month ?? "";
      showSum(page);
    },
    foot: (items) => ["Sum of these rows", formatCount(sumOf(items))],
    row: () => ({ "data-testid": "usage-row" }),
    columns: [
      { title: "Day (UTC)", cell: ({ day }) => day },
      { title: "Account", cell: ({ account }) => accountLink(account) },
      nameColumn("Route", "route"),
      nameColumn("Key", "key_id", "code"),
      numberColumn("Calls", "calls"),
    ],
  });
  /** If all rows are on one page, their sum is the whole sum. */
  function showSum({ items, next_cursor: more }) {
    sumAll.hidden = !more && !list.hasPrevious();
    if (!sumAll.hidden) return;
    setChildren(total, items.length > 0 && describeSum(month.value, sumOf(items), items.length));
  }
  const progress = h("p", { role: "status", testid: "usage-saved" });
  const download = button("Download CSV", {
    testid: "usage-csv", kind: "primary",
    onclick: () => runOnce(download, place, () => saveUsage(ctx, filters.values(), progress)),
  });
  ctx.node.append(sectionHead("Usage", null, download), place, progress, filters.node,
  h("div", { class: "actions" }, total, sumAll), list.node);
  return { refresh: list.refresh };
}

function sumOf(items) {
  return items.reduce((sum, { calls }) => sum + calls, 0);
}

function describeSum(month, calls, rows) {
  return [h("b", {}, plural(calls, "call")), ` in ${formatMonth(month)}, ${plural(rows, "row")}.`];
}

async function addUpUsage(ctx, query, place) {
  let { month } = query;
  let [calls, rows] = [0, 0];
  try {
    await readPages("/usage", query, {
      maxItems: Infinity, signal: ctx.signal,
      onPage(page, count) {
        calls += sumOf(page.items);
        [month, rows] = [page.month ?? month, count];
        place.textContent = `Reading… ${plural(rows, "row")}`;
      },
    });
  } catch (error) {
    setChildren(place, "The rows were not added up.");
    throw error;
  }
  setChildren(place, describeSum(month, calls, rows));
}

async function saveUsage(ctx, query, progress) {
  setChildren(progress, "Reading…");
  const texts = [formatRow(COLUMNS)];
  let { month } = query;
  let rows = 0;
  try {
    await readPages("/usage", query, {
      maxItems: Infinity, signal: ctx.signal,
      onPage(page, count) {
        texts.push(...page.items.map((item) => formatRow(COLUMNS.map((name) => item[name]))));
        [month, rows] = [page.month ?? month, count];
        progress.textContent = `Reading… ${plural(rows, "row")}`;
      },
    });
  } catch (error) {
    setChildren(progress, "No file was saved.");
    throw error;
  }
  saveFile(`riskgate-usage-${month}.csv`, texts);
  setChildren(progress, `Saved ${plural(rows, "row")} of ${formatMonth(month)}.`);
}
