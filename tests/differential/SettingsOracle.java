import java.util.Map;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints every setting of the clients: the client, the name, the type, and the validator in Java's words. */
public class SettingsOracle {
    public static void main(String[] args) {
        Map<String, ConfigDef> clients = Map.of(
            "CONSUMER", ConsumerConfig.configDef(),
            "PRODUCER", ProducerConfig.configDef(),
            "ADMIN", AdminClientConfig.configDef());
        clients.forEach((client, settings) -> settings.configKeys().values().forEach(key ->
            System.out.println(client + "\t" + key.name + "\t" + key.type + "\t" + key.validator)));
    }
}
