// A server with Node: it answers with the id of the request, and logs each request that it saw.
//
//     node node_server.mjs PORT LOG
//
// Its log and `X-Draw` are those of strict_server.py; it knows `k`, `resp`, `early` and `slow`.

import crypto from "node:crypto";
import fs from "node:fs";
import http from "node:http";

const [port, path] = process.argv.slice(2);
const log = fs.openSync(path, "a");

async function send(response, body, parts) {
  const size = Math.max(1, Math.ceil(body.length / parts));
  for (let at = 0; at < body.length; at += size) {
    response.write(body.slice(at, at + size));
    if (parts > 1) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  response.end();
}

function answer(request, response, name, draw, digest) {
  response.setHeader("X-Seen-Id", name);
  if (digest) response.setHeader("X-Body", digest);
  const body = `${name}\n`.repeat(Number(draw.get("k") ?? 1));
  if (draw.get("resp") === "len") response.setHeader("Content-Length", body.length);
  return send(response, body, Number(draw.get("slow") ?? 1));
}

const server = http.createServer((request, response) => {
  const name = request.headers["x-id"] ?? "";
  const draw = new Map((request.headers["x-draw"] ?? "").split(",").map((part) => part.split("=")));
  const hash = crypto.createHash("sha256");
  const seen = {
    method: request.method, path: request.url, x_id: name,
    request_id: request.headers["x-request-id"] ?? "", complete: false, start: "",
  };
  let isLogged = false;
  const write = () => {
    if (!isLogged) fs.writeSync(log, `${JSON.stringify(seen)}\n`);
    isLogged = true;
  };
  if (draw.has("early")) answer(request, response, name, draw);
  request.on("data", (part) => {
    hash.update(part);
    if (seen.start.length < 40) seen.start += part.toString("latin1", 0, 40 - seen.start.length);
  });
  request.on("end", () => {
    seen.sha = hash.digest("hex");
    seen.complete = true;
    write();
    if (!draw.has("early")) answer(request, response, name, draw, seen.sha);
  });
  request.on("close", write);
  request.on("error", write);
  response.on("error", () => {});
});
// Else Node closes idle connections, and refuses requests that are slow.
server.keepAliveTimeout = 60_000;
server.maxRequestsPerSocket = 0;
server.on("clientError", (error, socket) => {
  // A gateway may end a connection within a request, if its client does.
  if (error.code?.startsWith("HPE_") && error.code !== "HPE_INVALID_EOF_STATE") {
    const malformed = `${error.code} ${error.rawPacket?.toString("latin1").slice(0, 400)}`;
    fs.writeSync(log, `${JSON.stringify({ malformed })}\n`);
  }
  socket.destroy();
});
server.listen(Number(port), "127.0.0.1", 1024);
