// Ask the model: pictures, or texts, several at once. The model names the task; beside it are the
// classes that the base model alone finds.

import { predict } from "./api.js";
import { user } from "./compose.js";
import { $, el, onSubmit, told } from "./dom.js";
import { why } from "./explain.js";

const MOST = 5; // classes shown
const AT_ONCE = 64;
const section = $("#try");
const form = $("form", section);
const drop = $(".drop", section);
let pictures = [];
let modality = null;

export function reads(what) {
  if (what === modality) return;
  modality = what;
  drop.hidden = what !== "image";
  $(".text", section).hidden = what !== "text";
}

function take(files) {
  const chosen = [...files].filter((file) => file.type.startsWith("image/"));
  const others = [...files].filter((file) => !chosen.includes(file)).map((file) => file.name);
  told(form, others.length ? `No picture: ${others.join(", ")}.` : "", "error");
  if (!chosen.length) return;
  pictures = chosen.map((file) => ({ file, name: file.name || "a picture" }));
  $("span", drop).textContent = pictures.map((one) => one.name).join(", ");
}

$("input", drop).addEventListener("change", (event) => take(event.target.files));
drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  take(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => modality === "image" && take(event.clipboardData.files));

// Before any of them is read: a folder may hold thousands of pictures.
function requireFew(asked, none) {
  if (!asked.length) throw new Error(none);
  if (asked.length > AT_ONCE) throw new Error(`${asked.length} at once are too many; ask at most ${AT_ONCE}.`);
}

// What is asked, each with how it is shown.
async function inputs() {
  if (modality === "text") {
    const texts = form.elements.text.value.split("\n").map((line) => line.trim()).filter(Boolean);
    requireFew(texts, "Type a text first.");
    return texts.map((text) => ({ input: { text }, shown: el("q", {}, text) }));
  }
  requireFew(pictures, "Choose a picture first.");
  return Promise.all(pictures.map(async ({ file, name }) =>
    ({ input: { image: await base64(file) }, shown: shown(file, name) })));
}

function shown(file, name) {
  const src = URL.createObjectURL(file);
  const release = () => URL.revokeObjectURL(src); // else the page holds the file while it is open
  return el("img", { src, alt: name, onload: release, onerror: release });
}

const base64 = (file) => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result.split(",")[1]);
  reader.onerror = () => failed(new Error("the picture cannot be read"));
  reader.readAsDataURL(file);
});

onSubmit(form, async () => {
  const asked = await inputs();
  const whose = user();
  const found = await predict(whose, asked.map((one) => one.input));
  $(".answers", section).replaceChildren(...asked.map((one, i) =>
    answer(one, found, i, whose)));
  return `Answered by the model ${found.digest.slice(0, 12)}.`;
});

function answer({ input, shown }, found, i, whose) {
  const [own, plain] = [found.answers[i], found.base[i]].map(likeliest);
  const belonging = found.belonging[i];
  const best = `${own[0].task}: ${own[0].name}`;
  return el("article", { className: "answer" },
    shown,
    el("h3", {}, belonging?.none ? "none of these" : best),
    belonging?.none ? el("p", { className: "hint" },
      `Unlike the inputs of every task of this model (1 in 20 of their own is too); the nearest is ${best}.`) : null,
    el("div", { className: "beside" }, side(`${found.user}’s model`, own), side("the base model alone", plain)),
    why(whose, input, found.digest));
}

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
