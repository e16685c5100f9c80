import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;

/** 0.11: headers, transactions, and an admin client that makes topics; none for more partitions or groups. */
final class Version {
    static boolean knows(String setting) {
        return ConsumerConfig.configNames().contains(setting) || ProducerConfig.configNames().contains(setting);
    }

    static boolean hasZstd() {
        return false;
    }

    static ProducerRecord<byte[], byte[]> record(
            String topic, Integer partition, Long timestamp, byte[] key, byte[] value, JsonArray headers) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, timestamp, key, value);
        for (JsonElement each : headers) {
            JsonArray header = each.getAsJsonArray();
            record.headers().add(header.get(0).getAsString(), Driver.decoded(header.get(1)));
        }
        return record;
    }

    static void describe(ConsumerRecord<byte[], byte[]> record, Map<String, Object> into) {
        into.put("timestamp", record.timestamp());
        List<String[]> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(new String[] {header.key(), Driver.encoded(header.value())});
        }
        into.put("headers", headers);
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
    }

    static long[] bounds(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        List<TopicPartition> one = Collections.singletonList(partition);
        return new long[] {consumer.beginningOffsets(one).get(partition), consumer.endOffsets(one).get(partition)};
    }

    static Long offsetAt(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long timestamp) {
        OffsetAndTimestamp found =
                consumer.offsetsForTimes(Collections.singletonMap(partition, timestamp)).get(partition);
        return found == null ? null : found.offset();
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        return consumer.committed(partition);
    }

    static void begin(KafkaProducer<byte[], byte[]> producer) {
        producer.initTransactions();
        producer.beginTransaction();
    }

    static void sendOffsets(
            KafkaProducer<byte[], byte[]> producer,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            KafkaConsumer<byte[], byte[]> consumer,
            String group) {
        producer.sendOffsetsToTransaction(offsets, group);
    }

    static void end(KafkaProducer<byte[], byte[]> producer, boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    static String tokens() {
        throw new Driver.Unsupported("no OAUTHBEARER");
    }

    static Object administer(Properties server, String action, JsonObject request) throws Exception {
        try (AdminClient admin = AdminClient.create(server)) {
            return administer(admin, action, request);
        }
    }

    private static Object administer(AdminClient admin, String action, JsonObject request) throws Exception {
        switch (action) {
            case "create_topic": {
                Map<String, String> configs = new HashMap<>();
                request.getAsJsonObject("configs").entrySet()
                        .forEach(each -> configs.put(each.getKey(), each.getValue().getAsString()));
                NewTopic topic = new NewTopic(topic(request), request.get("partitions").getAsInt(), (short) 1);
                admin.createTopics(Collections.singletonList(topic.configs(configs))).all().get();
                return null;
            }
            case "delete_topic":
                admin.deleteTopics(Collections.singletonList(topic(request))).all().get();
                return null;
            case "configs": {
                Config found = admin.describeConfigs(Collections.singletonList(resource(request))).all().get()
                        .get(resource(request));
                Map<String, String> values = new HashMap<>();
                request.getAsJsonArray("names").forEach(
                        name -> values.put(name.getAsString(), found.get(name.getAsString()).value()));
                return values;
            }
            case "set_config": {
                ConfigEntry entry =
                        new ConfigEntry(request.get("name").getAsString(), request.get("value").getAsString());
                Config wanted = new Config(Collections.singletonList(entry));
                admin.alterConfigs(Collections.singletonMap(resource(request), wanted)).all().get();
                return null;
            }
            default:
                throw new Driver.Unsupported("no administration of partitions, records and groups");
        }
    }

    private static String topic(JsonObject request) {
        return request.get("topic").getAsString();
    }

    private static ConfigResource resource(JsonObject request) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
    }
}
