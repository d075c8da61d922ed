// What the cluster says, as it happens.

import * as api from "./api.js";
import * as ask from "./ask.js";
import * as compose from "./compose.js";
import { $, say } from "./dom.js";
import * as matrices from "./matrices.js";
import * as tasks from "./tasks.js";
import { showUsers } from "./users.js";
import { isSignedIn } from "./who.js";

let versions = "";

let shown = null; // whose model was ticked
let listed = false; // whether the users are, for an admin

async function look() {
  const me = await isSignedIn();
  const found = await api.status();
  if (streaming) link("live");
  say($("#trouble"), found.trouble ?? "");
  $("#base").textContent = found.base.spec;
  ask.reads(found.base.modality);
  tasks.basedOn(found.base);
  tasks.show(found.tasks, found.work);
  const field = compose.user(), user = field || me.user;
  if (!listed) {
    listed = true;
    showUsers(me).catch((error) => { listed = false; failed(error); });
  }
  const model = user === shown ? null : await api.composition(user); // before anything can be picked
  compose.showTerms(found.tasks);
  if (user !== shown) compose.take(model, field);
  shown = user;
  const now = [found.ended, ...found.tasks.map((task) => `${task.name}@${task.version}`)].join();
  if (now === versions) return;
  versions = now;
  try {
    compose.know(await matrices.showInterference());
    await matrices.showAccuracy(compose.user());
  } catch (error) {
    versions = ""; // to be shown yet
    throw error;
  }
}

// At most one look at a time, and one more when something happened meanwhile.
let looking = null;
let again = false;
function soon() {
  if (looking) return (again = true);
  looking = look().catch(failed).finally(() => {
    looking = null;
    if (again) { again = false; setTimeout(soon, 300); }
  });
}

function failed(error) {
  if (error.status === 401) signedOut();
  else {
    const passes = !error.status || error.status === 429 || error.status >= 500;
    link("lost", passes ? `${error.message.replace(/ Try again\.$/, "")} Trying again …` : error.message);
    clearTimeout(retry);
    if (passes) retry = setTimeout(soon, AGAIN);
  }
}

const AGAIN = 3000; // milliseconds after a look that failed
let retry = null;
let streaming = false; // whether events arrive

function link(state, words = state) {
  $("#link").className = state;
  say($("#link"), words);
}

function signedOut() {
  const opens = $("#door").hidden;
  $("#door").hidden = false;
  if (opens) $("#sign-in input").focus();
  $("#main").hidden = $("nav").hidden = $(".skip").hidden = true;
  $("#who").textContent = "";
  $("#sign-out").hidden = true;
  link("lost", "signed out");
}

$("#sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = new FormData(event.target).get("token").trim();
  const no = (words) => { $(".error", event.target).textContent = words; };
  if (!/^[ -~]+$/.test(given)) return no("No such token."); // no header can have it
  api.token.set(given);
  try {
    await api.status();
    location.reload();
  } catch (error) {
    api.token.forget();
    no(error.status === 401 ? "No such token." : error.message);
  }
});

soon();
api.follow(soon, (state, why) => {
  if (state === "signed out") return signedOut();
  streaming = state === "live";
  link(state, streaming ? "live" : why || "connection lost, trying again");
  if (streaming) soon();
});
$("#compose form").elements.user.addEventListener("change", () => { versions = ""; soon(); });
document.addEventListener("composed", () => { versions = ""; soon(); });
