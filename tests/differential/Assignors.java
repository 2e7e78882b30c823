import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.SubscribedTopicDescriberImpl;

/**
 * Apache Kafka's own server-side assignors and metadata hash.
 *
 * assign FILE: a JSON array of groups; prints an array with each one's assignment.
 * hash FILE: a JSON array of groups of topics; prints an array with each one's hash.
 */
public class Assignors {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (JsonNode one : JSON.readTree(Path.of(args[1]).toFile())) {
            answers.add(args[0].equals("assign") ? assign(one) : hash(one));
        }
        System.out.println(JSON.writeValueAsString(answers));
    }

    static Map<String, Map<String, Set<Integer>>> assign(JsonNode group) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (JsonNode member : group.get("members")) {
            String id = member.get("id").asText();
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.get("assignment").fields().forEachRemaining(topic -> {
                Uuid topicId = Uuid.fromString(topic.getKey());
                List<Integer> partitions = new ArrayList<>();
                topic.getValue().forEach(partition -> partitions.add(partition.asInt()));
                assigned.put(topicId, new HashSet<>(partitions));
                partitions.forEach(partition -> owners
                    .computeIfAbsent(topicId, unused -> new HashMap<>()).put(partition, id));
            });
            Set<Uuid> subscribed = new HashSet<>();
            member.get("topics").forEach(topic -> subscribed.add(Uuid.fromString(topic.asText())));
            Optional<String> instance = member.hasNonNull("instance")
                ? Optional.of(member.get("instance").asText()) : Optional.empty();
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, subscribed, new Assignment(assigned)));
        }
        ConsumerGroupPartitionAssignor assignor = group.get("assignor").asText().equals("range")
            ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = group.get("homogeneous").asBoolean()
            ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<String, MemberAssignment> given = assignor.assign(
            new GroupSpecImpl(members, type, owners),
            new SubscribedTopicDescriberImpl(new Topics(group.get("topics")))
        ).members();
        Map<String, Map<String, Set<Integer>>> answer = new TreeMap<>();
        given.forEach((id, one) -> {
            Map<String, Set<Integer>> topics = new TreeMap<>();
            one.partitions().forEach((topic, partitions) -> {
                if (!partitions.isEmpty()) topics.put(topic.toString(), new TreeSet<>(partitions));
            });
            answer.put(id, topics);
        });
        return answer;
    }

    static long hash(JsonNode topics) {
        Topics image = new Topics(topics);
        Map<String, Long> hashes = new HashMap<>();
        image.byName.keySet().forEach(name -> hashes.put(name, Utils.computeTopicHash(name, image)));
        return Utils.computeGroupHash(hashes);
    }

    /** Topics by id: a number of partitions, or a name and the racks of each partition. */
    static class Topics implements CoordinatorMetadataImage {
        final Map<Uuid, TopicMetadata> byId = new HashMap<>();
        final Map<String, TopicMetadata> byName = new HashMap<>();

        Topics(JsonNode topics) {
            topics.fields().forEachRemaining(topic -> {
                Uuid id = Uuid.fromString(topic.getKey());
                JsonNode told = topic.getValue();
                String name = told.isInt() ? topic.getKey() : told.get("name").asText();
                int count = told.isInt() ? told.asInt() : told.get("racks").size();
                TopicMetadata metadata = new TopicMetadata() {
                    public String name() { return name; }
                    public Uuid id() { return id; }
                    public int partitionCount() { return count; }
                    public List<String> partitionRacks(int partition) {
                        List<String> racks = new ArrayList<>();
                        if (!told.isInt()) {
                            told.get("racks").get(partition).forEach(one -> racks.add(one.asText()));
                        }
                        return racks;
                    }
                };
                byId.put(id, metadata);
                byName.put(name, metadata);
            });
        }

        public Set<Uuid> topicIds() { return byId.keySet(); }
        public Set<String> topicNames() { return byName.keySet(); }
        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.ofNullable(byName.get(name));
        }
        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.ofNullable(byId.get(id));
        }
        public CoordinatorMetadataDelta emptyDelta() { return CoordinatorMetadataDelta.EMPTY; }
        public long version() { return 0; }
        public boolean isEmpty() { return byId.isEmpty(); }
    }
}
