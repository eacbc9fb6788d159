import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after another, because a JVM takes longer to start than most of them run. A line of JSON
 * on stdin, ["class", "argument", ...], runs the main method of that class, and is answered by one line: the exit status,
 * what the tool wrote to stdout and to stderr, in base64, and "more" or "last". A tool that leaves a client running is the
 * last one, because that client would write to the stderr of others once its broker stops.
 */
public class Tools {
  /** The first status with which the present tool has exited: some catch even Exited, and exit with 1. */
  private static Integer exited;

  /** The end of a tool that exits; not an exception, which the tool might catch. */
  private static final class Exited extends Error {
    Exited(int status) {
      super(null, null, false, false);
      if (exited == null) exited = status;
    }
  }

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream answers = System.out;
    ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
    System.setOut(new PrintStream(out, true));
    System.setErr(new PrintStream(err, true));
    Exit.setExitProcedure((status, message) -> { throw new Exited(status); });
    Exit.setHaltProcedure((status, message) -> { throw new Exited(status); });
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode words = new ObjectMapper().readTree(line);
      String[] arguments = new String[words.size() - 1];
      for (int n = 0; n < arguments.length; n++) arguments[n] = words.get(n + 1).asText();
      int status = run(Class.forName(words.get(0).asText()).getMethod("main", String[].class), arguments);
      boolean isLast = Thread.getAllStackTraces().keySet().stream().anyMatch(each -> each.getName().startsWith("kafka-"));
      answers.println(status + " " + base64(out) + " " + base64(err) + " " + (isLast ? "last" : "more"));
      answers.flush();
      if (isLast) Runtime.getRuntime().halt(0);
      out.reset();
      err.reset();
    }
  }

  /** The exit status; like a JVM, it prints an exception that the tool does not catch, and returns 1. */
  private static int run(Method main, String[] arguments) throws IllegalAccessException {
    exited = null;
    try {
      main.invoke(null, (Object) arguments);
      return exited == null ? 0 : exited;
    } catch (InvocationTargetException e) {
      if (e.getCause() instanceof Exited) return exited;
      System.err.print("Exception in thread \"main\" ");
      e.getCause().printStackTrace();
      return 1;
    }
  }

  private static String base64(ByteArrayOutputStream bytes) { return Base64.getEncoder().encodeToString(bytes.toByteArray()); }
}
