// Line charts: uPlot, with what every chart of the page shares.
import { figure, h, setText, tokens, words } from "./format.js";

const kHeight = 190;
const kDashes = [[], [6, 4], [2, 3], [9, 3, 2, 3]];

export const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const axisText = (values, text) => values.map((value) => (value === null ? "" : text(value)));

/** Every power of ten, and 2 and 5 times it while there are few. */
function logSplits(low, high) {
  const splits = [];
  const decades = Math.log10(high / low);
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
    for (const factor of decades > 3 ? [1] : [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) splits.push(value);
    }
  }
  return splits;
}

/**
 * A chart that redraws itself. show({x, xLog, yLog, series: [{label, values, colour, dash}], marks: [{x, label}]}):
 * x ascending; colour the name of a CSS variable; dash tells lines apart without colour. Values of a log axis that are
 * not above 0 are left out.
 */
export class LineChart {
  constructor(parent, title, unit = "") {
    this.figure = h("figure", {class: "chart"});
    this.caption = h("figcaption", {}, title, unit ? h("span", {class: "unit"}, " " + unit) : null);
    this.plot = h("div", {class: "plot", role: "img"});
    this.legend = h("ul", {class: "lines"});
    this.empty = h("p", {class: "note"}, "not measured yet");
    this.figure.append(this.caption, this.plot, this.empty, this.legend);
    parent.append(this.figure);
    this.title = title;
    this.key = "";
    new ResizeObserver(() => this.resize()).observe(this.figure);
  }

  remove() {
    this.chart?.destroy();
    this.figure.remove();
  }

  resize() {
    const width = this.figure.clientWidth;
    if (this.chart && width > 0 && width !== this.chart.width) this.chart.setSize({width, height: kHeight});
  }

  show(spec) {
    this.marks = spec.marks ?? [];
    const keep = spec.x.map((x, i) => Number.isFinite(x) && (!spec.xLog || x > 0)
      && (i === 0 || x > spec.x[i - 1]));
    const x = spec.x.filter((_, i) => keep[i]);
    const columns = spec.series.map((line) => line.values.filter((_, i) => keep[i])
      .map((value) => (Number.isFinite(value) && (!spec.yLog || value > 0) ? value : null)));
    const drawn = columns.some((values) => values.some((value) => value !== null));
    this.plot.hidden = !drawn;
    this.empty.hidden = drawn;
    this.describe(spec, columns);
    if (!drawn) return;
    const key = JSON.stringify([spec.xLog, spec.yLog, spec.series.map((line) => [line.label, line.colour]),
      cssColour("--ink")]);
    if (key !== this.key) {
      this.key = key;
      this.chart?.destroy();
      this.chart = new uPlot(this.options(spec), [x, ...columns], this.plot);
    } else {
      this.chart.setData([x, ...columns]);
    }
  }

  /** The legend holds the newest values as text; the picture's label says the same, and which axis it is drawn over. */
  describe(spec, columns) {
    const lines = spec.series.map((line, i) => {
      const last = columns[i].findLast((value) => value !== null) ?? NaN;
      return [line.label, figure(last)];
    });
    const values = lines.map(([label, value]) => `${label} ${value}`).join(", ");
    const text = `${this.title} over ${spec.xLog ? "log tokens" : "steps"}: last values ${values}`;
    if (this.described === text + cssColour("--ink")) return;
    this.described = text + cssColour("--ink");
    this.plot.setAttribute("aria-label", text);
    this.legend.replaceChildren(...spec.series.map((line, i) => {
      const sample = h("span", {class: "sample", "data-dash": line.dash ?? 0, "aria-hidden": "true"});
      sample.style.borderTopColor = cssColour(line.colour);
      return h("li", {}, sample, ` ${line.label} `, h("b", {}, lines[i][1]));
    }));
  }

  options(spec) {
    const ink = cssColour("--muted");
    const axis = {stroke: ink, grid: {stroke: cssColour("--line"), width: 1}, ticks: {show: false},
      font: "12px system-ui, sans-serif"};
    const logScale = (auto) => ({distr: 3, log: 10, range: (_, low, high) => (low > 0 ? auto(low, high) : [1, 10])});
    return {
      width: Math.max(200, this.figure.clientWidth), height: kHeight, legend: {show: false},
      padding: [14, 12, 0, 0],
      cursor: {points: {size: 6}, drag: {x: false, y: false}},
      scales: {
        x: spec.xLog ? {time: false, ...logScale((low, high) => [low, high > low ? high : low * 10])} : {time: false},
        y: spec.yLog ? logScale((low, high) => [low / 1.3, high * 1.3]) : {range: (_, low, high) => padded(low, high)},
      },
      axes: [
        {...axis, size: 34, values: (_, values) => axisText(values, tokens),
          ...(spec.xLog ? {splits: (u) => logSplits(u.scales.x.min, u.scales.x.max), filter: (_, splits) => splits} : {})},
        {...axis, size: 52, values: (_, values) => axisText(values, figure),
          ...(spec.yLog ? {splits: (u) => logSplits(u.scales.y.min, u.scales.y.max), filter: (_, splits) => splits} : {})},
      ],
      series: [{label: spec.xLog ? "tokens" : "step"}, ...spec.series.map((line) => ({
        label: line.label, stroke: cssColour(line.colour), width: line.dash ? 1.5 : 2, dash: kDashes[line.dash ?? 0],
        points: {show: false}, spanGaps: true}))],
      hooks: {draw: [(u) => this.drawMarks(u)], setCursor: [(u) => this.showCursor(u)]},
    };
  }

  drawMarks(u) {
    const context = u.ctx;
    const {left, top, width, height} = u.bbox;
    const pixels = devicePixelRatio || 1;
    context.save();
    context.strokeStyle = context.fillStyle = cssColour("--muted");
    context.lineWidth = pixels;
    context.font = `${11 * pixels}px system-ui, sans-serif`;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.setLineDash([3 * pixels, 3 * pixels]);
    for (const [i, mark] of this.marks.entries()) {
      const x = u.valToPos(mark.x, "x", true);
      if (!(x >= left && x <= left + width)) continue;
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, top + height);
      context.stroke();
      const wide = context.measureText(mark.label).width;
      const right = x + wide + 6 * pixels > left + width;
      const textLeft = right ? x - wide - 4 * pixels : x + 4 * pixels;
      const baseline = top + (i % 3 + 1) * 12 * pixels;
      context.globalAlpha = 0.75;
      context.fillStyle = cssColour("--card");
      context.fillRect(textLeft - 2 * pixels, baseline - 10 * pixels, wide + 4 * pixels, 13 * pixels);
      context.globalAlpha = 1;
      context.fillStyle = cssColour("--muted");
      context.fillText(mark.label, textLeft, baseline);
    }
    context.restore();
  }

  /** The legend's values follow the pointer. */
  showCursor(u) {
    const at = u.cursor.idx;
    const values = this.legend.querySelectorAll("b");
    for (let i = 0; i < values.length; ++i) {
      const column = u.data[i + 1] ?? [];
      const value = at === null || at === undefined ? column.findLast((v) => v !== null) : column[at];
      setText(values[i], figure(value ?? NaN));
    }
  }
}

function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = high > low ? 0.08 * (high - low) : Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

/** Marks of a circuit's life for an axis. */
export function circuitMarks(circuit, axis) {
  if (!circuit) return [];
  const marks = [];
  for (const state of ["emerging", "formed", "verified"]) {
    const step = circuit[`${state}_step`];
    const x = axis === "tokens" ? Number(circuit[`${state}_tokens`]) : step;
    if (step >= 0 && Number.isFinite(x)) marks.push({x, label: words(state)});
  }
  return marks;
}
