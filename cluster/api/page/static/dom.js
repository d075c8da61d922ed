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

export function told(form, text, kind = "") {
  const line = $(".told", form);
  line.className = `told ${kind}`;
  line.textContent = text;
}

// Does what a button asks for, once at a time, and says what went wrong where the person looks.
export async function work(form, button, does) {
  button.disabled = true;
  told(form, "…");
  try {
    told(form, (await does()) ?? "", "done");
  } catch (error) {
    told(form, error.message, "error");
  } finally {
    button.disabled = false;
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
