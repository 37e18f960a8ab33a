// Shows which forms screening has blocked or would block, the last refused ones, and the last that
// a rule decided. This file never shows an address: riskgate keeps only the domain.

import { get } from "./api.js";
import { domainLink, nameColumn, nameOf, numberColumn, wordColumn } from "./cells.js";
import { badge, card, h, quiet, refill, sectionHead, setChildren, table } from "./dom.js";
import { button, createFilters, errorPlace, load, select, setOptions } from "./forms.js";
import { formatCount, formatName, timeAndAge } from "./format.js";
import { shareOfTotal } from "./verdicts.js";

const KINDS = { pass: "good", would_block: "warn", block: "bad" };
const BLOCKED = "block,would_block";
const MORE_ROWS = 50;
const ALL = [["", "all"]];

const routeColumn = nameColumn("Route", "route");
const actionColumn = {
  title: "Action", cell: ({ action }) => badge(KINDS[action] ?? "off", formatName(action)),
};
const reasonColumn = wordColumn("Reason", "reason");
const countColumn = numberColumn("Forms", "count");
const domainColumn = {
  title: "Domain", cell: ({ domain }) => (domain ? domainLink(domain) : "other"),
};

export function mount(ctx) {
  const place = errorPlace();
  const summary = h("div", {});
  const refused = h("div", {});
  const decided = h("div", {});
  const list = h("div", {});
  const range = h("p", { class: "quiet", role: "status" });
  const more = button("Show more", { onclick: () => showForms(shown + MORE_ROWS) });
  const action = select("screening-action", [[BLOCKED, "blocked or would be blocked"],
    ["all", "all"], ["block", "blocked"], ["would_block", "would be blocked"], ["pass", "passed"],
    ["unscreened", "unscreened"]], { value: BLOCKED });
  const route = select("screening-route", ALL);
  const filters = createFilters(ctx, [["action", "Action", action], ["route", "Route", route]],
    () => showForms(MORE_ROWS));
  let forms = [];
  let shown = MORE_ROWS;
  function showForms(count) {
    shown = count;
    const chosen = forms.filter((form) => (!route.value || form.route === route.value) &&
      (action.value === "all" || action.value.split(",").includes(form.action)));
    setChildren(list, table({
      caption: "Forms by domain",
      items: chosen.slice(0, shown),
      row: (form) => ({ "data-testid": "screening-row", "data-action": form.action }),
      columns: [domainColumn, routeColumn, actionColumn, reasonColumn, countColumn],
    }).node);
    more.hidden = chosen.length <= shown;
    range.textContent = `${formatCount(Math.min(shown, chosen.length))} of ` +
      `${formatCount(chosen.length)} rows, the most frequent first`;
  }
  const refresh = () => load(ctx.node, place, async () => {
    const paths = ["/screening", "/refused-forms", "/rule-decisions"];
    const [answer, latest, ruled] = await Promise.all(paths.map((path) =>
      get(path, null, ctx.signal)));
    forms = answer.forms;
    refill(summary, answer, () => summaryCard(answer));
    const minute = Math.floor(Date.now() / 60_000);
    refill(refused, [latest, minute], () => latestCard("Last refused forms", "refused-form-row",
      "No form was refused.", latest));
    refill(decided, [ruled, minute], () => latestCard("Last decisions of rules",
      "rule-decision-row", "No rule has decided a sign-up.", ruled));
    const routes = [...new Set(forms.map((form) => form.route))].sort();
    setOptions(route, [...ALL, ...routes.map((name) => [name, name])],
      route.value || ctx.params.get("route"));
    showForms(shown);
  }, refresh);
  ctx.node.append(sectionHead("Screening",
    "Forms that riskgate has screened, and those that it would block in the mode “block”.",
    button("Refresh", { onclick: refresh })), place, summary, refused, decided,
  card("By domain", filters.node, list, h("div", { class: "list-foot" }, range, more)));
  return { refresh };
}

/** Adds up the counts of forms that have the same values in the members `names`. */
function groupForms(forms, names) {
  const groups = new Map();
  for (const form of forms) {
    const id = JSON.stringify(names.map((name) => form[name]));
    const count = (groups.get(id)?.count ?? 0) + form.count;
    groups.set(id, { ...form, count });
  }
  return [...groups.values()].sort((one, other) => other.count - one.count);
}

/** The API has up to a hundred forms of each kind. */
function latestCard(title, testId, empty, { since, items }) {
  return card(title, quiet("The latest first, at most 100 since ", timeAndAge(since),
    ", of this process."), h("div", {
    class: "scroll", tabindex: "0", role: "region", "aria-label": `${title} as a table`,
  }, table({
    caption: title,
    items,
    empty,
    row: ({ domain }) => ({ "data-testid": testId, "data-name": domain }),
    columns: [
      { title: "Time", cell: ({ at }) => timeAndAge(at) },
      routeColumn,
      { title: "Action", cell: ({ action }) => formatName(action) },
      {
        title: "Reason",
        cell: ({ reason, rule }) => [formatName(reason), rule && [", rule ", nameOf(rule, "b")]],
      },
      { title: "Score", number: true, cell: ({ score }) => score ?? "–" },
      { title: "Domain", cell: ({ domain }) => (domain ? domainLink(domain) : "no valid one") },
    ],
  }).node));
}

function summaryCard({ since, forms }) {
  const totals = new Map(groupForms(forms, ["route"]).map(({ route, count }) => [route, count]));
  const shareColumn = {
    title: "Share of the route", cell: ({ route, count }) => shareOfTotal(count, totals.get(route)),
  };
  return card("By route, action and reason", quiet("Since ", timeAndAge(since), "."), table({
    caption: "Forms by route, action and reason",
    items: groupForms(forms, ["route", "action", "reason"]),
    columns: [routeColumn, actionColumn, reasonColumn, countColumn, shareColumn],
  }).node);
}
