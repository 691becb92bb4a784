import java.util.*;

/** A map of streamcal, parsed from its JSON. */
record RecalibrationMap(double[] edges, double[] values, double[] knots, double[] y, double[] weights) {
  RecalibrationMap(Map<?, ?> json) {
    this(numbers(json, "edges"), numbers(json, "values"), numbers(json, "knots"), numbers(json, "log_odds"), numbers(json, "weights"));
    if (!Double.valueOf(2).equals(json.get("format"))) throw new IllegalArgumentException("not format 2: " + json.get("format"));
  }
  private static double[] numbers(Map<?, ?> json, String name) { return Json.numbers(json.get(name)); }
  static double checked(double score) {
    if (!(score >= -1e-6 && score <= 1 + 1e-6)) throw new IllegalArgumentException("score " + score + ": a score is from 0 to 1");
    return Math.min(Math.max(score, 0.0), 1.0); // what is beyond is rounding
  }
  double probability(double score) {
    double p = score = checked(score), end = Math.scalb(1.0, -40), z = Math.min(Math.max(score, end), 1 - end), x = Math.log(z / (1 - z));
    int k = count(knots, x), at = Math.max(k - 1, 0);
    double slope = k == 0 || k == knots.length ? 0 : (y[k] - y[at]) / (knots[k] - knots[at]);
    if (knots.length > 0) p = 1 / (1 + Math.exp(-(y[at] + (x - knots[at]) * slope)));
    if (values.length > 0) p = values[Math.min(count(edges, score), values.length) - 1];
    double total = weights[1] * p + weights[0] * (1 - p);
    return weights[0] != weights[1] && total > 0 ? weights[1] * p / total : p;
  }
  private static int count(double[] sorted, double x) { // how many are at most x
    int at = Arrays.binarySearch(sorted, x);
    return at < 0 ? -at - 1 : at + 1;
  }
}
