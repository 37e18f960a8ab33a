// Like backends.py, with the parsers of Node.js and of Express. The environment names the folder of
// Express.
import { createRequire } from "node:module";
import { Readable } from "node:stream";
import { createInterface } from "node:readline";
import querystring from "node:querystring";

const NAMES = ["email", "user[email]", "user.email", "email[]"];
const texts = (values) => values.flat().filter((value) => typeof value === "string");

const require = createRequire(`${process.env.EXPRESS_FOLDER}/`);
const express = require("express");
const multer = require("multer");
const middlewares = {
  "express urlencoded": express.urlencoded({ extended: true }),
  "express urlencoded, simple": express.urlencoded({ extended: false }),
  "express json": express.json(),
  "express multer": multer().none(),
};

const readWithMiddleware = (name) => async (type, body) => {
  const request = Object.assign(Readable.from([body]), {
    method: "POST",
    headers: { "content-type": type, "content-length": String(body.length) },
  });
  await new Promise((resolve, reject) => {
    middlewares[name](request, {}, (error) => (error ? reject(error) : resolve()));
  });
  const form = request.body ?? {};
  return [...NAMES.map((name) => form[name]), form.user?.email];
};

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
  if (isJson) return ["node json", "express json"];
  if (isMultipart) return ["node form data", "express multer"];
  return ["node querystring", "node form data", "express urlencoded", "express urlencoded, simple"];
};

for await (const line of createInterface({ input: process.stdin })) {
  const { type, body } = JSON.parse(line);
  const found = {};
  for (const name of readers(type)) {
    try {
      const read = parsers[name] ?? readWithMiddleware(name);
      found[name] = texts(await read(type, Buffer.from(body, "base64")));
    } catch {
      found[name] = []; // The backend refuses the form.
    }
  }
  console.log(JSON.stringify(found));
}
