// This file owns the admin token, the session and all requests. Before a write, and before a read
// unless it has just asked, it asks /session whether the token works: a browser prints each refusal
// as an error. This file never touches the page, and never stores the token outside of
// sessionStorage.

const BASE = "/api/v1";
const TOKEN_ITEM = "riskgate-token";
const TIMEOUT_MS = 20_000;
/** Reads within this time share one answer of /session. */
const SESSION_AGE_MS = 1000;
export const NO_ANSWER = "The gateway does not answer.";

export class ApiError extends Error {
  /** `code` is the member `error` of an answer of the admin API. */
  constructor(status, message, detail, code) {
    super(message);
    Object.assign(this, { status, detail: detail ?? null, code: code ?? null });
  }
}

export class Unreachable extends Error {}

export class SessionEnded extends Error {}

let session = null;
let checkedAt = 0;
let pendingCheck = null;
let onSession = () => {};
let onConnection = () => {};

export function currentSession() {
  return session;
}

export function mayRead() {
  return session?.state === "open" || session?.state === "authorized";
}

export function mayWrite() {
  return session?.state === "authorized" && session.scope === "write";
}

/** The account that the token is limited to, or null. */
export function ownAccount() {
  return session?.scope === "account" ? session.account : null;
}

export function readToken() {
  return sessionStorage.getItem(TOKEN_ITEM);
}

/** `toSession` gets each new session; `toConnection` gets whether the gateway answers. */
export function listen(toSession, toConnection) {
  onSession = toSession;
  onConnection = toConnection;
}

export async function signIn(token) {
  const answer = await requestJson("GET", "/session", { token });
  if (answer.state === "authorized") {
    sessionStorage.setItem(TOKEN_ITEM, token);
    setSession(answer);
  }
  return answer;
}

export function signOut() {
  sessionStorage.removeItem(TOKEN_ITEM);
  return checkSession(0);
}

/** Asks /session, unless its last answer is younger than `maxAge` ms. */
export async function checkSession(maxAge = SESSION_AGE_MS) {
  if (session && Date.now() - checkedAt < maxAge) return session;
  pendingCheck ??= requestSession().finally(() => {
    pendingCheck = null;
  });
  return pendingCheck;
}

async function requestSession() {
  const token = readToken();
  const answer = await requestJson("GET", "/session", { token });
  // If the reader has signed in or out meanwhile, this answer is about another token.
  if (token !== readToken()) return requestSession();
  setSession(answer);
  return answer;
}

function setSession(answer) {
  session = answer;
  checkedAt = Date.now();
  onConnection(true);
  onSession(answer);
}

/** Reads a resource. Members of `query` that are null or "" are left out. */
export async function get(path, query, signal) {
  await checkSession();
  return request("GET", path, { query, signal });
}

export async function send(method, path, body, idempotencyKey) {
  await checkSession(0);
  if (mayRead() && !mayWrite()) {
    throw new ApiError(403, "Your token may not change anything.",
      "Create one with: riskgate admin-token create --name NAME --scope write");
  }
  return request(method, path, { body, idempotencyKey });
}

async function request(method, path, options) {
  if (!mayRead()) throw new SessionEnded();
  try {
    return await requestJson(method, path, { token: readToken(), ...options });
  } catch (error) {
    // The token may have ended since the check.
    if (error.status === 401 || error.status === 403) await checkSession(0);
    throw mayRead() ? error : new SessionEnded();
  }
}

async function requestJson(method, path, { token, query, body, idempotencyKey, signal }) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (method !== "GET") headers["X-Riskgate-Client"] = "page";
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  if (body) headers["Content-Type"] = "application/json";
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const answer = await fetch(BASE + path + formatQuery(query), {
      method, headers, body: body && JSON.stringify(body), cache: "no-store", redirect: "error",
      credentials: "omit", signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
    return readAnswer(answer, await answer.text(), path);
  } catch (error) {
    if (signal?.aborted || error instanceof ApiError) throw error;
    if (timeout.aborted) {
      throw new ApiError(0, "The gateway has not answered in time.", `${method} ${path}`);
    }
    onConnection(false);
    throw new Unreachable(NO_ANSWER);
  }
}

function readAnswer(answer, text, path) {
  const { status, ok } = answer;
  const message = `The gateway answered ${status}.`;
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    const type = answer.headers.get("content-type");
    throw new ApiError(status, message, `${path}: expected JSON, but found ${type}`);
  }
  if (ok) return value;
  if (value.error) throw new ApiError(status, value.message, value.detail, value.error);
  // POST /reload answers 422 with the outcome of each part instead of an error.
  const parts = Object.entries(value).map((pair) => pair.join(": "));
  throw new ApiError(status, message, parts.join("\n"));
}

function formatQuery(query) {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value || value === 0);
  return pairs.length > 0 ? `?${new URLSearchParams(pairs)}` : "";
}

/** Reads pages of a list until it has `maxItems` items. Returns false if there are more. */
export async function readPages(path, query, { maxItems, signal, onPage }) {
  let cursor = null;
  let count = 0;
  do {
    const page = await get(path, { ...query, limit: 500, cursor }, signal);
    count += page.items.length;
    onPage(page, count);
    cursor = page.next_cursor;
  } while (cursor && count < maxItems);
  return !cursor;
}

/**
 * Returns a function that gives the `Idempotency-Key` of a body: the same one while the body stays
 * the same. So a retry of a form makes no second key.
 */
export function createRetry() {
  let last = null;
  let key = null;
  return (body) => {
    const text = JSON.stringify(body);
    if (text !== last) [last, key] = [text, createIdempotencyKey()];
    return key;
  };
}

function createIdempotencyKey() {
  // Over http, only a page on loopback has randomUUID.
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
