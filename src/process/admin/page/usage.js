// Shows the usage of a month as a table, and saves it as CSV. It never estimates: each row is what
// the API says.

import { ownAccount, readPages } from "./api.js";
import { accountLink, nameColumn, numberColumn } from "./cells.js";
import { formatRow, saveFile } from "./csv.js";
import { h, sectionHead, setChildren } from "./dom.js";
import { button, createFilters, errorPlace, runOnce, textInput } from "./forms.js";
import { formatMonth, plural } from "./format.js";
import { pagedList } from "./list.js";

const COLUMNS = ["day", "account", "route", "key_id", "calls"];

export function mount(ctx) {
  const month = h("input", { type: "month", testid: "usage-month" });
  const search = (testid) => textInput(testid, { type: "search" });
  const filters = createFilters(ctx, [["month", "Month", month],
    ...(ownAccount() ? [] : [["account", "Account", search("usage-account")]]),
    ["route", "Route", search("usage-route")], ["key_id", "Key id", search("usage-key")]],
  () => list.reload());
  const list = pagedList({
    ctx, path: "/usage", noun: "rows", caption: "Calls by day, account, route and key",
    query: filters.values,
    onPage: (page) => {
      month.value ||= page.month ?? "";
    },
    row: () => ({ "data-testid": "usage-row" }),
    columns: [
      { title: "Day (UTC)", cell: ({ day }) => day },
      { title: "Account", cell: ({ account }) => accountLink(account) },
      nameColumn("Route", "route"),
      nameColumn("Key", "key_id", "code"),
      numberColumn("Calls", "calls"),
    ],
  });
  const place = errorPlace();
  const progress = h("p", { role: "status", testid: "usage-saved" });
  const download = button("Download CSV", {
    testid: "usage-csv", kind: "primary",
    onclick: () => runOnce(download, place, () => saveUsage(ctx, filters.values(), progress)),
  });
  ctx.node.append(sectionHead("Usage", null, download), place, progress, filters.node, list.node);
  return { refresh: list.refresh };
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
