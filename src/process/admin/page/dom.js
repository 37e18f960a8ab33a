// Builds elements from plain values, and keeps what a reader is doing while content is replaced.
// This file never parses HTML: each value becomes a text or an attribute. This file never sends
// requests.

let lastId = 0;

export function nextId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/** Creates an element. A property that is a function becomes a listener; false is left out. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (!isShown(value)) continue;
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else if (name === "value" || name === "checked") {
      element[name] = value;
    } else {
      element.setAttribute(name === "testid" ? "data-testid" : name, value === true ? "" : value);
    }
  }
  setChildren(element, children);
  return element;
}

function isShown(value) {
  return value !== null && value !== undefined && value !== false;
}

export function setChildren(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(isShown));
}

const shownData = new WeakMap();

/**
 * Replaces the children of an element if `data` has changed, but not while the focus or a selection
 * is inside, so that a refresh takes neither away.
 */
export function refill(element, data, build) {
  const text = JSON.stringify(data);
  const selection = document.getSelection();
  const isInUse = element.contains(document.activeElement) ||
    (!selection.isCollapsed && element.contains(selection.anchorNode));
  if (shownData.get(element) === text || isInUse) return;
  shownData.set(element, text);
  setChildren(element, build());
}

export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  // A reader speaks a live region only if its text changes after the region was emptied.
  setTimeout(() => announcer.append(text), 50);
}

/** A mark and a text, so that the colour is not the only information. */
export function badge(kind, text) {
  const mark = { good: "✓", warn: "▲", bad: "✕" }[kind] ?? "○";
  return h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, mark), text);
}

/** The heading of a section, with controls beside the heading and a sentence below it. */
export function sectionHead(title, sentence, ...actions) {
  return h("div", { class: "section-head" }, h("h1", { tabindex: "-1" }, title),
    h("div", { class: "actions" }, actions), sentence && h("p", { class: "quiet lead" }, sentence));
}

export function card(title, ...children) {
  const id = nextId("card");
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), children);
}

export function quiet(...children) {
  return h("p", { class: "quiet" }, children);
}

/** A list of terms and their values; rows with false or null are left out. */
export function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter(isShown).map(([term, ...value]) =>
    h("div", {}, h("dt", {}, term), h("dd", {}, value))));
}

/**
 * A table. A column is `{title, cell, number?}`: `cell` makes the content of a cell from an item.
 * `foot` gives the name and the value of a last row.
 * On a narrow screen each row becomes a box, so the roles of a table are written out.
 */
export function table({ caption, columns, items, empty, row, foot }) {
  const body = h("tbody", { role: "rowgroup" });
  const head = columns.map(({ title, number }) =>
    h("th", { scope: "col", role: "columnheader", class: number && "number" }, title));
  const footer = foot && h("tfoot", { role: "rowgroup" });
  const node = h("div", { class: "table-box" }, h("table", { role: "table" },
    h("caption", { class: "out-of-sight" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), body, footer));
  const emptyRow = () => h("tr", { role: "row" },
    h("td", { role: "cell", class: "quiet", colspan: columns.length }, empty ?? "None."));
  const show = (list) => {
    setChildren(body, list.length > 0
      ? list.map((item) => tableRow(columns, item, row?.(item))) : emptyRow());
    if (footer) setChildren(footer, list.length > 0 && footRow(columns, foot(list)));
  };
  if (items) show(items);
  return { node, show };
}

/** A row below the others, such as a sum: a name, and the value of the last column. */
function footRow(columns, [name, value]) {
  return h("tr", { role: "row" },
    h("th", { scope: "row", role: "rowheader", colspan: columns.length - 1 }, h("div", {}, name)),
    h("td", { role: "cell", class: "number", "data-label": columns.at(-1).title },
      h("div", {}, value)));
}

function tableRow(columns, item, properties) {
  const cells = columns.map(({ title, number, cell }, index) => h(index === 0 ? "th" : "td", {
    role: index === 0 ? "rowheader" : "cell", scope: index === 0 && "row",
    class: number && "number", "data-label": title,
  }, h("div", {}, cell(item))));
  return h("tr", { role: "row", ...properties }, cells);
}

export function shareBar(share, kind, ...text) {
  const width = `${(Math.max(0, Math.min(1, share)) * 100).toFixed(2)}%`;
  return h("div", { class: "share" },
    svg("svg", { class: `bar ${kind ?? ""}`, "aria-hidden": "true" },
      svg("rect", { class: "bar-value", width, height: "100%", rx: 3 })), h("span", {}, text));
}
