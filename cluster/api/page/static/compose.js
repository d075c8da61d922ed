// A model out of any of the vectors: pick, sign, coefficient; what they do to each other at once.

import * as api from "./api.js";
import { $, el, left, onSubmit, told, work } from "./dom.js";
import { helped, together } from "./explain.js";

const form = $("#compose form");
const chosen = new Map(); // task -> { on, sign, size }
let matrix = { vectors: [], on: [], logits: [], high: Infinity, findings: [] };

export const user = () => form.elements.user.value.trim();

export function showTerms(tasks) {
  const ready = tasks.filter((task) => task.version);
  const list = $(".terms", form);
  $(".all", form).hidden = !ready.length;
  for (const task of ready) {
    if (chosen.has(task.name)) continue;
    chosen.set(task.name, { on: false, sign: 1, size: 1 });
    chosen.get(task.name).line = term(task.name);
    list.append(chosen.get(task.name).line);
  }
  const names = new Set(ready.map((task) => task.name));
  for (const [name, { line }] of chosen) { // of a task that was removed
    if (names.has(name)) continue;
    line.remove();
    chosen.delete(name);
  }
  if (!ready.length) list.replaceChildren(el("li", { className: "none" }, "No vector yet. A task has one as soon as it is trained."));
  else $(".none", list)?.remove();
  report();
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
  const size = el("input", { type: "number", min: 0, max: 10, step: "any", value: 1, "aria-label": `${label}, as a number` });
  const line = el("li", {}, el("label", {}, pick, name), sign, slide, size);
  const draw = () => {
    sign.textContent = state.sign > 0 ? "+" : "−";
    sign.setAttribute("aria-label", state.sign > 0 ? `${name} is added; subtract it` : `${name} is subtracted; add it`);
    for (const one of [sign, slide, size]) one.classList.toggle("off", !state.on);
    report();
  };
  const use = (value) => { state.size = Number(value) || 0; state.on = pick.checked = state.size > 0; };
  pick.addEventListener("change", () => { state.on = pick.checked; draw(); });
  sign.addEventListener("click", () => { state.sign *= -1; state.on = pick.checked = true; draw(); });
  slide.addEventListener("input", () => { size.value = slide.value; use(slide.value); draw(); });
  size.addEventListener("input", () => { slide.value = size.value; use(size.value); draw(); });
  line.addEventListener("take", ({ detail }) => {
    const factor = detail[name] ?? 0;
    state.on = pick.checked = factor !== 0;
    state.sign = factor < 0 ? -1 : 1;
    state.size = Math.abs(factor) || 1;
    slide.value = size.value = state.size;
    draw();
  });
  line.addEventListener("pick", () => { state.on = pick.checked = true; draw(); });
  queueMicrotask(draw);
  return line;
}

$(".all", form).addEventListener("click", () => {
  for (const line of $(".terms", form).children) line.dispatchEvent(new Event("pick"));
});

export function terms() {
  return [...chosen].filter(([, one]) => one.on && one.size > 0).map(([name, one]) => {
    const factor = one.size === 1 ? "" : `${one.size}*`;
    return `${one.sign > 0 ? "+" : "-"}${factor}${name}`;
  });
}

// Of every picked pair, what the one does to the other's inputs, times its coefficient.
function report() {
  const picked = terms();
  $("output", form).textContent = picked.join(" ").replaceAll("-", "−") || "nothing picked";
  $(".use", form).disabled = $(".foresee", form).disabled = picked.length === 0;
  if (picked.join() !== foreseen) $(".foreseen", form).replaceChildren();
  const names = [...chosen].filter(([, one]) => one.on).map(([name]) => name);
  const lines = [...pairs(names), ...matrix.findings.filter((one) => concerns(one, names)).map((one) => one.message)];
  const place = $(".report", form);
  if (names.length < 2) return place.replaceChildren();
  const fine = el("li", { className: "fine" }, apart(names));
  place.replaceChildren(el("ul", {}, ...(lines.length ? lines.map((line) => el("li", {}, line)) : [fine])));
}

const concerns = (finding, names) => names.includes(finding.first) && (finding.second === null || names.includes(finding.second));

// What the vector of one changes of the answers for the other, relative to what that one's own does.
function moved(one, other) {
  const row = matrix.vectors.findIndex((vector) => vector.task === one);
  const value = matrix.logits[row]?.[matrix.on.indexOf(other)];
  return typeof value === "number" ? value * chosen.get(one).size : null;
}

function apart(names) {
  const known = names.flatMap((one) => names.filter((other) => other !== one).map((other) => moved(one, other)))
    .filter((value) => value !== null);
  if (!known.length) return "What these vectors do to each other is not measured yet.";
  return `No vector changes another task’s answers by more than ${Math.max(...known).toFixed(2)} of what its own does.`;
}

function* pairs(names) {
  for (const one of names) for (const other of names) {
    if (one !== other && moved(one, other) >= matrix.high && !matrix.findings.some((f) => f.first === one && f.second === other))
      yield `${one} changes the answers for ${other} by ${moved(one, other).toFixed(2)} of what ${other}’s own vector does.`;
  }
}

let model = null; // the one composed last, or found

// Tick what the user's model is made of; null: there is none.
export function take(found) {
  model = found;
  const isSum = found?.method === "sum";
  const factors = Object.fromEntries(isSum ? found.recipe.map((one) => [one.vector.task, one.coefficient]) : []);
  for (const line of $(".terms", form).children) line.dispatchEvent(new CustomEvent("take", { detail: factors }));
  $(".measure", form).hidden = !found;
  if (found && !isSum) told(form, `The model of now was made by ${found.method} of ${found.terms.join(" ")}.`);
}

onSubmit(form, async () => {
  model = await api.compose(user(), terms());
  $(".measure", form).hidden = false;
  document.dispatchEvent(new CustomEvent("composed"));
  const foreign = Object.entries(model.private_to ?? {}).map(([task, owner]) => ` ${task} is private to ${owner}.`);
  return `This is ${model.user}’s model now: ${model.digest.slice(0, 12)}.${foreign.join("")}`;
});

async function evaluated(user, options, words) {
  const key = `${Date.now()} ${Math.random()}`;
  for (;;) {
    const { result, run_id } = await api.evaluate(user, key, options);
    if (result !== null) return result;
    const { step, steps, expected } = await api.run(run_id);
    told(form, steps ? `${words} ${step} of ${steps} rows${left(expected)}` : words);
    await new Promise((done) => setTimeout(done, 1500));
  }
}

let foreseen = ""; // the recipe whose accuracy is shown

$(".foresee", form).addEventListener("click", () => work(form, $(".foresee", form), async () => {
  const picked = terms();
  const { user: me } = await api.me();
  const found = await evaluated(user() || me, { term: picked, without: true }, "It is being foreseen …");
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
