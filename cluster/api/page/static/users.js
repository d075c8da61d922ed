// Users, their tokens and shares, for admins. A token is made here, shown once, and sent as its sha256.

import * as api from "./api.js";
import { $, day, el, onSubmit, table, told } from "./dom.js";

const section = $("#users");
const form = $("form", section);

export async function showUsers(me) {
  const isAdmin = me.role === "admin";
  section.hidden = $("#nav-users").hidden = !isAdmin;
  if (!isAdmin) return;
  const [tokens, usage] = await Promise.all([api.tokens(), api.usage()]);
  const names = [...new Set([...tokens, ...usage].map((one) => one.user))].sort();
  const rows = names.map((name) => {
    const own = tokens.filter((one) => one.user === name);
    const used = usage.find((one) => one.user === name);
    return [name, [...new Set(own.map((one) => one.role))].join(", "), own.length,
      used ? `${used.queued} of ${used.queued_most}` : "", used ? `${used.ran} of ${used.ran_most}` : "",
      used ? `${gib(used.stored)} of ${gib(used.stored_most)}` : "",
      day(Math.max(0, ...own.map((one) => one.used ?? 0))), own.length ? end(name, me) : ""];
  });
  const head = ["user", "role", "tokens", "runs queued", "minutes in a day", "GiB stored", "last used", "end"];
  $(".scroll", section).replaceChildren(
    rows.length ? table(head, rows, (value) => el("td", {}, value)) : "No user has a token yet.");
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
  await showUsers(await api.me());
  return `The token of ${made.user}, shown once: ${token}`;
});
