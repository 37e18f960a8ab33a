// Shows one account: its plan, limit, keys and usage by day; sets its plan and limit. This file
// never changes the calls that were counted.

import { get, ownAccount, readPages, send } from "./api.js";
import { nameOf } from "./cells.js";
import { barChart } from "./charts.js";
import { card, facts, h, sectionHead, setChildren, shareBar } from "./dom.js";
import {
  button, errorPlace, field, FieldError, handleSubmit, load, readValue, select, textInput,
} from "./forms.js";
import {
  formatCount, formatDay, formatLimit, formatMonth, formatPercent, formatShort, plural,
} from "./format.js";
import { keyTable } from "./keys.js";
import { fillPlans } from "./plans.js";
import { readOnlyNote } from "./session.js";

const MAX_USAGE_ROWS = 20_000;

export function useOf({ used_percent: percent, limit }) {
  if (percent === null) return limit === "unlimited" ? "no limit" : "not known";
  const [kind, note] = percent >= 100 ? ["bad", " spent"]
    : percent >= 80 ? ["warn", " nearly spent"] : [];
  return shareBar(percent / 100, kind, formatPercent(percent), h("b", {}, note));
}

export function mountAccount(ctx, name) {
  const place = errorPlace();
  const summary = h("div", { testid: "account-facts" });
  const missing = "No account has this name. Set its plan to create it.";
  const showAccount = (account) => setChildren(summary, account ? accountFacts(account)
    : h("p", { testid: "account-missing" }, missing));
  const form = createPlanForm(name, ctx, showAccount);
  const usage = createUsage(ctx, name);
  const keys = keyTable(ctx, () => ({ account: name }), `Keys of ${name}`, false);
  const body = h("div", { class: "stack" }, h("div", { class: "columns" },
    card("This month", summary), form.node), usage.node, card("Keys", keys.node));
  const loadAccount = () => load(body, place, async () => {
    const account = await findAccount(name, ctx.signal);
    showAccount(account);
    await form.fill(account);
  }, loadAccount);
  const refresh = () => Promise.all([loadAccount(), usage.refresh(), keys.refresh()]);
  if (!ownAccount()) ctx.node.append(h("a", { href: "#/accounts", class: "back" }, "All accounts"));
  ctx.node.append(sectionHead(name, null, button("Refresh", {
    testid: "account-refresh", onclick: refresh,
  })), readOnlyNote(), place, body);
  return { refresh };
}

/** Finds an account, by a search if possible: a browser prints a 404 as an error. */
async function findAccount(name, signal) {
  if (!ownAccount()) {
    const query = { search: name, sort: "name", limit: 500 };
    const { items, next_cursor: cursor } = await get("/accounts", query, signal);
    const found = items.find((account) => account.name === name);
    if (found || !cursor) return found ?? null;
  }
  return get(`/accounts/${encodeURIComponent(name)}`, null, signal).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  });
}

function accountFacts(account) {
  return facts([
    ["Use", useOf(account)],
    ["Calls this month", formatCount(account.month_count)],
    ["Limit", formatLimit(account.limit), account.own_limit ? " (own)" : " (of the plan)"],
    ["Plan", nameOf(account.plan)],
    ["Active keys", formatCount(account.keys)],
  ]);
}

function createPlanForm(name, ctx, onSaved) {
  const place = errorPlace();
  const done = h("p", { role: "status", class: "done", testid: "account-saved" });
  const plan = select("account-plan", [["", ""]], { "data-write": true });
  const limit = textInput("account-limit", { "data-write": true });
  const form = h("form", {}, field("Plan", plan), field("Limit of calls in a month", limit,
    "A number, “unlimited”, or “plan” for the limit of the plan."), place,
  button("Save", { type: "submit", write: true, kind: "primary", testid: "account-save" }), done);
  /** What the form had when it was filled; null for a new account. */
  let before = null;
  let isEdited = false;
  form.addEventListener("input", () => {
    isEdited = true;
  });
  handleSubmit(form, place, async () => {
    setChildren(done);
    const body = readChange(plan, limit, before);
    const account = body && await send("PATCH", `/accounts/${encodeURIComponent(name)}`, body);
    isEdited = false;
    if (account) {
      onSaved(account);
      await fill(account);
    }
    done.textContent = account ? "Saved. Gateways apply the change within a second."
      : "Nothing has changed.";
  });
  async function fill(account) {
    // A refresh never wipes what the reader has entered.
    if (isEdited || !await fillPlans(plan, [], account?.plan ?? "free", ctx.signal)) return;
    limit.value = account?.own_limit ? String(account.limit) : "plan";
    before = account && { plan: plan.value, limit: limit.value };
  }
  return { node: card("Plan and limit", form), fill };
}

function readChange(plan, limit, before) {
  const text = limit.value.trim().toLowerCase().replaceAll(/[, ]/g, "");
  const isNumber = /^\d{1,15}$/.test(text);
  if (!isNumber && text !== "unlimited" && text !== "plan") {
    throw new FieldError(limit, "Enter a whole number, “unlimited” or “plan”.");
  }
  const body = {};
  if (plan.value !== before?.plan) body.plan = plan.value;
  if (text !== (before?.limit ?? "plan")) body.limit = isNumber ? Number(text) : text;
  return Object.keys(body).length > 0 ? body : null;
}

function createUsage(ctx, name) {
  const place = errorPlace();
  const chart = barChart("Usage by day", "account-usage", "Day (UTC)", "Calls");
  const month = h("input", { type: "month", testid: "account-month" });
  const node = h("div", {}, place, chart.node);
  chart.node.querySelector("figcaption").append(field("Month", month));
  const refresh = () => load(node, place, async () => {
    const asked = readValue(month);
    const callsByDay = new Map();
    let shown = asked;
    const isComplete = await readPages("/usage", { account: name, month: asked }, {
      maxItems: MAX_USAGE_ROWS, signal: ctx.signal,
      onPage(page) {
        shown = page.month ?? asked;
        for (const { day, calls } of page.items) {
          callsByDay.set(day, (callsByDay.get(day) ?? 0) + calls);
        }
      },
    });
    if (asked !== month.value) return;
    month.value = shown;
    chart.update(describeUsage(shown, callsByDay, isComplete));
  }, refresh);
  month.addEventListener("change", refresh);
  return { node, refresh };
}

function describeUsage(month, callsByDay, isComplete) {
  const items = listDays(month).map((day) => ({
    label: formatDay(day), value: callsByDay.get(day) ?? 0,
  }));
  const total = items.reduce((sum, { value }) => sum + value, 0);
  const most = items.reduce((best, item) => (item.value > (best?.value ?? 0) ? item : best), null);
  const peak = most ? `, most of them on ${most.label} (${formatCount(most.value)})` : "";
  const rest = isComplete ? "" : " Only a part was read; the CSV file of the month has all.";
  return {
    items, format: formatCount, formatTick: formatShort,
    summary: `${plural(total, "call")} in ${formatMonth(month)}${peak}.${rest}`,
  };
}

function listDays(month) {
  const today = new Date().toISOString().slice(0, 10);
  const days = Array.from({ length: 31 }, (_, index) =>
    `${month}-${String(index + 1).padStart(2, "0")}`);
  // A shorter month has no 31st.
  return days.filter((day) => day <= today && new Date(day).toJSON()?.startsWith(day));
}
