// The HTTP API as this page uses it: one place for routes, the token and errors.

const KEY = "tacl-token";

export class Refused extends Error {
  constructor(status, message, kind) { super(message); this.status = status; this.kind = kind; }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

const headers = () => (token.get() ? { authorization: `Bearer ${token.get()}` } : {});

const LIMIT = 90_000; // milliseconds without a byte; the server answers within 60 seconds
const READING = 1_200_000; // the same while the server reads a data set
const SLOWEST = 16; // bytes that a line sends in a millisecond at least

// `limit`: how long the server may need once it has the body.
async function ask(path, { limit = LIMIT, ...options } = {}) {
  const ending = new AbortController(), most = limit + size(options.body) / SLOWEST;
  let timer, response, text = "";
  const wait = () => { clearTimeout(timer); timer = setTimeout(() => ending.abort(), most); };
  wait();
  try {
    response = await fetch(`v1/${path}`, { ...options, headers: { ...headers(), ...options.headers }, signal: ending.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part; !(part = await reader.read()).done; text += part.value) wait();
  } catch {
    const silent = `No answer within ${Math.round(most / 1000)} seconds.`;
    throw new Refused(0, `${ending.signal.aborted ? silent : "The cluster does not answer."} Try again.`);
  } finally {
    clearTimeout(timer);
  }
  const body = parsed(text);
  if (!response.ok) throw new Refused(response.status, body?.message ?? body?.detail ?? response.statusText, body?.error);
  if (body === undefined) throw new Refused(0, "The answer cannot be read. Try again.");
  return body;
}

function size(body) {
  if (!(body instanceof FormData)) return body?.length ?? 0;
  return [...body.values()].reduce((sum, one) => sum + (one.size ?? one.length), 0);
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

const post = (path, body, more = {}) => ask(path, {
  method: "POST",
  headers: { "content-type": "application/json", ...more },
  body: JSON.stringify(body),
});

export const me = () => ask("me");
// The whole status, of which the cluster tells only what is new since the last time; `ended` grows when work
// that was done, or a task, is there no more.
const heard = { version: "", ended: 0, tasks: new Map(), work: new Map() };
export async function status() {
  let told;
  do {
    told = await ask(`status?since=${encodeURIComponent(heard.version)}`);
    if (told.whole) { heard.tasks.clear(); heard.work.clear(); }
    for (const task of told.tasks) heard.tasks.set(task.name, task);
    for (const run of told.work) heard.work.set(run.run_id, run);
    heard.ended += told.whole ? 1 : told.gone.length;
    for (const name of told.gone) { heard.tasks.delete(name); heard.work.delete(name); }
    heard.version = told.version;
  } while (told.more);
  const listed = (map) => [...map.values()].sort((one, other) => one.created - other.created);
  return { ...told, ended: heard.ended, tasks: listed(heard.tasks), work: listed(heard.work) };
}
export const interference = () => ask("interference");
// A user that is not named is whoever asks.
export const accuracy = (user) => ask(`accuracy${user ? `?user=${encodeURIComponent(user)}` : ""}`);
// Under one key, however often it is asked: a failure is told, and a new key tries again.
export function evaluate(user, key, { term = [], without = false } = {}) {
  const asked = new URLSearchParams([["without", without], ...term.map((one) => ["term", one])]);
  return post(`compositions/${encodeURIComponent(user)}/evaluation?${asked}`, {}, { "idempotency-key": key });
}
// Of a user who has none yet, or whom the asker must not know of: null.
// The list is asked first, since it refuses nobody: a browser tells its console of what is refused.
export async function composition(user) {
  const whose = encodeURIComponent(user);
  try {
    const [listed] = await ask(`compositions?whose=${whose}`);
    return listed ? await ask(`compositions/${whose}`) : null;
  } catch (error) {
    if ([404, 409, 410].includes(error.status)) return null;
    throw error;
  }
}
export const run = (id) => ask(`runs/${encodeURIComponent(id)}`);
export const compose = (user, terms) => post("compositions", { user: user || null, terms });
export const update = (user) => post(`compositions/${encodeURIComponent(user)}/update`, {});
export const predict = (user, inputs) => post("predict", { user: user || null, inputs, beside_base: true });
export const explain = (user, inputs) => post("explain", { user: user || null, inputs });
export async function vectors(task) {
  const found = [];
  for (let page = [null]; page.length; found.push(...page)) {
    const last = found.at(-1);
    const after = last ? `&after=${encodeURIComponent(`${task}@v${last.version}`)}` : "";
    page = await ask(`vectors?task=${encodeURIComponent(task)}${after}`);
  }
  return found;
}
// Of PAGE users at the most, by name: those after this one.
export const PAGE = 50;
export const tokens = (after) => ask(`tokens?after=${encodeURIComponent(after)}`);
export const usage = (after) => ask(`usage?after=${encodeURIComponent(after)}`);
export const issue = (user, role, hash, days) =>
  post(`users/${encodeURIComponent(user)}/tokens`, { role, token_hash: hash, days });
export const revoke = (user) => ask(`users/${encodeURIComponent(user)}/tokens`, { method: "DELETE" });

export const submit = (form) => ask("tasks", { method: "POST", body: form, limit: READING });

const SILENT = 40_000; // milliseconds; the server breaks its silence every 15 seconds

// Server-sent events over fetch, because EventSource cannot send a token. Never returns.
export async function follow(onEvent, onState) {
  for (let pause = 1; ; pause = Math.min(2 * pause, 30)) {
    const ending = new AbortController();
    let why = "";
    const late = setTimeout(() => ending.abort(), LIMIT); // until it begins; then `read` looks after it
    try {
      const options = { headers: { ...headers(), accept: "text/event-stream" }, signal: ending.signal };
      const response = await fetch("v1/events", options);
      clearTimeout(late);
      if (!response.ok) {
        const body = await response.json().catch(() => ({}));
        throw new Refused(response.status, body.message ?? response.statusText);
      }
      onState("live");
      pause = 1;
      await read(response.body.pipeThrough(new TextDecoderStream()).getReader(), onEvent);
    } catch (error) {
      if (error.status === 401) return onState("signed out");
      if (error instanceof Refused) why = error.message;
    } finally {
      clearTimeout(late);
      ending.abort();
    }
    onState("lost", why);
    await new Promise((done) => setTimeout(done, 1000 * pause));
  }
}

async function read(reader, onEvent) {
  for (let rest = ""; ;) {
    let timer;
    const silence = new Promise((_, failed) => { timer = setTimeout(() => failed(new Error("silent")), SILENT); });
    const { value, done } = await Promise.race([reader.read(), silence]).finally(() => clearTimeout(timer));
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (data.length) onEvent(data.map((line) => line.slice(5).trim()).join("\n"));
    }
  }
}
