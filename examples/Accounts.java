import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/**
 * The Java application of three_applications.py: counts orders and payments of each customer, until a line comes in.
 *
 * <p>Arguments: bootstrap servers, group id, topics. It prints `customer TAB orders TAB payments` for what it has read.
 */
public class Accounts {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        config.put("client.id", "java");
        // Java's default strategies, written out: the group agrees on `range`, which the Spark applications offer too.
        // With group.protocol=consumer the brokers would assign, and nobody would keep the topics together.
        config.put("partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.RangeAssignor,"
            + "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("session.timeout.ms", "10000");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        List<String> topics = List.of(args[2].split(","));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(topics);
            while (System.in.available() == 0) {
                Map<String, int[]> found = new TreeMap<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    found.computeIfAbsent(record.key(), customer -> new int[2])[topics.indexOf(record.topic())]++;
                }
                found.forEach((customer, counts) ->
                    System.out.println(customer + "\t" + counts[0] + "\t" + counts[1]));
                consumer.commitSync();
            }
        }
    }
}
