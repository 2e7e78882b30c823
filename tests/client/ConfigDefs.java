import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints what Kafka says about each setting of its clients: one line a key, split by tabs. */
public class ConfigDefs {
    public static void main(String[] arguments) {
        print("producer", ProducerConfig.configDef());
        print("consumer", ConsumerConfig.configDef());
        print("admin", AdminClientConfig.configDef());
    }

    private static void print(String kind, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            String value = key.hasDefault()
                ? String.valueOf(ConfigDef.convertToString(key.defaultValue, key.type))
                : "required";
            System.out.println(String.join("\t", kind, key.name,
                key.type.toString().toLowerCase(), value, String.valueOf(key.validator)));
        }
    }
}
