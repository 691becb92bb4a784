// The page: takes the records of a run as they come, and shows the one of the chosen key.

import { CHARTS, Chart, fill } from "./charts.js";
import { change, count, duration, element, figure, moment, points, share, wallTime } from "./words.js";

const at = (id) => document.getElementById(id);
const charts = CHARTS.map((each) => new Chart(each, at(each.first ? "first-charts" : "charts")));
const announced = new Set();
let live = null;
let chosen = null; // the key whose view is shown; null: all

function show() {
  const { status } = live;
  const view = status.views.find((each) => each.key === chosen) ?? status.views[0];
  showKeys(status, view);
  showGroups(status);
  showVerdict(status, view);
  showAttention(status);
  for (const chart of charts) chart.show(view, chart.about.ofEngine && isOfKeys(status, view) ? ["Each key has its own: ", choice(), "."] : undefined);
  showEvents(status, view);
  showClaims(status, view);
  showOptions(status);
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

function showVerdict(status, { before, after, labels, served, verdict }) {
  const told = at("verdict");
  const words = chosen == null ? verdict.sentence : `${chosen}: ${verdict.sentence}`;
  if (announced.size && told.textContent !== words) announce(words);
  told.textContent = words;
  told.dataset.state = verdict.since_label == null ? verdict.state : "deviates";
  at("evidence").textContent = `${verdict.evidence} ${verdict.advice}`;
  const tiles = [
    ["Brier score", before.brier, after.brier],
    ["Calibration error", before.ece, after.ece],
  ].map(([title, old, now]) => {
    const moved = change(old, now);
    const than = element("dd", { class: "than" }, `before ${figure(old)} `);
    if (moved) than.append(element("span", { class: moved.better ? "better" : "worse" }, moved.words));
    return tile(title, figure(now), than);
  });
  const [old, now] = [status.before.worst_gap, status.after.worst_gap];
  if (chosen == null && now != null) tiles.push(tile(`Worst gap over ${count(status.worst_gap_labels)} labels`, points(now), `before ${points(old)}`));
  tiles.push(tile("Labels joined", count(labels), `${count(status.pending)} predictions wait, ${share(status.delay.out)} of all`));
  if (served) tiles.push(certificateTile(served));
  at("tiles").replaceChildren(...tiles);
}

function tile(title, now, than) {
  const below = typeof than === "string" ? element("dd", { class: "than" }, than) : than;
  return element("div", {}, element("dt", {}, title), element("dd", { class: "now" }, now), below);
}

// What is certified; without a claim, the reason.
function certificateTile({ certified, no_claim: reason }) {
  const words = certified == null ? reason : certified.target_risk === "none" ? certified.risk : certified.target_risk;
  if (words != null && Number.isFinite(Number(words))) return tile("Certified risk, at most", figure(Number(words)), `${share(1 - certified.delta)} sure, version ${count(certified.version)}`);
  const [none, why] = (words ?? "no claim yet").split(/: (.*)/s);
  const made = tile("Certified risk", none, why ?? "");
  made.classList.add("quiet");
  return made;
}

function showAttention({ alarms, warnings }) {
  const items = (some) => some.map(({ key, title, reason, target_labels: labels, advice }) =>
    element("li", {}, element("details", {}, element("summary", {}, key == null ? title : `${key}: ${title}`),
      element("p", {}, `${reason.replace(/\.?$/, ".")}${labels ? ` After ${count(labels)} labels.` : ""} ${advice}`)))).reverse();
  const now = alarms.filter((alarm) => !alarm.over);
  const then = alarms.filter((alarm) => alarm.over);
  at("attention").hidden = !now.length && !warnings.length && !then.length;
  replace(at("attention-list"), [...items(now), ...warnings.map((words) => element("li", {}, words))]);
  at("earlier").hidden = !then.length;
  at("earlier-title").textContent = then.length === 1 ? "One earlier alarm, over now" : `${then.length} earlier alarms, over now`;
  replace(at("earlier-list"), items(then));
  for (const alarm of alarms) {
    const title = `${alarm.key} ${alarm.title}`;
    if (!announced.has(title)) announce(`Alarm: ${alarm.title}`);
    announced.add(title);
  }
}

// What is as it was stays in place, so that a reader's selection and focus do too.
function replace(list, items) {
  const same = list.children.length === items.length && items.every((item, i) => item.textContent === list.children[i].textContent);
  if (!same) list.replaceChildren(...items);
}

const OUTCOMES = [
  ["joined", "Joined", "a label met its prediction", "predictions"],
  ["implied", "Implied", "no label came: counted as 0", "predictions"],
  ["expired", "Expired", "no label came in time", "predictions"],
  ["early", "Early", "the label came before its prediction", "labels"],
  ["late", "Late", "the label came after its prediction had expired", "labels"],
  ["unmatched", "Unmatched", "the prediction of a label never came", "labels"],
  ["duplicate", "Duplicate", "the id had come before", "predictions"],
  ["corrected", "Corrected", "a second label, unlike the first", "labels"],
  ["contradicted", "Contradicted", "a label 1 after it was counted as 0", "labels"],
];

// What is held of the labels of an engine, and why.
function heldWords({ by_time: byTime, late, missing, first, held, oldest, complete, apart, outage, excluded, mistaken }) {
  const age = (x) => (byTime ? duration(x) : `${count(Math.round(x))} predictions`);
  const words = [];
  if (late != null) words.push(`Labels ${late} come later${apart ? `: after ${age(apart[0])}, ${share(apart[1 + late])} of them have come, of the others ${share(apart[2 - late])}` : ""}.`);
  if (missing != null) words.push(`No label ${missing} has come.`);
  if (outage) words.push(`Labels ${outage[0]} have stopped since ${byTime ? moment(outage[1]) : `prediction ${count(outage[1])}`}.`);
  if (held) words.push(`${count(held)} ${first ? "first labels" : "labels"} are held until both classes are equally complete${oldest == null ? "" : `, the oldest for ${age(oldest)}`}.`);
  if (complete) words.push(`Of their predictions, ${share(complete[0])} of the labels 0 have come, and ${share(complete[1])} of the labels 1.`);
  if (excluded) words.push(`${count(excluded)} labels by exclusion, of which ${count(mistaken)} wrong.`);
  return words.join(" ");
}

function showEvents({ join, pending, delay, rejected, events, reasons, rejects }, { served }) {
  at("delay").textContent = `${count(join.predictions)} predictions, ${count(join.labels)} labels. ` +
    (delay.labels ? `Half of the labels came within ${duration(delay.median)}, nine of ten within ${duration(delay.most)}. ` : "") +
    (delay.oldest ? `Of all predictions, ${share(delay.out)} wait for theirs, the oldest for ${duration(delay.oldest)}.` : "");
  at("held").textContent = served?.held ? heldWords(served.held) : "";
  at("held").hidden = !served?.held;
  const rows = [...OUTCOMES.map(([name, ...rest]) => [join[name], ...rest]).filter(([n], i) => n || !i), [pending, "Pending", "wait for their label", "predictions"]];
  at("join").tBodies[0].replaceChildren(...rows.map(([n, name, about, of]) => {
    const bar = element("i");
    bar.style.width = `${join[of] ? Math.min(100, (100 * n) / join[of]) : 0}%`;
    return element("tr", {}, element("th", { scope: "row" }, name, element("span", {}, about)),
      element("td", { class: "bar", "aria-hidden": "true" }, element("div", {}, bar)), element("td", {}, count(n)));
  }));
  at("rejected").textContent = rejected ? `${count(rejected)} of ${count(events)} events changed nothing.` : "None so far.";
  at("reasons").tBodies[0].replaceChildren(...Object.entries(reasons).map(([code, n]) =>
    element("tr", {}, element("th", { scope: "row" }, code.replaceAll("_", " ")), element("td", {}, count(n)))));
  at("raw").hidden = !rejects.length;
  if (at("raw").open) showRaw();
}

// Raw text is asked for when someone wants to see it, and not before.
let shown = "";
async function showRaw() {
  const latest = JSON.stringify(live.status.rejects);
  if (latest === shown) return;
  shown = latest;
  const answer = await fetch("page/rejects").catch(() => null);
  if (!answer?.ok) return;
  const rows = await answer.json();
  at("raw-list").replaceChildren(...rows.map((row) =>
    element("li", {}, `${row.code.replaceAll("_", " ")} (${row.source}, ${count(row.line)})`, element("code", {}, row.raw))));
}

function showKeys(status, view) {
  const keyed = status.views.length > 1;
  at("choice").hidden = at("keys").hidden = !keyed;
  if (!keyed) return;
  const names = JSON.stringify(status.views.map((each) => each.key));
  if (at("key").dataset.names !== names) {
    at("key").dataset.names = names;
    at("key").replaceChildren(...status.views.map((each, i) => element("option", { value: i }, each.key ?? "all events")));
  }
  at("key").value = status.views.indexOf(view);
  const views = status.views.slice(1);
  at("keys-about").textContent = views.length < status.keys ? `The first ${views.length} of ${count(status.keys)} keys.` : "";
  fill(at("keys").querySelector(".wide"),
    ["key", "labels", "rate of label 1", "ECE before", "ECE after", "Brier before", "Brier after", "prior", "version", "certified risk"],
    views.map(({ key, labels, positives, before, after, served }) => [
      key, count(labels), figure(labels ? positives / labels : null), figure(before.ece), figure(after.ece), figure(before.brier), figure(after.brier),
      figure(served?.target_prior), count(served?.version), served?.certified ? served.certified.target_risk : "–",
    ]));
}

const GROUPS_SHOWN = 20;

function showGroups({ groups }) {
  at("groups").hidden = !groups.name.length;
  if (at("groups").hidden) return;
  const sought = at("groups-search").value.trim().toLowerCase();
  const found = [...groups.name.keys()].filter((i) => `${groups.field[i]} ${groups.name[i] ?? "–"}`.toLowerCase().includes(sought));
  at("groups-count").textContent = `${count(Math.min(GROUPS_SHOWN, found.length))} of ${count(found.length)}`;
  const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(4)}`;
  fill(at("groups").querySelector(".wide"),
    ["field", "value", "labels", "forecast", "rate", "gap", "surely off", "Brier before", "Brier after"],
    found.slice(0, GROUPS_SHOWN).map((i) => [
      groups.field[i], groups.name[i] ?? "–", count(groups.labels[i]), figure(groups.forecast[i]), figure(groups.rate[i]),
      `${signed(groups.gap_low[i])} to ${signed(groups.gap_high[i])}`, groups.deviates[i] ? "yes" : "", figure(groups.brier_before[i]), figure(groups.brier_after[i]),
    ]));
}

// Whether a view is of several engines, so that it has neither a map nor a certificate.
const isOfKeys = ({ keys }, { key, served }) => key == null && !served && keys > 1;

const choice = () => element("a", { href: "#key" }, "choose a key");

function showClaims(status, view) {
  const { served } = view;
  const place = at("claims");
  if (!served?.certified) {
    const words = isOfKeys(status, view) ? ["Each key has a certificate of its own: ", choice(), "."] : ["Nothing yet: a certificate comes with the first map."];
    place.replaceChildren(element("p", { class: "about" }, ...words));
    return;
  }
  const { certified } = served;
  const list = (title, items) => (items.length ? [element("p", {}, title), element("ul", {}, ...items.map((item) => element("li", {}, item)))] : []);
  place.replaceChildren(
    element("p", {}, `Version ${count(certified.version)}, with probability at least ${share(1 - certified.delta)} for all versions together: `,
      `risk of the map formed from labels of the ${certified.domain}: ${certified.risk}; risk in the target: ${certified.target_risk}.`),
    ...list("Refuted:", certified.refuted),
    ...list("This assumes that", certified.assumptions),
  );
}

function showOptions({ options }) {
  const text = JSON.stringify(options);
  if (at("options").dataset.text === text) return;
  at("options").dataset.text = text;
  const rows = Object.entries(options).flatMap(([group, values]) =>
    Object.entries(values ?? {}).map(([name, value]) => [`${group}.${name}`, value == null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value)]));
  at("options").tBodies[0].replaceChildren(...rows.map(([name, value]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value))));
}

function take(record) {
  live = record;
  const ended = record.state === "ended";
  showState(record.state, ended ? `Ended at ${wallTime(record.made_at)}` : "Live");
  const { status, events_per_second: rate, made_at: made } = record;
  at("pace").textContent = ended
    ? `${count(status.events)} events; these are the last figures`
    : `${count(status.events)} events${rate == null ? "" : `, ${count(Math.round(rate))} a second`}, as of ${wallTime(made)}`;
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
at("groups-search").addEventListener("input", () => live && showGroups(live.status));
at("raw").addEventListener("toggle", () => at("raw").open && showRaw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
connect();
