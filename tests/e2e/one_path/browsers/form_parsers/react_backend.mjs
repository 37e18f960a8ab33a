// Like backends.py, with the parser of React's server for the arguments of a server action. Next.js
// calls the same parser. The environment names the folder of React. Needs `--conditions
// react-server`.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.EXPRESS_FOLDER}/`);
const Busboy = require("busboy");
const server = require("react-server-dom-webpack/server.node");

// The texts that an action may take for the address of its argument.
const addressesIn = async (argument) => {
  const value = await argument;
  if (value instanceof FormData) return value.getAll("email");
  return [value, value?.email];
};

const readArguments = (type, body) => {
  if (type.startsWith("text/plain")) return server.decodeReply(new TextDecoder().decode(body), {});
  const parser = Busboy({ headers: { "content-type": type } });
  const decoded = server.decodeReplyFromBusboy(parser, {});
  parser.end(body);
  return decoded;
};

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds, []));

for await (const line of createInterface({ input: process.stdin })) {
  const { type, body } = JSON.parse(line);
  let found = [];
  try {
    const decoded = await readArguments(type, Buffer.from(body, "base64"));
    // A promise may have no end.
    const texts = Array.from(decoded, (it) => Promise.race([addressesIn(it), pause(20)]));
    const isText = (value) => typeof value === "string";
    // A half of a surrogate pair would be no text for the test.
    found = (await Promise.all(texts)).flat().filter(isText).map((text) => text.toWellFormed());
  } catch {
    // React refuses the form.
  }
  console.log(JSON.stringify({ react: found }));
}
process.exit(0);
