// Ask the model: a picture or a text; its classes beside those of the base alone.

import { predict } from "./api.js";
import { user } from "./compose.js";
import { $, el, onSubmit } from "./dom.js";

const MOST = 5; // classes shown of a task
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
  $(".answers", section).replaceChildren(...Object.keys(answer).map((task) =>
    el("div", { className: "answer" },
      el("h3", {}, task),
      el("div", { className: "beside" }, side(`${found.user}’s model`, answer[task]), side("the base alone", base[task])))));
  return `Answered by the model ${found.digest.slice(0, 12)}.`;
});

function side(who, ranked) {
  return el("div", {}, el("h4", {}, who), ...ranked.slice(0, MOST).map(([name, chance]) => {
    const bar = el("i", { "aria-hidden": "true" });
    bar.style.width = `${100 * chance}%`;
    return el("div", { className: "chance" }, bar, el("span", {}, name), el("span", {}, chance.toFixed(2)));
  }));
}
