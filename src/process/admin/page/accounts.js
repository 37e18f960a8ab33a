// Lists accounts by use or by name. This file never changes an account: account.js does.

import { ownAccount } from "./api.js";
import { mountAccount, useOf } from "./account.js";
import {
  ACCOUNT_NAME_RULE, accountAddress, accountLink, isAccountName, nameColumn, numberColumn,
} from "./cells.js";
import { h, sectionHead, setChildren } from "./dom.js";
import {
  button, createFilters, field, FieldError, openFormDialog, select, textInput,
} from "./forms.js";
import { formatLimit } from "./format.js";
import { pagedList } from "./list.js";
import { readOnlyNote } from "./session.js";

export function mount(ctx) {
  const name = ownAccount() ?? ctx.rest[0];
  return name ? mountAccount(ctx, name) : mountList(ctx);
}

function mountList(ctx) {
  const search = textInput("account-search", { type: "search" });
  const sort = select("account-sort", [["use", "use of the month"], ["name", "name"]],
    { value: "use" });
  const filters = createFilters(ctx, [["search", "Search", search], ["sort", "Order by", sort]],
    () => list.reload());
  const missing = h("p", {});
  const list = pagedList({
    ctx, path: "/accounts", noun: "accounts", caption: "Accounts", query: filters.values,
    row: (account) => ({ "data-testid": "account-row", "data-name": account.name }),
    onPage: (page) => offerNewAccount(missing, search.value.trim(), page),
    columns: [
      { title: "Account", cell: (account) => accountLink(account.name) },
      nameColumn("Plan", "plan"),
      {
        title: "Limit", number: true,
        cell: (account) => [account.own_limit && h("span", { class: "quiet" }, "own "),
          formatLimit(account.limit)],
      },
      numberColumn("Calls this month", "month_count"),
      { title: "Use", cell: useOf },
      numberColumn("Active keys", "keys"),
    ],
  });
  ctx.node.append(sectionHead("Accounts", null, button("Refresh", { onclick: list.refresh }),
    button("Create an account", {
      write: true, kind: "primary", testid: "create-account-open",
      onclick: () => openNewAccount(search.value.trim()),
    })), readOnlyNote(), filters.node, list.node, missing);
  return { refresh: list.refresh };
}

/** Asks for the name of an account, and opens the account: saving its plan creates it. */
function openNewAccount(searched) {
  const name = textInput("create-account-name", { value: searched });
  openFormDialog("Create an account", "Next", "primary", [
    field("Name", name, "An account exists once it has a plan or a key. You choose its plan next."),
  ], async () => {
    const text = name.value.trim();
    if (!isAccountName(text)) throw new FieldError(name, ACCOUNT_NAME_RULE);
    return () => {
      location.hash = accountAddress(text);
    };
  });
}

/** If no account has the name that the reader looks for, a link leads to a new one. */
function offerNewAccount(place, name, { items }) {
  setChildren(place, items.length === 0 && isAccountName(name) &&
    accountLink(name, `Create the account ${name}`));
}
