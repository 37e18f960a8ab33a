// Shows the lists of the table, and the feeds with their last fault. This file never fetches a
// feed.

import { get } from "./api.js";
import { nameColumn, nameOf, numberColumn, wordColumn } from "./cells.js";
import { badge, card, h, sectionHead, setChildren, table } from "./dom.js";
import { button, errorPlace, load } from "./forms.js";
import { ageOf } from "./format.js";

export function mount(ctx) {
  const place = errorPlace();
  const body = h("div", { class: "stack" });
  const refresh = () => load(body, place, async () => {
    const [lists, feeds] = await Promise.all(["/lists", "/feeds"].map((path) =>
      get(path, null, ctx.signal)));
    setChildren(body, feedsCard(feeds.items), listsCard(lists.items));
  }, refresh);
  ctx.node.append(sectionHead("Lists and feeds", [
    "A feed is a list that somebody else keeps fresh; riskgate fetches it in the background. ",
    h("a", { href: "#/domains" }, "Overrides"), " outrank every list."],
  button("Refresh", { onclick: refresh })), place, body);
  return { refresh };
}

const rowsColumn = numberColumn("Rows", "rows");

function feedsCard(items) {
  return card("Feeds", table({
    caption: "Feeds",
    items,
    empty: "The config names no feed ([[table.feed]]).",
    row: ({ name }) => ({ "data-testid": "feed-row", "data-name": name }),
    columns: [
      {
        title: "Feed",
        cell: ({ name, url }) => [nameOf(name, "b"), h("div", { class: "quiet name" }, url)],
      },
      rowsColumn,
      numberColumn("Kept", "kept"),
      { title: "Good fetch", cell: (feed) => ageOf(feed.fetched_at) },
      { title: "Changed", cell: (feed) => ageOf(feed.changed_at) },
      {
        title: "Last fault",
        cell: ({ problem }) => (problem ? [badge("warn", "fault"), " ", nameOf(problem)]
          : badge("good", "none")),
      },
    ],
  }).node);
}

function listsCard(items) {
  return card("Lists", table({
    caption: "Lists of the table",
    items,
    row: ({ name }) => ({ "data-testid": "list-row", "data-name": name }),
    columns: [
      nameColumn("List", "name"),
      wordColumn("Kind", "kind"),
      rowsColumn,
      { title: "Updated", cell: (list) => ageOf(list.updated_at, "not known") },
    ],
  }).node);
}
