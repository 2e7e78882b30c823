import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A consumer that reads until its stdin ends, commits what it read and leaves. It prints a line
 * for what it owns whenever that changes, and one for every value that it reads.
 *
 * Arguments: a topic, or a regular expression after "~"; then settings as key=value.
 */
public class Subscriber {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "500");
        for (int at = 1; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, text, text)) {
            var listener = new ConsumerRebalanceListener() {
                final TreeSet<String> owned = new TreeSet<>();

                void tell() {
                    System.out.println("owns " + String.join(" ", owned));
                }

                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    partitions.forEach(one -> owned.add(one.toString()));
                    tell();
                }

                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    consumer.commitSync();
                    partitions.forEach(one -> owned.remove(one.toString()));
                    tell();
                }

                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    partitions.forEach(one -> owned.remove(one.toString()));
                    tell();
                }
            };
            if (args[0].startsWith("~")) {
                consumer.subscribe(new SubscriptionPattern(args[0].substring(1)), listener);
            } else {
                consumer.subscribe(List.of(args[0]), listener);
            }
            for (var committed = false; !committed; ) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("read " + record.value());
                }
                committed = System.in.available() > 0 && commits(consumer);
            }
        }
        System.out.println("left");
    }

    /** Whether it could: not in the middle of a rebalance, which poll() brings to its end. */
    static boolean commits(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
            return true;
        } catch (RebalanceInProgressException e) {
            return false;
        }
    }
}
