import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A teller of the bank (tests/txn/bank.py has the topics and the history).
 *
 * Arguments: bootstrap servers, number, history.
 */
public class Teller {
    private static final int TELLERS = 2;
    private static final int PARTITIONS = 3;

    private final String bootstrap;
    private final int number;
    private final Path history;
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> orders;
    private final TopicPartition source;
    private Map<Integer, Integer> balances;
    private int turn;

    private Teller(String bootstrap, int number, Path history) {
        this.bootstrap = bootstrap;
        this.number = number;
        this.history = history;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", "teller-" + number);
        settings.put("transaction.timeout.ms", "60000");
        settings.put("reconnect.backoff.max.ms", "200");
        this.producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        this.orders = consumer("read_committed");
        this.source = new TopicPartition("orders", number);
    }

    public static void main(String[] args) throws IOException {
        Teller teller = new Teller(args[0], Integer.parseInt(args[1]), Path.of(args[2]));
        try {
            teller.run();
        } catch (KafkaException fatal) {
            teller.tell("fatal " + fatal.toString().replace("\n", " "));
            System.exit(3);
        }
    }

    private void tell(String line) throws IOException {
        Files.writeString(history, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private KafkaConsumer<String, String> consumer(String isolation) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", "tellers-" + number);
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "10");
        settings.put("reconnect.backoff.max.ms", "200");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private void run() throws IOException {
        patiently(() -> {
            producer.initTransactions();
            return null;
        });
        begin();
        while (true) {
            ConsumerRecords<String, String> records = orders.poll(Duration.ofMillis(200));
            if (!records.isEmpty()) serve(records);
        }
    }

    /** The balances and the place in the orders, as they are committed. */
    private void begin() throws IOException {
        balances = restored();
        tell("sum " + balances.values().stream().mapToInt(Integer::intValue).sum());
        OffsetAndMetadata found = patiently(() -> orders.committed(Set.of(source)).get(source));
        orders.assign(List.of(source));
        orders.seek(source, found == null ? 0 : found.offset());
    }

    /**
     * The balances. What this teller has committed may stand behind the beginning of another one's
     * open transaction, where no reader sees it yet; so the end is not the last stable offset of
     * the moment, but that of the log, and is waited for.
     */
    private Map<Integer, Integer> restored() {
        Map<Integer, Integer> found = new HashMap<>();
        List<TopicPartition> parts = new ArrayList<>();
        for (int n = 0; n < PARTITIONS; n++) parts.add(new TopicPartition("accounts", n));
        try (KafkaConsumer<String, String> reader = consumer("read_committed");
                KafkaConsumer<String, String> all = consumer("read_uncommitted")) {
            reader.assign(parts);
            reader.seekToBeginning(parts);
            Map<TopicPartition, Long> ends = patiently(() -> all.endOffsets(parts));
            while (parts.stream().anyMatch(one -> reader.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(200))) {
                    int account = Integer.parseInt(record.key());
                    if (account % TELLERS == number) {
                        found.put(account, Integer.parseInt(record.value().split(" ")[1]));
                    }
                }
            }
        }
        return found;
    }

    /** Some orders in one transaction; each seventh is aborted, and done again. */
    private void serve(ConsumerRecords<String, String> records) throws IOException {
        turn++;
        Map<Integer, Integer> after = new HashMap<>(balances);
        int first = -1;
        int last = -1;
        long following = 0;
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                String[] words = record.value().split(" ");
                last = Integer.parseInt(words[0]);
                if (first < 0) first = last;
                int amount = Integer.parseInt(words[3]);
                move(after, last, Integer.parseInt(words[1]), -amount);
                move(after, last, Integer.parseInt(words[2]), amount);
                following = record.offset() + 1;
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(source, new OffsetAndMetadata(following));
            producer.sendOffsetsToTransaction(offsets, orders.groupMetadata());
            if (turn % 7 == 0) {
                abort();
                return;
            }
            patiently(() -> {
                producer.commitTransaction();
                return null;
            });
        } catch (ProducerFencedException | InvalidProducerEpochException | AuthorizationException fatal) {
            throw fatal;
        } catch (KafkaException failed) {
            abort();
            return;
        }
        balances = after;
        tell("told " + first + " " + last);
    }

    private void move(Map<Integer, Integer> after, int order, int account, int amount) {
        int balance = after.merge(account, amount, Integer::sum);
        int to = account / TELLERS % PARTITIONS;
        String key = Integer.toString(account);
        producer.send(new ProducerRecord<>("accounts", to, key, order + " " + balance));
        producer.send(new ProducerRecord<>("ledger", to, key, number + " " + order + " " + balance));
    }

    /** Back to what is committed. */
    private void abort() throws IOException {
        patiently(() -> {
            producer.abortTransaction();
            return null;
        });
        begin();
    }

    private static <T> T patiently(Supplier<T> call) {
        long until = System.nanoTime() + 120_000_000_000L;
        while (true) {
            try {
                return call.get();
            } catch (RetriableException again) {
                if (System.nanoTime() > until) throw again;
            }
        }
    }
}
