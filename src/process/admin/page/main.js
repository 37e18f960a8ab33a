// Starts the page, shows the section that the address names, and refreshes it. This file never
// builds the content of a section, and never polls while the tab is hidden.

import * as accounts from "./accounts.js";
import {
  checkSession, currentSession, get, listen, mayRead, NO_ANSWER, ownAccount, readToken, signOut,
  Unreachable,
} from "./api.js";
import * as audit from "./audit.js";
import { announce, badge, h, refill, setChildren } from "./dom.js";
import * as domains from "./domains.js";
import { button } from "./forms.js";
import { formatClock } from "./format.js";
import * as health from "./health.js";
import * as keys from "./keys.js";
import * as lists from "./lists.js";
import * as screening from "./screening.js";
import * as servers from "./servers.js";
import { applySession, createSignIn, sessionLine } from "./session.js";
import * as traffic from "./traffic.js";
import * as usage from "./usage.js";
import * as verdicts from "./verdicts.js";

const REFRESH_MS = 10_000;
const MAX_DELAY_MS = 60_000;
const GROUPS = [
  ["Gateway", ["health", "Health", health], ["traffic", "Traffic", traffic],
    ["verdicts", "Verdicts", verdicts], ["screening", "Screening", screening],
    ["servers", "Servers and routes", servers]],
  ["Customers", ["accounts", "Accounts", accounts], ["keys", "Keys", keys],
    ["usage", "Usage", usage]],
  ["Domains", ["domains", "Look-up, overrides", domains], ["lists", "Lists and feeds", lists]],
  ["Changes", ["audit", "Audit", audit]],
];
const GROUPS_OF_ACCOUNT = [
  ["Account", ["accounts", "Account", accounts], ["keys", "Keys", keys], ["usage", "Usage", usage]],
];

const place = (id) => document.getElementById(id);
const signInForm = createSignIn({ onDone: leaveSignIn, onSkip: skipSignIn });
/** The mounted section: `{title, node, controller, refresh, isLive}`. */
let section = null;
/** The account of the session, or null. If it changes, the page is built again. */
let shownAccount;
/** Why the sign-in form is shown: a state of /session, "wanted" or null. */
let signInReason = null;
/** True if the section was hidden since it was loaded. */
let isStale = false;
let timer = 0;
let expiryTimer = 0;
let isTicking = false;
let failures = 0;
let failedAt = 0;
let pendingStatus = null;

function start() {
  listen(showSession, (isUp) => (isUp ? endOutage() : noteOutage(NO_ANSWER)));
  window.addEventListener("hashchange", () => mayRead() && showRoute(true));
  document.addEventListener("visibilitychange", () => document.hidden || tick());
  place("skip").addEventListener("click", (event) => {
    // The address names the section, so the link must not change it.
    event.preventDefault();
    place("main").focus();
  });
  tick();
}

async function tick() {
  clearTimeout(timer);
  if (document.hidden || isTicking) return;
  isTicking = true;
  const before = section;
  try {
    await checkSession(0);
    if (mayRead() && !signInReason) {
      // If this check has mounted the section, it is loading already.
      const isDue = section.isLive && section === before;
      await Promise.all([getStatus().catch(() => null), isDue && section.refresh()]);
    }
  } catch (error) {
    // The listener has noted an Unreachable.
    if (!(error instanceof Unreachable)) noteOutage(error.message);
  } finally {
    isTicking = false;
    scheduleTick();
  }
}

function scheduleTick() {
  clearTimeout(timer);
  const delay = failures > 0 ? Math.min(MAX_DELAY_MS, 1000 * 2 ** failures) : REFRESH_MS;
  // The sign-in form waits for the reader, not for the gateway.
  if (failures > 0 || !signInReason) timer = setTimeout(tick, delay);
  return delay;
}

function noteOutage(message) {
  // Requests that were sent together fail together.
  if (Date.now() - failedAt < 500) return;
  failedAt = Date.now();
  failures += 1;
  const seconds = Math.round(scheduleTick() / 1000);
  place("starting")?.remove();
  place("banner").hidden = false;
  // If the text were set again, a reader would announce it again.
  if (place("banner-alert").textContent !== message) place("banner-alert").textContent = message;
  const next = `${formatClock(failedAt)}: this page tries again in ${seconds} s. `;
  setChildren(place("banner-next"), next, button("Try now", { onclick: tick }));
}

function endOutage() {
  if (failures === 0) return;
  failures = 0;
  failedAt = 0;
  place("banner").hidden = true;
  place("banner-alert").textContent = "";
  announce("The gateway answers again.");
  // The answer that has ended the outage is not handled yet.
  setTimeout(() => section?.refresh());
}

function showSession(session) {
  place("starting")?.remove();
  place("version").textContent = session.version ?? "";
  clearTimeout(expiryTimer);
  const wait = Date.parse(session.expires_at) - Date.now() + 1000;
  // The page asks again when the token expires, so that the reader learns it at once.
  if (wait > 0 && wait < 2 ** 31) expiryTimer = setTimeout(tick, wait);
  if (!mayRead()) {
    if (signInReason !== session.state) showSignIn(session.state);
    return;
  }
  if (signInReason && signInReason !== "wanted") hideSignIn();
  if (shownAccount !== ownAccount()) {
    shownAccount = ownAccount();
    showNavigation();
    showRoute(false);
  }
  showTop();
  applySession();
}

function showTop() {
  const { version, ...session } = currentSession();
  refill(place("top-session"), [session, signInReason], () =>
    sessionLine({ onSignIn: () => showSignIn("wanted"), onSignOut: endSession }));
}

function showSignIn(reason) {
  signInReason = reason;
  isStale = true;
  for (const dialog of document.querySelectorAll("dialog[open]:not([data-keep])")) dialog.close();
  // The section stays in the document, so that a form keeps its values.
  setSignInShown(true);
  document.title = "Sign in – riskgate";
  document.activeElement?.blur();
  showTop();
  signInForm.show(reason);
}

function hideSignIn() {
  signInReason = null;
  setSignInShown(false);
  if (!section) return;
  document.title = `${section.title} – riskgate`;
  if (isStale) section.refresh();
  isStale = false;
}

function setSignInShown(isShown) {
  setChildren(place("sign-in"), isShown && signInForm.node);
  for (const id of ["section", "nav", "top-state"]) place(id).hidden = isShown;
}

function leaveSignIn() {
  if (signInReason) hideSignIn();
  section?.node.querySelector("h1")?.focus();
  tick();
}

function skipSignIn() {
  return readToken() ? endSession() : leaveSignIn();
}

async function endSession() {
  section?.controller.abort();
  section = null;
  shownAccount = undefined;
  signInReason = null;
  document.activeElement?.blur();
  setChildren(place("section"));
  // If the gateway does not answer, the banner says so.
  await signOut().catch(() => null);
  tick();
}

function groupsOfReader() {
  return ownAccount() ? GROUPS_OF_ACCOUNT : GROUPS;
}

function showNavigation() {
  const menu = h("button", {
    type: "button", class: "menu", "aria-expanded": "false", "aria-controls": "nav-list",
    onclick: () => {
      menu.ariaExpanded = String(menu.ariaExpanded !== "true");
    },
  }, "Menu");
  const groups = groupsOfReader().map(([title, ...entries]) => h("li", {},
    h("span", { class: "nav-title" }, title), h("ul", {}, entries.map(([name, label]) =>
      h("li", {}, h("a", { href: `#/${name}` }, label))))));
  setChildren(place("nav"), menu, h("ul", { id: "nav-list", class: "nav-list" }, groups));
  refill(place("top-state"), null, () => []);
  setSignInShown(false);
}

function showRoute(isAsked) {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeSegment);
  const entries = groupsOfReader().flatMap(([, ...group]) => group);
  const [found, label, module] = entries.find((entry) => entry[0] === name) ?? entries[0];
  // A reader with an account token has one account, whatever the address says.
  const title = rest[0] && !ownAccount() ? `${rest[0]} – ${label}` : label;
  const controller = new AbortController();
  const node = h("div", { class: "stack" });
  section?.controller.abort();
  for (const dialog of document.querySelectorAll("dialog:not([data-keep])")) dialog.remove();
  section = { title, node, controller, ...module.mount({
    node, rest, params: new URLSearchParams(query), signal: controller.signal, applySession,
    getStatus, setParams: (values) => replaceQuery(found === name ? path : found, values),
  }) };
  isStale = false;
  setChildren(place("section"), node);
  document.title = `${title} – riskgate`;
  for (const link of place("nav").querySelectorAll("a")) {
    link.ariaCurrent = link.hash === `#/${found}` ? "page" : null;
  }
  place("nav").querySelector(".menu").ariaExpanded = "false";
  applySession();
  section.refresh();
  if (!isAsked) return;
  window.scrollTo(0, 0);
  node.querySelector("h1")?.focus({ preventScroll: true });
}

function decodeSegment(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function replaceQuery(path, values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  history.replaceState(null, "", `#/${path}${query.size > 0 ? "?" : ""}${query}`);
}

function getStatus() {
  if (ownAccount()) return Promise.resolve(null);
  pendingStatus ??= get("/status").then((status) => {
    showStatusInTop(...health.summarise(status));
    return status;
  }, (error) => {
    showStatusInTop("warn", "Status not known");
    throw error;
  }).finally(() => {
    pendingStatus = null;
  });
  return pendingStatus;
}

function showStatusInTop(kind, text) {
  refill(place("top-state"), [kind, text], () =>
    h("a", { href: "#/health", class: "state-link" }, badge(kind, text)));
}

start();
