// Who is signed in, and what they may do here.

import * as api from "./api.js";
import { $ } from "./dom.js";

let me = null;

export async function isSignedIn() {
  if (me) return me;
  me = await api.me();
  const known = api.token.get();
  $("#who").textContent = known ? `signed in as ${me.user} (${me.role})` : "open to all";
  $("#sign-out").hidden = !known;
  for (const one of document.querySelectorAll(".submitter")) one.hidden = me.role === "user";
  for (const one of document.querySelectorAll(".admin")) one.hidden = me.role !== "admin";
  return me;
}

$("#sign-out").addEventListener("click", () => {
  api.token.forget();
  location.reload();
});
