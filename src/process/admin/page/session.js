// This file owns the sign-in form, the top line, and which controls are disabled. This file never
// stores the token: api.js does.

import { currentSession, mayRead, mayWrite, ownAccount, readToken, signIn } from "./api.js";
import { h, setChildren } from "./dom.js";
import { button, errorPlace, field, FieldError, handleSubmit, textInput } from "./forms.js";
import { timeOf } from "./format.js";

const CREATE = "riskgate admin-token create --name NAME --scope";

function explainState({ state, expires_at: end }) {
  if (state === "unknown") {
    return "riskgate does not know this token. It was mistyped, removed, or is of another gateway.";
  }
  if (state === "no_time") {
    return "This token expires, and riskgate does not know the time. Set the clock of its machine.";
  }
  if (state !== "expired") return null;
  return ["This token has expired", end && [" on ", timeOf(end)], ". Sign in with another one."];
}

/** Builds the sign-in form. `onSkip` is called when the reader wants to go on without a token. */
export function createSignIn({ onDone, onSkip }) {
  const place = errorPlace();
  const input = textInput("token-input", { type: "password" });
  const skip = button("Continue without a token", { testid: "token-skip", onclick: onSkip });
  const lead = h("p", { class: "quiet", testid: "sign-in-lead" });
  const form = h("form", {}, field("Admin token", input), place, h("div", { class: "actions" },
    button("Sign in", { type: "submit", kind: "primary", testid: "token-submit" }), skip));
  const showReason = (reason) => setChildren(place,
    reason && h("p", { class: "error", testid: "error" }, reason));
  handleSubmit(form, place, async () => {
    const token = input.value.trim();
    if (!token) throw new FieldError(input, "Enter a token.");
    // A header can carry visible ASCII only; no token of riskgate has other characters.
    const answer = /^[!-~]+$/.test(token) ? await signIn(token) : { state: "unknown" };
    input.value = "";
    if (answer.state === "authorized") return onDone();
    showReason(explainState(answer));
    input.ariaInvalid = "true";
    return input.focus();
  });
  const node = h("div", { class: "sign-in card" }, h("h1", {}, "Sign in"), lead, form,
    h("h2", {}, "How to get a token"),
    h("p", {}, "Run this on a machine with the config of the gateway:"),
    h("pre", { tabindex: "0" }, `${CREATE} read`),
    h("p", {}, "The scope “read” shows everything, “write” also allows changes, and ",
      "“account:NAME” shows one account. The browser keeps the token until you sign out or close ",
      "the tab."));
  return {
    node,
    /** `reason` is a state of /session, or "wanted" if the reader has asked for the form. */
    show(reason) {
      lead.textContent = reason === "wanted"
        ? "Reading needs no token here. A change needs a token with the scope write."
        : "This gateway shows its data only to the holder of an admin token.";
      skip.hidden = reason === "missing";
      showReason(explainState(currentSession()));
      // The dialog with a new key keeps the focus, because riskgate shows a key only once.
      if (!document.querySelector("dialog[open]")) input.focus();
    },
  };
}

export function sessionLine({ onSignIn, onSignOut }) {
  const session = currentSession();
  const scope = ownAccount() ? `account ${ownAccount()}` : session.scope;
  const who = session.state !== "authorized" ? (mayRead() ? "No token" : "Not signed in")
    : [h("b", {}, session.token), ` (${scope})`,
      session.expires_at && h("span", { class: "quiet" }, " until ", timeOf(session.expires_at))];
  return [h("span", { class: "name", testid: "session" }, who),
    readToken() && button("Sign out", { testid: "sign-out", onclick: onSignOut }),
    session.state === "open" && button("Sign in", { testid: "sign-in", onclick: onSignIn })];
}

/** A sentence that says why controls are disabled; `applySession` fills or hides it. */
export function readOnlyNote() {
  return h("p", { class: "note", testid: "read-only-note", hidden: true });
}

/** Enables or disables all controls that change something, as the session allows. */
export function applySession() {
  for (const control of document.querySelectorAll("[data-write]")) control.disabled = !mayWrite();
  for (const note of document.querySelectorAll(".note")) {
    note.hidden = mayWrite();
    setChildren(note, explainReadOnly());
  }
}

function explainReadOnly() {
  if (ownAccount()) {
    return ["Your token shows the account ", h("b", { class: "name" }, ownAccount()),
      " and changes nothing. Ask the operator of the gateway for a change."];
  }
  return [currentSession()?.state === "open" ? "Nothing can be changed without a token. "
    : "Your token may only read, so nothing can be changed. ",
  "Create a token with ", h("code", {}, `${CREATE} write`), ", and sign in with it."];
}
