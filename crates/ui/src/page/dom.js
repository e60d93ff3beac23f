// Elements. Text only ever becomes text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element with an id of the page. */
export const byId = (id) => document.getElementById(id);

/**
 * An element with attributes, listeners (`onclick: …`) and children: elements, texts, or
 * nothing. An attribute that is null, undefined or false is left out.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Writes a text where it differs: nothing is announced or painted that is the same. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes `parent` hold an element for each item, in order. An element is made once for each
 * key, and brought up to date by `update(element, item)`; focus stays where it is.
 */
export function keep(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const id = key(item);
    let element = old.get(id);
    if (element === undefined) {
      element = make(item);
      element.dataset.key = id;
    }
    old.delete(id);
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const gone of old.values()) gone.remove();
}

/** Replaces what an element holds; focus stays at the same place in it, and open what was. */
export function redraw(element, ...children) {
  const places = () => [...element.querySelectorAll("a, button, input, summary")];
  const details = () => [...element.querySelectorAll("details")];
  const at = places().indexOf(document.activeElement);
  const open = details().map((each) => each.open);
  element.replaceChildren(...children);
  for (const [index, each] of details().entries()) each.open = open[index] ?? false;
  if (at >= 0) places()[at]?.focus({ preventScroll: true });
}

/** A digest as people read it, that is copied whole. */
export function digest(full, short) {
  const button = h("button", {
    type: "button",
    class: "digest",
    title: `${full}\nClick to copy`,
    "aria-label": `Digest ${short}, copy`,
    onclick: () => copy(button, full, short),
  }, short);
  return button;
}

async function copy(button, full, short) {
  let told = "copied";
  try {
    await navigator.clipboard.writeText(full);
  } catch {
    // No clipboard without a secure origin: selected, it can be copied by hand.
    told = full;
  }
  button.textContent = told;
  button.classList.toggle("whole", told === full);
  if (told === full) getSelection().selectAllChildren(button);
  setTimeout(() => {
    say(button, short);
    button.classList.remove("whole");
  }, told === full ? 8000 : 1200);
}
