// Shows whether the gateway is ready, what is degraded with what to do, and the state of its parts.
// This file decides nothing about health: it shows what /status says.

import { send } from "./api.js";
import { nameOf } from "./cells.js";
import { badge, card, facts, h, quiet, refill, sectionHead, setChildren } from "./dom.js";
import { button, errorPlace, load, runOnce } from "./forms.js";
import { ageOf, formatCount, formatMonth, formatName, plural, timeAndAge } from "./format.js";
import { readOnlyNote } from "./session.js";

export function summarise(status) {
  if (status.draining) return ["bad", "Draining"];
  if (status.not_ready) return ["bad", "Not ready"];
  const count = listProblems(status).length;
  return count > 0 ? ["warn", `Ready, ${plural(count, "problem")}`] : ["good", "Ready"];
}

function listProblems({ problems, degraded }) {
  if (problems?.length > 0) return problems;
  return (degraded ?? []).map((text) => {
    const [component, ...rest] = text.split(": ");
    return { component, problem: rest.join(": "), advice: null };
  });
}

export function mount(ctx) {
  const place = errorPlace();
  const top = h("div", { class: "stack" });
  const parts = h("div", { class: "parts" });
  const outcome = h("p", { role: "status", class: "done", testid: "reloaded" });
  const reloadPlace = errorPlace();
  const refresh = () => load(parts, place, async () => {
    const status = await ctx.getStatus();
    const minute = Math.floor(Date.now() / 60_000);
    refill(top, [status.problems, status.degraded, status.needs_restart, summarise(status), minute],
      () => [stateOf(status), problemsOf(status)]);
    refill(parts, [status, minute], () => partsOf(status));
  }, refresh);
  const reload = button("Reload config, keys and table", {
    write: true, testid: "reload", onclick: () => runOnce(reload, reloadPlace, async () => {
      setChildren(outcome);
      const texts = Object.entries(await send("POST", "/reload")).map((pair) => pair.join(": "));
      setChildren(outcome, `Reloaded. ${texts.join(", ")}.`);
      refresh();
    }),
  });
  ctx.node.append(sectionHead("Health", null, reload), readOnlyNote(), reloadPlace, outcome, place,
    top, parts);
  return { refresh, isLive: true };
}

function stateOf(status) {
  const [kind, text] = summarise(status);
  const sentence = {
    good: "It accepts requests, and no part reports a problem.",
    warn: "It accepts requests. Some parts do not work as they should.",
    bad: `Load balancers should use other nodes: ${status.not_ready}.`,
  }[kind];
  return h("div", { class: `state-line ${kind}`, testid: "ready" }, badge(kind, text),
    h("p", {}, sentence), quiet(`Version ${status.version}, started `,
      timeAndAge(status.started_at), "."));
}

function problemsOf(status) {
  const todo = h("b", {}, "What to do: ");
  const rows = listProblems(status).map(({ component, problem, advice }) =>
    h("li", { testid: "problem" },
      h("p", {}, badge("warn", formatName(component)), " ", problem),
      h("p", {}, todo.cloneNode(true), advice ?? "see docs/operations.md.")));
  const restart = status.needs_restart ?? [];
  return [
    rows.length > 0 && card("Problems", h("ul", { class: "problem-list" }, rows)),
    restart.length > 0 && card("A restart is needed",
      h("p", { testid: "needs-restart" }, "The next restart applies the new values of ",
        nameOf(restart.join(", "), "code"), "."),
      h("p", {}, todo, "start a successor with ", h("code", {}, "riskgate run --upgrade"),
        ", then send SIGQUIT to this process. No connection is refused.")),
  ];
}

function partsOf(status) {
  const { table, keys, upstream } = status;
  const { down, ...store } = status.store;
  const members = (object) => Object.entries(object).map(describeMember);
  const hooks = status.webhook;
  const isUp = upstream.healthy === upstream.servers;
  return [
    card("Traffic now", facts([
      ["Connections", formatCount(status.connections)],
      ["Requests in flight", formatCount(status.requests_in_flight)],
      ["Month counted", formatMonth(status.month)],
      ["Draining", status.draining ? "yes" : "no"],
    ])),
    card("Table", facts([
      ["Version", h("code", {}, table.version)],
      ["Built", timeAndAge(table.built_at)],
      ["Newest source", table.newest_evidence_at ? timeAndAge(table.newest_evidence_at) : "not known"],
      ["Rows", formatCount(table.rows)],
      table.warnings.length > 0 && ["Warnings", table.warnings.map((text) => h("p", {}, text))],
    ])),
    card("Store", facts([
      ["State", down ? badge("bad", "down") : badge("good", "answers")], ...members(store)])),
    card("Upstream servers and keys", facts([
      ["Healthy servers", badge(isUp ? "good" : upstream.healthy > 0 ? "warn" : "bad",
        `${upstream.healthy} of ${upstream.servers}`)],
      ["More", h("a", { href: "#/servers" }, "Servers, routes, certificates")],
      ["Keys", keys.loaded ? formatCount(keys.count) : badge("bad", "not loaded")],
    ])),
    card("DNS", facts(members(status.dns))),
    hooks && card("Webhooks", facts(members(hooks))),
  ];
}

function describeMember([name, value]) {
  const label = formatName(name.replace(/_at$/, "")).replace(/^url$|^./, (it) => it.toUpperCase());
  if (typeof value === "boolean") return [label, value ? "yes" : "no"];
  if (typeof value === "number") return [label, formatCount(value)];
  return [label, name.endsWith("_at") ? ageOf(value) : value ?? "none"];
}
