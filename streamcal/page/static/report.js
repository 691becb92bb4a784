// The charts of a report: in each place those of a view that have something to show.

import { CHARTS, Chart } from "./charts.js";

const views = JSON.parse(document.getElementById("record").textContent);
const drawn = [...document.querySelectorAll("[data-view]")].flatMap((place) => {
  const { view: number, first } = place.dataset;
  return CHARTS.filter((about) => Boolean(about.first) === (first === "true")).map((about) => {
    const chart = new Chart({ ...about, id: `${about.id}-${number}` }, place);
    chart.show(views[number]);
    if (!chart.plot) chart.figure.remove();
    return chart;
  }).filter((chart) => chart.plot);
});
const redraw = () => drawn.forEach((chart) => chart.redraw());
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);
