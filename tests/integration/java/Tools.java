import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in this JVM: to start one for each would take most of the time.
 *
 * <p>Reads one command a line: the class name, what it reads from standard input, and its arguments, each in base64,
 * separated by spaces. Prints one line for each: the exit status and what the tool printed, in base64. Ends with its input.
 */
public final class Tools {
    /** Thrown where a tool would end the JVM. */
    static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    static final PrintStream NOWHERE = new PrintStream(OutputStream.nullOutputStream());
    static int firstStatus;

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            if (firstStatus < 0) { // some tools catch what is thrown here, complain, and leave again
                firstStatus = status;
                System.setOut(NOWHERE);
                System.setErr(NOWHERE);
            }
            throw new Exited();
        });
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] parts = Arrays.stream(line.split(" ")).map(Tools::decoded).toArray(String[]::new);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(printed, true, "UTF-8");
            System.setIn(new ByteArrayInputStream(parts[1].getBytes(StandardCharsets.UTF_8)));
            System.setOut(out);
            System.setErr(out);
            setScalaOut(out);
            int status = run(parts[0], Arrays.copyOfRange(parts, 2, parts.length), out);
            out.flush();
            answers.println(status + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
        Exit.resetExitProcedure();
        Runtime.getRuntime().halt(0);
    }

    /** Tools in Scala print to what was System.out when the first of them ran. */
    static void setScalaOut(PrintStream out) throws Exception {
        Class<?> console = Class.forName("scala.Console$");
        Method setOut = console.getDeclaredMethod("setOutDirect", PrintStream.class);
        setOut.setAccessible(true);
        setOut.invoke(console.getField("MODULE$").get(null), out);
    }

    static int run(String tool, String[] arguments, PrintStream out) throws Exception {
        firstStatus = -1;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                error.getCause().printStackTrace(out);
                return 1;
            }
        }
        return Math.max(firstStatus, 0);
    }

    static String decoded(String part) {
        return new String(Base64.getDecoder().decode(part.substring(1)), StandardCharsets.UTF_8);
    }
}
