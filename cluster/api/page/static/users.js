// Users, their tokens and shares, for admins. A token is made here, shown once, and sent as its sha256.

import * as api from "./api.js";
import { $, day, el, onSubmit, table, told, work } from "./dom.js";

const section = $("#users");
const form = $("form", section);
const more = $(".more", section);
let shown = []; // rows, by name

export async function showUsers(me) {
  const isAdmin = me.role === "admin";
  section.hidden = $("#nav-users").hidden = !isAdmin;
  if (!isAdmin) return;
  await show([], shown.length, me);
}

// These rows and the pages after them, until there are so many.
async function show(rows, least, me) {
  let page;
  do {
    page = await pageAfter(rows.at(-1)?.[0] ?? "", me);
    rows = [...rows, ...page];
  } while (page.length >= api.PAGE && rows.length < least);
  shown = rows;
  more.hidden = page.length < api.PAGE;
  const head = ["user", "role", "tokens", "runs queued", "minutes in a day", "GiB stored", "last used", "first ends", "end"];
  $(".scroll", section).replaceChildren(
    rows.length ? table(head, rows, (value) => el("td", {}, value)) : "No user has a token yet.");
}

// Whoever holds a token is among those whose usage is told.
async function pageAfter(name, me) {
  const [tokens, usage] = await Promise.all([api.tokens(name), api.usage(name)]);
  return usage.map((used) => {
    const own = tokens.filter((one) => one.user === used.user);
    return [used.user, [...new Set(own.map((one) => one.role))].join(", "), own.length,
      `${used.queued} of ${used.queued_most}`, `${used.ran} of ${used.ran_most}`,
      `${gib(used.stored)} of ${gib(used.stored_most)}`,
      day(Math.max(0, ...own.map((one) => one.used ?? 0))), ending(own), own.length ? end(used.user, me) : ""];
  });
}

more.addEventListener("click", () =>
  work(section, more, async () => show(shown, shown.length + 1, await api.me())));

// When the first of these tokens ends.
function ending(own) {
  const first = Math.min(...own.map((one) => one.expires ?? Infinity));
  return own.length ? day(Number.isFinite(first) ? first : null) : "";
}

const gib = (bytes) => (bytes / 2 ** 30).toFixed(1);

function end(name, me) {
  const button = el("button", { type: "button", className: "plain", "aria-label": `End all tokens of ${name}` }, "End");
  button.addEventListener("click", async () => {
    if (!window.confirm(`End all tokens of ${name}?`)) return;
    button.disabled = true;
    told(section, "");
    try {
      await api.revoke(name);
      await showUsers(me);
    } catch (error) {
      told(section, error.message, "error");
      button.disabled = false;
    }
  });
  return button;
}

const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

onSubmit(form, async (data) => {
  if (!window.crypto.subtle) throw new Error("A browser makes tokens only over HTTPS or on localhost; use tacl users issue.");
  const token = hex(crypto.getRandomValues(new Uint8Array(32)));
  const hash = hex(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(token)));
  const made = await api.issue(data.get("user"), data.get("role"), hash, Number(data.get("days")));
  form.reset();
  const said = `The token of ${made.user}, shown once: ${token}`;
  const late = (error) => `${said}\nThe list is as it was: ${error.message}`;
  return api.me().then(showUsers).then(() => said, late);
});
