// Ablation verdicts: the circuit's effect beside those of its controls and of random label sets.
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

/** The bootstrap interval of the effect. */
const intervalOf = (report) => [num(report.effect_low), num(report.effect_high)];

const finite = (values) => (values ?? []).map(num).filter((value) => Number.isFinite(value));

/** Bars of the effect and of what controls cost, dots for each control and label set, on one scale from below 0. */
function picture(report) {
  const effect = num(report.effect);
  const controls = finite(report.control_effects);
  const labels = finite(report.label_effects);
  const all = num(report.upper_bound_effect);
  const mean = num(report.control_mean);
  const interval = intervalOf(report);
  const values = [0, effect, all, ...controls, ...labels, ...interval].filter((value) => Number.isFinite(value));
  const low = Math.min(...values);
  const high = Math.max(...values, low + 1e-9);
  const x = (value) => kLeft + (value - low) / (high - low) * (kRight - kLeft);
  const range = (sets) => (sets.length ? ` from ${figure(Math.min(...sets))} to ${figure(Math.max(...sets))}` : "");
  const label = `effect ${figure(effect)} nats; ${controls.length} control sets${range(controls)}, ` +
    `mean ${figure(mean)}; ${labels.length} label sets${range(labels)}`;
  const height = labels.length ? 92 : 72;
  const drawing = svg("svg", {viewBox: `0 0 ${kWidth} ${height}`, class: "ablation", role: "img", "aria-label": label});
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
  for (const [i, value] of labels.entries()) {
    drawing.append(svg("circle", {cx: x(value), cy: 72 + i * 5 % 14, r: 2.5, class: "label-set"}));
  }
  drawing.append(svg("path", {class: "zero", d: `M${x(0)} 4V${height - 2}`}));
  return drawing;
}

const kMetrics = {planted_loss: "planted pair", repeated_loss: "repeated held-out text"};

/** The test by random labelling in words; null where it was not run. */
function labelText(report) {
  const sets = finite(report.label_effects);
  if (!sets.length) return null;
  const asStrong = sets.filter((value) => value >= num(report.labelled_effect)).length;
  return ` ${asStrong} of ${sets.length} random label sets as strong: p `;
}

function ablationCard(report) {
  const labelled = labelText(report);
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
        h("b", {}, figure(num(report.upper_bound_effect)))),
      labelled && h("li", {}, h("span", {class: "key label-key"}), labelled, h("b", {}, figure(num(report.p_value))),
        `, to pass at most ${figure(num(report.level))}`)),
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
