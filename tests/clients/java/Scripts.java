import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Main methods, one after another in one JVM, whose start takes longer than most of them.
 *
 * A line of standard input is a command: the class, its standard input and its arguments, each in
 * base64, separated by blanks. A line of standard output is the result: exit status, standard output
 * and standard error. Output after the first exit of a command is dropped.
 */
public final class Scripts {
    private static final class Ended extends Error {
        Ended() {
            super("exit", null, false, false);
        }
    }

    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static String ended;

    private Scripts() {
    }

    private static String told(int status) {
        System.out.flush();
        System.err.flush();
        Base64.Encoder encoder = Base64.getEncoder();
        return status + " " + encoder.encodeToString(OUT.toByteArray())
            + " " + encoder.encodeToString(ERR.toByteArray());
    }

    private static void end(int status) {
        if (ended == null)
            ended = told(status);
        throw new Ended();
    }

    private static void fail(Throwable failure) {
        failure.printStackTrace();
        if (ended == null)
            ended = told(1);
    }

    private static void run(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended))
                fail(failure.getCause());
        } catch (ReflectiveOperationException failure) {
            fail(failure);
        }
        for (Runnable hook : HOOKS)
            hook.run();
        if (ended == null)
            ended = told(0);
    }

    public static void main(String[] none) throws Exception {
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = System.out;
        InputStream input = System.in;
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            String[] words = Arrays.stream(line.split(" ", -1))
                .map(word -> new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8))
                .toArray(String[]::new);
            OUT.reset();
            ERR.reset();
            HOOKS.clear();
            ended = null;
            System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
            run(words[0], Arrays.copyOfRange(words, 2, words.length));
            System.setIn(input);
            answers.println(ended);
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // threads that a command left do not keep the JVM
    }
}
