import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records of all kinds with Java's producer: null, empty, small and large keys and values, headers, batches of
 * mixed sizes.
 *
 * Arguments: servers, records a topic, then for each topic `topic:codec:kind`; the kind is `plain` or `transactions`
 * (some committed, some aborted, the last one left open).
 */
public class MixedProducer {
    private static final int PARTITIONS = 2;

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        for (int i = 2; i < args.length; i++) {
            String[] job = args[i].split(":");
            boolean transactions = job[2].equals("transactions");
            Properties config = new Properties();
            config.put("bootstrap.servers", args[0]);
            config.put("compression.type", job[1]);
            config.put("linger.ms", "1000");
            config.put("batch.size", "60000");
            if (transactions) {
                config.put("transactional.id", job[0]);
                config.put("transaction.timeout.ms", "900000");
            }
            var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
            if (transactions) {
                producer.initTransactions();
                writeTransactions(producer, job[0], count, new Random(i));
            } else {
                write(producer, job[0], count, new Random(i));
                producer.close();
            }
        }
        System.out.println("written");
        System.out.flush();
        // A producer that is closed would abort the transactions that are to stay open.
        Runtime.getRuntime().halt(0);
    }

    private static void writeTransactions(KafkaProducer<byte[], byte[]> producer, String topic, int count, Random random) {
        int number = 0;
        for (int left = count; left > 0; number++) {
            int size = Math.min(left, 1 + random.nextInt(40));
            producer.beginTransaction();
            write(producer, topic, size, random);
            left -= size;
            if (left == 0) {
                producer.flush();
            } else if (random.nextInt(3) == 0) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }
    }

    private static void write(KafkaProducer<byte[], byte[]> producer, String topic, int count, Random random) {
        for (int i = 0; i < count; i++) {
            long timestamp = 1_600_000_000_000L + random.nextInt(1_000_000_000);
            producer.send(new ProducerRecord<>(topic, random.nextInt(PARTITIONS), timestamp, bytes(random), bytes(random),
                headers(random)));
            if (random.nextInt(30) == 0) {
                producer.flush();
            }
        }
        producer.flush();
    }

    private static byte[] bytes(Random random) {
        switch (random.nextInt(8)) {
            case 0: return null;
            case 1: return new byte[0];
            case 2: {
                byte[] noise = new byte[random.nextInt(3000)];
                random.nextBytes(noise);
                return noise;
            }
            case 3: return "zwölf Boxkämpfer ".repeat(random.nextInt(2000)).getBytes(StandardCharsets.UTF_8);
            default: return ("text " + random.nextInt()).getBytes(StandardCharsets.UTF_8);
        }
    }

    private static List<Header> headers(Random random) {
        List<Header> headers = new ArrayList<>();
        for (int i = random.nextInt(8) - 4; i > 0; i--) {
            headers.add(new RecordHeader(random.nextBoolean() ? "trace" : "größe", bytes(random)));
        }
        return headers;
    }
}
