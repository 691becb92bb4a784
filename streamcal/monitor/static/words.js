// How figures are written.

const ENGLISH = "en-GB";

export const count = (n) => (n == null ? "–" : n.toLocaleString(ENGLISH));

// Figures of forecasts, as in the table at the end of a run but for the last digit.
export const figure = (x) => (x == null ? "–" : Math.abs(x) < 0.001 && x !== 0 ? x.toExponential(1) : x.toFixed(4));

const SPACE = "\u00a0"; // between a figure and its unit, where no line ends

export const share = (x) => (x == null ? "–" : `${+(100 * x).toFixed(1)}${SPACE}%`);

const formats = {
  day: { day: "numeric", month: "short" },
  minute: { hour: "2-digit", minute: "2-digit" },
  second: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  whole: { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" },
};
const made = Object.fromEntries(
  Object.entries(formats).map(([name, form]) => [
    name,
    new Intl.DateTimeFormat(ENGLISH, { ...form, hourCycle: "h23", timeZone: "UTC" }),
  ]),
);

// An event time in UTC; `step` is the distance of two ticks in seconds.
export const moment = (time, step) =>
  made[step == null ? "whole" : step >= 86400 ? "day" : step >= 60 ? "minute" : "second"].format(1000 * time);

// The time of the wall clock, as the viewer's own clock shows it.
export const wallTime = (time) => new Date(1000 * time).toLocaleTimeString(ENGLISH, formats.second);

// An element with what is in it; text is never markup.
export function element(name, attributes = {}, ...content) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
}
