import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's Java client under trial: Driver BOOTSTRAP. The line protocol is described in lines.py.
 *
 * <p>Holds what all versions share; Version.java has what they do not.
 */
public final class Driver {
    static final String COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
    static final long POLL_MS = 100;
    static final Gson GSON = new GsonBuilder().serializeNulls().create();

    final Properties server = new Properties();
    KafkaConsumer<byte[], byte[]> member;
    KafkaProducer<byte[], byte[]> transactional;

    /** The client has no such feature. */
    static final class Unsupported extends RuntimeException {
        Unsupported(String what) {
            super(what);
        }
    }

    Driver(String bootstrap) {
        server.put("bootstrap.servers", bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Driver driver = new Driver(arguments[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(GSON.toJson(driver.answer(JsonParser.parseString(line).getAsJsonObject())));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    Map<String, Object> answer(JsonObject request) {
        try {
            return Collections.singletonMap("result", act(request.get("do").getAsString(), request));
        } catch (Unsupported missing) {
            return Collections.singletonMap("unsupported", missing.getMessage());
        } catch (Exception error) {
            error.printStackTrace();
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            return Collections.singletonMap("error", cause.getClass().getSimpleName());
        }
    }

    Object act(String action, JsonObject request) throws Exception {
        switch (action) {
            case "log_in":
                server.putAll(Login.settings(request));
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(new Properties())) {
                    consumer.listTopics();
                }
                return null;
            case "partitions":
                return partitions(request);
            case "produce":
                return produce(request);
            case "open":
                transactional = begun(request);
                return send(transactional, request.get("topic").getAsString(), request.getAsJsonArray("records"));
            case "finish":
                Version.end(transactional, request.get("end").getAsString().equals("commit"));
                return null;
            case "copy":
                return copy(request);
            case "fetch":
                return fetch(request);
            case "bounds":
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(new Properties())) {
                    return Version.bounds(consumer, partition(request));
                }
            case "offset_at":
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(new Properties())) {
                    return Version.offsetAt(consumer, partition(request), request.get("timestamp").getAsLong());
                }
            case "join":
                join(request);
                return null;
            case "poll":
                return poll(request);
            case "commit":
                member.commitSync();
                return null;
            case "leave":
                member.close();
                return null;
            case "committed":
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(group(request))) {
                    OffsetAndMetadata found = Version.committed(consumer, partition(request));
                    return found == null ? null : found.offset();
                }
            case "set_offset":
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(group(request))) {
                    OffsetAndMetadata offset = new OffsetAndMetadata(request.get("offset").getAsLong());
                    consumer.commitSync(Collections.singletonMap(partition(request), offset));
                    return null;
                }
            default:
                return Version.administer(server, action, request);
        }
    }

    Integer partitions(JsonObject request) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(new Properties())) {
            List<?> found = consumer.listTopics().get(request.get("topic").getAsString());
            return found == null ? null : found.size();
        }
    }

    List<long[]> produce(JsonObject request) throws Exception {
        Properties config = new Properties();
        config.putAll(server);
        config.put("acks", request.get("acks").getAsString());
        config.put("compression.type", request.get("codec").getAsString());
        config.put("linger.ms", "20");
        config.put("retries", "10");
        config.put("max.request.size", "10000000");
        boolean idempotent = request.get("idempotent").getAsBoolean();
        boolean inTransaction = !request.get("transaction").isJsonNull();
        if (Version.knows("enable.idempotence")) {
            config.put("enable.idempotence", String.valueOf(idempotent || inTransaction));
        } else if (idempotent || inTransaction) {
            throw new Unsupported("no idempotent producer");
        }
        if (request.get("codec").getAsString().equals("zstd") && !Version.hasZstd()) {
            throw new Unsupported("no zstd");
        }
        if (inTransaction) {
            config.put("transactional.id", request.getAsJsonObject("transaction").get("id").getAsString());
            config.put("max.block.ms", "20000");
        }
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
            if (inTransaction) {
                Version.begin(producer);
            }
            List<long[]> answers =
                    send(producer, request.get("topic").getAsString(), request.getAsJsonArray("records"));
            if (inTransaction) {
                String end = request.getAsJsonObject("transaction").get("end").getAsString();
                Version.end(producer, end.equals("commit"));
            }
            return answers;
        }
    }

    KafkaProducer<byte[], byte[]> begun(JsonObject request) {
        if (!Version.knows("transactional.id")) {
            throw new Unsupported("no transactions");
        }
        Properties config = new Properties();
        config.putAll(server);
        config.put("transactional.id", request.get("id").getAsString());
        config.put("transaction.timeout.ms", request.get("timeout_ms").getAsString());
        config.put("max.block.ms", "20000");
        ByteArraySerializer bytes = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes);
        Version.begin(producer);
        return producer;
    }

    int copy(JsonObject request) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        int count = request.get("count").getAsInt();
        try (KafkaProducer<byte[], byte[]> producer = begun(request)) {
            Properties config = group(request);
            config.put("auto.offset.reset", "earliest");
            config.put("isolation.level", "read_committed");
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(config)) {
                consumer.subscribe(Collections.singletonList(request.get("source").getAsString()));
                long deadline = System.currentTimeMillis() + request.get("timeout_ms").getAsLong();
                while (found.size() < count && System.currentTimeMillis() < deadline) {
                    take(consumer, found);
                }
                JsonElement records = GSON.toJsonTree(found);
                send(producer, request.get("topic").getAsString(), records.getAsJsonArray());
                Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
                for (TopicPartition each : consumer.assignment()) {
                    offsets.put(each, new OffsetAndMetadata(consumer.position(each)));
                }
                Version.sendOffsets(producer, offsets, consumer, request.get("group").getAsString());
                Version.end(producer, request.get("end").getAsString().equals("commit"));
            }
        }
        return found.size();
    }

    List<long[]> send(KafkaProducer<byte[], byte[]> producer, String topic, JsonArray records) throws Exception {
        List<Future<RecordMetadata>> replies = new ArrayList<>();
        for (JsonElement each : records) {
            JsonObject record = each.getAsJsonObject();
            replies.add(producer.send(Version.record(
                    topic,
                    record.get("partition").isJsonNull() ? null : record.get("partition").getAsInt(),
                    record.get("timestamp").isJsonNull() ? null : record.get("timestamp").getAsLong(),
                    decoded(record.get("key")), decoded(record.get("value")), record.getAsJsonArray("headers"))));
        }
        List<long[]> answers = new ArrayList<>();
        for (Future<RecordMetadata> reply : replies) {
            answers.add(new long[] {reply.get().partition(), reply.get().offset()});
        }
        return answers;
    }

    List<Map<String, Object>> fetch(JsonObject request) {
        Properties config = new Properties();
        if (!request.get("max_bytes").isJsonNull()) {
            config.put("max.partition.fetch.bytes", request.get("max_bytes").getAsString());
        }
        String isolation = request.get("isolation").getAsString();
        if (Version.knows("isolation.level")) {
            config.put("isolation.level", isolation);
        } else if (!isolation.equals("read_uncommitted")) {
            throw new Unsupported("no isolation level");
        }
        List<Map<String, Object>> found = new ArrayList<>();
        int count = request.get("count").getAsInt();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(config)) {
            consumer.assign(Collections.singletonList(partition(request)));
            consumer.seek(partition(request), request.get("offset").getAsLong());
            long deadline = System.currentTimeMillis() + request.get("timeout_ms").getAsLong();
            while (found.size() < count && System.currentTimeMillis() < deadline) {
                take(consumer, found);
            }
        }
        return found.subList(0, Math.min(count, found.size()));
    }

    void join(JsonObject request) {
        Properties config = group(request);
        config.put("auto.offset.reset", "earliest");
        config.put("metadata.max.age.ms", "1000");
        if (has(request, "protocol")) {
            set(config, "group.protocol", request.get("protocol").getAsString());
        } else {
            config.put("session.timeout.ms", request.get("session_timeout_ms").getAsString());
            config.put("heartbeat.interval.ms", "500");
        }
        if (has(request, "instance_id")) {
            set(config, "group.instance.id", request.get("instance_id").getAsString());
        }
        if (has(request, "assignor")) {
            try {
                Class.forName(COOPERATIVE);
            } catch (ClassNotFoundException missing) {
                throw new Unsupported("no cooperative rebalancing");
            }
            config.put("partition.assignment.strategy", COOPERATIVE);
        }
        member = consumer(config);
        if (has(request, "pattern")) {
            Pattern pattern = Pattern.compile(request.get("pattern").getAsString());
            member.subscribe(pattern, new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                }
            });
        } else {
            List<String> topics = new ArrayList<>();
            request.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
            member.subscribe(topics);
        }
    }

    Map<String, Object> poll(JsonObject request) {
        List<Map<String, Object>> records = new ArrayList<>();
        List<Object[]> held = new ArrayList<>();
        int wanted = has(request, "assigned") ? request.get("assigned").getAsInt() : -1;
        long deadline = System.currentTimeMillis() + request.get("timeout_ms").getAsLong();
        while (System.currentTimeMillis() < deadline) {
            take(member, records);
            held.clear();
            member.assignment().forEach(each -> held.add(new Object[] {each.topic(), each.partition()}));
            if (records.size() >= request.get("count").getAsInt() && (wanted < 0 || wanted == held.size())) {
                break;
            }
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("records", records);
        result.put("assigned", held);
        return result;
    }

    void take(KafkaConsumer<byte[], byte[]> consumer, List<Map<String, Object>> into) {
        for (ConsumerRecord<byte[], byte[]> record : Version.poll(consumer, POLL_MS)) {
            Map<String, Object> described = new LinkedHashMap<>();
            described.put("partition", record.partition());
            described.put("offset", record.offset());
            described.put("key", encoded(record.key()));
            described.put("value", encoded(record.value()));
            Version.describe(record, described);
            into.add(described);
        }
    }

    KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        Properties config = new Properties();
        config.putAll(server);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none");
        config.putAll(settings);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        return new KafkaConsumer<>(config, bytes, bytes);
    }

    static Properties group(JsonObject request) {
        Properties config = new Properties();
        config.put("group.id", request.get("group").getAsString());
        return config;
    }

    static TopicPartition partition(JsonObject request) {
        return new TopicPartition(request.get("topic").getAsString(), request.get("partition").getAsInt());
    }

    static boolean has(JsonObject request, String name) {
        return !request.get(name).isJsonNull();
    }

    static void set(Properties config, String name, String value) {
        if (!Version.knows(name)) {
            throw new Unsupported("no " + name);
        }
        config.put(name, value);
    }

    static String encoded(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static byte[] decoded(JsonElement text) {
        return text instanceof JsonNull ? null : Base64.getDecoder().decode(text.getAsString());
    }
}
