import java.io.FileReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends records through the idempotent producer with acks=all, and reads them back with a consumer
 * that is assigned to all partitions. Prints one line when each record came back once, in the order
 * of its partition, with its header and at the offset that the producer was told.
 *
 * Arguments: bootstrap servers, topic, partitions, number of records, codec, and a file of further
 * settings where there are some.
 */
public class RoundTrip {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[3]);
        Properties further = new Properties();
        if (args.length > 5) {
            try (var file = new FileReader(args[5])) {
                further.load(file);
            }
        }
        Map<String, Long> told = send(further, bootstrap, topic, count, args[4]);
        long read = receive(further, bootstrap, topic, partitions, told);
        System.out.println("sent " + count + " read " + read);
    }

    private static Map<String, Long> send(
            Properties further, String bootstrap, String topic, int count, String codec)
            throws Exception {
        Properties settings = new Properties();
        settings.putAll(further);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("compression.type", codec);
        settings.put("delivery.timeout.ms", "60000");
        Map<String, Long> told = new HashMap<>();
        try (var producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                var record = new ProducerRecord<>(topic, "key " + number % 50, "value " + number);
                record.headers().add("number", Integer.toString(number).getBytes());
                sent.add(producer.send(record));
            }
            for (int number = 0; number < count; number++) {
                RecordMetadata where = sent.get(number).get();
                told.put("value " + number, where.offset());
            }
        }
        return told;
    }

    private static long receive(
            Properties further,
            String bootstrap,
            String topic,
            int partitions,
            Map<String, Long> told) {
        Properties settings = new Properties();
        settings.putAll(further);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        long read = 0;
        try (var consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            Set<TopicPartition> parts = new HashSet<>();
            for (int index = 0; index < partitions; index++) {
                parts.add(new TopicPartition(topic, index));
            }
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts);
            Map<TopicPartition, Long> next = new HashMap<>(consumer.beginningOffsets(parts));
            long total = ends.values().stream().mapToLong(Long::longValue).sum();
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (read < total && System.nanoTime() < deadline) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    check(record, told, next);
                    read++;
                }
            }
            checkTimes(consumer, parts);
        }
        return read;
    }

    private static void check(
            ConsumerRecord<String, String> record,
            Map<String, Long> told,
            Map<TopicPartition, Long> next) {
        var part = new TopicPartition(record.topic(), record.partition());
        Long expected = told.remove(record.value());
        if (expected == null || expected != record.offset()) {
            throw new IllegalStateException(record + " was told to be at " + expected);
        }
        if (record.offset() != next.get(part)) {
            throw new IllegalStateException(record + " where " + next.get(part) + " was due");
        }
        String number = new String(record.headers().lastHeader("number").value());
        if (!record.value().equals("value " + number)) {
            throw new IllegalStateException(record + " with header " + number);
        }
        next.put(part, record.offset() + 1);
    }

    private static void checkTimes(
            KafkaConsumer<String, String> consumer, Set<TopicPartition> parts) {
        Map<TopicPartition, Long> asked = new HashMap<>();
        parts.forEach(part -> asked.put(part, 1L));
        for (OffsetAndTimestamp found : consumer.offsetsForTimes(asked).values()) {
            if (found != null && found.offset() != 0) {
                throw new IllegalStateException("the first record after 1970 is at " + found);
            }
        }
    }
}
