// Apply a map of streamcal, parsed from its JSON.
export function probability(map, score) {
  if (map.format !== 2) throw new Error(`map of format ${map.format}: this file reads format 2`);
  if (!(score >= 0 && score <= 1)) throw new Error(`score ${score}: a score is a number from 0 to 1`);
  const { knots, log_odds: y, weights: [w0, w1] } = map;
  let p = score;
  if (map.kind === "linear") {
    const z = Math.min(Math.max(score, 2 ** -40), 1 - 2 ** -40);
    const x = Math.log(z / (1 - z)), k = count(knots, x), at = Math.max(k - 1, 0);
    const slope = k === 0 || k === knots.length ? 0 : (y[k] - y[at]) / (knots[k] - knots[at]);
    p = 1 / (1 + Math.exp(-(y[at] + (x - knots[at]) * slope)));
  } else if (map.values.length) p = map.values[count(map.edges.slice(1, -1), score)];
  const total = w1 * p + w0 * (1 - p);
  return w0 !== w1 && total > 0 ? (w1 * p) / total : p;
}

const count = (edges, x) => { // how many are at most x
  let low = 0, high = edges.length;
  for (let middle; low < high; ) edges[(middle = (low + high) >> 1)] <= x ? (low = middle + 1) : (high = middle);
  return low;
};
