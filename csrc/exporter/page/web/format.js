// Small things that all parts of the page use. Text reaches the page as text only, never as markup.

/** h("p", {class: "note"}, "text", child): an element. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The same in SVG. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Writes only what has changed, so that selections and screen readers stay undisturbed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A number of the API, where "NaN" and "Infinity" are strings. */
export const num = (value) => (value === null || value === undefined ? NaN : Number(value));

/** Three significant digits; thousands in groups, a dash for what was not measured. */
export function figure(value, digits = 3) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) {
    return value.toExponential(1).replace("e+", "e").replace(".0e", "e").replaceAll("-", "−");
  }
  const rounded = Number(value.toPrecision(digits));
  const text = size >= 1000 ? Math.round(value).toLocaleString("en") : String(rounded);
  return text.replace("-", "−");
}

/** For a small cell: two digits, and 0 for what is nearly that. */
export const short = (value) => (Math.abs(value) < 0.005 ? "0" : figure(value, 2));

export const count = (value) => (Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–");

/** 1.25 M tokens. */
export function tokens(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [size, unit] of [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " k"]]) {
    if (value >= size) return figure(value / size) + unit;
  }
  return count(value);
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return figure(seconds) + " s";
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export const headName = (id) => `${id[0]}.${id[1]}`;
export const headNames = (ids) => (ids.length ? ids.map(headName).join("  ") : "none");
export const words = (name) => name.replaceAll("_", " ");

/** A state is told by its symbol and its name; the colour only repeats it. */
const kStateSymbols = {
  dormant: "○", emerging: "◔", formed: "●", verified: "✔", not_causal: "✕", unspecific: "≈", inconclusive: "?", lost: "↓",
  specialising: "◇", converted: "⇄",
};
export function stateBadge(state) {
  const symbol = h("span", {"aria-hidden": "true"}, kStateSymbols[state] ?? "•");
  return h("span", {class: "badge", "data-state": state}, symbol, " " + words(state));
}
export const stateSymbol = (state) => kStateSymbols[state] ?? "•";
