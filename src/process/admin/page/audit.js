// Shows the latest changes, with the values before and after. This file never changes the record.

import { breakable, nameColumn, nameOf } from "./cells.js";
import { h, sectionHead } from "./dom.js";
import { button, createFilters, textInput } from "./forms.js";
import { formatName, timeOf } from "./format.js";
import { pagedList } from "./list.js";

const VIA = {
  cli: "on the command line", api: "by the API", page: "on the page", file: "in a file",
  riskgate: "by riskgate itself",
};

export function mount(ctx) {
  const search = (name) => textInput(`audit-${name}`, { type: "search" });
  const filters = createFilters(ctx, [["operation", "Operation", search("operation")],
    ["actor", "Who", search("actor")], ["target", "Target", search("target")]],
  () => list.reload());
  const list = pagedList({
    ctx, path: "/audit", noun: "changes", caption: "Changes, the latest first",
    query: filters.values,
    row: ({ id, operation }) => ({
      "data-testid": "audit-row", "data-id": id, "data-operation": operation,
    }),
    columns: [
      { title: "When", cell: ({ at }) => timeOf(at) },
      {
        title: "Who",
        cell: ({ actor, via, from }) => [nameOf(actor ?? "not known"),
          h("div", { class: "quiet name" }, VIA[via] ?? via, from && `, from ${from}`)],
      },
      nameColumn("What", "operation", "code"),
      nameColumn("Target", "target"),
      { title: "Before and after", cell: ({ before, after }) => changeCell(before, after) },
    ],
  });
  ctx.node.append(sectionHead("Audit", null, button("Refresh", { onclick: list.refresh })),
    filters.node, list.node);
  return { refresh: list.refresh };
}

/**
 * The members that differ; all members if there is no object to compare with. Nothing before means
 * that the change has created its target.
 */
function changeCell(before, after) {
  const created = !before && after && h("div", { class: "quiet" }, "created");
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  const text = (object, name) => formatValue(object?.[name]);
  const changed = names.filter((name) => text(before, name) !== text(after, name));
  if (changed.length === 0) return created || (names.length > 0 ? "no difference" : "–");
  const value = (tag, when, object, name) => object && h(tag, {},
    h("span", { class: "out-of-sight" }, `${when}: `), breakable(text(object, name)));
  return [created, h("dl", { class: "changes" }, changed.map((name) => h("div", {},
    h("dt", {}, labelOf(name)), h("dd", {}, value("del", "before", before, name),
      before && after && h("span", { "aria-hidden": "true" }, " → "),
      value("ins", "after", after, name)))))];
}

/** A setting keeps the name that the config has. */
function labelOf(name) {
  return name.includes(".") ? breakable(name) : formatName(name);
}

function formatValue(value) {
  if (value === null || value === undefined || value === "") return "none";
  if (Array.isArray(value)) return value.map(formatValue).join(", ") || "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return String(value).replace(/^([\d-]{10})T(.*)Z$/, "$1 $2 UTC");
  return Object.entries(value).map(([name, inner]) => `${formatName(name)} ${formatValue(inner)}`)
    .join(", ");
}
