// Elements. Text is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The page's element with this id. */
export const byId = (id) => document.getElementById(id);

/**
 * An element with attributes, listeners (`onclick: …`) and children: elements, texts, or
 * nothing. An attribute that is null, undefined or false is left out.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** As `h`, for SVG elements. */
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

/** Sets a text if it differs, so that unchanged text is neither announced nor painted. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes `parent` contain one element per item, in order. An element is created once per
 * key and updated by `update(element, item)`; the focus does not change.
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

/** Replaces an element's children; keeps the position of the focus, and open details open. */
export function redraw(element, ...children) {
  const places = () => [...element.querySelectorAll("a, button, input, summary")];
  const details = () => [...element.querySelectorAll("details")];
  const at = places().indexOf(document.activeElement);
  const open = details().map((each) => each.open);
  element.replaceChildren(...children);
  for (const [index, each] of details().entries()) each.open = open[index] ?? false;
  if (at >= 0) places()[at]?.focus({ preventScroll: true });
}

/** A short digest; a click copies the full one. */
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
  let shown = "copied";
  try {
    await navigator.clipboard.writeText(full);
  } catch {
    // Without a secure origin there is no clipboard: the digest is selected for copying by hand.
    shown = full;
  }
  button.textContent = shown;
  button.classList.toggle("whole", shown === full);
  if (shown === full) getSelection().selectAllChildren(button);
  setTimeout(() => {
    say(button, short);
    button.classList.remove("whole");
  }, shown === full ? 8000 : 1200);
}
