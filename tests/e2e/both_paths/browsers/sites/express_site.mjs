// A sign-up site in Express, behind a proxy that ends TLS.
import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const require = createRequire(`${process.env.EXPRESS_FOLDER}/node_modules/`);
const [express, session, cors, multer] = ["express", "express-session", "cors", "multer"].map(
  (name) => require(name));

const app = express();
app.set("trust proxy", "loopback");
app.use((request, response, next) => {
  console.log(request.method, request.originalUrl);
  next();
});
app.use("/api", cors({ origin: process.env.APP_ORIGIN, credentials: true }));
app.use(session({
  secret: "only for tests", resave: false, saveUninitialized: true,
  cookie: { secure: true, httpOnly: true, sameSite: "none" },
}));
app.use((request, response, next) => {
  request.session.token ??= randomBytes(16).toString("hex");
  next();
});

const checkToken = (request, response, next) => {
  const token = request.get("X-CSRF-Token") ?? request.body?._csrf;
  token === request.session.token ? next() : response.status(403).send("Forbidden");
};
const escape = (text) => text.replace(/[&<>"]/g, (it) => `&#${it.charCodeAt(0)};`);
const tokenField = (request) => `<input type=hidden name=_csrf value="${request.session.token}">`;
const done = (response, text) =>
  response.send(`<!doctype html><title>Done</title><p>${escape(text)}</p>`);

app.get("/signup", (request, response) => {
  response.send(`<!doctype html><title>Sign up</title>
    <form id=signup method=post>${tokenField(request)}
    <input id=email name=email><button>Sign up</button></form>`);
});
app.post("/signup", express.urlencoded(), checkToken, (request, response) => {
  request.session.email = request.body.email;
  response.redirect(303, "/welcome");
});
app.get("/welcome", (request, response) => {
  response.send(`<!doctype html><title>Welcome</title>
    <h1>Welcome, ${escape(request.session.email)}</h1>
    <form id=upload method=post action="/photo" enctype="multipart/form-data">
    ${tokenField(request)}<input id=photo name=photo type=file><button>Upload</button></form>
    <a id=export href="/export">Export</a>`);
});
const upload = multer({ dest: tmpdir(), limits: { fileSize: 32 << 20 } });
app.post("/photo", upload.single("photo"), checkToken, async (request, response) => {
  const digest = createHash("sha256");
  for await (const chunk of createReadStream(request.file.path)) digest.update(chunk);
  done(response, `${request.file.size} bytes: ${digest.digest("hex")}`);
});
app.get("/oauth/callback", (request, response) => {
  done(response, `a code of ${request.query.code.length} characters`);
});
app.get("/export", async (request, response) => {
  response.attachment("export.csv");
  for (let number = 0; number < 12; number++) {
    response.write(`${number},${request.session.email}\n`);
    await sleep(300);
  }
  response.end();
});
app.get("/events", async (request, response) => {
  response.set({ "Content-Type": "text/event-stream", "Cache-Control": "no-cache" });
  for (let number = 0; number < 12; number++) {
    response.write(`data: ${number}\n\n`);
    await sleep(300);
  }
  response.end("event: end\ndata:\n\n");
});
const me = ({ session: { email, name = null, token } }, response) =>
  response.json({ email, name, token });
app.get("/api/me", me);
app.put("/api/me", express.json(), checkToken, (request, response) => {
  request.session.name = request.body.name;
  me(request, response);
});

app.listen(Number(process.env.PORT), "127.0.0.1");
