// Shows verdicts by reason and source, and the top domains. This file never asks about a single
// domain: the links lead to the look-up.

import { get } from "./api.js";
import { domainLink, numberColumn, wordColumn } from "./cells.js";
import { card, h, quiet, refill, sectionHead, shareBar, table } from "./dom.js";
import { button, errorPlace, load } from "./forms.js";
import { formatCount, formatPercent, formatShort, timeAndAge } from "./format.js";

export function mount(ctx) {
  const place = errorPlace();
  const reasons = h("div", {});
  const domains = h("div", {});
  const grid = h("div", { class: "columns" }, reasons, domains);
  const refresh = () => load(grid, place, async () => {
    const [verdicts, top] = await Promise.all(["/verdicts", "/top-domains"].map((path) =>
      get(path, null, ctx.signal)));
    refill(reasons, verdicts, () => verdictsCard(verdicts));
    refill(domains, top, () => domainsCard(top));
  }, refresh);
  ctx.node.append(sectionHead("Verdicts", null, button("Refresh", { onclick: refresh })), place,
    grid);
  return { refresh };
}

function verdictsCard({ since, items }) {
  const total = items.reduce((sum, { count }) => sum + count, 0);
  return card("By reason and source",
    quiet(`${formatCount(total)} since `, timeAndAge(since), "."),
    table({
      caption: "Verdicts by reason and source",
      items: [...items].sort((one, other) => other.count - one.count),
      row: () => ({ "data-testid": "verdict-row" }),
      columns: [
        wordColumn("Reason", "reason"),
        wordColumn("Source", "source"),
        numberColumn("Verdicts", "count"),
        { title: "Share", cell: ({ count }) => shareOfTotal(count, total) },
      ],
    }).node);
}

export function shareOfTotal(count, total) {
  const share = total > 0 ? count / total : 0;
  return shareBar(share, null, formatPercent(share * 100));
}

function domainsCard({ items }) {
  return card("Top domains", h("p", { class: "quiet", testid: "top-domains-note" },
    "What GET /v1/public/top-domains answers. An account counts once a day for a domain, and older ",
    "counts weigh less. Domains without a count stand in the order that riskgate ships: nobody ",
    "has asked about them here."),
  table({
    caption: "Top domains",
    items,
    row: () => ({ "data-testid": "top-domain-row" }),
    columns: [
      { title: "Domain", cell: ({ domain }) => domainLink(domain) },
      numberColumn("Score", "risk_score"),
      wordColumn("Reason", "reason"),
      {
        title: "Count", number: true,
        cell: ({ count }) => (count === null ? "–" : formatShort(count)),
      },
    ],
  }).node);
}
