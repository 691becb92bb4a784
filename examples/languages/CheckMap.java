import java.nio.file.*;
import java.util.*;

/** Compare the readers with test vectors: `javac *.java && java CheckMap maps.json`, or `class-maps.json`. */
class CheckMap {
  public static void main(String[] files) throws java.io.IOException {
    double off = 0;
    int answers = 0;
    for (var each : (List<?>) Json.parse(Files.readString(Path.of(files[0])))) {
      var one = (Map<?, ?>) each;
      var json = (Map<?, ?>) one.get("map");
      List<?> scores = (List<?>) one.get("scores"), expected = (List<?>) one.get("answers");
      var many = json.containsKey("classes") ? new ClassMap(json) : null;
      var single = many == null ? new RecalibrationMap(json) : null;
      for (int i = 0; i < scores.size(); i++) {
        double[] found = many == null ? new double[] {single.probability((Double) scores.get(i))} : many.probabilities(Json.numbers(scores.get(i)));
        double[] wanted = many == null ? new double[] {(Double) expected.get(i)} : Json.numbers(expected.get(i));
        for (int k = 0; k < wanted.length; k++, answers++) off = Math.max(off, Math.abs(found[k] - wanted[k]));
      }
    }
    System.out.println(answers + " answers, off by at most " + off);
  }
}
