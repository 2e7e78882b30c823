import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads a topic in a group and writes each record to another, in transactions that take the offsets
 * along. Each third transaction is aborted and done again. Ends when it has committed so many records.
 *
 * Arguments: bootstrap servers, source, sink, group, transactional id, number of records.
 */
public class Copier {
    public static void main(String[] args) {
        try (var consumer = consumer(args[0], args[3]); var producer = producer(args[0], args[4])) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            int left = Integer.parseInt(args[5]);
            int aborted = 0;
            for (int turn = 1; left > 0; turn++) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) continue;
                boolean abort = turn % 3 == 0;
                if (copy(consumer, producer, records, args[2], abort)) {
                    left -= records.count();
                } else {
                    aborted++;
                    rewind(consumer);
                }
            }
            System.out.println("copied " + args[5] + (aborted > 0 ? " aborting" : ""));
        }
    }

    private static boolean copy(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> records,
            String sink,
            boolean abort) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(sink, record.key(), record.value()));
                offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (abort) {
                producer.abortTransaction();
                return false;
            }
            commit(producer);
            return true;
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (InvalidProducerEpochException fenced) { // apart: their parents differ by version
            throw fenced;
        } catch (KafkaException failed) {
            producer.abortTransaction();
            return false;
        }
    }

    private static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException again) {
                System.err.println(again);
            }
        }
    }

    /** Back to what is committed, as who aborts has to. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        var committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(partition);
            consumer.seek(partition, found == null ? 0 : found.offset());
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "100");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("delivery.timeout.ms", "60000");
        settings.put("transaction.timeout.ms", "60000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }
}
