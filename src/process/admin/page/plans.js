// Reads the plans for a choice. This file never changes a plan: the config names them.

import { get } from "./api.js";
import { setOptions } from "./forms.js";
import { formatLimit } from "./format.js";

/** Fills a choice with `first` and all plans. Returns false if the plans can't be read. */
export async function fillPlans(control, first, value, signal) {
  let plans;
  try {
    plans = (await get("/plans", null, signal)).items;
  } catch {
    // The rest of the section meets the same fault, and shows it.
    return false;
  }
  const options = plans.map(({ name, limit }) => [name, `${name} (${formatLimit(limit)})`]);
  if (value && !plans.some(({ name }) => name === value)) {
    options.push([value, `${value} (not in the config)`]);
  }
  setOptions(control, [...first, ...options], value);
  return true;
}
