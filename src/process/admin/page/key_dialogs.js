// Creates, rotates and revokes keys, and shows a new key once. This file forgets the text of a key
// when its dialog closes, and writes it only to the clipboard, if the reader asks.

import { createRetry, send } from "./api.js";
import { ACCOUNT_NAME_RULE, isAccountName, nameOf } from "./cells.js";
import { h, setChildren } from "./dom.js";
import {
  button, createDialog, errorPlace, field, FieldError, handleSubmit, openDialog, openFormDialog,
  select, textInput,
} from "./forms.js";
import { timeOf } from "./format.js";
import { fillPlans } from "./plans.js";

/**
 * Builds the dialog that creates a key. The values stay until the reader cancels or the key is
 * made, so that a retry is the same request.
 */
export function createKeyDialog(ctx, onCreated) {
  const place = errorPlace();
  const controls = {
    account: textInput("create-key-account"),
    plan: select("create-key-plan", [["", ""]]),
    label: textInput("create-key-label"),
    origins: h("textarea", { testid: "create-key-origins", rows: 2, spellcheck: "false" }),
    requireOrigin: h("input", { type: "checkbox", testid: "create-key-require-origin" }),
    expires: textInput("create-key-expires"),
  };
  const { account, plan, label, origins, requireOrigin, expires } = controls;
  let keyFor = createRetry();
  const form = h("form", {},
    field("Account", account, "If no account has this name, riskgate creates it."),
    field("Plan of a new account (optional)", plan, "To change the plan of an account, open it."),
    field("Label (optional)", label, "A text for people, such as “web page”."),
    field("Origins (optional)", origins,
      "One in each line, such as https://app.example.com. Without any, all origins are allowed."),
    field("Require an origin", requireOrigin, "Refuse requests without the header Origin."),
    field("Expires (optional)", expires, "After a time such as 90d, or at 2027-01-01T00:00:00Z."),
    place, h("div", { class: "actions end" },
      button("Cancel", { testid: "create-key-cancel", onclick: () => end() }),
      button("Create", {
        type: "submit", write: true, kind: "primary", testid: "create-key-submit",
      })));
  const node = createDialog("Create a key", false, form);
  const end = () => {
    keyFor = createRetry();
    form.reset();
    node.close();
  };
  handleSubmit(form, place, async () => {
    const body = readKey(controls);
    const created = await send("POST", "/keys", body, keyFor(body));
    end();
    showNewKey(created);
    onCreated();
  });
  return {
    node,
    open(name) {
      account.value ||= name;
      node.showModal();
      fillPlans(plan, [["", "free, or the plan of the account"]], plan.value, ctx.signal);
    },
  };
}

function readKey({ account, plan, label, origins, requireOrigin, expires }) {
  const name = account.value.trim();
  if (!isAccountName(name)) {
    throw new FieldError(account, ACCOUNT_NAME_RULE);
  }
  const list = origins.value.split(/[\s,]+/).filter(Boolean);
  const wrong = list.find((origin) => !/^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s]+$/i.test(origin));
  if (wrong) {
    throw new FieldError(origins, `Enter origins such as https://app.example.com, not ${wrong}.`);
  }
  return {
    account: name, plan: plan.value || undefined, label: label.value.trim() || undefined,
    origins: list.length > 0 ? list : undefined,
    require_origin: requireOrigin.checked || undefined, expires: readExpiry(expires),
  };
}

function readExpiry(control) {
  const text = control.value.trim();
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(text) && Date.parse(text) > Date.now();
  if (!text || isDuration(text) || isTime) return text || undefined;
  throw new FieldError(control,
    "Enter a time such as 90d, 12h or 30m, or a later time such as 2027-01-01T00:00:00Z.");
}

function isDuration(text) {
  return /^\d+(\.\d+)?(s|m|h|d)$/.test(text) && Number.parseFloat(text) > 0;
}

export function openRotateDialog(key, onRotated) {
  const keyFor = createRetry();
  const overlap = textInput("rotate-overlap", { value: "7d" });
  const expires = textInput("rotate-expires");
  openFormDialog("Rotate this key", "Rotate", "primary", [
    h("p", {}, "riskgate creates a key with the account and origins of ", nameOf(key.id, "code"),
      ". The old key ends after the overlap."),
    field("Overlap", overlap, "How long both keys work, such as 7d or 1h; 0 ends the old key now."),
    field("New key expires (optional)", expires,
      "Without it, the new key has the lifetime of the old one.")], async () => {
    const time = overlap.value.trim();
    if (time !== "0" && !isDuration(time)) {
      throw new FieldError(overlap, "Enter a time such as 7d.");
    }
    const body = { overlap: time, expires: readExpiry(expires) };
    const path = `/keys/${encodeURIComponent(key.id)}/rotate`;
    const created = await send("POST", path, body, keyFor(body));
    onRotated();
    return () => showNewKey(created);
  });
}

export function openRevokeDialog(key, onRevoked) {
  openFormDialog("Revoke this key?", "Revoke", "danger", [
    h("p", {}, "Requests with the key ", nameOf(key.id, "code"), " of the account ",
      nameOf(key.account, "b"), " get 401 within a second."),
    h("p", {}, "A revoked key never works again.")], async () => {
    await send("POST", `/keys/${encodeURIComponent(key.id)}/revoke`);
    onRevoked();
  });
}

function showNewKey(created) {
  const text = h("code", { class: "secret", testid: "new-key-text", tabindex: "0" }, created.key);
  const copied = h("p", { role: "status", class: "quiet" });
  const copy = button("Copy", {
    kind: "primary", testid: "new-key-copy", onclick: async () => {
      copied.textContent = await copyText(text) ? "Copied." : "Not copied: select it and copy it.";
    },
  });
  const dialog = createDialog("Your new key", true,
    h("p", { class: "strong" }, "This key is shown only now. riskgate keeps only its digest, " +
      "so nobody can show it again."),
    h("div", { class: "row-form" }, text, copy), copied,
    h("p", {}, "Id ", nameOf(created.id, "code"), ", account ", nameOf(created.account, "b"), "."),
    created.replaces && h("p", { testid: "replaced" }, "The old key ",
      nameOf(created.replaces, "code"), " ends ", timeOf(created.replaced_expires_at), "."),
    h("div", { class: "actions end" }, button("I have saved the key", {
      testid: "new-key-close", onclick: () => dialog.close(),
    })));
  dialog.addEventListener("close", () => setChildren(text));
  openDialog(dialog);
  copy.focus();
}

async function copyText(node) {
  try {
    await navigator.clipboard.writeText(node.textContent);
    return true;
  } catch {
    // Over http, only a page on loopback has the clipboard.
    document.getSelection().selectAllChildren(node);
    return document.execCommand("copy");
  }
}
