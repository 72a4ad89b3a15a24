// What is said of the run and of the monitor itself.
import { LineChart } from "./charts.js";
import { position, store } from "./data.js";
import { byId, count, duration, figure, h, num, setText, tokens, words } from "./format.js";

const kStatus = {
  waiting: "waiting", live: "live", following: "following",
  recorded: "recorded", lost: "connection lost",
};

export function drawStatus() {
  const status = byId("status");
  status.dataset.state = store.state;
  let text = kStatus[store.state];
  const last = store.rows.at(-1);
  if (store.state === "lost") {
    text += `, trying again in ${Math.max(0, Math.ceil((store.retryAt - Date.now()) / 1000))} s`;
  } else if (store.state === "live" && last) {
    const age = Date.now() / 1000 - num(last.wall_time);
    text += age > 60 ? ` · last measured ${duration(age)} ago` : "";
  }
  setText(status, text);
  const name = store.run?.facts.run ?? "";
  setText(byId("run-name"), name);
  const title = (name ? `${name} · ` : "") + "headscope";
  if (document.title !== title) document.title = title;
  setText(byId("version"), store.run?.version ?? "");
  byId("metrics-link").hidden = store.recorded;
}

/** Writes [name, value] pairs into a list of definitions. */
function writePairs(place, pairs) {
  const shown = pairs.filter(Boolean);
  const key = shown.map(([name]) => name).join("\n");
  if (place.dataset.key !== key) {
    place.dataset.key = key;
    place.replaceChildren(...shown.map(([name]) => h("div", {}, h("dt", {}, name), h("dd", {}))));
  }
  const values = place.querySelectorAll("dd");
  shown.forEach(([, value], i) => setText(values[i], value));
}

/** Seconds of the training thread that measuring took, over the time from the first to the last row. */
function costText() {
  const first = store.rows[0];
  const last = store.rows.at(-1);
  if (!first || first === last) return "–";
  const spent = num(last.monitor_seconds) - num(first.monitor_seconds);
  const share = spent / (num(last.wall_time) - num(first.wall_time));
  return Number.isFinite(share) ? `${figure(100 * share, 2)} %` : "–";
}

export function drawFacts() {
  const last = store.rows.at(-1);
  const heads = (store.newest.probe ?? store.newest.train)?.heads.id ?? [];
  const layers = new Set(heads.map((id) => id[0])).size;
  const health = store.run?.health;
  const errors = Object.values(health?.errors ?? {}).reduce((sum, n) => sum + n, 0);
  const loss = store.rows.findLast((row) => Number.isFinite(num(row.loss)));
  const gap = store.rows.findLast((row) => Number.isFinite(num(row.repeat_gap)));  // whole probes have one
  writePairs(byId("facts"), [
    ["step", last ? count(last.step) : "–"],
    ["tokens", last ? tokens(num(last.tokens)) : "–"],
    ["loss", loss ? `${figure(num(loss.loss), 4)}` : "–"],
    ["heads", heads.length ? `${heads.length} in ${layers} ${layers === 1 ? "layer" : "layers"}` : "–"],
    ["repeat gap", gap ? `${figure(num(gap.repeat_gap))} nats` : "–"],
    ["cost of monitoring", costText()],
    ["errors", health ? count(errors) : "–"],
  ]);
}

export function drawHealth() {
  const run = store.run;
  if (!run) return;
  const health = run.health;
  const errors = Object.entries(health.errors).filter(([, n]) => n > 0);
  writePairs(byId("health-list"), [
    ["attention calls measured", count(health.taps)],
    ["taps missing", warned(health.taps_missing)],
    ["taps skipped", count(health.taps_skipped)],
    ["snapshots dropped", warned(health.snapshots_dropped)],
    ["readings not finite", warned(health.nonfinite_readings)],
    ["errors", errors.length ? "▲ " + errors.map(([kind, n]) => `${words(kind)} ${n}`).join(", ") : "0"],
    ["probes, measured steps", `${count(health.probes)}, ${count(health.measured_steps)}`],
    ["put off by the budget", count(health.deferred)],
    ["budget", num(health.budget_ratio) > 0
      ? `${figure(100 * num(health.budget_ratio))} % of wall time, ${figure(100 * num(health.budget_used_ratio))} % of it used`
      : "no bound"],
    ["training thread", `taps ${duration(num(health.tap_seconds))}, probes ${duration(num(health.probe_seconds))}, ` +
      `ablations ${duration(num(health.ablation_seconds))}, waiting ${duration(num(health.wait_seconds))}`],
    ["analysis thread", duration(num(health.analysis_seconds))],
  ]);
  const definitions = run.definitions;
  writePairs(byId("definition-list"), [
    ...Object.entries(run.facts),
    definitions && ["type of the outputs", definitions.dtype],
    definitions && ["context", `${definitions.context} tokens`],
    definitions && ["rows a spectrum", count(definitions.samples)],
    definitions && ["selectivity's controls", definitions.controls],
    definitions && ["PR integral over", definitions.integral_axis],
    ["selectivity", "mean attention per target over mean attention per control position"],
    ["attention mass", "mean over rows of the attention on a row's targets"],
    ["participation ratio", "exp of the entropy of the spectrum of a head's outputs, not centred"],
    ["emerging", "a head's match margin or mass beats a position-matched null of all heads, family-wise"],
    ["formed", "selectivity above its threshold and attention mass at least 0.1, on two probes in a row"],
    ["verified", "ablating the heads costs more than ablating matched control sets"],
  ]);
}

/** A count that ought to be 0. */
const warned = (n) => (n > 0 ? `▲ ${count(n)}` : "0");

const runCharts = {};

export function drawTraining(axis) {
  runCharts.loss ??= new LineChart(byId("training-charts"), "Training loss", "nats");
  runCharts.gap ??= new LineChart(byId("training-charts"), "Repeat gap", "nats: loss of a block's first copy − second");
  runCharts.best ??= new LineChart(byId("training-charts"), "Best head of each pattern, selectivity", "x, log scale");
  const x = (rows) => rows.map((row) => position(row, axis));
  const xLog = axis === "tokens";
  const probes = store.rows.filter((row) => row.source === "probe");
  runCharts.loss.show({x: x(store.rows), xLog, series: [
    {label: "loss", values: store.rows.map((row) => num(row.loss)), colour: "--line-3"}]});
  const gaps = probes.filter((row) => Number.isFinite(num(row.repeat_gap)));
  runCharts.gap.show({x: x(gaps), xLog, series: [
    {label: "gap", values: gaps.map((row) => num(row.repeat_gap)), colour: "--line-1"}]});
  const patterns = [...new Set(probes.flatMap((row) => row.circuits.map((circuit) => circuit.pattern)))].slice(0, 8);
  runCharts.best.show({x: x(probes), xLog, yLog: true, series: patterns.map((pattern, i) => ({
    label: pattern, colour: `--line-${i % 4 + 1}`, dash: Math.floor(i / 4) * 2 + (i % 4 === 3 ? 1 : 0),
    values: probes.map((row) => num(row.circuits.find((one) => one.pattern === pattern)?.best_selectivity))}))});
}

const nullCharts = new Map();

export function drawNulls(axis) {
  const probes = store.rows.filter((row) => row.source === "probe");
  const of = (pattern, name) => probes.map((row) => num(row.circuits.find((one) => one.pattern === pattern)?.[name]));
  for (const circuit of store.run?.circuits ?? []) {
    const critical = of(circuit.pattern, "critical_margin_z");
    if (!critical.some((value) => Number.isFinite(value))) continue;
    if (!nullCharts.has(circuit.pattern)) {
      nullCharts.set(circuit.pattern, new LineChart(byId("null-charts"), circuit.pattern, "standard deviations"));
    }
    nullCharts.get(circuit.pattern).show({x: probes.map((row) => position(row, axis)), xLog: axis === "tokens", series: [
      {label: "largest margin", values: of(circuit.pattern, "largest_margin_z"), colour: "--line-1"},
      {label: "critical value", values: critical, colour: "--line-4", dash: 1}]});
  }
}

export function drawSinks() {
  const row = store.newest.probe ?? store.newest.train;
  if (!row) return;
  const layers = new Map();
  row.heads.id.forEach(([layer], i) => {
    const mass = num(row.heads.sink_mass[i]);
    if (Number.isFinite(mass)) layers.set(layer, [...(layers.get(layer) ?? []), mass]);
  });
  const place = byId("sink-bars");
  const means = [...layers].map(([layer, list]) => [layer, list.reduce((a, b) => a + b, 0) / list.length, Math.max(...list)]);
  const key = JSON.stringify(means.map((part) => part.map((value) => figure(value))));
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const bars = means.map(([layer, mean, largest]) => {
    const bar = h("span", {class: "bar"});
    bar.style.width = `${Math.min(100, 100 * mean)}%`;
    const most = h("span", {class: "most", title: "largest of its heads"});
    most.style.left = `${Math.min(100, 100 * largest)}%`;
    return h("li", {}, h("span", {class: "layer"}, `layer ${layer}`), h("span", {class: "track"}, bar, most),
      h("span", {class: "amount"}, `${figure(mean, 2)} · max ${figure(largest, 2)}`));
  });
  const share = (value) => (Number.isFinite(num(value)) ? `${figure(100 * num(value), 2)} %` : "–");
  place.replaceChildren(h("ul", {class: "bars"}, ...bars), h("p", {class: "note"},
    `${share(row.sink_any)} of the heads prefer position 0 at least 30 times, ${share(row.sink_class)} are of the class first-token.`));
}
