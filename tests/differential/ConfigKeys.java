import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints what Apache Kafka says about each config key: one line a key, fields split by tabs. */
public class ConfigKeys {
    public static void main(String[] arguments) {
        print("broker", kafka.server.KafkaConfig$.MODULE$.configDef(),
              DynamicBrokerConfig.dynamicConfigUpdateModes());
        print("topic", LogConfig.configDefCopy(), Map.of());
        print("group", GroupConfig.CONFIG_DEF, Map.of());
    }

    private static void print(String kind, ConfigDef definitions, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            String value = key.hasDefault()
                ? String.valueOf(ConfigDef.convertToString(key.defaultValue, key.type))
                : "required";
            System.out.println(String.join("\t", kind, key.name, key.type.toString(), value,
                String.valueOf(key.validator), key.importance.toString().toLowerCase(),
                modes.getOrDefault(key.name, "read-only"), String.valueOf(key.internalConfig)));
        }
    }
}
