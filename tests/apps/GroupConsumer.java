import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** A Java consumer of a group: prints what it is assigned and what it reads, and leaves cleanly when its input closes. */
public class GroupConsumer {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        config.put("partition.assignment.strategy", args[3]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("session.timeout.ms", "10000");
        config.put("heartbeat.interval.ms", "500");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        if (args.length > 4) {
            config.put("group.instance.id", args[4]);
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(args[2].split(",")), new ConsumerRebalanceListener() {
                @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    consumer.commitSync();
                    System.out.println("revoked " + text(partitions));
                }
                @Override public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    System.out.println("lost " + text(partitions));
                }
                @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    System.out.println("generation " + consumer.groupMetadata().generationId());
                    System.out.println("assigned " + text(consumer.assignment()));
                }
            });
            while (!inputClosed) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("record " + record.partition() + " " + record.offset() + " " + record.value());
                }
                try {
                    consumer.commitSync();
                } catch (RebalanceInProgressException e) {
                    // A cooperative consumer reads on while it joins; it commits after that, or when it gives up.
                }
            }
        }
        System.out.println("left");
    }

    private static volatile boolean inputClosed;

    static {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException e) {
                // A broken input is a closed one.
            }
            inputClosed = true;
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static String text(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(","));
    }
}
