// The accuracy matrix over time, and the interference matrix as a heat map.

import * as api from "./api.js";
import { $, el, percent, table } from "./dom.js";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

export async function showAccuracy(user) {
  const found = await api.accuracy(user);
  const place = $("#accuracy .scroll");
  if (!found.rows.length) return place.replaceChildren("Nothing has been measured yet.");
  const rows = found.rows.map((row) => {
    const known = found.tasks.map((task) => row.accuracies[task] ?? null);
    return [label(row), ...known, mean(known)];
  });
  const last = found.tasks.length;
  place.replaceChildren(table(["model", ...found.tasks, "mean"], rows, (value, i, j) => {
    const cell = el("td", { className: j === last ? "own" : "" }, percent(value));
    if (value !== null && j < last) shade(cell, value);
    return cell;
  }));
}

function label(row) {
  const time = new Date(1000 * row.at).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
  const names = row.terms.length > 2 ? `${row.terms[0]} … ${row.terms.at(-1)}` : row.terms.join(" ");
  return el("span", { title: row.label }, el("small", {}, time), ` ${names.replaceAll(/@v\d+/g, "")}`);
}

const mean = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

// Set through the style object: the page's policy forbids style attributes in markup.
function shade(cell, share) {
  cell.style.backgroundColor = `color-mix(in srgb, var(--green) ${Math.round(45 * share)}%, transparent)`;
}

let latest = null;

export async function showInterference() {
  latest = await api.interference();
  const section = $("#interference");
  const empty = latest.vectors.length === 0;
  $("details", section).hidden = empty;
  if (empty) $("#heat").replaceChildren("No vector yet.");
  $(".findings", section).replaceChildren(...latest.findings.map((one) => el("li", {}, one.message)));
  if (empty) return latest;
  const names = latest.vectors.map((vector) => `${vector.task}@v${vector.version}`);
  const own = latest.on.map((_, j) => j).filter((j) => latest.logits.some((row) => row[j] !== null));
  const on = own.map((j) => latest.on[j]); // of the generic samples nothing is relative to anything
  const values = latest.logits.map((row) => own.map((j) => row[j]));
  const rows = values.map((row, i) => [names[i], ...row.map(number)]);
  $(".scroll", section).replaceChildren(table(["vector", ...on], rows));
  await draw(names, on, values);
  return latest;
}

const number = (value) => (value === null ? "–" : value.toFixed(2));

async function draw(names, on, values) {
  await plotly();
  const style = getComputedStyle(document.body);
  const ink = style.getPropertyValue("--ink");
  const here = on.map((_, j) => j);
  const heat = {
    type: "heatmap", z: values, x: here, y: names, zmin: 0, zmax: 1, xgap: 2, ygap: 2,
    colorscale: dark.matches ? [[0, "#1a232b"], [1, "#2b6187"]] : [[0, "#ffffff"], [1, "#83b8da"]],
    text: values.map((row) => row.map(number)), texttemplate: "%{text}", textfont: { color: ink },
    customdata: values.map(() => on),
    hovertemplate: "%{y} on inputs of %{customdata}: %{text}<extra></extra>",
    showscale: false, // every cell says its number
  };
  const layout = {
    height: 90 + 34 * Math.max(names.length, 2), margin: { l: 10, r: 10, t: 10, b: 10 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, family: style.fontFamily, size: 13 },
    xaxis: { tickvals: here, ticktext: on, automargin: true, fixedrange: true, showgrid: false, zeroline: false },
    yaxis: { autorange: "reversed", automargin: true, fixedrange: true, showgrid: false, zeroline: false },
  };
  const place = $("#heat");
  if (!place.classList.contains("js-plotly-plot")) place.replaceChildren();
  await window.Plotly.react(place, [heat], layout, { displayModeBar: false, responsive: true });
}

// The bundle is large: it is fetched when there is something to draw.
let loading = null;
function plotly() {
  loading ??= new Promise((done, failed) => {
    const script = el("script", { src: "page/plotly.min.js" });
    script.onload = done;
    script.onerror = () => failed(new Error("the plots could not be loaded"));
    document.head.append(script);
  });
  return loading;
}

dark.addEventListener("change", () => latest?.vectors.length && showInterference());
