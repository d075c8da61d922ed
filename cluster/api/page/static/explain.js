// What each vector adds to an answer, and what it does for each task.

import { explain } from "./api.js";
import { el, opened, percent, shade, table } from "./dom.js";

const MOST = 10; // classes whose logits are shown

// Of the model that answered; another may be used by now.
export const why = (user, input, digest) => opened("Why?", async () => {
  const explained = await explain(user, [input]);
  if (explained.digest !== digest) throw new Error("The model has changed since; ask again.");
  const [found] = explained.explanations;
  const { task, label } = found.best;
  const rows = found.parts.map((part) => [part.part, percent(part.share), signed(part.logits[task][label]),
    part.without ? other(part.without, found.best) : "", part.without ? part.probability.toFixed(2) : ""]);
  rows.push(["together", "100.0", signed(found.logits[task][label]), "", ""]);
  const head = ["part", "% of the features", "adds to the logit", "answer without it", `P(${label}) without it`];
  return [
    el("p", { className: "hint" }, "The parts add up to the answer exactly, at the lengths it has; what is answered without ",
      "a vector is computed anew."),
    scrolling(`Parts of ${task}: ${label}`, table(head, rows)),
    opened("Logits of the likeliest classes", () => logits(found, MOST)),
  ];
});

// What each part adds to the logits of the likeliest classes, then of all.
function logits(found, most) {
  const classes = Object.entries(found.logits)
    .flatMap(([task, of]) => Object.entries(of).map(([name, logit]) => ({ task, name, logit })))
    .sort((one, other) => other.logit - one.logit);
  const shown = classes.slice(0, most);
  const row = (name, logits) => [name, ...shown.map((one) => signed(logits[one.task][one.name]))];
  const rows = [...found.parts.map((part) => row(part.part, part.logits)), row("together", found.logits)];
  const more = classes.length > most;
  const said = more ? `Of the ${most} likeliest of ${classes.length} classes.` : `Of all ${classes.length} classes.`;
  return [
    el("p", { className: "hint" }, said),
    scrolling("What every part adds to logits", table(["part", ...shown.map((one) => `${one.task}: ${one.name}`)], rows)),
    more ? opened(`All ${classes.length}`, () => logits(found, classes.length)) : null,
  ];
}

const other = (without, best) =>
  (without.task === best.task && without.label === best.label ? "the same" : `${without.task}: ${without.label}`);

// Of an evaluation with each vector left out: points of accuracy that a task owes to a vector.
export function helped(found) {
  const tasks = Object.keys(found.per_task);
  const composed = tasks.map((task) => found.per_task[task].composed);
  const rows = [["accuracy in %", ...composed.map(percent)]];
  for (const [part, left] of Object.entries(found.without ?? {}))
    rows.push([`of it by ${part}`, ...tasks.map((task, j) => 100 * (composed[j] - left[task]))]);
  const made = table(["points", ...tasks], rows, (value) => {
    if (typeof value === "string") return el("td", { className: "own" }, value);
    const cell = el("td", {}, signed(value, 1));
    return Math.abs(value) < 0.05 ? cell : shade(cell, value > 0 ? "--green" : "--red", Math.min(1, Math.abs(value) / 20));
  });
  return scrolling("Preview of the accuracy, and what each vector adds to it", made);
}

// Of all tasks that are added, with the task named and not, beside a classifier on the frozen base.
export function together(found) {
  const unknown = found.task_unknown ?? found.class_incremental;
  const known = typeof unknown === "number" ? `, ${percent(unknown)} % where no task is named` : "";
  const frozen = typeof found.frozen_known === "number"
    ? ` A classifier on the frozen base: ${percent(found.frozen_known)} %, ${percent(found.frozen_unknown)} %.` : "";
  return `Mean of the tasks that are added: ${percent(found.absolute)} %${known}.${frozen}`;
}

const signed = (value, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

const scrolling = (label, ...children) =>
  el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label }, ...children);
