import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/**
 * A line of standard input is a text of sasl.jaas.config (UTF-16, hex). Prints module, keys and
 * values as hex with spaces between them, or "refused".
 */
public class Jaas {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(read(unhex(line)));
        }
    }

    private static String read(String text) {
        JaasContext context;
        try {
            context = JaasContext.loadClientContext(
                Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(text)));
        } catch (IllegalArgumentException error) {
            return "refused";
        }
        var entry = context.configurationEntries().get(0);
        var words = new StringBuilder(hex(entry.getLoginModuleName()));
        if (entry.getOptions().containsKey(null)) {
            return "nameless";
        }
        for (var option : new TreeMap<String, Object>(entry.getOptions()).entrySet()) {
            words.append(' ').append(hex(option.getKey()));
            words.append(' ').append(hex((String) option.getValue()));
        }
        return words.toString();
    }

    private static String unhex(String line) {
        return new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_16BE);
    }

    private static String hex(String text) {
        return "x" + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
