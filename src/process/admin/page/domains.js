// Looks a domain up and says why it has its verdict; lists, sets and clears overrides. This file
// never judges a domain itself.

import { ApiError, get, send } from "./api.js";
import { nameColumn, nameOf } from "./cells.js";
import { badge, card, facts, h, quiet, sectionHead, setChildren } from "./dom.js";
import {
  button, createFilters, errorPlace, field, FieldError, handleSubmit, runOnce, textInput,
} from "./forms.js";
import { formatCount, formatName } from "./format.js";
import { pagedList } from "./list.js";
import { readOnlyNote } from "./session.js";

const RULES = {
  override: "An override names it.",
  special_use: "Names of this kind never receive mail.",
  unknown_tld: "Its top-level domain does not exist.",
  protected: "It is protected: no list may flag it.",
  alias: "It is a relay or an alias service.",
  agent_inbox: "It gives inboxes to programs, such as AI agents.",
  disposable_a: "A list of disposable domains has it; people reviewed the source.",
  disposable_b: "Two lists of disposable domains have it.",
  disposable_c: "One list of disposable domains has it.",
  disposable_d: "A list of disposable domains has it, which is probably out of date.",
  no_mail: "It has no mail host, or does not exist.",
  parked: "Its mail hosts have no usable address.",
  disposable_mx: "Its mail host belongs to an operator of disposable domains.",
  disposable_mx_address: "Its mail host has an address of an operator of disposable domains.",
  role: "It is a host of mailing lists, or a domain of no-reply addresses.",
  free: "It is a free mailbox provider.",
  look_alike: "No list has it; its letters of other scripts look like Latin ones.",
  typo: "No list has it; it is a slip of the finger away from a large provider.",
  free_subdomain: "No list has it; it lies below a suffix with free registration.",
  throwaway_name: "No list has it; its name contains a word such as “tempmail”.",
  professional: "Its mail host belongs to a professional mail service.",
  bulk_name: "No list has it; it is spelled like the names that abusers register in bulk.",
  mail_in_name: "No list has it; its name contains a word such as “mail”.",
  unknown: "No list has it, and no other rule applies.",
};

const ACTIONS = { allow: ["good", "allowed"], deny: ["bad", "denied"], set: ["plain", "set"] };

/** What an override says beside its action. */
const SET_FIELDS = [
  ["risk_score", "score"], ["is_free_provider", "free provider"],
  ["is_corporate_email", "corporate address"], ["mx_provider_label", "mail service"],
];

/** Reads a domain, without a dot at the end. riskgate itself maps international names. */
function readDomain(input, fewestLabels) {
  const domain = input.value.trim().replace(/\.$/, "").toLowerCase();
  const labels = domain.split(".");
  const areLabels = labels.every((label) => /^[^\s@/:_%?#*,;]{1,63}$/.test(label) &&
    !/^-|-$/.test(label));
  if (!areLabels || labels.length < fewestLabels || /^\d+$/.test(labels.at(-1)) ||
    domain.length > 253) {
    throw new FieldError(input, "Enter a domain such as example.com, without @ and spaces.");
  }
  return domain;
}

async function lookUp(domain, signal) {
  const answer = await get("/lookup", { domain }, signal);
  return Array.isArray(answer) ? answer[0] : answer;
}

export function mount(ctx) {
  const override = createOverrideForm(ctx, () => overrides.reload());
  const lookup = createLookup(ctx, override.start);
  const overrides = createOverrideList(ctx);
  ctx.node.append(sectionHead("Look-up and overrides"), readOnlyNote(),
    h("div", { class: "columns" }, lookup.node, override.node), overrides.node);
  return { refresh: () => Promise.all([lookup.refresh(), overrides.refresh()]) };
}

function createLookup(ctx, startOverride) {
  const place = errorPlace();
  const result = h("div", { class: "stack", "aria-live": "polite" });
  const input = textInput("lookup-domain", {
    inputmode: "url", value: ctx.params.get("domain") ?? "",
  });
  const form = h("form", { class: "row-form" }, field("Domain", input),
    button("Look up", { type: "submit", kind: "primary", testid: "lookup-submit" }));
  const show = async () => {
    setChildren(result);
    const found = await lookUp(readDomain(input, 2), ctx.signal);
    ctx.setParams({ domain: found.domain });
    setChildren(result, verdictOf(found), h("div", {}, button("Override this domain", {
      write: true, onclick: () => startOverride(found.domain),
    })));
    ctx.applySession();
  };
  handleSubmit(form, place, show);
  return {
    node: card("Why does a domain have its verdict?", form, place, result),
    refresh: () => input.value && !result.firstChild && runOnce(form, place, show),
  };
}

function verdictOf({ domain, answer, row, rule, source, ...found }) {
  const names = (list) => (list ?? []).map((name) => h("div", { class: "name" }, name));
  return h("div", { testid: "lookup-result", class: "stack" },
    h("p", { class: "verdict" }, nameOf(domain, "b"),
      badge(answer.reason === "safe" ? "good" : "bad", formatName(answer.reason)),
      h("span", {}, `score ${formatCount(answer.risk_score)} of 100`)),
    h("p", {}, RULES[rule], " ", h("span", { class: "quiet" }, "(rule ", h("code", {}, rule), ")")),
    facts([
      ["Row", nameOf(row ?? "none"), row && row !== domain && `, which covers ${domain}`],
      ["Source", formatName(source)],
      found.lists?.length > 0 && ["Lists", names(found.lists)],
      found.sources?.length > 0 && ["From", names(found.sources)],
      found.learned && ["Learned from the DNS", nameOf(String(found.learned))],
      found.did_you_mean && ["Did the user mean", nameOf(found.did_you_mean, "b")],
      ["Free provider", answer.is_free_provider ? "yes" : "no"],
      ["Corporate address", answer.is_corporate_email ? "yes" : "no"],
      answer.mx_provider_label && ["Mail service", answer.mx_provider_label],
    ]));
}

function createOverrideForm(ctx, onChange) {
  const place = errorPlace();
  const done = h("div", { role: "status" });
  const domain = textInput("override-domain", { inputmode: "url" });
  const note = textInput("override-note");
  const until = h("input", { type: "date", testid: "override-until" });
  const exact = h("input", { type: "checkbox", testid: "override-exact" });
  const force = h("input", { type: "checkbox", testid: "override-force" });
  const forceField = field("Deny it although the lists protect it", force,
    "The lists protect large providers. Denying one refuses its users.");
  const showForce = (isShown) => {
    forceField.hidden = !isShown;
    force.checked = false;
  };
  showForce(false);
  // The consent is for one name only.
  domain.addEventListener("input", () => showForce(false));
  const form = h("form", {},
    h("div", { class: "columns" }, field("Domain", domain), field("Last day (optional)", until,
      "A day in UTC.")),
    field("Note (optional)", note, "A reason, for the people who read the list."),
    field("Only this name, without names below it", exact), forceField, place,
    h("div", { class: "actions" },
      button("Allow", { type: "submit", write: true, value: "allow", testid: "override-allow" }),
      button("Deny", {
        type: "submit", write: true, value: "deny", kind: "danger", testid: "override-deny",
      })), done);
  handleSubmit(form, place, async (submitter) => {
    setChildren(done);
    const name = readDomain(domain, 1);
    const action = submitter?.value ?? "allow";
    const body = {
      action, exact: exact.checked, note: note.value.trim() || undefined,
      until: until.value || undefined, force: force.checked || undefined,
    };
    const { replaced, warnings } = await putOverride(name, body, () => showForce(true), ctx.signal);
    form.reset();
    showForce(false);
    setChildren(done, doneText(`${name} is ${ACTIONS[action][1]}.`, replaced, warnings));
    onChange();
  });
  const lead = "An override outranks every list. It takes effect within two seconds.";
  return {
    node: card("Override a verdict", quiet(lead), form),
    start(name) {
      domain.value = name;
      showForce(false);
      domain.focus();
    },
  };
}

/** The admin API's error of an override that needs `force`. */
const FORCE_REQUIRED = "force_required";

async function putOverride(name, body, askForForce, signal) {
  try {
    // The look-up tells before the request whether riskgate would refuse it.
    const mayBeRefused = body.action === "deny" && !body.force && name.includes(".");
    if (mayBeRefused && (await lookUp(name, signal)).rule === "protected") {
      throw new ApiError(409, `The lists protect ${name}.`, null, FORCE_REQUIRED);
    }
    return await send("PUT", `/overrides/${encodeURIComponent(name)}`, body);
  } catch (error) {
    if (error.code !== FORCE_REQUIRED) throw error;
    askForForce();
    const advice = "If you still want to deny it, tick the box above, and press Deny again.";
    throw new ApiError(409, error.message, [error.detail, advice].filter(Boolean).join("\n"));
  }
}

function doneText(text, rows, warnings) {
  return [h("p", { class: "done", testid: "override-done" }, text),
    (warnings ?? []).map((warning) => h("p", { testid: "override-warning" }, "Warning: ", warning)),
    rows?.length > 0 && h("p", {}, "Removed rows: ", nameOf(rows.join(" · "), "code"))];
}

/** The fields that an override of action `set` sets; without them, the list would not say what. */
function describeFields(row) {
  const words = { true: "yes", false: "no", "": "none" };
  const texts = SET_FIELDS.filter(([name]) => row.action === "set" && row[name] !== null)
    .map(([name, title]) => `${title}: ${words[row[name]] ?? row[name]}`);
  return texts.length > 0 && h("div", { class: "quiet" }, texts.join(", "));
}

function createOverrideList(ctx) {
  const place = errorPlace();
  const done = h("div", { role: "status" });
  const search = textInput("override-search", { type: "search" });
  const filters = createFilters(ctx, [["search", "Search", search]], () => list.reload());
  const clear = (owner, domain) => runOnce(owner, place, async () => {
    const path = `/overrides/${encodeURIComponent(domain)}`;
    const { replaced, warnings } = await send("DELETE", path);
    setChildren(done, doneText(`${domain} has no override any more.`, replaced, warnings));
    // The row and its button vanish, so the focus needs another place.
    search.focus();
    list.refresh();
  });
  const list = pagedList({
    ctx, path: "/overrides", noun: "overrides", query: filters.values, caption: "Overrides",
    row: ({ domain }) => ({ "data-testid": "override-row", "data-domain": domain }),
    columns: [
      nameColumn("Domain", "domain"),
      { title: "Action", cell: (row) => [badge(...ACTIONS[row.action]), describeFields(row)] },
      { title: "Covers", cell: ({ exact }) => (exact ? "only this name" : "names below too") },
      { title: "Last day", cell: ({ until }) => until ?? "none" },
      nameColumn("Note", "note"),
      { title: "Set by", cell: ({ author }) => author ?? "the file" },
      {
        title: "Change",
        // Only the operator's file can change its rows: then `source` is its path and line.
        cell: ({ domain, source }) => (source === "store" ? button("Clear", {
          write: true, testid: "override-clear", "data-domain": domain,
          "aria-label": `Clear ${domain}`, onclick: (event) => clear(event.currentTarget, domain),
        }) : source),
      },
    ],
  });
  const { reload, refresh } = list;
  return { node: card("Overrides", filters.node, place, done, list.node), reload, refresh };
}
