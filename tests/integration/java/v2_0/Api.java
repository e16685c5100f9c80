import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/** 2.0 and later: as 0.11, but poll takes a Duration. */
final class Api {
    static void configureIdempotence(Properties config, boolean idempotent) {
        config.put("enable.idempotence", String.valueOf(idempotent));
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, long timestamp, byte[] key, byte[] value) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, timestamp, key, value);
        if (timestamp % 3000 != 0) { // some records have none
            record.headers().add("trace", Long.toString(timestamp).getBytes());
            record.headers().add("trace", new byte[0]);
            record.headers().add("null", null);
        }
        return record;
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(Duration.ofMillis(timeoutMs));
    }

    static long[] bounds(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long timestamp) {
        List<TopicPartition> one = Collections.singletonList(partition);
        OffsetAndTimestamp found = consumer.offsetsForTimes(Collections.singletonMap(partition, timestamp)).get(partition);
        return new long[] {
            consumer.beginningOffsets(one).get(partition),
            consumer.endOffsets(one).get(partition),
            found == null ? -1 : found.offset()
        };
    }

    static long timestamp(RecordMetadata reply) {
        return reply.timestamp();
    }

    static long timestamp(ConsumerRecord<byte[], byte[]> record) {
        return record.timestamp();
    }

    static List<String> headers(ProducerRecord<byte[], byte[]> record) {
        return headers(record.headers());
    }

    static List<String> headers(ConsumerRecord<byte[], byte[]> record) {
        return headers(record.headers());
    }

    private static List<String> headers(Headers headers) {
        List<String> described = new ArrayList<>();
        for (Header header : headers) {
            described.add("[\"" + header.key() + "\"," + RoundTrip.base64(header.value()) + "]");
        }
        return described;
    }
}
