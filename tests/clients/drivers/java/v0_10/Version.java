import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
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

/** 0.10: timestamps and the search by time; no headers, no transactions, no administration. */
final class Version {
    static boolean knows(String setting) {
        return ConsumerConfig.configNames().contains(setting) || ProducerConfig.configNames().contains(setting);
    }

    static boolean hasZstd() {
        return false;
    }

    static ProducerRecord<byte[], byte[]> record(
            String topic, Integer partition, Long timestamp, byte[] key, byte[] value, JsonArray headers) {
        if (headers.size() > 0) {
            throw new Driver.Unsupported("no headers");
        }
        return new ProducerRecord<>(topic, partition, timestamp, key, value);
    }

    static void describe(ConsumerRecord<byte[], byte[]> record, Map<String, Object> into) {
        into.put("timestamp", record.timestamp());
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
        throw new Driver.Unsupported("no transactions");
    }

    static void sendOffsets(
            KafkaProducer<byte[], byte[]> producer,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            KafkaConsumer<byte[], byte[]> consumer,
            String group) {
        throw new Driver.Unsupported("no transactions");
    }

    static void end(KafkaProducer<byte[], byte[]> producer, boolean commit) {
        throw new Driver.Unsupported("no transactions");
    }

    static String tokens() {
        throw new Driver.Unsupported("no OAUTHBEARER");
    }

    static Object administer(Properties server, String action, JsonObject request) {
        throw new Driver.Unsupported("no admin client");
    }
}
