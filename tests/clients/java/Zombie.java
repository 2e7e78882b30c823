import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a producer is told at each step after another one has taken its transactional id: a line
 * "CASE STEP CLASS", the class being that of the innermost cause, "ok" where nothing was thrown.
 *
 * Arguments: bootstrap servers, topic, the beginning of transactional ids.
 */
public class Zombie {
    private interface Step {
        void run(KafkaProducer<String, String> zombie) throws Exception;
    }

    private final String bootstrap;
    private final String topic;

    private Zombie(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] args) {
        Zombie all = new Zombie(args[0], args[1]);
        all.fenced("commit", args[2], all::send, KafkaProducer::commitTransaction);
        all.fenced("abort", args[2], all::send, KafkaProducer::abortTransaction);
        all.fenced("send", args[2], all::send, all::send);
        all.fenced("first-send", args[2], zombie -> {}, all::send);
        all.fenced("offsets", args[2], all::send, all::offsets);
    }

    private void fenced(String name, String prefix, Step before, Step after) {
        String id = prefix + "-" + name;
        try (var zombie = producer(id); var heir = producer(id)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            run(name, "before", zombie, before);
            heir.initTransactions();
            run(name, "after", zombie, after);
            run(name, "commit", zombie, KafkaProducer::commitTransaction);
            run(name, "abort", zombie, KafkaProducer::abortTransaction);
            heir.beginTransaction();
            run(name, "heir", heir, this::send);
            run(name, "heir-commit", heir, KafkaProducer::commitTransaction);
            zombie.close(Duration.ZERO);
        }
    }

    private void run(String name, String step, KafkaProducer<String, String> producer, Step what) {
        String told = "ok";
        try {
            what.run(producer);
        } catch (Exception failed) {
            Throwable cause = failed;
            while (cause.getCause() != null)
                cause = cause.getCause();
            told = cause.getClass().getSimpleName();
        }
        System.out.println(name + " " + step + " " + told);
    }

    private void send(KafkaProducer<String, String> producer) throws Exception {
        producer.send(new ProducerRecord<>(topic, 0, null, "value")).get();
    }

    private void offsets(KafkaProducer<String, String> producer) {
        producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)),
                new ConsumerGroupMetadata(topic));
    }

    private KafkaProducer<String, String> producer(String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", "60000");
        settings.put("linger.ms", "0");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }
}
