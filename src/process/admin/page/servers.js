// Shows what the gateway is made of: the upstream servers, the routes to them, and the
// certificates. This file changes nothing: the config does.

import { get } from "./api.js";
import { nameOf } from "./cells.js";
import { badge, card, h, quiet, refill, sectionHead, table } from "./dom.js";
import { button, errorPlace, load } from "./forms.js";
import { ageOf, formatCount, formatDuration, formatName, plural, timeAndAge } from "./format.js";

const DAY_MS = 86_400_000;
/** From as many days before the expiry, `riskgate doctor` warns. */
const SOON_DAYS = 14;
const MODES = { block: "good", annotate: "off", shadow: "off" };

export function mount(ctx) {
  const place = errorPlace();
  const places = ["servers", "routes", "certificates"].map((name) => h("div", { testid: name }));
  const body = h("div", { class: "stack" }, places);
  const refresh = () => load(body, place, async () => {
    const answers = await Promise.all(["/servers", "/routes", "/certificates"].map((path) =>
      get(path, null, ctx.signal)));
    const minute = Math.floor(Date.now() / 60_000);
    for (const [index, show] of [serversCard, routesCard, certificatesCard].entries()) {
      refill(places[index], [answers[index], minute], () => show(answers[index]));
    }
  }, refresh);
  ctx.node.append(sectionHead("Servers and routes",
    "What the config in force says, and what this process knows of the servers.",
    button("Refresh", { onclick: refresh })), place, body);
  return { refresh, isLive: true };
}

function serversCard({ items, unresolved, needed }) {
  return card("Upstream servers",
    unresolved.map((problem) => h("p", { testid: "unresolved" }, badge("warn", "name"), " ",
      nameOf(problem))),
    !needed && quiet("No request needs a server, so riskgate does not check them."),
    table({
      caption: "Upstream servers",
      items,
      empty: "No server is known.",
      row: ({ address, state }) => ({
        "data-testid": "server-row", "data-name": address, "data-state": state,
      }),
      columns: [
        { title: "Address", cell: ({ address }) => nameOf(address, "code") },
        {
          title: "State",
          cell: ({ state }) => badge(!needed ? "off" : state === "up" ? "good" : "bad",
            needed ? state : "not checked"),
        },
        {
          title: "Last failure",
          cell: ({ last_failed_at: at, last_failure: reason }) => (at
            ? [ageOf(at), ": ", nameOf(reason)] : "none since the start"),
        },
      ],
    }).node);
}

function routesCard({ items, authz }) {
  const columns = [
    { title: "Prefix", cell: ({ prefix }) => nameOf(prefix, "code") },
    { title: "Methods", cell: ({ methods }) => methods?.join(", ") ?? "all" },
    { title: "Key", cell: ({ key, counts }) => (key ? counts ? "yes, counts" : "yes" : "no") },
    {
      title: "Mode",
      cell: ({ screen }) => (screen ? badge(MODES[screen.mode] ?? "off", screen.mode)
        : "not screened"),
    },
    { title: "Screening", cell: ({ screen }) => (screen ? describeScreening(screen) : "–") },
    { title: "Other settings", cell: describeRoute },
  ];
  return card("Routes", table({
    caption: "Routes to the upstream servers",
    items,
    empty: "The config names no route ([[upstream.route]]).",
    row: ({ prefix }) => ({ "data-testid": "route-row", "data-name": prefix }),
    columns,
  }).node, authz && authzOf(authz));
}

function describeScreening(screen) {
  return joinLines([
    ["fields ", nameOf(screen.fields.join(", "))],
    screen.paths?.length > 0 && ["only ", nameOf(screen.paths.join(", "))],
    `from score ${formatCount(screen.block_score)}: ` +
      screen.block_reasons.map(formatName).join(", "),
    screen.unscreened === "block" && "refuses what it can't read",
    screen.max_per_client && `${screen.max_per_client} for a client`,
    screen.redirect && ["sends to ", nameOf(screen.redirect)],
  ]);
}

function describeRoute(route) {
  const deadline = route.deadline_seconds === null ? "no deadline"
    : `deadline ${formatDuration(route.deadline_seconds)}`;
  return joinLines([
    deadline,
    route.max_per_client && `${route.max_per_client} for a client`,
    route.host && ["host ", nameOf(route.host)],
    route.origins && ["pages of ", nameOf(route.origins.join(", "))],
  ]);
}

function joinLines(lines) {
  return lines.filter(Boolean).map((line) => h("div", {}, line));
}

function authzOf({ path, check, screen }) {
  return h("p", { testid: "authz" }, "Other proxies ask at ", nameOf(path, "code"), " about ",
    check.join(", "), screen && [". Mode ", badge(MODES[screen.mode] ?? "off", screen.mode),
      ", addresses from ", nameOf(screen.fields.join(", "))], ".");
}

function certificatesCard({ items }) {
  return card("Certificates", table({
    caption: "Certificates of the HTTPS listener",
    items,
    empty: "There is no HTTPS listener (listen.https).",
    row: ({ certificate }) => ({ "data-testid": "certificate-row", "data-name": certificate }),
    columns: [
      { title: "File", cell: ({ certificate }) => nameOf(certificate) },
      { title: "Names", cell: ({ names }) => nameOf(names.join(", ") || "none") },
      { title: "End", cell: ({ expires_at: end }) => [timeAndAge(end), " ", endBadge(end)] },
    ],
  }).node);
}

function endBadge(end) {
  const days = Math.floor((Date.parse(end) - Date.now()) / DAY_MS);
  if (days < 0) return badge("bad", "has ended");
  return days < SOON_DAYS && badge("warn", days < 1 ? "ends today" : plural(days, "day"));
}
