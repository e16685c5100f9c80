import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** 0.9: no timestamps, no headers, no idempotence. */
final class Api {
    static void configureIdempotence(Properties config, boolean idempotent) {
        if (idempotent) {
            throw new IllegalArgumentException("this client knows no idempotence");
        }
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, long timestamp, byte[] key, byte[] value) {
        return new ProducerRecord<>(topic, partition, key, value);
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
    }

    static long[] bounds(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long timestamp) {
        consumer.seekToBeginning(partition);
        long start = consumer.position(partition);
        consumer.seekToEnd(partition);
        return new long[] {start, consumer.position(partition), -1};
    }

    static long timestamp(RecordMetadata reply) {
        return -1;
    }

    static long timestamp(ConsumerRecord<byte[], byte[]> record) {
        return -1;
    }

    static List<String> headers(ProducerRecord<byte[], byte[]> record) {
        return Collections.emptyList();
    }

    static List<String> headers(ConsumerRecord<byte[], byte[]> record) {
        return Collections.emptyList();
    }
}
