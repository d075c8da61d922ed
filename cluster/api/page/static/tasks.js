// Tasks as they arrive and train, and where the versions of their vectors come from.

import { submit, vectors } from "./api.js";
import { $, day, el, onSubmit, opened, percent } from "./dom.js";

const section = $("#tasks");
const lines = new Map(); // name -> { said, made, lineage, version }

export function show(tasks) {
  $(".empty", section).hidden = tasks.length > 0;
  const list = $(".tasks", section);
  for (const task of tasks) {
    const old = lines.get(task.name);
    const said = JSON.stringify(task);
    if (old?.said === said) continue;
    const same = old?.version === task.version ? old?.lineage : null;
    const lineage = task.version ? (same ?? versions(task.name)) : null;
    const made = line(task, lineage);
    if (old) old.made.replaceWith(made);
    else list.append(made);
    lines.set(task.name, { said, made, lineage, version: task.version });
  }
  const there = new Set(tasks.map((task) => task.name));
  for (const [name, old] of lines) if (!there.has(name)) { old.made.remove(); lines.delete(name); }
}

function line(task, lineage) {
  return el("li", { className: task.state, id: `task-${task.name}` },
    el("strong", {}, task.name, task.version ? el("small", {}, `v${task.version}`) : null),
    el("span", { className: `state ${task.state}` }, task.state),
    progress(task),
    task.reason ? el("p", { className: "why" }, task.reason) : null,
    lineage);
}

function progress(task) {
  const made = el("div", { className: "progress" });
  if (task.state === "training" && !task.steps) made.append("starting");
  else if (task.state === "training") {
    const label = `${task.step ?? 0} of ${task.steps} steps`;
    const bar = el("progress", { max: task.steps, value: task.step ?? 0, "aria-label": `${task.name}: ${label}` });
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

// The lineage of a task's vector, oldest first.
const versions = (name) => opened("Versions", async () => [
  el("ol", { className: "lineage" }, ...(await vectors(name)).map((one) => el("li", {},
    el("strong", {}, `v${one.version}${one.champion ? " (champion)" : ""}`),
    ` ${one.parent ? `refreshed from v${one.parent}` : "trained"} on ${day(one.created)}`,
    `, ${one.arrivals.length} other ${one.arrivals.length === 1 ? "task" : "tasks"} met`,
    typeof one.metrics.validation_accuracy === "number"
      ? `, ${percent(one.metrics.validation_accuracy)} % of validation rows` : "",
    el("small", {}, ` ${one.digest.slice(0, 12)}`)))),
]);

onSubmit($("#submit"), async (data) => {
  const asked = [data.get("name"), data.get("file"), { skip_bad: data.has("skip_bad") }];
  const done = await submit(...asked).catch((error) => {
    if (error.kind !== "SameData" || !confirm(`${error.message}\n\nSubmit them again?`)) throw error;
    return submit(...asked, true);
  });
  $("#submit").reset();
  return [`${done.task} is ${done.state}.`, ...(done.notes ?? [])].join("\n");
});
