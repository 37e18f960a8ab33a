// Lists keys, and opens the dialogs that create, rotate and revoke them. This file never holds the
// text of a key: key_dialogs.js shows it once.

import { ownAccount } from "./api.js";
import { accountLink, nameOf } from "./cells.js";
import { badge, h, sectionHead } from "./dom.js";
import { button, createFilters, select, textInput } from "./forms.js";
import { ageOf, timeOf } from "./format.js";
import { createKeyDialog, openRevokeDialog, openRotateDialog } from "./key_dialogs.js";
import { pagedList } from "./list.js";
import { readOnlyNote } from "./session.js";

const STATE_KINDS = { active: "good", revoked: "bad" };

export function mount(ctx) {
  const account = textInput("key-account-filter", { type: "search" });
  const state = select("key-state", [["", "all"], ["active", "active"], ["expired", "expired"],
    ["revoked", "revoked"]]);
  const filters = createFilters(ctx, [
    ["search", "Search", textInput("key-search", { type: "search" })],
    ...(ownAccount() ? [] : [["account", "Account", account]]), ["state", "State", state]],
  () => list.reload());
  const list = keyTable(ctx, filters.values, "Keys", !ownAccount());
  const create = createKeyDialog(ctx, list.reload);
  ctx.node.append(sectionHead("Keys", null, button("Create a key", {
    write: true, kind: "primary", testid: "create-key-open",
    onclick: () => create.open(account.value.trim()),
  })), readOnlyNote(), filters.node, list.node, create.node);
  return { refresh: list.refresh };
}

/** A list of keys with the buttons that change them. */
export function keyTable(ctx, query, caption, hasAccount) {
  const list = pagedList({
    ctx, path: "/keys", noun: "keys", caption, query,
    row: (key) => ({ "data-testid": "key-row", "data-id": key.id, "data-state": key.state }),
    columns: [
      {
        title: "Key", cell: (key) => [nameOf(key.id, "code"),
          key.label && h("div", { class: "quiet name" }, key.label)],
      },
      ...(hasAccount ? [{
        title: "Account", cell: (key) => [accountLink(key.account),
          h("div", { class: "quiet name" }, key.plan)],
      }] : []),
      { title: "State", cell: (key) => badge(STATE_KINDS[key.state] ?? "off", key.state) },
      {
        title: "Origins", cell: (key) => [
          key.origins.map((origin) => h("div", { class: "name" }, origin)),
          key.origins.length === 0 && (key.restricted ? "none" : "any"),
          key.require_origin && h("span", { class: "quiet" }, " required")],
      },
      { title: "Created", cell: (key) => ageOf(key.created_at, "not known") },
      {
        title: "Ends", cell: (key) => (key.revoked_at ? ["revoked ", ageOf(key.revoked_at)]
          : timeOf(key.expires_at, "no end")),
      },
      { title: "Change", cell: (key) => actionsOf(key, () => list.refresh()) },
    ],
  });
  return list;
}

function actionsOf(key, onChanged) {
  if (key.state === "revoked") return "–";
  return h("div", { class: "actions" },
    // A key that only keys.file has is replaced in that file.
    key.state === "active" && key.in_store && button("Rotate", {
      write: true, testid: "rotate-key", "aria-label": `Rotate ${key.id}`,
      onclick: () => openRotateDialog(key, onChanged),
    }),
    button("Revoke", {
      write: true, kind: "danger", testid: "revoke-key", "aria-label": `Revoke ${key.id}`,
      onclick: () => openRevokeDialog(key, onChanged),
    }));
}
