import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

/** A line of standard input is a name (DER, hex); prints getName() of each, as hex of UTF-8. */
public class Names {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String name = new X500Principal(HexFormat.of().parseHex(line)).getName();
            byte[] told = name.getBytes(StandardCharsets.UTF_8);
            System.out.println(HexFormat.of().formatHex(told));
        }
    }
}
