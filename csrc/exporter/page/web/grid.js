// The grid of heads, layer by head: a number and a shade each, a symbol for the heads of the pattern's circuit.
import { newestHeads, patternsOf, store } from "./data.js";
import { byId, figure, h, headName, num, setText, short, stateSymbol, words } from "./format.js";

export const kFigures = {
  selectivity: {title: "selectivity", unit: "x", log: true, ofPattern: true},
  mass: {title: "attention mass", unit: "", ofPattern: true},
  participation_ratio: {title: "participation ratio", unit: ""},
  pr_integral: {title: "PR integral", unit: ""},
  sink_mass: {title: "sink mass", unit: ""},
  class: {title: "class", unit: ""},
};
const kShades = 7;

const view = {pattern: null, figure: "selectivity", shape: "", cells: new Map(), focus: null};
export const chosenPattern = () => view.pattern;

export function choosePattern(name) {
  view.pattern = name;
  byId("pattern").value = name;
}

/** A class's short name: the first letters of its words, "IN" where there is one word. */
export function shortClass(name) {
  if (name === "unclassified" || name === "") return "·";
  const parts = name.split(/[-_ ]/).filter(Boolean);
  return (parts.length > 1 ? parts.map((part) => part[0]).join("") : name).slice(0, 2).toUpperCase();
}

function columnOf(row) {
  const kind = kFigures[view.figure];
  if (!kind.ofPattern) return row.heads[view.figure] ?? [];
  const p = row.patterns.indexOf(view.pattern);
  return p < 0 ? [] : row.heads.patterns[p][view.figure] ?? [];
}

const circuitOf = (pattern) => store.run?.circuits.find((one) => one.pattern === pattern);

/** Limits of the shades: those of the data, and for selectivity at least what formed needs, so that dark means much. */
function scaleOf(values) {
  const finite = values.filter((value) => Number.isFinite(value));
  const log = Boolean(kFigures[view.figure].log);
  const threshold = num(circuitOf(view.pattern)?.formed_threshold);
  const high = Math.max(...finite, log ? (threshold > 1 ? threshold : 2) : 0);
  const low = log ? 1 : Math.min(...finite, high);
  const place = (value) => (log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low));
  return {
    low, high, log,
    shade: (value) => (!Number.isFinite(value) ? "none"
      : high > low ? Math.min(kShades - 1, Math.max(0, Math.floor(place(value) * kShades))) : 0),
    start: (shade) => (log ? low * (high / low) ** (shade / kShades) : low + (high - low) * shade / kShades),
  };
}

/** Symbols of the heads of the pattern's circuit, by name. */
function members() {
  const circuit = circuitOf(view.pattern);
  const inCircuit = circuit && circuit.state !== "dormant" && circuit.state !== "lost";
  return new Map(inCircuit ? circuit.heads.map((id) => [headName(id), circuit.state]) : []);
}

function build(ids, choose) {
  const grid = byId("grid");
  const layers = [...new Set(ids.map((id) => id[0]))];
  const heads = [...new Set(ids.map((id) => id[1]))].sort((a, b) => a - b);
  view.cells.clear();
  const corner = h("th", {scope: "col"}, h("span", {class: "hidden"}, "layer"));
  const top = h("tr", {}, corner, ...heads.map((head) => h("th", {scope: "col"}, String(head))));
  const body = layers.map((layer) => h("tr", {}, h("th", {scope: "row"}, `L${layer}`),
    ...heads.map((head) => {
      const id = ids.find((one) => one[0] === layer && one[1] === head);
      if (!id) return h("td", {role: "gridcell"});
      const value = h("span", {class: "value"});
      const mark = h("span", {class: "mark", "aria-hidden": "true"});
      const cell = h("td", {role: "gridcell", tabindex: "-1", "aria-selected": "false"}, value, mark);
      cell.addEventListener("click", () => { moveTo(headName(id)); choose(id); });
      view.cells.set(headName(id), {id, cell, value, mark});
      return cell;
    })));
  grid.replaceChildren(h("thead", {}, top), h("tbody", {}, ...body));
  grid.dataset.size = heads.length > 24 ? "dense" : heads.length > 12 ? "small" : "large";
  document.body.dataset.grid = heads.length > 12 ? "dense" : "";
  grid.onkeydown = (event) => onKey(event, layers, heads, choose);
  const first = view.focus && view.cells.has(view.focus) ? view.focus : headName(ids[0]);
  view.focus = first;
  view.cells.get(first).cell.tabIndex = 0;
}

function moveTo(name, withFocus = false) {
  if (!view.cells.has(name)) return;
  view.cells.get(view.focus).cell.tabIndex = -1;
  view.focus = name;
  const {cell} = view.cells.get(name);
  cell.tabIndex = 0;
  if (withFocus) cell.focus();
}

function onKey(event, layers, heads, choose) {
  const {id} = view.cells.get(view.focus);
  const row = layers.indexOf(id[0]);
  const column = heads.indexOf(id[1]);
  const last = heads.length - 1;
  const target = {
    ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowDown: [row + 1, column],
    ArrowUp: [row - 1, column], Home: [event.ctrlKey ? 0 : row, 0],
    End: [event.ctrlKey ? layers.length - 1 : row, last], PageDown: [layers.length - 1, column], PageUp: [0, column],
  }[event.key];
  if (target) {
    event.preventDefault();
    moveTo(`${layers[target[0]]}.${heads[target[1]]}`, true);
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose(id);
  }
}

function drawLegend(scale) {
  const legend = byId("legend");
  const classes = view.figure === "class";
  const key = classes ? patternsOf().join() : `${figure(scale.low)} ${figure(scale.high)} ${view.figure}`;
  const state = [...members().values()][0];
  const inCircuit = state ? `${stateSymbol(state)} marks the heads of the ${view.pattern} circuit.` : "";
  if (legend.dataset.key === key + inCircuit) return;
  legend.dataset.key = key + inCircuit;
  const swatches = classes
    ? [...patternsOf(), "unclassified"].map((name, i) => h("li", {},
      h("span", {class: "swatch", "data-class": name === "unclassified" ? "none" : i % 8}, shortClass(name)), ` ${name}`))
    : Array.from({length: kShades}, (_, shade) => h("li", {},
      h("span", {class: "swatch", "data-shade": shade, "aria-hidden": "true"}), ` ${figure(scale.start(shade), 2)}`));
  const kind = kFigures[view.figure];
  const of = kind.ofPattern ? `${view.pattern} ` : "";
  legend.replaceChildren(
    h("p", {class: "note"}, `${of}${kind.title}${scale.log ? ", log scale" : ""}. ${inCircuit}`),
    h("ul", {class: "swatches"}, ...swatches));
}

function drawCell(entry, raw, shade, state, className) {
  const {id, cell, value, mark} = entry;
  const classes = view.figure === "class";
  setText(value, classes ? shortClass(className) : short(num(raw)));
  setText(mark, state ? stateSymbol(state) : "");
  cell.dataset.shade = classes ? "" : shade;
  const p = patternsOf().indexOf(className);
  cell.dataset.class = classes ? (p < 0 ? "none" : p % 8) : "";
  cell.dataset.member = state ?? "";
  const selected = store.head !== null && headName(store.head) === headName(id);
  cell.setAttribute("aria-selected", String(selected));
  const what = classes ? "" : `, ${kFigures[view.figure].title} ${figure(num(raw))}`;
  const label = `layer ${id[0]} head ${id[1]}${what}, class ${className || "none"}` +
    (state ? `, ${words(state)} in the ${view.pattern} circuit` : "");
  if (cell.title !== label) {
    cell.title = label;
    cell.setAttribute("aria-label", label);
  }
}

function fillChoices(redraw) {
  const patterns = patternsOf();
  const pattern = byId("pattern");
  const known = [...pattern.options].map((option) => option.value).join("\n");
  if (known !== patterns.join("\n")) {
    view.pattern = patterns.includes(view.pattern) ? view.pattern : patterns[0] ?? null;
    pattern.replaceChildren(...patterns.map((name) => h("option", {value: name, selected: name === view.pattern}, name)));
    pattern.onchange = () => { view.pattern = pattern.value; redraw(); };
  }
  const choice = byId("figure");
  if (!choice.options.length) {
    choice.replaceChildren(...Object.entries(kFigures).map(([name, kind]) => h("option", {value: name}, kind.title)));
    choice.onchange = () => { view.figure = choice.value; redraw(); };
  }
}

/** Draws the newest heads; choose(id) when a person picks one. */
export function drawGrid(choose, redraw) {
  const row = newestHeads();
  if (!row) return;
  fillChoices(redraw);
  const ids = row.heads.id;
  const shape = JSON.stringify(ids);
  if (shape !== view.shape) {
    view.shape = shape;
    build(ids, choose);
  }
  const column = columnOf(row);
  const scale = scaleOf(view.figure === "class" ? [] : column.map(num));
  const inCircuit = members();
  ids.forEach((id, i) => drawCell(view.cells.get(headName(id)), column[i], scale.shade(num(column[i])),
    inCircuit.get(headName(id)), row.heads.class[i]));
  drawLegend(scale);
}
