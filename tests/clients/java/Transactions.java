import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Producers that each make some transactions without a pause: one record "ID NUMBER", and the
 * offset NUMBER of the group ID in the topic, which is sent first by each second producer.
 *
 * Arguments: bootstrap servers, topic, number of producers, number of transactions of each.
 */
public class Transactions {
    public static void main(String[] args) {
        String topic = args[1];
        int count = Integer.parseInt(args[3]);
        for (int name = 0; name < Integer.parseInt(args[2]); name++) {
            String id = "id-" + name;
            Properties settings = new Properties();
            settings.put("bootstrap.servers", args[0]);
            settings.put("transactional.id", id);
            try (var producer =
                    new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                producer.initTransactions();
                for (int number = 0; number < count; number++) {
                    producer.beginTransaction();
                    var record = new ProducerRecord<String, String>(topic, 0, null, id + " " + number);
                    if (name % 2 == 1)
                        producer.send(record);
                    producer.sendOffsetsToTransaction(
                            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number)),
                            new ConsumerGroupMetadata(id));
                    if (name % 2 == 0)
                        producer.send(record);
                    producer.commitTransaction();
                }
            }
        }
    }
}
