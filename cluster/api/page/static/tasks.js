// Tasks as they arrive and train, where the versions of their vectors come from, and other work.

import { submit, vectors } from "./api.js";
import { $, clock, day, el, left, onSubmit, opened, percent } from "./dom.js";

const section = $("#tasks");
const PHASES = { // what a training does beside its steps
  starting: "starting",
  loading: "loading the base",
  head: "making its head",
  statistics: "taking statistics",
  engine: "setting up",
  samples: "reading samples",
  measuring: "measuring",
};
const taskLines = new Map(); // name -> { text, made, lineage, version }
const workLines = new Map(); // id of a run -> the same, without a lineage

export function show(tasks, work) {
  $(".empty", section).hidden = tasks.length > 0;
  $(".lead", section).hidden = !tasks.some((task) => task.version);
  list($("ul.tasks", section), taskLines, tasks, (task) => task.name, line);
  list($("ul.work", section), workLines, work, (run) => run.run_id, (run) =>
    el("li", { className: run.state }, el("span", {}, run.about), ...said(run)));
}

let untrained = ""; // what a head answers before anything is trained, as the command line calls it

// A base model that has a text tower reads names of classes, in prompts.
export function basedOn(base) {
  const named = base.head_kind === "text";
  untrained = named ? "zero-shot" : "class means";
  $("#prompts").hidden = !named;
}

// A line for each; one that says the same stays as it is, also when somebody opened it.
function list(place, lines, found, key, make) {
  for (const one of found) {
    const old = lines.get(key(one));
    const text = JSON.stringify(one);
    if (old?.text === text) continue;
    const same = old?.version === one.version ? old?.lineage : null;
    const lineage = one.name && one.version ? (same ?? versions(one.name)) : null;
    const made = make(one, lineage);
    if (old) old.made.replaceWith(made);
    else place.append(made);
    lines.set(key(one), { text, made, lineage, version: one.version });
  }
  const there = new Set(found.map(key));
  for (const [name, old] of lines) if (!there.has(name)) { old.made.remove(); lines.delete(name); }
}

// State, progress and reason of a task or of other work.
const said = (one) => [
  el("span", { className: `state ${one.state}` }, one.state),
  progress(one),
  one.reason ? el("p", { className: "why" }, one.reason) : null,
  one.rows_cut ? el("p", { className: "why" },
    `${one.rows_cut} of ${one.rows} training texts are longer than the base model reads; their ends are not used`) : null,
];

function line(task, lineage) {
  return el("li", { className: task.state, id: `task-${task.name}` },
    el("strong", {}, task.name, task.version ? el("small", {}, `v${task.version}`) : null),
    ...said(task),
    lineage);
}

function progress(task) {
  const made = el("div", { className: "progress" });
  const runs = ["training", "running"].includes(task.state);
  if (runs && task.phase) {
    const imports = task.imports ? ["importing"] : [];
    made.append([...imports, PHASES[task.phase]].join(", ") + left(task.expected));
  } else if (runs && !task.steps && task.expected) made.append(`begun${left(task.expected)}`);
  else if (runs && task.steps) {
    const label = `${task.step ?? 0} of ${task.steps} ${task.kind === "evaluate" ? "rows" : "steps"}`;
    const bar = el("progress", { max: task.steps, value: task.step ?? 0, "aria-label": `${task.name ?? task.about}: ${label}` });
    const loss = typeof task.loss === "number" ? `, loss ${task.loss.toFixed(2)}` : "";
    made.append(bar, label + loss + left(task.expected));
  } else if (task.state === "queued" && task.expected) made.append(`done at about ${clock(task.expected)}`);
  else if (task.accuracy_after !== null && task.accuracy_after !== undefined) {
    const [before, after] = [percent(task.accuracy_before), percent(task.accuracy_after)];
    made.append(`${untrained} ${before} → trained ${after} % of validation rows`);
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
    `, ${one.met} ${one.met === 1 ? "set" : "sets"} of other samples met`,
    typeof one.metrics.validation_accuracy === "number"
      ? `, ${percent(one.metrics.validation_accuracy)} % of validation rows` : "",
    el("small", {}, ` ${one.digest.slice(0, 12)}`)))),
]);

onSubmit($("#submit"), async (data) => {
  data.set("options", JSON.stringify({ skip_bad: data.has("skip_bad") }));
  data.delete("skip_bad");
  const templates = data.get("templates").split("\n").map((line) => line.trim()).filter(Boolean);
  data.delete("templates");
  for (const one of templates) data.append("templates", one); // the rest is what the API asks for
  const done = await submit(data).catch((error) => {
    if (error.kind !== "SameData" || !confirm(`${error.message}\n\nSubmit them again?`)) throw error;
    data.set("again", true);
    return submit(data);
  });
  $("#submit").reset();
  return [`${done.task} is ${done.state}.`, ...(done.notes ?? [])].join("\n");
});
