// Shows a list of the API page by page. It never reads ahead, and never shows an answer that
// belongs to older filters.

import { get } from "./api.js";
import { announce, h, quiet, table } from "./dom.js";
import { button, errorPlace, load } from "./forms.js";
import { formatCount } from "./format.js";

const PAGE_SIZE = 50;

/** Builds a list. `noun` names the items in the plural; the rest describes a table. */
export function pagedList({ ctx, path, query, noun, onPage, ...tableOptions }) {
  const rows = table({ empty: `No ${noun}.`, ...tableOptions });
  const place = errorPlace();
  const range = quiet();
  let cursors = [null];
  let index = 0;
  let run = 0;
  const move = (step) => () => cursors[index + step] !== undefined && show(index + step, true);
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
      const page = await get(path, { ...query(), limit: PAGE_SIZE, cursor: cursors[target] },
        ctx.signal);
      if (mine !== run) return;
      index = target;
      cursors.length = index + 1;
      if (page.next_cursor) cursors.push(page.next_cursor);
      rows.show(page.items);
      ctx.applySession();
      showRange(page);
      onPage?.(page);
      if (isAsked) announce(range.textContent);
    }, () => show(target, true));
  }

  function showRange({ items, total }) {
    const first = index * PAGE_SIZE + 1;
    const last = first + items.length - 1;
    range.textContent = items.length === 0 ? ""
      : `${formatCount(first)} to ${formatCount(last)} of ${formatCount(total)} ${noun}`;
    // Not `disabled`: a disabled button loses the focus of the reader who has pressed it.
    previous.ariaDisabled = String(index === 0);
    next.ariaDisabled = String(index + 1 >= cursors.length);
    pager.hidden = cursors.length === 1;
  }

  return {
    node,
    refresh: () => show(index, false),
    reload() {
      cursors = [null];
      return show(0, true);
    },
  };
}
