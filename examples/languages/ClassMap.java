import java.util.*;
import java.util.function.IntToDoubleFunction;
import java.util.stream.IntStream;

/** A map of many classes of streamcal, parsed from its JSON. */
record ClassMap(int classes, List<Candidate> candidates, List<RecalibrationMap> maps, List<RecalibrationMap> sources, String shared, boolean keepsOrder) {
  record Candidate(String name, double weight, String kind, double[] parameters) {
    Candidate(Map<?, ?> json) {
      this((String) json.get("name"), (Double) json.get("weight"), (String) json.get("kind"), Json.numbers(json.get("parameters")));
    }
  }

  ClassMap(Map<?, ?> json) {
    this(((List<?>) json.get("classes")).size(), ((List<?>) json.get("candidates")).stream().map(each -> new Candidate((Map<?, ?>) each)).toList(),
        maps(json.get("maps")), maps(json.get("source_maps")), (String) json.get("shared"), (Boolean) json.get("keeps_order"));
    if (!Double.valueOf(1).equals(json.get("format"))) throw new IllegalArgumentException("not format 1: " + json.get("format"));
  }

  private static List<RecalibrationMap> maps(Object list) {
    var made = new ArrayList<RecalibrationMap>(); // null is allowed in it
    for (var each : (List<?>) list) made.add(each == null ? null : new RecalibrationMap((Map<?, ?>) each));
    return made;
  }

  double[] probabilities(double[] scores) {
    if (scores.length != classes || !(Math.abs(sum(scores) - 1) <= 1e-6)) throw new IllegalArgumentException(classes + " scores sum to 1: " + Arrays.toString(scores));
    double[] z = row(k -> RecalibrationMap.checked(scores[k])), p;
    if (classes == 2) {
      double second = maps.get(1).probability(z[1]);
      p = new double[] {1 - second, second};
    } else {
      var scalings = new HashMap<String, double[]>();
      for (var each : candidates) if (each.kind.equals("scaling")) scalings.put(each.name, scaled(z, each.parameters));
      double[] byMaps = maps.isEmpty() ? z : shares(mapped(maps, z, shared == null ? z : scalings.get(shared)), z);
      double[] bySource = sources.isEmpty() ? z : shares(mapped(sources, z, z), z);
      double[] mixed = p = new double[classes];
      for (var each : candidates) {
        double[] w = each.parameters, made = switch (each.kind) {
          case "score" -> z;
          case "maps" -> byMaps;
          case "scaling" -> scalings.get(each.name);
          case "scaling of maps" -> scaled(byMaps, w);
          case "shift" -> w.length == 0 ? bySource : shares(row(k -> bySource[k] * w[k]), bySource);
          default -> throw new IllegalArgumentException("candidate of kind " + each.kind);
        };
        for (int k = 0; k < classes; k++) mixed[k] += (candidates.size() == 1 ? 1 : each.weight) * made[k];
      }
      if (candidates.size() > 1) p = shares(mixed, z);
    }
    return keepsOrder ? ordered(p, z) : p;
  }

  private double[] row(IntToDoubleFunction of) { return IntStream.range(0, classes).mapToDouble(of).toArray(); }

  private static double sum(double[] row) {
    double total = 0;
    for (double each : row) total += each;
    return total;
  }

  private static int largest(double[] row) {
    int place = 0;
    for (int k = 1; k < row.length; k++) if (row[k] > row[place]) place = k;
    return place;
  }

  private double[] mapped(List<RecalibrationMap> maps, double[] z, double[] instead) {
    return row(k -> maps.get(k) == null ? instead[k] : maps.get(k).probability(z[k]));
  }

  private double[] shares(double[] row, double[] instead) { // divided by their sum
    double total = sum(row);
    return total > 0 ? row(k -> row[k] / total) : instead;
  }

  private double[] scaled(double[] p, double[] numbers) { // softmax(a·x + b): a is one number, or one a class, or a matrix
    int slopes = numbers.length - classes;
    double[] x = row(k -> Math.log(Math.max(p[k], 1e-9)));
    double mean = sum(x) / classes;
    double[] y = row(k -> numbers[slopes + k] + (slopes <= classes ? x[k] * numbers[slopes > 1 ? k : 0]
        : sum(row(j -> numbers[k * classes + j] * (x[j] - mean)))));
    double most = y[largest(y)];
    return shares(row(k -> Math.exp(y[k] - most)), y);
  }

  private double[] ordered(double[] p, double[] scores) { // the class with the highest score is made the most probable one
    int top = largest(scores);
    if (largest(p) == top) return p;
    double[] falling = IntStream.range(0, classes).filter(k -> k != top).mapToDouble(k -> -p[k]).sorted().toArray();
    double total = p[top], most = total;
    for (int i = 0; i < falling.length; i++) most = Math.max(most, (total -= falling[i]) / (i + 2));
    double level = most;
    return row(k -> k == top ? level * (1 + Math.ulp(1.0)) : Math.min(p[k], level));
  }
}
