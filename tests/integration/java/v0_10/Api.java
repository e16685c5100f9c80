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

/** 0.10: timestamps and the search by time; no headers, no idempotence. */
final class Api {
    static void configureIdempotence(Properties config, boolean idempotent) {
        if (idempotent) {
            throw new IllegalArgumentException("this client knows no idempotence");
        }
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, long timestamp, byte[] key, byte[] value) {
        return new ProducerRecord<>(topic, partition, timestamp, key, value);
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
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
        return Collections.emptyList();
    }

    static List<String> headers(ConsumerRecord<byte[], byte[]> record) {
        return Collections.emptyList();
    }
}
