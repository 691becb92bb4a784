import java.util.*;

/** JSON as Map, List, String, Double, Boolean and null. The text is taken to be well formed. */
final class Json {
  private final String text;
  private int at;

  private Json(String text) { this.text = text; }

  static Object parse(String text) { return new Json(text).value(); }

  static double[] numbers(Object list) { return ((List<?>) list).stream().mapToDouble(each -> (Double) each).toArray(); }

  private char next() { // the next character but for spaces, which is not passed
    while (Character.isWhitespace(text.charAt(at))) at++;
    return text.charAt(at);
  }

  private Object value() {
    if (next() == ',' || next() == ':') at++;
    char first = next();
    int start = at++;
    if (first == '{') {
      var map = new HashMap<Object, Object>();
      while (next() != '}') map.put(value(), value());
      at++;
      return map;
    }
    if (first == '[') {
      var list = new ArrayList<Object>();
      while (next() != ']') list.add(value());
      at++;
      return list;
    }
    if (first == '"') {
      var made = new StringBuilder();
      for (char c; (c = text.charAt(at++)) != '"'; made.append(c)) {
        if (c != '\\') continue;
        int place = "bfnrt".indexOf(c = text.charAt(at++));
        if (place >= 0) c = "\b\f\n\r\t".charAt(place);
        if (c == 'u') c = (char) Integer.parseInt(text.substring(at, at += 4), 16);
      }
      return made.toString();
    }
    while (at < text.length() && ",]}".indexOf(text.charAt(at)) < 0 && !Character.isWhitespace(text.charAt(at))) at++;
    var word = text.substring(start, at);
    return switch (word) { case "null" -> null; case "true" -> Boolean.TRUE; case "false" -> Boolean.FALSE; default -> Double.valueOf(word); };
  }
}
