import java.io.FileInputStream;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Logs in with the settings of each file, sends and reads, with the first for so long over the same
 * connections, and prints a line for each file: "ok", or the class of what went wrong.
 *
 * Arguments: topic of one partition, milliseconds, files.
 */
public class Login {
    public static void main(String[] args) throws Exception {
        for (int at = 2; at < args.length; at++) {
            Properties settings = new Properties();
            try (var file = new FileInputStream(args[at])) {
                settings.load(file);
            }
            settings.put("delivery.timeout.ms", "60000");
            settings.put("request.timeout.ms", "30000");
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "earliest");
            System.out.println(judge(settings, args[0], at == 2 ? Long.parseLong(args[1]) : 0));
        }
    }

    private static String judge(Properties settings, String topic, long milliseconds) {
        long until = System.currentTimeMillis() + milliseconds;
        try (var producer =
                        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(
                        settings, new StringDeserializer(), new StringDeserializer())) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            do {
                long offset = producer.send(new ProducerRecord<>(topic, "a value")).get().offset();
                consumer.seek(partition, offset);
                long read = 0;
                long deadline = System.currentTimeMillis() + 60000;
                while (read == 0 && System.currentTimeMillis() < deadline)
                    read = consumer.poll(Duration.ofMillis(500)).count();
                if (read == 0)
                    return "nothing read";
            } while (System.currentTimeMillis() < until);
        } catch (Exception error) {
            Throwable why = error.getCause() != null ? error.getCause() : error;
            return why.getClass().getSimpleName();
        }
        return "ok";
    }
}
