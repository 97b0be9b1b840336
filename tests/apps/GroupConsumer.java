import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/**
 * A Java consumer of a group: prints what it is assigned, reads and commits, and leaves when its input closes.
 *
 * <p>It commits after each poll, or in the interval of the environment variable COMMIT_MS.
 */
public class GroupConsumer {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        if (args[3].equals("consumer")) {
            // The brokers assign (KIP-848), and set the session timeout and the interval of heartbeats.
            config.put("group.protocol", "consumer");
        } else {
            config.put("partition.assignment.strategy", args[3]);
            config.put("session.timeout.ms", "10000");
            config.put("heartbeat.interval.ms", "500");
        }
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        if (args.length > 4) {
            config.put("group.instance.id", args[4]);
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(args[2].split(",")), new ConsumerRebalanceListener() {
                @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    commit(consumer);
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
            long interval = 1_000_000L * Long.parseLong(System.getenv().getOrDefault("COMMIT_MS", "0"));
            long commitAt = System.nanoTime();
            while (!inputClosed) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("record " + record.partition() + " " + record.offset() + " " + record.value());
                    uncommitted = true;
                }
                if (System.nanoTime() >= commitAt) {
                    commit(consumer);
                    commitAt = System.nanoTime() + interval;
                }
            }
            commit(consumer);
        }
        System.out.println("left");
    }

    private static boolean uncommitted;

    private static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
        } catch (RebalanceInProgressException e) {
            // A cooperative consumer reads on while it joins; it commits after that, or when it gives up.
            return;
        } catch (CommitFailedException e) {
            // The group has given its partitions away; it says which it has lost.
            System.out.println("refused");
            return;
        }
        if (uncommitted) {
            uncommitted = false;
            System.out.println("committed");
        }
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
