import java.io.FileOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group that reads until SIGTERM and writes its history, in the lines of
 * tests/support/members/history.py.
 *
 * Arguments: topic, history file, commit (auto, sync or async), then settings as key=value.
 */
public class GroupMember {
    private final PrintStream history;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private volatile boolean stopping;

    private GroupMember(String file, Properties settings) throws Exception {
        history = new PrintStream(new FileOutputStream(file, true), false);
        var bytes = new ByteArrayDeserializer();
        consumer = new KafkaConsumer<>(settings, bytes, bytes);
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", Boolean.toString(args[2].equals("auto")));
        settings.put("auto.commit.interval.ms", "200");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.ms", "20");
        settings.put("fetch.max.wait.ms", "100");
        for (int at = 3; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        var member = new GroupMember(args[1], settings);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.stopping = true;
            try {
                main.join(20_000);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        member.run(args[0], args[2]);
    }

    private synchronized void tell(String lines) {
        history.print(lines + "\n");
        history.flush();
    }

    private void tell(String event, Collection<TopicPartition> parts) {
        tell(event + " " + parts.stream().map(part -> Integer.toString(part.partition()))
                .collect(Collectors.joining(",")));
    }

    private void run(String topic, String commit) {
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> parts) {
                tell("assigned", parts);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> parts) {
                tell("revoked", parts);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> parts) {
                tell("lost", parts);
            }
        });
        try {
            while (!stopping) {
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                StringBuilder seen = new StringBuilder();
                for (var record : consumer.poll(Duration.ofMillis(50))) {
                    seen.append(seen.length() == 0 ? "" : "\n");
                    seen.append("seen ").append(record.partition()).append(' ');
                    seen.append(record.offset());
                    next.put(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                if (!next.isEmpty()) {
                    tell(seen.toString());
                    commit(commit, next);
                }
            }
        } catch (WakeupException | FencedInstanceIdException e) {
            tell("fatal " + e.getClass().getSimpleName());
        }
        consumer.close();
        tell("left");
    }

    private void commit(String how, Map<TopicPartition, OffsetAndMetadata> next) {
        if (how.equals("async")) {
            consumer.commitAsync(next, (offsets, error) -> answered(offsets, error));
        } else if (how.equals("sync")) {
            try {
                consumer.commitSync(next, Duration.ofSeconds(5));
                answered(next, null);
            } catch (FencedInstanceIdException e) {
                throw e;
            } catch (KafkaException e) {
                answered(next, e);
            }
        }
    }

    private void answered(Map<TopicPartition, OffsetAndMetadata> offsets, Exception error) {
        if (error != null) {
            tell("refused " + error.getClass().getSimpleName());
            return;
        }
        tell("committed " + offsets.entrySet().stream()
                .map(entry -> entry.getKey().partition() + ":" + entry.getValue().offset())
                .collect(Collectors.joining(",")));
    }
}
