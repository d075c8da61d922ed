// Ask the model: a picture or a text. The classes of all its tasks compete; beside them those that
// the base alone finds.

import { predict } from "./api.js";
import { user } from "./compose.js";
import { $, el, onSubmit } from "./dom.js";

const MOST = 5; // classes shown
const section = $("#try");
const form = $("form", section);
const drop = $(".drop", section);
let picture = null;
let modality = null;

export function reads(what) {
  if (what === modality) return;
  modality = what;
  drop.hidden = what !== "image";
  $(".text", section).hidden = what !== "text";
}

function take(file) {
  if (!file || !file.type.startsWith("image/")) return;
  picture = file;
  const shown = $("img", drop);
  if (shown.src) URL.revokeObjectURL(shown.src);
  shown.src = URL.createObjectURL(file);
  shown.hidden = false;
  $("span", drop).textContent = file.name || "a picture";
}

$("input", drop).addEventListener("change", (event) => take(event.target.files[0]));
drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  take(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => modality === "image" && take(event.clipboardData.files[0]));

async function input() {
  if (modality === "text") {
    const text = form.elements.text.value.trim();
    if (!text) throw new Error("Type a text first.");
    return { text };
  }
  if (!picture) throw new Error("Choose a picture first.");
  return { image: await base64(picture) };
}

const base64 = (file) => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result.split(",")[1]);
  reader.onerror = () => failed(new Error("the picture cannot be read"));
  reader.readAsDataURL(file);
});

onSubmit(form, async () => {
  const found = await predict(user(), await input());
  const [answer] = found.answers;
  const [base] = found.base;
  const [own, plain] = [answer, base].map(likeliest);
  $(".answers", section).replaceChildren(
    el("div", { className: "answer" },
      el("h3", {}, `${own[0].task}: ${own[0].name}`),
      el("div", { className: "beside" }, side(`${found.user}’s model`, own), side("the base alone", plain))));
  return `Answered by the model ${found.digest.slice(0, 12)}.`;
});

const likeliest = (answer) => Object.entries(answer)
  .flatMap(([task, ranked]) => ranked.map(([name, chance]) => ({ task, name, chance })))
  .sort((one, other) => other.chance - one.chance).slice(0, MOST);

function side(who, ranked) {
  return el("div", {}, el("h4", {}, who), ...ranked.map(({ task, name, chance }) => {
    const bar = el("i", { "aria-hidden": "true" });
    bar.style.width = `${100 * chance}%`;
    const what = el("span", {}, name, " ", el("small", {}, task));
    return el("div", { className: "chance" }, bar, what, el("span", {}, chance.toFixed(2)));
  }));
}
