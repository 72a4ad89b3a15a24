// Ablation verdicts: the circuit's effect beside the distribution of its controls.
import { store } from "./data.js";
import { byId, figure, h, headNames, num, stateBadge, svg, words } from "./format.js";

const kWidth = 640;
const kLeft = 8;
const kRight = 632;

/** The newest report of each pattern and metric; the one that decides comes first. */
function newestReports() {
  const newest = new Map();
  for (const report of store.ablations) newest.set(`${report.pattern}\n${report.metric}`, report);
  return [...newest.values()].sort((a, b) => a.pattern.localeCompare(b.pattern) || Number(b.gate) - Number(a.gate));
}

/** The bootstrap interval of the effect: that of its difference from the controls' mean, moved by the mean. */
const intervalOf = (report) =>
  [report.difference_low, report.difference_high].map((end) => num(report.control_mean) + num(end));

/** Bars of the effect and of what controls cost, dots for each control set, on one scale from below 0. */
function picture(report) {
  const effect = num(report.effect);
  const controls = report.control_effects.map(num).filter((value) => Number.isFinite(value));
  const all = num(report.upper_bound_effect);
  const mean = num(report.control_mean);
  const interval = intervalOf(report);
  const values = [0, effect, all, ...controls, ...interval].filter((value) => Number.isFinite(value));
  const low = Math.min(...values);
  const high = Math.max(...values, low + 1e-9);
  const x = (value) => kLeft + (value - low) / (high - low) * (kRight - kLeft);
  const label = `effect ${figure(effect)} nats; ${controls.length} control sets from ` +
    `${figure(Math.min(...controls))} to ${figure(Math.max(...controls))}, mean ${figure(mean)}`;
  const drawing = svg("svg", {viewBox: `0 0 ${kWidth} 72`, class: "ablation", role: "img", "aria-label": label});
  const bar = (value, y, height, kind) => drawing.append(svg("rect", {
    x: Math.min(x(0), x(value)), y, height, width: Math.max(1, Math.abs(x(value) - x(0))), class: kind}));
  if (Number.isFinite(all)) bar(all, 10, 20, "bar-all");
  if (Number.isFinite(effect)) bar(effect, 10, 20, "bar-effect");
  if (interval.every((value) => Number.isFinite(value))) {
    drawing.append(svg("path", {class: "interval",
      d: `M${x(interval[0])} 14V26M${x(interval[0])} 20H${x(interval[1])}M${x(interval[1])} 14V26`}));
  }
  if (Number.isFinite(mean)) bar(mean, 42, 20, "bar-control");
  for (const [i, value] of controls.entries()) {
    drawing.append(svg("circle", {cx: x(value), cy: 47 + i * 7 % 12, r: 3.5, class: "control"}));
  }
  drawing.append(svg("path", {class: "zero", d: `M${x(0)} 4V70`}));
  return drawing;
}

const kMetrics = {planted_loss: "planted pair", repeated_loss: "repeated held-out text"};

function ablationCard(report) {
  const sets = report.control_effects.length;
  const metric = kMetrics[report.metric] ?? words(report.metric);
  return h("article", {class: "ablation-card"},
    h("div", {class: "circuit-head"}, h("h3", {}, `${report.pattern}: ${metric}`),
      report.gate ? stateBadge(report.verdict) : h("span", {class: "badge"}, "reported beside it")),
    h("p", {class: "note"}, `step ${figure(report.step, 7)} · heads ${headNames(report.heads)} · ` +
      `loss ${figure(num(report.baseline_loss))} → ${figure(num(report.ablated_loss))} nats · ${report.examples} examples · ` +
      `attainable p ${figure(num(report.attainable_p))}`),
    picture(report),
    h("ul", {class: "lines"},
      h("li", {}, h("span", {class: "key bar-effect"}), " circuit ", h("b", {}, figure(num(report.effect))),
        ` [${intervalOf(report).map((end) => figure(end)).join(", ")}]`),
      h("li", {}, h("span", {class: "key bar-control"}), ` ${sets} ${sets === 1 ? "control set" : "control sets, mean"} `,
        h("b", {}, figure(num(report.control_mean)))),
      h("li", {}, h("span", {class: "key bar-all"}), " all heads of the layers ",
        h("b", {}, figure(num(report.upper_bound_effect))))),
    h("p", {class: "rule"}, report.reason));
}

export function drawAblations() {
  const place = byId("ablation-list");
  const key = String(store.ablations.length);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const reports = newestReports();
  place.replaceChildren(...reports.map(ablationCard));
  if (!reports.length) place.append(h("p", {class: "note"}, "No circuit has been ablated yet."));
}
