// The life of each pattern's circuit: where it stands, since when, and how far the flag was ahead.
import { store } from "./data.js";
import { byId, figure, h, headNames, num, setText, stateBadge, svg, tokens, words } from "./format.js";

const kOrder = ["verified", "formed", "emerging", "unspecific", "inconclusive", "not_causal", "lost", "dormant"];

/** Changes of a circuit's state in order of step, its start included; a verdict that was only confirmed is none. */
function lifeOf(circuit) {
  const changes = store.events.filter((event) => !event.head_level && event.pattern === circuit.pattern
    && kOrder.includes(event.kind));
  const life = changes.map((event) => ({state: event.kind, step: event.step, tokens: num(event.tokens)}));
  return [{state: "dormant", step: 0, tokens: NaN}, ...life.filter((part, i) => part.state !== life[i - 1]?.state)];
}

function leadText(circuit) {
  const {emerging_step: emerging, formed_step: formed} = circuit;
  if (emerging < 0) return "not flagged";
  if (formed < 0) return `flagged at step ${figure(emerging, 6)}, not formed yet`;
  const lead = formed - emerging;
  const ratio = num(circuit.formed_tokens) / num(circuit.emerging_tokens);
  const probe = store.newest.probe?.probe_interval ?? 0;
  const share = Number.isFinite(ratio) && ratio > 0 ? `, ${figure(ratio)}x the tokens` : "";
  if (lead <= probe) return `the flag led by less than a probe interval (${probe} steps)`;
  return `the flag led formation by ${figure(lead, 6)} steps${share}`;
}

/** A bar of the run with a stretch for each state; the symbols stand in for the colours. */
function lifeBar(life, end) {
  const width = 600;
  const at = (step) => (end > 0 ? step / end * width : 0);
  const bar = svg("svg", {viewBox: `0 0 ${width} 16`, class: "life", preserveAspectRatio: "none", "aria-hidden": "true"});
  life.forEach((part, i) => {
    const to = i + 1 < life.length ? life[i + 1].step : end;
    bar.append(svg("rect", {x: at(part.step), y: 3, height: 10, width: Math.max(2, at(to) - at(part.step)),
      "data-state": part.state}));
  });
  return bar;
}

function historyList(life) {
  const parts = life.slice(1).map((part) => h("li", {}, stateBadge(part.state),
    ` ${figure(part.step, 7)}`, h("span", {class: "unit"}, ` · ${tokens(part.tokens)}`)));
  return parts.length ? h("ol", {class: "history"}, ...parts) : null;
}

const bestText = (circuit) =>
  `best ${figure(num(circuit.best_selectivity))}x, formed needs ${figure(num(circuit.formed_threshold))}x`
  + (Number.isFinite(num(circuit.recall_threshold)) ? `, noise reaches ${figure(num(circuit.recall_threshold))}x` : "");

function circuitCard(circuit, end, choose) {
  const life = lifeOf(circuit);
  const heads = circuit.heads.length
    ? h("span", {class: "head-links"}, ...circuit.heads.slice(0, 12).map((id) => {
      const button = h("button", {type: "button", "aria-label": `show head ${id[0]}.${id[1]}`}, `${id[0]}.${id[1]}`);
      button.addEventListener("click", () => choose(id, circuit.pattern));
      return button;
    }), circuit.heads.length > 12 ? ` and ${circuit.heads.length - 12} more` : null)
    : h("span", {class: "note"}, "no head");
  return h("li", {class: "circuit", "data-state": circuit.state},
    h("div", {class: "circuit-head"}, h("h3", {}, circuit.pattern), stateBadge(circuit.state)),
    h("div", {class: "circuit-body"}, heads,
      h("p", {class: "note"}, bestText(circuit)),
      circuit.emerging_step >= 0 ? h("p", {class: "lead"}, leadText(circuit)) : null),
    lifeBar(life, end), historyList(life));
}

export function drawCircuits(choose) {
  const circuits = store.run?.circuits ?? [];
  const list = byId("circuit-list");
  const end = store.rows.at(-1)?.step ?? 0;
  const key = JSON.stringify([circuits, store.events.length, Math.floor(end / Math.max(1, end / 100))]);
  setText(byId("circuits-note"), circuits.length ? "Steps · tokens at which each state began." : "No probe has been measured yet.");
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const focused = document.activeElement?.getAttribute("aria-label");
  const sorted = [...circuits].sort((a, b) => kOrder.indexOf(a.state) - kOrder.indexOf(b.state));
  const alive = sorted.filter((circuit) => circuit.state !== "dormant" || circuit.heads.length);
  const dormant = sorted.filter((circuit) => !alive.includes(circuit));
  list.replaceChildren(...alive.map((circuit) => circuitCard(circuit, end, choose)));
  byId("dormant-list").replaceChildren(...dormant.map((circuit) => h("li", {}, stateBadge("dormant"),
    h("b", {}, ` ${circuit.pattern} `), h("span", {class: "note"}, bestText(circuit)))));
  if (focused) list.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
}

/** One line an event, newest first. */
export function drawEvents(withHeads) {
  const list = byId("event-list");
  const events = store.events.filter((event) => withHeads || !event.head_level).slice(-200).reverse();
  const key = `${withHeads} ${store.events.length} ${events[0]?.step}`;
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...events.map((event) => {
    const after = event.previous_probe_step >= 0 ? `after step ${event.previous_probe_step}` : "first probe";
    return h("li", {}, h("span", {class: "when"}, `step ${figure(event.step, 7)}`), " ", stateBadge(event.kind), " ",
      h("b", {}, event.pattern || "a head"), h("span", {class: "unit"}, ` heads ${headNames(event.heads)} · ${after}`),
      h("p", {class: "rule"}, words(event.rule)));
  }));
  if (!events.length) list.append(h("li", {class: "note"}, "Nothing has happened yet."));
}
