// Shows a list of the API page by page. This file never reads ahead, and never shows an answer that
// belongs to older filters.

import { get } from "./api.js";
import { announce, h, table } from "./dom.js";
import { button, errorPlace, load } from "./forms.js";
import { formatCount } from "./format.js";

const PAGE_SIZE = 50;

/** Builds a list. `noun` names the items in the plural; the rest describes a table. */
export function pagedList({ ctx, path, query, noun, onPage, ...tableOptions }) {
  const rows = table({ empty: `No ${noun}.`, ...tableOptions });
  const place = errorPlace();
  const range = h("p", { class: "quiet", testid: "list-range" });
  /** Where each page begins: the cursor, and the number of items before it. */
  let starts = [{ cursor: null, before: 0 }];
  let index = 0;
  let run = 0;
  const move = (step) => () => starts[index + step] && show(index + step, true);
  const previous = button("Previous", { testid: "previous", onclick: move(-1) });
  const next = button("Next", { testid: "next", onclick: move(1) });
  const pager = h("nav", { class: "actions", "aria-label": `Pages of ${noun}`, hidden: true },
    previous, next);
  const node = h("div", { class: "list" }, place, rows.node,
    h("div", { class: "list-foot" }, range, pager));

  async function show(target, isAsked) {
    run += 1;
    const mine = run;
    await load(node, place, async () => {
      const page = await get(path, { ...query(), limit: PAGE_SIZE, cursor: starts[target].cursor },
        ctx.signal);
      if (mine !== run) return;
      index = target;
      starts.length = index + 1;
      const before = starts[index].before + page.items.length;
      if (page.next_cursor) starts.push({ cursor: page.next_cursor, before });
      rows.show(page.items);
      ctx.applySession();
      showRange(page);
      onPage?.(page);
      if (isAsked) announce(range.textContent);
    }, () => show(target, true));
  }

  function showRange({ items, total, next_cursor: more }) {
    const { before } = starts[index];
    const last = before + items.length;
    const name = noun.replace(/^./, (letter) => letter.toUpperCase());
    // Some lists don't know how many items they have, and search a part of them at a time.
    const end = total || !more ? ` of ${formatCount(total ?? last)}` : "; there are more";
    range.textContent = items.length > 0
      ? `${name} ${formatCount(before + 1)} to ${formatCount(last)}${end}`
      : more ? "Nothing was found in the first part. “Next” searches on." : "";
    // Not `disabled`: a disabled button loses the focus of the reader who has pressed it.
    previous.ariaDisabled = String(index === 0);
    next.ariaDisabled = String(index + 1 >= starts.length);
    pager.hidden = starts.length === 1;
  }

  return {
    node,
    /** Returns true if a page comes before the one that is shown. */
    hasPrevious: () => index > 0,
    refresh: () => show(index, false),
    reload() {
      starts = [{ cursor: null, before: 0 }];
      return show(0, true);
    },
  };
}
