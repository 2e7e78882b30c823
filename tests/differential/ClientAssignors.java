import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Apache Kafka's own client-side assignors.
 *
 * FILE: a JSON array of groups; prints an array with each one's answer: subscriptions as Kafka
 * writes them, and the assignments of all members, in Kafka's bytes.
 */
public class ClientAssignors {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (JsonNode one : JSON.readTree(Path.of(args[0]).toFile())) {
            answers.add(assign(one));
        }
        System.out.println(JSON.writeValueAsString(answers));
    }

    static Map<String, Object> assign(JsonNode group) {
        Map<String, ConsumerPartitionAssignor.Subscription> members = new HashMap<>();
        Map<String, String> written = new TreeMap<>();
        group.get("members").fields().forEachRemaining(member -> {
            byte[] bytes = Base64.getDecoder().decode(member.getValue().get("bytes").asText());
            var read = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(bytes));
            if (member.getValue().hasNonNull("instance")) {
                read.setGroupInstanceId(Optional.of(member.getValue().get("instance").asText()));
            }
            members.put(member.getKey(), read);
            written.put(member.getKey(), text(ConsumerProtocol.serializeSubscription(read)));
        });
        var given = assignor(group.get("assignor").asText())
            .assign(cluster(group.get("topics")), new ConsumerPartitionAssignor.GroupSubscription(members))
            .groupAssignment();
        Map<String, String> assigned = new TreeMap<>();
        given.forEach((id, one) -> assigned.put(id, text(ConsumerProtocol.serializeAssignment(one))));
        return Map.of("subscriptions", written, "assignments", assigned);
    }

    static String text(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    /** Topics: of each partition the racks of its replicas; a node for each rack. */
    static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int index = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                racks.forEach(rack -> replicas.add(nodes.computeIfAbsent(rack.asText(),
                    name -> new Node(nodes.size(), "localhost", 9092, name))));
                if (replicas.isEmpty()) {
                    replicas.add(nodes.computeIfAbsent("", name -> new Node(nodes.size(), "localhost", 9092)));
                }
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), index++, all[0], all, all));
            }
        });
        Set<Node> every = new HashSet<>(nodes.values());
        return new Cluster("c", every, partitions, Set.of(), Set.of());
    }
}
