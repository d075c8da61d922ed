// Elements without a framework; text is always text, never markup.

export const $ = (selector, within = document) => within.querySelector(selector);

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const percent = (share) => (share === null || share === undefined ? "" : (100 * share).toFixed(1));
// Times are those of the reader's time zone, which they name.
const DAY = { year: "numeric", month: "short", day: "numeric" };
// With the day, where that is not today.
export function clock(at) {
  const [time, now] = [new Date(1000 * at), new Date()];
  const options = time.toDateString() === now.toDateString() ? {} : DAY;
  return time.toLocaleString([], { ...options, hour: "numeric", minute: "2-digit", timeZoneName: "short" });
}
export const day = (at) => (at ? new Date(1000 * at).toLocaleDateString([], { ...DAY, timeZoneName: "short" }) : "never");
// Until the moment that the cluster expects: ", 40 s left"; nothing where it does not know.
export const left = (expected) => (expected ? `, ${duration(Math.max(0, expected - Date.now() / 1000))} left` : "");

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// Where it is read aloud when it changes.
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

export function told(form, text, kind = "") {
  const line = $(".told", form);
  line.className = `told ${kind}`;
  line.textContent = text;
}

export const busy = new Set(); // buttons whose work is under way

// Does what a button asks for, once at a time, and says what went wrong where the person looks.
export async function work(form, button, does) {
  if (busy.has(button)) return;
  busy.add(button);
  button.disabled = true;
  told(form, "…");
  try {
    told(form, (await does()) ?? "", "done");
  } catch (error) {
    told(form, error.message, "error");
  } finally {
    busy.delete(button);
    button.disabled = false;
    form.dispatchEvent(new Event("settled"));
  }
}

export function onSubmit(form, does) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    work(form, $("button:not([type=button])", form), () => does(new FormData(form)));
  });
}

export function table(head, rows, cell = (value) => el("td", {}, String(value))) {
  return el("table", {},
    el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...rows.map(([name, ...values], i) =>
      el("tr", {}, el("th", { scope: "row" }, name), ...values.map((value, j) => cell(value, i, j))))));
}

// Set through the style object: the page's policy forbids style attributes in markup.
export function shade(cell, colour, share) {
  cell.style.backgroundColor = `color-mix(in srgb, var(${colour}) ${Math.round(40 * share)}%, transparent)`;
  return cell;
}

// Filled when it is opened first; what goes wrong is said inside, and tried again when it is opened again.
export function opened(summary, fill) {
  const place = el("div", { role: "status" });
  const made = el("details", {}, el("summary", {}, summary), place);
  const look = async () => {
    if (!made.open) return;
    made.removeEventListener("toggle", look);
    place.textContent = "…";
    try {
      place.replaceChildren(...(await fill()).filter((one) => one !== null));
    } catch (error) {
      place.textContent = error.message;
      made.addEventListener("toggle", look);
    }
  };
  made.addEventListener("toggle", look);
  return made;
}
