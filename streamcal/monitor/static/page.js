// The page: shows the newest record of a run, or the one of a report, with the view of the chosen key.
// It lays out cards, sections and tables; what they say is in the record (streamcal/monitor/shown.py).

import { CHARTS, Chart, fill } from "./charts.js";
import { count, element, wallTime } from "./words.js";

const at = (id) => document.getElementById(id);
const charts = CHARTS.map((each) => new Chart(each, at(each.first ? "first-charts" : "charts")));
const announced = new Set();
const sections = new Map();
let live = null;
let chosen = null; // the key whose view is shown; null: all

function show() {
  const { status, shown } = live;
  const number = Math.max(0, status.views.findIndex((each) => each.key === chosen));
  const view = shown.views[number];
  showKeys(status, number);
  showVerdict(view);
  showAttention(shown);
  // A view of several engines has neither a map nor a certificate.
  const several = number === 0 && !status.views[0].served && status.keys > 1;
  const choice = () => ["Each key has its own: ", element("a", { href: "#key" }, "choose a key"), "."];
  for (const chart of charts) chart.show(status.views[number], chart.about.ofEngine && several ? choice() : undefined);
  for (const each of [view.certified, ...shown.sections]) {
    if (!sections.has(each.id)) sections.set(each.id, new Section(each));
    sections.get(each.id).show(each);
  }
  if (!at("raw")) return;
  at("raw").hidden = !status.rejects.length;
  if (at("raw").querySelector("details").open) showRaw();
}

// A titled part with words and tables; a long table can be searched.
const LONG = 20;

class Section {
  constructor({ id, title, folded }) {
    this.words = element("div", { class: "about" });
    this.search = element("input", { type: "search", autocomplete: "off" });
    this.search.addEventListener("input", () => this.#fill());
    this.found = element("span", { role: "status" });
    this.tool = element("p", { hidden: "" }, element("label", {}, "Search ", this.search), " ", this.found);
    this.tables = element("div", { class: "pair" });
    const parts = [this.words, this.tool, this.tables];
    this.section = element("section", { class: "card", id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title),
      ...(folded ? [element("details", {}, element("summary", {}, "Show all"), ...parts)] : parts));
    at("sections").append(this.section);
  }

  // What is as it was stays in place, so that a reader's selection and focus do too.
  show({ words, tables }) {
    const text = JSON.stringify([words, tables]);
    if (text === this.text) return;
    this.text = text;
    this.data = tables;
    this.section.hidden = !words.length && !tables.length;
    this.words.replaceChildren(...words.map((each) => element("p", {}, each)));
    this.tool.hidden = !tables.some(({ rows }) => rows.length > LONG) || this.section.querySelector("details");
    while (this.tables.children.length > tables.length) this.tables.lastChild.remove();
    while (this.tables.children.length < tables.length) this.tables.append(element("div", { class: "wide", tabindex: "0", role: "region" }));
    tables.forEach(({ head }, i) => this.tables.children[i].setAttribute("aria-label", head.join(", ")));
    this.#fill();
  }

  #fill() {
    const sought = this.search.value.trim().toLowerCase();
    this.data.forEach(({ head, rows }, i) => {
      const found = rows.filter((row) => row.slice(0, 2).join(" ").toLowerCase().includes(sought));
      const some = this.tool.hidden ? found : found.slice(0, LONG);
      this.found.textContent = `${count(some.length)} of ${count(found.length)}`;
      fill(this.tables.children[i], head, some);
    });
  }
}

function showState(state, words) {
  if (at("state").dataset.state === state) return;
  at("state").dataset.state = state;
  at("state-words").textContent = words;
  announce(words);
}

function announce(words) {
  at("announced").textContent = words;
}

function showVerdict({ verdict, state, evidence, cards }) {
  const place = at("verdict");
  if (announced.size && place.textContent !== verdict) announce(verdict);
  place.textContent = verdict;
  place.dataset.state = state;
  at("evidence").textContent = evidence;
  at("tiles").replaceChildren(...cards.map(({ title, value, beside, change, better, quiet }) =>
    element("div", quiet ? { class: "quiet" } : {}, element("dt", {}, title), element("dd", { class: "now" }, value),
      element("dd", { class: "than" }, beside, ...(change ? [" ", element("span", { class: better ? "better" : "worse" }, change)] : [])))));
}

function showAttention({ alarms, remarks }) {
  const items = (some) => some.map(({ title, words }) => element("li", {}, element("details", {}, element("summary", {}, title), element("p", {}, words))));
  const now = alarms.filter((alarm) => !alarm.over);
  const then = alarms.filter((alarm) => alarm.over);
  at("attention").hidden = !alarms.length && !remarks.length;
  replace(at("attention-list"), [...items(now), ...remarks.map((words) => element("li", {}, words))]);
  at("earlier").hidden = !then.length;
  at("earlier-title").textContent = then.length === 1 ? "One earlier alarm, over now" : `${then.length} earlier alarms, over now`;
  replace(at("earlier-list"), items(then));
  for (const { title } of alarms) {
    if (!announced.has(title)) announce(`Alarm: ${title}`);
    announced.add(title);
  }
}

function replace(list, items) {
  const same = list.children.length === items.length && items.every((item, i) => item.textContent === list.children[i].textContent);
  if (!same) list.replaceChildren(...items);
}

// Raw text is asked for when someone wants to see it, and not before.
let latest = "";
async function showRaw() {
  const now = JSON.stringify(live.status.rejects);
  if (now === latest) return;
  latest = now;
  const answer = await fetch("page/rejects").catch(() => null);
  if (!answer?.ok) return;
  const rows = await answer.json();
  at("raw-list").replaceChildren(...rows.map((row) =>
    element("li", {}, `${row.code.replaceAll("_", " ")} (${row.source}, ${count(row.line)})`, element("code", {}, row.raw))));
}

function showKeys({ views }, number) {
  at("choice").hidden = views.length < 2;
  const names = JSON.stringify(views.map((each) => each.key));
  if (at("key").dataset.names !== names) {
    at("key").dataset.names = names;
    at("key").replaceChildren(...views.map((each, i) => element("option", { value: i }, each.key ?? "all events")));
  }
  at("key").value = number;
}

function take(record) {
  live = record;
  const { state, status, events_per_second: rate, made_at: made, words } = record;
  showState(state, { report: "Calibration report", ended: `Ended at ${wallTime(made)}` }[state] ?? "Live");
  at("pace").textContent = words ?? `${count(status.events)} events` + (state === "ended"
    ? "; these are the last figures"
    : `${rate == null ? "" : `, ${count(Math.round(rate))} a second`}, as of ${wallTime(made)}`);
  show();
}

function connect() {
  const events = new EventSource("page/events");
  events.onmessage = (event) => take(JSON.parse(event.data));
  events.onerror = () => {
    if (live?.state !== "ended") showState("lost", live ? `No connection since ${wallTime(Date.now() / 1000)}; trying again` : "No connection; trying again");
    // It tries again by itself, unless the server has refused.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

at("key").addEventListener("change", () => {
  chosen = live.status.views[Number(at("key").value)].key;
  show();
});
at("raw")?.addEventListener("toggle", ({ target }) => target.open && showRaw(), true);
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
if (at("record")) take(JSON.parse(at("record").textContent));
else connect();
