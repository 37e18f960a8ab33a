// Like backends.py, with the parsers of Node.js.
import { createInterface } from "node:readline";
import querystring from "node:querystring";

const NAMES = ["email", "user[email]", "user.email", "email[]"];
const texts = (values) => values.flat().filter((value) => typeof value === "string");

const parsers = {
  "node json": (type, body) => {
    const value = JSON.parse(body.toString("utf8"));
    return [value?.email, value?.user?.email];
  },
  "node querystring": (type, body) => {
    const form = querystring.parse(body.toString("utf8"));
    return NAMES.map((name) => form[name] ?? []);
  },
  "node form data": async (type, body) => {
    const form = await new Response(body, { headers: { "Content-Type": type } }).formData();
    return NAMES.map((name) => form.getAll(name));
  },
};

const readers = (type) => {
  const isJson = type.toLowerCase().startsWith("application/json");
  const isMultipart = type.toLowerCase().startsWith("multipart/");
  if (isJson) return ["node json"];
  return isMultipart ? ["node form data"] : ["node querystring", "node form data"];
};

for await (const line of createInterface({ input: process.stdin })) {
  const { type, body } = JSON.parse(line);
  const found = {};
  for (const name of readers(type)) {
    try {
      found[name] = texts(await parsers[name](type, Buffer.from(body, "base64")));
    } catch {
      found[name] = []; // The backend refuses the form.
    }
  }
  console.log(JSON.stringify(found));
}
