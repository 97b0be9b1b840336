import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Reads messages, one a line: its name, its version, and its bytes in hex. Answers with what is left unread, with the
 * bytes that Java writes for the same message, and with its fields as JSON.
 */
public class MessageOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            String name = "org.apache.kafka.common.message." + parts[0] + "Data";
            short version = Short.parseShort(parts[1]);
            try {
                ByteBuffer given = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
                Message message = (Message) Class.forName(name)
                    .getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(given), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(written), cache, version);
                Object json = Class.forName(name + "JsonConverter")
                    .getMethod("write", message.getClass(), short.class).invoke(null, message, version);
                System.out.println(
                    given.remaining() + " " + HexFormat.of().formatHex(written.array()) + " " + json.toString());
            } catch (Exception problem) {
                Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                System.out.println("error " + cause.toString().replace("\n", " "));
            }
        }
    }
}
