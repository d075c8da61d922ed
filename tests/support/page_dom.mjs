// As much of a document as the scripts of the page need, without a browser.

class FakeElement extends EventTarget {
  constructor(tag) {
    super();
    Object.assign(this, { tag, children: [], className: "", value: "", text: "", disabled: false, hidden: false,
      attributes: {}, found: {}, elements: { user: null }, style: {}, validity: { valid: true }, checked: false });
    for (const name of ["type", "min", "max", "step", "scope", "title", "tabIndex"]) this[name] = "";
    this.classList = { toggle() {} };
  }
  get textContent() { return this.text + this.children.map((one) => one.textContent ?? one).join(""); }
  set textContent(text) { this.text = text; this.children = []; }
  // Whatever is looked for is there, and the same one each time.
  querySelector(selector) { return (this.found[selector] ??= new FakeElement(selector)); }
  querySelectorAll() { return []; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  append(...children) {
    for (const one of children) if (one instanceof FakeElement) one.parent = this;
    this.children.push(...children);
  }
  replaceChildren(...children) { this.textContent = ""; this.append(...children); }
  replaceWith(other) { this.parent.children.splice(this.parent.children.indexOf(this), 1, other); other.parent = this.parent; }
  remove() { this.parent?.children.splice(this.parent.children.indexOf(this), 1); }
  after(other) { this.parent.append(other); }
}

const page = new FakeElement("document");
page.createElement = (tag) => new FakeElement(tag);
page.querySelector("#compose form").elements.user = new FakeElement("input");
Object.assign(globalThis, { document: page, window: globalThis, sessionStorage: { getItem: () => null } });

// Timeouts pass a thousand times as fast.
const wait = globalThis.setTimeout;
globalThis.setTimeout = (does, milliseconds, ...more) => wait(does, milliseconds / 1000, ...more);

export const settled = () => new Promise((done) => wait(done, 5));
