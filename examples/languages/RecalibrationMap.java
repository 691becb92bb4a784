import java.util.*;
import java.util.regex.*;

/** A map of streamcal, read from its JSON. A map nests nothing, so this needs no parser. */
record RecalibrationMap(String json, double[] edges, double[] values, double[] knots, double[] y, double[] weights) {
  RecalibrationMap(String json) {
    this(json, list(json, "edges"), list(json, "values"), list(json, "knots"), list(json, "log_odds"), list(json, "weights"));
    if (!Pattern.compile("\"format\"\\s*:\\s*2\\b").matcher(json).find()) throw new IllegalArgumentException("not format 2: " + json);
  }
  static double[] list(String json, String name) {
    var numbers = json.replaceFirst("(?s)^.*\"" + name + "\"\\s*:\\s*\\[([^\\]]*)\\].*$", "$1").split(",");
    return Arrays.stream(numbers).filter(each -> !each.isBlank()).mapToDouble(Double::parseDouble).toArray();
  }
  double probability(double score) {
    if (!(score >= 0 && score <= 1)) throw new IllegalArgumentException("score " + score + ": a score is from 0 to 1");
    double p = score, end = Math.scalb(1.0, -40), z = Math.min(Math.max(score, end), 1 - end), x = Math.log(z / (1 - z));
    int k = count(knots, x), at = Math.max(k - 1, 0);
    double slope = k == 0 || k == knots.length ? 0 : (y[k] - y[at]) / (knots[k] - knots[at]);
    if (knots.length > 0) p = 1 / (1 + Math.exp(-(y[at] + (x - knots[at]) * slope)));
    if (values.length > 0) p = values[Math.min(count(edges, score + 0.0), values.length) - 1];
    double total = weights[1] * p + weights[0] * (1 - p);
    return weights[0] != weights[1] && total > 0 ? weights[1] * p / total : p;
  }
  static int count(double[] sorted, double x) { // how many are at most x
    int at = Arrays.binarySearch(sorted, x);
    return at < 0 ? -at - 1 : at + 1;
  }
}
