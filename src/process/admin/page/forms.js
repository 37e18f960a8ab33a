// Builds fields, shows errors beside their form, and opens dialogs. This file never sends requests:
// each form gives the function that does.

import { ApiError, SessionEnded, Unreachable } from "./api.js";
import { h, nextId, setChildren } from "./dom.js";

export class FieldError extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

export function field(label, control, hint) {
  control.id ||= nextId("field");
  const id = `${control.id}-hint`;
  if (hint) control.setAttribute("aria-describedby", id);
  const texts = [h("label", { for: control.id }, label),
    hint && h("p", { id, class: "hint" }, hint)];
  if (control.type === "checkbox") {
    return h("div", { class: "field check" }, control, h("div", {}, texts));
  }
  return h("div", { class: "field" }, texts[0], control, texts[1]);
}

/** A text field. The browser neither completes nor corrects a value, because names are no prose. */
export function textInput(testid, properties) {
  return h("input", {
    type: "text", autocomplete: "off", autocapitalize: "none", spellcheck: "false", testid,
    ...properties,
  });
}

export function select(testid, options, properties) {
  const node = h("select", { testid, ...properties });
  setOptions(node, options, properties?.value);
  return node;
}

export function setOptions(control, options, value) {
  setChildren(control, options.map(([id, text]) => h("option", { value: id }, text)));
  control.value = value ?? "";
  if (control.selectedIndex < 0) control.selectedIndex = 0;
}

export function button(text, { write, kind, ...properties }) {
  return h("button", { type: "button", class: kind, "data-write": write, ...properties }, text);
}

/** The place of an error exists before the error does, so that a reader announces the error. */
export function errorPlace() {
  return h("div", { class: "error-place", role: "alert" });
}

/** Shows an error; without one, empties the place. `onRetry` adds a button. */
function showError(place, error, onRetry) {
  const isShownElsewhere = error instanceof SessionEnded || error?.name === "AbortError";
  if (!error || isShownElsewhere) return setChildren(place);
  const isExpected = [ApiError, Unreachable, FieldError].some((type) => error instanceof type);
  // A bug of the page: the console keeps its place in the code.
  if (!isExpected) setTimeout(() => Promise.reject(error));
  return setChildren(place, h("div", { class: "error", testid: "error" },
    h("p", { class: "strong" }, isExpected ? error.message : `This page has failed: ${error}`),
    error.detail && h("p", { class: "error-detail" }, error.detail),
    onRetry && button("Try again", { onclick: onRetry })));
}

/** Runs `action` when a form is submitted. An error is shown in `place`; the values stay. */
export function handleSubmit(form, place, action) {
  form.noValidate = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    runOnce(form, place, () => action(event.submitter));
  });
}

export async function runOnce(owner, place, action) {
  if (owner.ariaBusy === "true") return;
  owner.ariaBusy = "true";
  showError(place, null);
  for (const control of owner.querySelectorAll("[aria-invalid]")) control.ariaInvalid = null;
  try {
    await action();
  } catch (error) {
    if (error instanceof Unreachable) {
      error.detail = "It may have made the change. Your entries are kept: send them again later.";
    }
    showError(place, error);
    if (error instanceof FieldError) {
      error.control.ariaInvalid = "true";
      error.control.focus();
    }
  } finally {
    owner.ariaBusy = null;
  }
}

export async function load(node, place, action, onRetry) {
  node.ariaBusy = "true";
  try {
    await action();
    showError(place, null);
  } catch (error) {
    // The banner shows an Unreachable.
    if (!(error instanceof Unreachable)) showError(place, error, onRetry);
  } finally {
    node.ariaBusy = null;
  }
}

/** A modal dialog. If `mustConfirm`, only its button closes it, and not the end of the session. */
export function createDialog(title, mustConfirm, ...children) {
  const id = nextId("dialog");
  const node = h("dialog", { "aria-labelledby": id, "data-keep": mustConfirm },
    h("h2", { id }, title), children);
  const stop = (event) => {
    if (mustConfirm && (event.type === "cancel" || event.key === "Escape")) event.preventDefault();
  };
  node.addEventListener("cancel", stop);
  node.addEventListener("keydown", stop);
  return node;
}

export function openDialog(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

/** A form in a dialog. `action` may return a function that runs after the dialog has closed. */
export function openFormDialog(title, label, kind, content, action) {
  const place = errorPlace();
  const form = h("form", {}, content, place, h("div", { class: "actions end" },
    button("Cancel", { testid: "cancel", onclick: () => dialog.close() }),
    button(label, { type: "submit", kind, testid: "confirm" })));
  const dialog = createDialog(title, false, form);
  handleSubmit(form, place, async () => {
    const onClosed = await action();
    dialog.close();
    onClosed?.();
  });
  openDialog(dialog);
}

/** The value of a field. Some browsers take any text for a month. */
export function readValue(control) {
  const value = control.value.trim();
  const isMonth = control.getAttribute("type") === "month";
  if (isMonth && value && !/^\d{4}-(0[1-9]|1[0-2])$/.test(value)) {
    throw new FieldError(control, "Enter a month such as 2026-11.");
  }
  return value;
}

/** Filters above a list, each `[name, label, control]`. The address keeps their values. */
export function createFilters(ctx, filters, onApply) {
  const read = (toValue) => Object.fromEntries(filters.map(([name, , control]) =>
    [name, toValue(control)]));
  const apply = () => {
    clearTimeout(timer);
    onApply();
    ctx.setParams(read(({ value }) => value.trim()));
  };
  let timer = 0;
  const form = h("form", { class: "filters", role: "search" },
    filters.map(([, label, control]) => field(label, control)));
  for (const [name, , control] of filters) {
    control.value = ctx.params.get(name) ?? control.value;
    const isChosen = control.tagName === "SELECT" || control.type === "month";
    control.addEventListener(isChosen ? "change" : "input", () => {
      clearTimeout(timer);
      timer = setTimeout(apply, isChosen ? 0 : 300);
    });
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  return { node: form, values: () => read(readValue) };
}
