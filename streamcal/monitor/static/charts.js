// The charts: what each shows of a view, drawn with uPlot; a legend that follows the cursor, and a table.

import { count, element, figure, moment, share } from "./words.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const TABLE_ROWS = 64;
const LAST_TIME = 8.64e12; // seconds: what a calendar of JavaScript can hold
const SPANS = 16; // at most

// Of all charts over time: the event time if it is known, and else how many labels had joined.
function abscissa(columns) {
  const known = columns.time.filter((time) => time != null);
  const timed = known.length > 0 && known.every((time) => Math.abs(time) < LAST_TIME);
  if (!timed) return { timed, values: columns.labels ?? columns.version };
  // What has no time stands at that of the next, as the map of the calibration before the first event.
  let next = columns.time.findLast((time) => time != null);
  return { timed, values: columns.time.map((_, i, all) => (next = all[all.length - 1 - i] ?? next)).reverse() };
}

// Means of columns of windows over spans of the run: as many windows in each, and fewer in the last.
function spans({ labels, time }, ...columns) {
  const size = Math.ceil(labels.length / SPANS);
  const starts = [...labels.keys()].filter((i) => i % size === 0);
  const last = (column) => starts.map((i) => column[Math.min(i + size, column.length) - 1]);
  const mean = (column) => starts.map((i) => column.slice(i, i + size)).map((part) => part.reduce((a, b) => a + b) / part.length);
  return { ...abscissa({ labels: last(labels), time: last(time) }), columns: columns.map(mean) };
}

const BOTH = [
  { label: "before", colour: "--before", dash: [6, 4], points: true },
  { label: "after", colour: "--after", points: true },
];

function overTime(id, title, about, name, from) {
  return { id, title, about, series: () => BOTH, from, format: figure, data: ({ windows }) => spans(windows, windows.before[name], windows.after[name]) };
}

export const CHARTS = [
  {
    id: "spans",
    title: "Forecasts, and what came true",
    about: "Means over spans with the same number of labels. Good forecasts follow the rate of label 1.",
    first: true,
    from: 0,
    format: figure,
    series: () => [
      { label: "rate of label 1", colour: "--observed", width: 6 },
      { label: "mean forecast before", colour: "--before", dash: [6, 4], points: true },
      { label: "after", colour: "--after", points: true },
    ],
    data: ({ windows }) => spans(windows, windows.rate, windows.before.forecast, windows.after.forecast),
  },
  {
    id: "reliability",
    title: "Reliability",
    about: "How often forecasts came true. On the diagonal, both agree. Bars: 95 % for each bin alone.",
    first: true,
    square: true,
    format: figure,
    series: () => BOTH,
    // Both sides share the axis of forecasts: each has its values where the other has none.
    data: ({ before, after }) => {
      const rows = [
        ...before.bins.forecast.map((x, i) => [x, before.bins.rate[i], null]),
        ...after.bins.forecast.map((x, i) => [x, null, after.bins.rate[i]]),
      ].sort((a, b) => a[0] - b[0]);
      return { timed: false, values: rows.map((r) => r[0]), columns: [rows.map((r) => r[1]), rows.map((r) => r[2])] };
    },
    table: ({ before, after }) => ({
      head: ["side", "mean forecast", "rate of label 1", "95 % interval", "labels"],
      rows: [["before", before], ["after", after]].flatMap(([name, { bins }]) =>
        bins.forecast.map((x, i) => [name, figure(x), figure(bins.rate[i]), `${figure(bins.low[i])} to ${figure(bins.high[i])}`, count(bins.labels[i])]),
      ),
    }),
  },
  overTime("ece", "Calibration error", "How far forecasts are from what came true, in each span; lower is better, and few labels never show 0.", "ece", 0),
  overTime("brier", "Brier score", "Mean squared error of the forecasts; lower is better.", "brier"),
  {
    id: "gain",
    title: "Gain by recalibration",
    about: "Brier score before − after over all labels so far: between the lines, 95 % sure at all times together. Above 0, recalibration helps.",
    format: figure,
    series: () => [
      { label: "at most", colour: "--after" },
      { label: "at least", colour: "--after", dash: [6, 4] },
    ],
    data: ({ confidence }) => ({ ...abscissa(confidence), columns: [confidence.gain_high, confidence.gain_low] }),
  },
  {
    id: "bands",
    title: "Gap by forecast",
    about: "Mean forecast − mean label in bands of the forecast, over the labels that the verdict rests on: between the dashed lines, 95 % sure at all times together.",
    byForecast: true,
    format: figure,
    series: () => [
      { label: "at most", colour: "--third", dash: [6, 4] },
      { label: "gap", colour: "--after", points: true },
      { label: "at least", colour: "--third", dash: [6, 4] },
    ],
    data: ({ bands }) => ({ timed: false, values: bands.forecast, columns: [bands.high, bands.gap, bands.low] }),
    table: ({ bands }) => ({
      head: ["mean forecast", "gap", "at least", "at most", "labels"],
      rows: bands.forecast.map((x, i) => [figure(x), figure(bands.gap[i]), figure(bands.low[i]), figure(bands.high[i]), count(bands.labels[i])]),
    }),
  },
  {
    id: "certificate",
    title: "Certificate",
    ofEngine: true,
    about: "The risk is at most so much, for all versions together. A gap: nothing could be claimed.",
    from: 0,
    format: figure,
    series: () => [
      { label: "in the target", colour: "--fourth", width: 4 },
      { label: "of the formed map", colour: "--third", dash: [6, 4] },
    ],
    data: ({ versions }) => ({ ...abscissa(versions), columns: [versions.target_risk, versions.risk] }),
  },
  {
    id: "mixture",
    title: "Mixture",
    ofEngine: true,
    about: "How much each kind of map has to say in mode auto: the summed weights of its candidates.",
    from: 0,
    to: 1,
    stacked: true,
    format: share,
    series: ({ versions }) => kinds(versions).map((kind, i) => ({ label: KINDS[kind] ?? kind, colour: `--c${i % 7}` })),
    data: ({ versions }) => ({ ...abscissa(versions), columns: kinds(versions).map((kind) => weightOf(kind, versions)) }),
  },
];

const KINDS = { identity: "the score itself" };
const kindOf = (candidate) => candidate.split("/").slice(0, 2).join("/");
const kinds = ({ weights }) => [...new Set(Object.keys(weights).map(kindOf))];
function weightOf(kind, { version, weights }) {
  const columns = Object.keys(weights).filter((candidate) => kindOf(candidate) === kind).map((candidate) => weights[candidate]);
  return version.map((_, i) => columns.reduce((sum, column) => sum + column[i], 0));
}

export class Chart {
  constructor(about, place) {
    this.about = about;
    this.canvas = element("div", { class: "chart", tabindex: "0", role: "img", "aria-labelledby": `${about.id}-title`, "aria-describedby": `${about.id}-about ${about.id}-legend` });
    this.legend = element("ul", { class: "legend", id: `${about.id}-legend` });
    this.table = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${about.title}: table` });
    this.details = element("details", {}, element("summary", {}, `${about.title} as a table`), this.table);
    this.details.addEventListener("toggle", () => this.#tabulate());
    this.figure = element(
      "figure", { id: about.id },
      element("figcaption", {}, element("h3", { id: `${about.id}-title` }, about.title), element("p", { class: "about", id: `${about.id}-about` }, about.about)),
      this.canvas, this.legend, this.details,
    );
    place.append(this.figure);
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
    new ResizeObserver(() => this.plot?.setSize(this.#size())).observe(this.canvas);
  }

  // `empty` stands where there is nothing to draw.
  show(view, empty = ["Not enough yet"]) {
    this.view = view;
    this.series = this.about.series(view);
    const { timed, values, columns } = this.about.data(view);
    this.timed = timed;
    this.columns = columns;
    const drawn = this.about.stacked ? stack(columns) : columns;
    const data = [values, ...drawn];
    const shape = `${timed} ${this.series.map((each) => each.label)}`;
    if (values.length < 2 || !columns.some((column) => column.some((value) => value != null))) {
      this.plot?.destroy();
      this.plot = this.canvas.plot = null;
      this.canvas.replaceChildren(element("p", { class: "empty" }, element("span", {}, ...empty)));
    } else if (this.plot && shape === this.shape) {
      this.plot.setData(data);
    } else {
      this.plot?.destroy();
      this.canvas.replaceChildren();
      this.shape = shape;
      this.plot = this.canvas.plot = new uPlot(this.#options(), data, this.canvas);
    }
    this.canvas.setAttribute("role", this.plot ? "img" : "group"); // a picture has no links
    this.#read();
    this.#tabulate();
  }

  // Colours are read when a chart is made.
  redraw() {
    this.plot?.destroy();
    this.plot = null;
    if (this.view) this.show(this.view);
  }

  #size() {
    return { width: Math.max(this.canvas.clientWidth, 120), height: this.canvas.clientHeight };
  }

  #options() {
    const { about } = this;
    const axis = { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    const x = { ...axis, space: 70, size: 30 };
    if (this.timed) x.values = (_, ticks, __, ___, step) => ticks.map((tick) => moment(tick, step));
    else if (!about.square && !about.byForecast) x.values = (_, ticks) => ticks.map((tick) => count(tick));
    const edge = (self, low, high) => {
      if (about.square) return [0, Math.min(1.02, 1.06 * reach(self))];
      const pad = 0.08 * (high - low || Math.abs(high) || 1);
      return [about.from ?? (low < 0 ? low - pad : Math.max(0, low - pad)), about.to ?? high + pad];
    };
    return {
      ...this.#size(),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: this.timed, range: about.square ? edge : undefined }, y: { range: edge } },
      axes: [x, { ...axis, size: 58, space: about.square ? 55 : 35, values: (_, ticks) => ticks.map((tick) => +tick.toPrecision(6)) }],
      series: [
        {},
        ...this.series.map(({ label, colour, dash, width, points }) => ({
          label, dash, width: about.stacked ? 0 : width ?? 2, stroke: css(colour), spanGaps: Boolean(points),
          fill: about.stacked ? css(colour) : undefined,
          points: { show: Boolean(points), size: 7, fill: dash ? css("--card") : css(colour) },
        })),
      ],
      hooks: { setCursor: [() => this.#read()], drawClear: [(self) => about.square && this.#underlay(self)] },
    };
  }

  // The diagonal and the intervals.
  #underlay(self) {
    const { ctx } = self;
    const at = (value, scale) => self.valToPos(value, scale, true);
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.strokeStyle = css("--soft");
    ctx.beginPath();
    const end = self.scales.x.max;
    ctx.moveTo(at(0, "x"), at(0, "y"));
    ctx.lineTo(at(end, "x"), at(end, "y"));
    ctx.stroke();
    ctx.lineWidth = 2 * devicePixelRatio;
    for (const [index, side] of [this.view.before, this.view.after].entries()) {
      ctx.strokeStyle = css(this.series[index].colour);
      ctx.globalAlpha = 0.55;
      ctx.beginPath();
      side.bins.forecast.forEach((forecast, bin) => {
        ctx.moveTo(at(forecast, "x"), at(side.bins.low[bin], "y"));
        ctx.lineTo(at(forecast, "x"), at(Math.min(side.bins.high[bin], end), "y"));
      });
      ctx.stroke();
    }
    ctx.restore();
  }

  // The legend shows the values under the cursor.
  #read() {
    const index = this.plot?.cursor.idx;
    const items = this.series.map(({ label, colour, dash }, number) => {
      const mark = element("span", { class: `mark${dash ? " dashed" : ""}${this.about.stacked ? " area" : ""}`, "aria-hidden": "true" });
      mark.style[this.about.stacked ? "background" : "borderColor"] = `var(${colour})`;
      const value = index == null ? null : this.columns[number][index];
      const item = element("li", {}, mark, label);
      if (value != null) item.append(" ", element("span", { class: "value" }, this.about.format(value)));
      return item;
    });
    if (index != null) {
      const x = this.plot.data[0][index];
      items.push(element("li", { class: "at" }, this.about.square || this.about.byForecast ? `at forecast ${figure(x)}` : this.timed ? `${moment(x)} UTC` : count(x)));
    }
    this.legend.replaceChildren(...items);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.plot) return;
    event.preventDefault();
    const last = this.plot.data[0].length - 1;
    const index = Math.min(Math.max((this.plot.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
    this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][index], "x"), top: 10 });
  }

  // Only an open table is kept up to date.
  #tabulate() {
    if (!this.details.open || !this.view) return;
    const { head, rows } = (this.about.table ?? ((view) => this.#rows(view)))(this.view);
    fill(this.table, head, rows);
  }

  #rows(view) {
    const { timed, values, columns } = this.about.data(view);
    const rows = values.map((x, i) => [timed ? moment(x) : count(x), ...columns.map((column) => this.about.format(column[i]))]);
    return { head: [timed ? "until (UTC)" : "labels", ...this.series.map((each) => each.label)], rows: rows.slice(-TABLE_ROWS).reverse() };
  }
}

export function fill(place, head, rows) {
  const [top, left] = [place.scrollTop, place.scrollLeft];
  place.replaceChildren(
    element(
      "table", {},
      element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map(([name, ...cells]) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((cell) => element("td", {}, cell))))),
    ),
  );
  place.scrollTo(left, top);
}

const reach = (self) => Math.max(...self.data.flatMap((column) => Array.from(column).filter((value) => value != null)), 0.02);

// Each series on top of those behind it in the list: the first is the highest, so that later ones cover its foot.
function stack(columns) {
  const sums = columns.map((column) => column.slice());
  for (let number = sums.length - 2; number >= 0; number -= 1) sums[number] = sums[number].map((value, i) => value + sums[number + 1][i]);
  return sums;
}
