// Tasks as they arrive and train.

import { submit } from "./api.js";
import { $, el, onSubmit, percent } from "./dom.js";

const section = $("#tasks");
const lines = new Map();

export function show(tasks) {
  $(".empty", section).hidden = tasks.length > 0;
  const list = $(".tasks", section);
  for (const task of tasks) {
    const made = line(task);
    const old = lines.get(task.name);
    if (!old) list.append(made);
    else if (old.outerHTML !== made.outerHTML) old.replaceWith(made);
    else continue;
    lines.set(task.name, made);
  }
  const there = new Set(tasks.map((task) => task.name));
  for (const [name, old] of lines) if (!there.has(name)) { old.remove(); lines.delete(name); }
}

function line(task) {
  return el("li", { className: task.state, id: `task-${task.name}` },
    el("strong", {}, task.name, task.version ? el("small", {}, `v${task.version}`) : null),
    el("span", { className: `state ${task.state}` }, task.state),
    progress(task),
    task.reason ? el("p", { className: "why" }, task.reason) : null);
}

function progress(task) {
  const made = el("div", { className: "progress" });
  if (task.state === "training" && !task.steps) made.append("starting");
  else if (task.state === "training") {
    const label = `${task.step ?? 0} of ${task.steps} steps`;
    const bar = el("progress", { max: task.steps, value: task.step ?? 0, "aria-label": label });
    made.append(bar, `${label}${task.loss === null ? "" : `, loss ${task.loss.toFixed(2)}`}`);
  } else if (task.accuracy_after !== null && task.accuracy_after !== undefined) {
    made.append(`${percent(task.accuracy_before)} → ${percent(task.accuracy_after)} % of validation rows`);
    if (typeof task.accuracy_fitted === "number") {
      const [fitted, frozen] = [percent(task.accuracy_fitted), percent(task.accuracy_frozen)];
      made.append(`; in sums ${fitted} %, frozen base ${frozen} %`);
    }
  }
  return made;
}

onSubmit($("#submit"), async (data) => {
  const done = await submit(data.get("name"), data.get("file"), { skip_bad: data.has("skip_bad") });
  $("#submit").reset();
  return [`${done.task} is ${done.state}.`, ...(done.notes ?? [])].join("\n");
});
