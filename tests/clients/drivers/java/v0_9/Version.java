import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** 0.9: no timestamps, no headers, no transactions, no administration. */
final class Version {
    /** Whether there is such a setting; of those that are asked for, 0.9 has none. */
    static boolean knows(String setting) {
        return false;
    }

    static boolean hasZstd() {
        return false;
    }

    static ProducerRecord<byte[], byte[]> record(
            String topic, Integer partition, Long timestamp, byte[] key, byte[] value, JsonArray headers) {
        if (timestamp != null || headers.size() > 0) {
            throw new Driver.Unsupported(timestamp != null ? "no timestamps" : "no headers");
        }
        return new ProducerRecord<>(topic, partition, key, value);
    }

    static void describe(ConsumerRecord<byte[], byte[]> record, Map<String, Object> into) {
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
    }

    static long[] bounds(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        consumer.assign(java.util.Collections.singletonList(partition));
        consumer.seekToBeginning(partition);
        long start = consumer.position(partition);
        consumer.seekToEnd(partition);
        return new long[] {start, consumer.position(partition)};
    }

    static Long offsetAt(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long timestamp) {
        throw new Driver.Unsupported("no search by time");
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
