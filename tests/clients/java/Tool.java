import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.TransactionsCommand;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/**
 * Kafka's ConsumerGroupCommand ("groups") or TransactionsCommand ("transactions"), several times in
 * one JVM: a line of standard input is a command, its words parted by tabs; after what it says comes
 * a line "-- STATUS".
 *
 * Argument: which.
 */
public class Tool {
    private static final class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        PrintStream out = System.out;
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            var said = new ByteArrayOutputStream();
            System.setOut(new PrintStream(said, true));
            System.setErr(System.out);
            int status = 0;
            try {
                if (args[0].equals("transactions"))
                    TransactionsCommand.main(line.split("\t"));
                else
                    ConsumerGroupCommand.main(line.split("\t"));
            } catch (Ended ended) {
                status = ended.status;
            }
            System.out.flush();
            out.print(said);
            out.print("\n-- " + status + "\n");
            out.flush();
        }
    }
}
