import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * The Java client's assignors behind JSON lines: a request on stdin, its answer on stdout.
 *
 * Request: {"assignor", "topics": {name: count}, "racks": {name: [[rack]]}, "members": [{"id", "instance_id", "subscription": hex}]}
 * Answer: {"assignments": {id: hex}} or {"error": text}. Subscriptions and assignments are the consumer protocol's bytes.
 */
public class AssignorOracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = json.createObjectNode();
            try {
                JsonNode request = json.readTree(line);
                ObjectNode assignments = answer.putObject("assignments");
                assign(request).forEach((member, given) ->
                    assignments.put(member, hex(ConsumerProtocol.serializeAssignment(given))));
            } catch (RuntimeException error) {
                answer.removeAll();
                answer.put("error", error.toString());
            }
            out.println(json.writeValueAsString(answer));
            out.flush();
        }
    }

    private static Map<String, Assignment> assign(JsonNode request) {
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode member : request.get("members")) {
            Subscription subscription =
                ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HEX.parseHex(member.get("subscription").asText())));
            if (member.hasNonNull("instance_id"))
                subscription.setGroupInstanceId(Optional.of(member.get("instance_id").asText()));
            members.put(member.get("id").asText(), subscription);
        }
        return assignor(request.get("assignor").asText())
            .assign(cluster(request), new GroupSubscription(members)).groupAssignment();
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException("no assignor named " + name);
        }
    }

    private static Cluster cluster(JsonNode request) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        request.get("topics").fields().forEachRemaining(topic -> {
            JsonNode racks = request.path("racks").path(topic.getKey());
            for (int partition = 0; partition < topic.getValue().asInt(); partition++) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks.path(partition))
                    replicas.add(nodes.computeIfAbsent(rack.asText(), name -> new Node(nodes.size(), "localhost", 9092, name)));
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), partition, all.length > 0 ? all[0] : Node.noNode(), all, all));
            }
        });
        return new Cluster("oracle", new ArrayList<>(nodes.values()), partitions, Collections.emptySet(), Collections.emptySet());
    }

    private static String hex(ByteBuffer bytes) {
        byte[] raw = new byte[bytes.remaining()];
        bytes.get(raw);
        return HEX.formatHex(raw);
    }
}
