// One head over training.
import { circuitMarks, LineChart } from "./charts.js";
import { newestHeads, position, store } from "./data.js";
import { byId, headName, num, setText } from "./format.js";

const headCharts = new Map();

function headChart(name, title, unit) {
  if (!headCharts.has(name)) headCharts.set(name, new LineChart(byId("head-charts"), title, unit));
  return headCharts.get(name);
}

/** The rows of the head's trajectory that have the figures of the pattern. */
function rowsOf(source) {
  return store.trajectory.filter((row) => row.source === source && row.head);
}

export function drawHead(pattern, axis) {
  const id = store.head;
  byId("head-charts").hidden = id === null;
  if (id === null) return;
  const probe = rowsOf("probe");
  const rows = probe.length ? probe : rowsOf("train");
  const circuit = store.run?.circuits.find((one) => one.pattern === pattern);
  const p = newestHeads()?.patterns.indexOf(pattern) ?? -1;
  const of = (name) => rows.map((row) => num(row.head.patterns[p]?.[name]));
  const own = (name) => rows.map((row) => num(row.head[name]));
  const last = rows.at(-1);
  setText(byId("head-title"), `Head ${headName(id)} over training`);
  setText(byId("head-note"), last
    ? `layer ${id[0]}, head ${id[1]} · class ${last.head.class || "none"} · ${rows.length} readings of the ${last.source}`
    : "No readings of this head yet.");
  const x = rows.map((row) => position(row, axis));
  const common = {x, xLog: axis === "tokens", marks: circuitMarks(circuit, axis)};
  const threshold = num(circuit?.formed_threshold);
  headChart("selectivity", "Selectivity", "x, log scale").show({...common, yLog: true, series: [
    {label: pattern, values: of("selectivity"), colour: "--line-1"},
    {label: "formed needs", values: x.map(() => threshold), colour: "--line-4", dash: 1},
  ]});
  headChart("mass", "Attention mass on the targets").show({...common, series: [
    {label: pattern, values: of("mass"), colour: "--line-1"},
    {label: "on position 0", values: own("sink_mass"), colour: "--line-3", dash: 2},
  ]});
  headChart("pr", "Participation ratio").show({...common, series: [
    {label: "head", values: own("participation_ratio"), colour: "--line-2"},
    {label: "its null", values: own("null_participation_ratio"), colour: "--line-4", dash: 1},
  ]});
  headChart("margin", "Match margin", "standard deviations of its null").show({...common, series: [
    {label: pattern, values: of("margin_z"), colour: "--line-1"},
    {label: "critical value", values: rows.map((row) => num(row.circuits.find((c) => c.pattern === pattern)?.critical_margin_z)),
      colour: "--line-4", dash: 1},
  ]});
  headChart("integral", "PR integral").show({...common, series: [
    {label: "head", values: own("pr_integral"), colour: "--line-2"}]});
  headChart("entropy", "Attention entropy", "nats").show({...common, series: [
    {label: "head", values: own("entropy"), colour: "--line-3"}]});
}
