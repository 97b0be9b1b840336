import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Measures assign() of the Java client's assignors: reads a group's shape as a JSON line, prints the seconds of its three rounds. */
public class JavaBench {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(json.writeValueAsString(run(json.readTree(line))));
            System.out.flush();
        }
    }

    private static List<Double> run(JsonNode shape) {
        int topics = shape.get("topics").asInt(), partitions = shape.get("partitions").asInt(), members = shape.get("members").asInt();
        int racks = shape.path("racks").asInt(0), replicas = shape.path("replicas").asInt(0);
        String name = shape.get("assignor").asText();
        List<Node> nodes = new ArrayList<>();
        for (int i = 0; i < Math.max(racks, 1); i++)
            nodes.add(new Node(i, "localhost", 9092, racks > 0 ? "r" + i : null));
        List<String> names = new ArrayList<>();
        List<PartitionInfo> infos = new ArrayList<>();
        for (int i = 0; i < topics; i++) {
            String topic = String.format("t%04d", i);
            names.add(topic);
            for (int p = 0; p < partitions; p++) {
                Node[] on = new Node[Math.max(replicas, 1)];
                for (int j = 0; j < on.length; j++)
                    on[j] = nodes.get((i + p + j) % nodes.size());
                infos.add(new PartitionInfo(topic, p, on[0], on, on));
            }
        }
        Cluster cluster = new Cluster("bench", nodes, infos, Collections.emptySet(), Collections.emptySet());
        List<Double> seconds = new ArrayList<>();
        Map<String, Assignment> last = null;
        for (int round = 0; round < 3; round++) {
            Map<String, Subscription> group = new LinkedHashMap<>();
            for (int i = round == 2 ? 1 : 0; i < members; i++) {
                String member = String.format("c%05d", i);
                List<String> wanted = wanted(shape.path("subscription").asText("all"), names, i, members);
                Assignment had = round == 0 || round == 1 && i == 0 ? null : last.get(member);
                Optional<String> rack = racks > 0 ? Optional.of("r" + i % racks) : Optional.empty();
                ConsumerPartitionAssignor own = assignor(name);
                if (had != null)
                    own.onAssignment(had, new ConsumerGroupMetadata("bench", round, member, Optional.empty()));
                List<TopicPartition> owned = had == null || !name.startsWith("coop") ? Collections.emptyList() : had.partitions();
                group.put(member, new Subscription(wanted, own.subscriptionUserData(new java.util.HashSet<>(wanted)), owned,
                    had == null ? -1 : round, rack));
            }
            ConsumerPartitionAssignor leader = assignor(name);
            System.gc();
            long start = System.nanoTime();
            last = leader.assign(cluster, new GroupSubscription(group)).groupAssignment();
            seconds.add((System.nanoTime() - start) / 1e9);
        }
        return seconds;
    }

    private static List<String> wanted(String subscription, List<String> names, int member, int members) {
        if (subscription.equals("last_one_topic") && member == members - 1)
            return names.subList(0, 1);
        if (subscription.equals("split4"))
            return member % 4 == 0 ? names.subList(0, names.size() / 2) : names.subList(names.size() / 2, names.size());
        return names;
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }
}
