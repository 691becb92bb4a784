import java.nio.file.*;

/** Compare the reader with the test vectors: `javac *.java && java CheckMap maps.json`. */
class CheckMap {
  public static void main(String[] files) throws java.io.IOException {
    double off = 0;
    int answers = 0;
    for (var line : Files.readAllLines(Path.of(files[0]))) {
      if (line.length() < 2) continue;
      double[] scores = RecalibrationMap.list(line, "scores"), expected = RecalibrationMap.list(line, "answers");
      for (int i = 0; i < scores.length; i++, answers++)
        off = Math.max(off, Math.abs(new RecalibrationMap(line).probability(scores[i]) - expected[i]));
    }
    System.out.println(answers + " answers, off by at most " + off);
  }
}
