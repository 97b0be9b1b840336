import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.DecoderFactory;

/**
 * Reads Avro values with Java's Avro. Each line has the writer schema, the reader schema and values in hex; the answer has
 * for each value an object with "value" or "error".
 *
 * <p>A record is the list of its fields, a union the number of its branch and the value, a map the list of its entries by
 * key, bytes are hex, and a float or double is its bits as a double.
 */
public class AvroOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ArrayNode answers = JSON.createArrayNode();
            Schema writer = new Schema.Parser().parse(asked.get("writer").asText());
            Schema reader = new Schema.Parser().parse(asked.get("reader").asText());
            for (JsonNode hex : asked.get("values")) {
                ObjectNode answer = answers.addObject();
                try {
                    byte[] bytes = HexFormat.of().parseHex(hex.asText());
                    GenericDatumReader<Object> datum = new GenericDatumReader<>(writer, reader);
                    answer.set("value", told(reader, datum.read(null, DecoderFactory.get().binaryDecoder(bytes, null))));
                } catch (Exception error) {
                    answer.put("error", error.toString());
                }
            }
            out.append(JSON.writeValueAsString(answers)).append('\n');
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static JsonNode told(Schema schema, Object value) {
        switch (schema.getType()) {
            case NULL:
                return JSON.nullNode();
            case UNION:
                int branch = GenericData.get().resolveUnion(schema, value);
                return JSON.createArrayNode().add(branch).add(told(schema.getTypes().get(branch), value));
            case RECORD:
                ArrayNode fields = JSON.createArrayNode();
                schema.getFields().forEach(field ->
                    fields.add(told(field.schema(), ((IndexedRecord) value).get(field.pos()))));
                return fields;
            case ARRAY:
                ArrayNode items = JSON.createArrayNode();
                ((Iterable<?>) value).forEach(item -> items.add(told(schema.getElementType(), item)));
                return items;
            case MAP:
                Map<String, Object> sorted = new TreeMap<>();
                ((Map<?, ?>) value).forEach((key, each) -> sorted.put(key.toString(), each));
                ArrayNode entries = JSON.createArrayNode();
                sorted.forEach((key, each) -> entries.addArray().add(key).add(told(schema.getValueType(), each)));
                return entries;
            case FIXED:
                return JSON.getNodeFactory().textNode(HexFormat.of().formatHex(((GenericFixed) value).bytes()));
            case BYTES:
                byte[] bytes = new byte[((ByteBuffer) value).remaining()];
                ((ByteBuffer) value).duplicate().get(bytes);
                return JSON.getNodeFactory().textNode(HexFormat.of().formatHex(bytes));
            case FLOAT:
            case DOUBLE:
                return JSON.getNodeFactory().numberNode(Double.doubleToLongBits(((Number) value).doubleValue()));
            case INT:
            case LONG:
                return JSON.getNodeFactory().numberNode(((Number) value).longValue());
            case BOOLEAN:
                return JSON.getNodeFactory().booleanNode((Boolean) value);
            default:
                return JSON.getNodeFactory().textNode(value.toString());
        }
    }
}
