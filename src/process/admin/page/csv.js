// Writes rows as CSV (RFC 4180), and saves a text as a file. This file never lets a cell become a
// formula of a spreadsheet.

/** Writes one row with its line end. A spreadsheet would run a text that begins with = + - or @. */
export function formatRow(values) {
  return `${values.map(formatCell).join(",")}\n`;
}

function formatCell(value) {
  let text = String(value ?? "");
  if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function saveFile(name, texts) {
  const url = URL.createObjectURL(new Blob(texts, { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has to have opened the file before the address ends.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
