// Apply a map of streamcal, parsed from its JSON: to the score of one class, or to those of many classes.
export function probability(map, score) {
  if (map.format !== 2) throw new Error(`map of format ${map.format}: this file reads format 2`);
  score = checked(score);
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

export function probabilities(map, scores) {
  if (map.format !== 1) throw new Error(`map of classes of format ${map.format}: this file reads format 1`);
  const { classes, candidates, maps, shared, source_maps: sources } = map, z = scores.map(checked);
  if (z.length !== classes.length || Math.abs(sum(scores) - 1) > 1e-6) throw new Error(`scores ${scores}: ${classes.length} numbers sum to 1`);
  const mapped = (maps, instead) => z.map((score, k) => (maps[k] ? probability(maps[k], score) : instead[k]));
  let p = mapped(maps, z);
  if (z.length === 2) p[0] = 1 - p[1];
  else {
    const x = logs(z), scalings = new Map();
    for (const { kind, name, parameters } of candidates) if (kind === "scaling") scalings.set(name, scaled(x, parameters));
    const byMaps = maps.length ? shares(mapped(maps, shared === null ? z : scalings.get(shared)), z) : z;
    const bySource = sources.length ? shares(mapped(sources, z), z) : z;
    const made = candidates.map(({ kind, name, parameters: w }) => {
      if (kind === "scaling") return scalings.get(name);
      if (kind === "scaling of maps") return scaled(logs(byMaps), w);
      if (kind === "shift") return w.length ? shares(bySource.map((each, k) => each * w[k]), bySource) : bySource;
      return kind === "maps" ? byMaps : z;
    });
    const mixed = () => shares(z.map((_, k) => sum(candidates.map(({ weight }, m) => weight * made[m][k]))), z);
    p = made.length === 1 ? made[0] : mixed();
  }
  return map.keeps_order ? ordered(p, z) : p;
}

const checked = (score) => {
  if (!(score >= -1e-6 && score <= 1 + 1e-6)) throw new Error(`score ${score}: a score is a number from 0 to 1`);
  return Math.min(Math.max(score, 0), 1); // what is beyond is rounding
};
const count = (edges, x) => { // how many are at most x
  let low = 0, high = edges.length;
  for (let middle; low < high; ) edges[(middle = (low + high) >> 1)] <= x ? (low = middle + 1) : (high = middle);
  return low;
};
const sum = (row) => row.reduce((total, each) => total + each, 0);
const logs = (row) => row.map((each) => Math.log(Math.max(each, 1e-9)));
const shares = (row, instead) => { // divided by their sum
  const total = sum(row);
  return total > 0 ? row.map((each) => each / total) : instead;
};
const scaled = (x, numbers) => { // softmax(a·x + b): a is one number, or one a class, or a matrix
  const classes = x.length, b = numbers.slice(-classes), a = numbers.slice(0, -classes), mean = sum(x) / classes;
  const matrix = a.length > classes, along = (k) => sum(x.map((each, j) => a[k * classes + j] * (each - mean)));
  const y = b.map((each, k) => each + (matrix ? along(k) : x[k] * a[a.length > 1 ? k : 0])), most = Math.max(...y);
  return shares(y.map((each) => Math.exp(each - most)), y);
};
const ordered = (p, scores) => { // the class with the highest score is made the most probable one
  const top = scores.indexOf(Math.max(...scores));
  if (p.indexOf(Math.max(...p)) === top) return p;
  let total = p[top], level = total;
  p.filter((_, k) => k !== top).sort((a, b) => b - a).forEach((each, i) => (level = Math.max(level, (total += each) / (i + 2))));
  return p.map((each, k) => (k === top ? level * (1 + 2 ** -52) : Math.min(each, level)));
};
