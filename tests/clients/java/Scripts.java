import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's scripts, one after the other in one JVM, whose start takes longer than most of them.
 *
 * A line of standard input is a command: its name, its standard input and its arguments, each in
 * base64, with blanks between them. A line of standard output is its end: status, standard output
 * and standard error. What happens behind the first exit of a command does not count.
 */
public final class Scripts {
    private interface Main {
        void run(String[] arguments) throws Exception;
    }

    private static final class Ended extends Error {
        Ended() {
            super("exit", null, false, false);
        }
    }

    private static final Map<String, Main> MAINS = Map.of(
        "kafka-topics", org.apache.kafka.tools.TopicCommand::main,
        "kafka-configs", kafka.admin.ConfigCommand::main,
        "kafka-consumer-groups", org.apache.kafka.tools.consumer.group.ConsumerGroupCommand::main,
        "kafka-console-producer", org.apache.kafka.tools.ConsoleProducer::main,
        "kafka-console-consumer", org.apache.kafka.tools.consumer.ConsoleConsumer::main
    );

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

    private static void run(String name, String[] arguments) {
        try {
            MAINS.get(name).run(arguments);
        } catch (Ended done) {
            // it is noted already
        } catch (Throwable failure) {
            failure.printStackTrace();
            if (ended == null)
                ended = told(1);
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
    }
}
