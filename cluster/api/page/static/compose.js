// A model out of any of the vectors: pick, sign, coefficient; what they do to each other at once.

import * as api from "./api.js";
import { $, busy, el, left, onSubmit, say, told, work } from "./dom.js";
import { helped, together } from "./explain.js";

const form = $("#compose form");
const MOST = 1e6; // of a coefficient
const chosen = new Map(); // TASK, which is its champion, or TASK@vN -> { on, sign, size, wrong, line }
let champions = new Map(); // task -> version
let matrix = { vectors: [], on: [], logits: [], high: Infinity, findings: [], loudest: [] };

export const user = () => form.elements.user.value.trim();

export function showTerms(tasks) {
  const ready = tasks.filter((task) => task.version);
  const list = $(".terms", form);
  $(".all", form).hidden = !ready.length;
  const isAsTaken = terms().join() === taken; // nobody has picked anything since
  const isNew = ready.some((task) => champions.get(task.name) !== task.version);
  champions = new Map(ready.map((task) => [task.name, task.version]));
  for (const { name } of ready) if (!chosen.has(name)) list.append(added(name));
  for (const name of chosen.keys()) if (!champions.has(taskOf(name))) dropped(name); // it was removed
  if (!ready.length) list.replaceChildren(el("li", { className: "none" }, "No vector yet. A task has one as soon as it is trained."));
  else $(".none", list)?.remove();
  if (isAsTaken && isNew && model?.method === "sum") take(model);
  else if (isAsTaken) taken = terms().join(); // without what was removed
  report();
}

const taskOf = (name) => name.split("@")[0];
const named = ({ task, version }) => (champions.get(task) === version ? task : `${task}@v${version}`);

function written({ coefficient, vector }) {
  const factor = Math.abs(coefficient);
  return `${coefficient < 0 ? "-" : "+"}${factor === 1 ? "" : `${factor}*`}${vector.task}@v${vector.version}`;
}

function added(name) {
  chosen.set(name, { on: false, sign: 1, size: 1, wrong: false });
  return (chosen.get(name).line = term(name));
}

function dropped(name) {
  chosen.get(name).line.remove();
  chosen.delete(name);
}

export function know(found) {
  matrix = found;
  report();
}

function term(name) {
  const state = chosen.get(name);
  const pick = el("input", { type: "checkbox" });
  const sign = el("button", { type: "button", className: "plain sign" });
  const label = `coefficient of ${name}`;
  const slide = el("input", { type: "range", min: 0, max: 2, step: 0.05, value: 1, "aria-label": label });
  const size = el("input", { type: "number", min: 0, max: MOST, step: "any", value: 1, "aria-label": `${label}, as a number` });
  const line = el("li", {}, el("label", {}, pick, name), sign, slide, size);
  const draw = () => {
    sign.textContent = state.sign > 0 ? "+" : "−";
    sign.setAttribute("aria-label", state.sign > 0 ? `${name} is added; subtract it` : `${name} is subtracted; add it`);
    for (const one of [sign, slide, size]) one.classList.toggle("off", !state.on);
    size.setAttribute("aria-invalid", state.wrong);
    report();
  };
  const use = (value) => {
    state.size = Number(value);
    state.wrong = false;
    state.on = pick.checked = state.size > 0;
  };
  pick.addEventListener("change", () => {
    state.on = pick.checked;
    if (state.on && !state.size) slide.value = size.value = state.size = 1;
    draw();
  });
  sign.addEventListener("click", () => { state.sign *= -1; state.on = pick.checked = true; draw(); });
  slide.addEventListener("input", () => { size.value = slide.value; use(slide.value); draw(); });
  size.addEventListener("input", () => {
    const isNumber = size.value !== "" && size.validity.valid; // what is no number has no value
    if (isNumber) { slide.value = size.value; use(size.value); } else state.wrong = state.on = pick.checked = true;
    draw();
  });
  line.addEventListener("take", ({ detail }) => {
    const factor = detail.get(name) ?? 0;
    state.on = pick.checked = factor !== 0;
    state.sign = factor < 0 ? -1 : 1;
    state.size = Math.abs(factor) || 1;
    state.wrong = false;
    slide.value = size.value = state.size;
    draw();
  });
  line.addEventListener("pick", () => { state.on = pick.checked = true; draw(); });
  queueMicrotask(draw);
  return line;
}

$(".all", form).addEventListener("click", () => {
  const picked = new Set([...chosen].filter(([, one]) => one.on).map(([name]) => taskOf(name)));
  for (const name of champions.keys()) if (!picked.has(name)) chosen.get(name).line.dispatchEvent(new Event("pick"));
});

export function terms() {
  return [...chosen].filter(([, one]) => one.on && (one.wrong || one.size > 0)).map(([name, one]) => {
    const factor = one.wrong ? "?*" : one.size === 1 ? "" : `${one.size}*`;
    return `${one.sign > 0 ? "+" : "-"}${factor}${name}`;
  });
}

let isDue = false;

// Once, however many lines were changed.
function report() {
  if (isDue) return;
  isDue = true;
  queueMicrotask(() => { isDue = false; reported(); });
}

let aloud = ""; // what was said last

// Of every picked pair, what the one does to the other's inputs, times its coefficient.
function reported() {
  const picked = terms(), names = [...chosen].filter(([, one]) => one.on).map(([name]) => name);
  const wrong = names.filter((name) => chosen.get(name).wrong).map((name) =>
    `The coefficient of ${name} is no number from 0 to ${MOST.toLocaleString()}: type one.`);
  say($("output", form), picked.map((one) => one.replace(/^-/, "−")).join(" ") || "nothing picked");
  for (const one of [$(".use", form), $(".foresee", form)]) one.disabled = busy.has(one) || !picked.length || wrong.length > 0;
  if (foreseen && picked.join() !== foreseen) {
    foreseen = "";
    $(".foreseen", form).replaceChildren();
    told(form, "");
  }
  const others = names.filter((name) => !champions.has(name)).map((name) =>
    `${name} is not the champion of now: what it does to the others is not shown here.`);
  const known = changes(names), all = names.length * (names.length - 1);
  const lines = [...wrong, ...others, ...pairs(known), ...matrix.findings.filter((one) => concerns(one, names)).map((one) => one.message)];
  const isFine = !lines.length && known.length === all;
  const said = lines.length ? lines : [apart(known, all)];
  const words = names.length < 2 && !wrong.length ? "" : JSON.stringify([said, isFine]);
  if (words === aloud) return;
  aloud = words;
  const items = said.map((line) => el("li", { className: isFine ? "fine" : "" }, line));
  $(".report", form).replaceChildren(...(words ? [el("ul", {}, ...items)] : []));
}

const concerns = (finding, names) => names.includes(finding.first) && (finding.second === null || names.includes(finding.second));

// What the vector of one changes of the answers for the other, relative to what that one's own does: of the
// picked pairs those of which it is known.
function changes(names) {
  const picked = new Set(names), found = new Map();
  const put = (one, other, value) => {
    if (one !== other && typeof value === "number" && picked.has(one) && picked.has(other))
      found.set(JSON.stringify([one, other]), { one, other, value: value * chosen.get(one).size });
  };
  for (const pair of matrix.loudest) put(pair.vector, pair.on, pair.logits);
  matrix.vectors.forEach(({ task }, row) => matrix.on.forEach((on, column) => put(task, on, matrix.logits[row]?.[column])));
  return [...found.values()];
}

function apart(known, all) {
  if (!known.length) return "What these vectors do to each other is not measured yet.";
  const most = known.reduce((found, one) => Math.max(found, one.value), 0).toFixed(2);
  if (known.length === all) return `No vector changes another task’s answers by more than ${most} of what its own does.`;
  return `${all - known.length} of ${all} pairs are not measured, or not among the newest; in the others no vector changes another task’s answers by more than ${most} of what its own does.`;
}

const pairs = (known) => known
  .filter(({ one, other, value }) => value >= matrix.high && !matrix.findings.some((f) => f.first === one && f.second === other))
  .map(({ one, other, value }) => `${one} changes the answers for ${other} by ${value.toFixed(2)} of what ${other}’s own vector does.`);

let model = null; // the one composed last, or found
let taken = ""; // its terms, as they were ticked
let ticked = ""; // what the field said then

// Tick what the user's model is made of; null: there is none. `field`: who was named, if somebody else now.
export function take(found, field) {
  model = found;
  if (field !== undefined) {
    ticked = field;
    told(form, "");
  }
  const isSum = found?.method === "sum";
  const factors = new Map(isSum ? found.terms.map((one) => [named(one.vector), one.coefficient]) : []);
  for (const name of chosen.keys()) if (!champions.has(name) && !factors.has(name)) dropped(name);
  for (const name of factors.keys())
    if (!chosen.has(name) && champions.has(taskOf(name))) chosen.get(taskOf(name)).line.after(added(name));
  for (const { line } of chosen.values()) line.dispatchEvent(new CustomEvent("take", { detail: factors }));
  taken = terms().join();
  $(".measure", form).hidden = !found;
  $(".update", form).hidden = ![...chosen.keys()].some((name) => !champions.has(name));
  if (found && !isSum) told(form, `${found.user}’s model was made by ${found.method} of ${found.terms.map(written).join(" ")}.`);
}

function used(made, field) {
  if (field === user()) take(made); // else another's is shown by now
  document.dispatchEvent(new CustomEvent("composed"));
  const foreign = Object.entries(made.private_to ?? {}).map(([task, owner]) => ` ${task} is private to ${owner}.`);
  return `This is ${made.user}’s model now: ${made.digest.slice(0, 12)}.${foreign.join("")}`;
}

form.addEventListener("settled", report); // nothing may be picked any more

onSubmit(form, async () => {
  const field = user();
  if (field !== ticked) throw new Error("Another user’s model is ticked still: wait until theirs is.");
  return used(await api.compose(field, terms()), field);
});

// Whoever names a user wants to see their model, and composes nothing.
form.elements.user.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  event.target.dispatchEvent(new Event("change"));
});

$(".update", form).addEventListener("click", () => work(form, $(".update", form), async () => {
  const field = user();
  return used(await api.update(model.user), field);
}));

async function evaluated(user, options, words) {
  const key = `${Date.now()} ${Math.random()}`;
  // Once it is under way it goes on, also while it is not heard of.
  const unheard = (error) => { if (![0, 503].includes(error.status)) throw error; return { result: null }; };
  // Somebody with the same model asked for it first, and it is not told who.
  const unseen = (error) => (error.status === 404 ? {} : unheard(error));
  let { result, run_id } = await api.evaluate(user, key, options);
  while (result === null) {
    const { step, steps, expected } = await api.run(run_id).catch(unseen);
    told(form, steps ? `${words} ${step} of ${steps} rows${left(expected)}` : words);
    await new Promise((done) => setTimeout(done, 1500));
    ({ result } = await api.evaluate(user, key, options).catch(unheard));
  }
  return result;
}

let foreseen = ""; // the recipe whose accuracy is shown

$(".foresee", form).addEventListener("click", () => work(form, $(".foresee", form), async () => {
  const picked = terms();
  const { user: me } = await api.me();
  const found = await evaluated(user() || me, { term: picked, without: true }, "The preview is being made …");
  if (terms().join() !== picked.join()) return "The recipe has changed meanwhile: preview it again.";
  foreseen = picked.join();
  $(".foreseen", form).replaceChildren(helped(found));
  document.dispatchEvent(new CustomEvent("composed"));
  return `This is what it would give on test rows; the model stays as it is until you use this one. ${together(found)}`;
}));

$(".measure", form).addEventListener("click", () => work(form, $(".measure", form), async () => {
  const found = await evaluated(model.user, {}, "It is being measured …");
  document.dispatchEvent(new CustomEvent("composed"));
  return `It was measured, and is under Accuracy above. ${together(found)}`;
}));
