// The accuracy matrix over time, and the map of tasks: what each vector does to each task.

import * as api from "./api.js";
import { $, clock, el, percent, shade, table } from "./dom.js";

export async function showAccuracy(user) {
  const found = await api.accuracy(user);
  const place = $("#accuracy .scroll");
  if (!found.rows.length) return place.replaceChildren(
    "No model has been measured yet. Compose one, use it, and press “Measure it on test rows”.");
  const isSeveral = new Set(found.rows.map((row) => row.user)).size > 1;
  const rows = found.rows.map((row) =>
    [label(row, isSeveral), ...found.tasks.map((task) => row.accuracies[task] ?? null), row.absolute]);
  const last = found.tasks.length;
  place.replaceChildren(table(["model", ...found.tasks, "mean"], rows, (value, i, j) => {
    const below = j < last ? ofTask(found.rows[i], found.tasks[j]) : ofAll(found.rows[i]);
    const lines = Object.entries(below).filter(([, share]) => typeof share === "number")
      .map(([what, share]) => el("small", {}, `${what} ${percent(share)}`));
    const cell = el("td", { className: j === last ? "own" : "" }, percent(value), ...lines);
    return value !== null && j < last ? shade(cell, "--green", value) : cell;
  }));
}

// Below an accuracy: where no task is named, and of a classifier on the base without vectors.
const ofTask = (row, task) => ({ unknown: row.unknowns[task], "frozen base": row.frozen[task] });
const ofAll = (row) => ({
  unknown: row.unknown, "frozen base": row.frozen_known, "frozen base, unknown": row.frozen_unknown });

function label(row, isSeveral) {
  const names = row.terms.length > 2 ? `${row.terms[0]} … ${row.terms.at(-1)}` : row.terms.join(" ");
  const [who, how] = [isSeveral ? `${row.user}: ` : "", row.method === "sum" ? "" : `${row.method} of `];
  return el("span", { title: row.label }, el("small", {}, clock(row.at)), ` ${who}${how}${names.replaceAll(/@v\d+/g, "")}`);
}

export async function showInterference() {
  const found = await api.interference();
  const section = $("#interference");
  $(".findings", section).replaceChildren(...found.findings.map((one) => el("li", {}, one.message)));
  $("#heat").replaceChildren(found.vectors.length ? heat(found) : "No vector yet. The map has a row for every task that is trained.");
  const further = found.loudest.filter((one) => !(found.on.includes(one.vector) && found.on.includes(one.on)));
  $(".loudest", section).replaceChildren(...(further.length ? [loudest(found)] : []));
  $(".loudest", section).hidden = !further.length;
  $(".missing", section).textContent = missing(found);
  return found;
}

// Of all tasks: the matrix has the newest only.
function loudest(found) {
  const rows = found.loudest.map((one) => [`${one.vector}@v${one.version}`, one.on, one.logits]);
  return table(["loudest of all", "on", "answers changed"], rows, (value, i, j) =>
    j === 0 ? el("td", {}, value) : shade(el("td", {}, value.toFixed(2)), "--amber", Math.min(value, 1)));
}

const GENERIC = "generic"; // samples of no task: nothing is relative to anything there, so they are no column

function missing(found) {
  if (!found.missing) return "";
  const unseen = found.raw.filter((row) => row[found.on.indexOf(GENERIC)] === null).length;
  const where = unseen ? `, ${unseen} of them on the generic samples, which have no column` : "";
  return `${found.missing} ${found.missing === 1 ? "pair is" : "pairs are"} not measured yet (–)${where}.`;
}

function heat(found) {
  const own = found.on.map((_, j) => j).filter((j) => found.on[j] !== GENERIC);
  const rows = found.vectors.map((vector, i) =>
    [`${vector.task}@v${vector.version}`, ...own.map((j) => found.logits[i][j])]);
  return table(["vector", ...own.map((j) => found.on[j])], rows, (value, i, j) => {
    const isOwn = found.vectors[i].task === found.on[own[j]];
    const cell = el("td", { className: isOwn ? "own" : "" }, value === null ? "–" : value.toFixed(2));
    return value === null ? cell : shade(cell, isOwn ? "--blue" : "--amber", Math.min(value, 1));
  });
}
