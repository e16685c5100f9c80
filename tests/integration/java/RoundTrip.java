import java.io.FileReader;
import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces and consumes with what all client versions share; Api.java holds what they do not.
 *
 * <p>Arguments: BOOTSTRAP, then steps in order: produce:TOPIC:CODEC:IDEMPOTENT or consume:TOPIC:COUNT. Every topic has two
 * partitions. Prints one JSON object a line; keys, values and header values are base64 or null.
 */
public final class RoundTrip {
    static final int PARTITIONS = 2;
    static final int RECORDS_PER_PARTITION = 40;
    static final int LARGE_VALUE_BYTES = 200_000;
    /** Not longer ago than retention, or the records go while they are read. */
    static final long FIRST_TIMESTAMP_MS = (System.currentTimeMillis() - 3_600_000) / 3000 * 3000;
    static final long CONSUME_TIMEOUT_MS = 30_000;
    static final long POLL_MS = 200;

    public static void main(String[] args) throws Exception {
        for (String step : Arrays.asList(args).subList(1, args.length)) {
            String[] parts = step.split(":");
            if (parts[0].equals("produce")) {
                produce(args[0], parts[1], parts[2], Boolean.parseBoolean(parts[3]));
            } else {
                consume(args[0], parts[1], Integer.parseInt(parts[2]));
            }
        }
    }

    static void produce(String bootstrap, String topic, String codec, boolean idempotent) throws Exception {
        Properties config = common(bootstrap);
        config.put("compression.type", codec);
        config.put("acks", "all");
        config.put("retries", "10");
        config.put("max.in.flight.requests.per.connection", idempotent ? "5" : "1");
        config.put("linger.ms", "20"); // several records a batch
        Api.configureIdempotence(config, idempotent);
        ByteArraySerializer bytes = new ByteArraySerializer();
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        List<Future<RecordMetadata>> replies = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
            for (int i = 0; i < PARTITIONS * RECORDS_PER_PARTITION; i++) {
                records.add(Api.record(topic, i % PARTITIONS, FIRST_TIMESTAMP_MS + i * 1000L, key(i), value(i)));
                replies.add(producer.send(records.get(i)));
            }
            for (int i = 0; i < records.size(); i++) {
                ProducerRecord<byte[], byte[]> record = records.get(i);
                RecordMetadata reply = replies.get(i).get();
                print("produced", topic, reply.partition(), reply.offset(), Api.timestamp(reply), record.key(),
                        record.value(), Api.headers(record));
            }
        }
    }

    /** With what the file says that the property client.config names, if it is there. */
    static Properties common(String bootstrap) throws IOException {
        Properties config = new Properties();
        String file = System.getProperty("client.config");
        if (file != null) {
            try (Reader reader = new FileReader(file)) {
                config.load(reader);
            }
        }
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    static byte[] key(int i) {
        return i % 7 == 3 ? null : ("key-" + i).getBytes(StandardCharsets.UTF_8);
    }

    static byte[] value(int i) {
        if (i % 11 == 5) {
            return null;
        }
        if (i == 20) {
            byte[] large = new byte[LARGE_VALUE_BYTES];
            Arrays.fill(large, (byte) 'x');
            return large;
        }
        return i % 13 == 1 ? new byte[0] : ("välue-" + i).getBytes(StandardCharsets.UTF_8);
    }

    static void consume(String bootstrap, String topic, int count) throws IOException {
        Properties config = common(bootstrap);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", "false");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int p = 0; p < PARTITIONS; p++) {
                partitions.add(new TopicPartition(topic, p));
            }
            consumer.assign(partitions);
            for (TopicPartition partition : partitions) {
                bounds(consumer, partition);
            }
            for (TopicPartition partition : partitions) {
                consumer.seek(partition, 0);
            }
            print("consumed", receive(consumer, count));
            TopicPartition first = partitions.get(0);
            consumer.assign(Collections.singletonList(first));
            consumer.seek(first, RECORDS_PER_PARTITION / 2); // inside a batch
            print("from the middle", receive(consumer, RECORDS_PER_PARTITION / 2));
        }
    }

    static void bounds(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        long[] found = Api.bounds(consumer, partition, FIRST_TIMESTAMP_MS + 10_000);
        System.out.printf("{\"event\":\"bounds\",\"topic\":\"%s\",\"partition\":%d,\"start\":%d,\"end\":%d,\"at_time\":%d}%n",
                partition.topic(), partition.partition(), found[0], found[1], found[2]);
    }

    static List<ConsumerRecord<byte[], byte[]>> receive(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> received = new ArrayList<>();
        long deadline = System.currentTimeMillis() + CONSUME_TIMEOUT_MS;
        while (received.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : Api.poll(consumer, POLL_MS)) {
                received.add(record);
            }
        }
        return received;
    }

    static void print(String event, List<ConsumerRecord<byte[], byte[]>> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            print(event, record.topic(), record.partition(), record.offset(), Api.timestamp(record), record.key(),
                    record.value(), Api.headers(record));
        }
    }

    static void print(String event, String topic, int partition, long offset, long timestamp, byte[] key, byte[] value,
            List<String> headers) {
        System.out.printf("{\"event\":\"%s\",\"topic\":\"%s\",\"partition\":%d,\"offset\":%d,\"timestamp\":%d,"
                + "\"key\":%s,\"value\":%s,\"headers\":%s}%n", event, topic, partition, offset, timestamp, base64(key),
                base64(value), headers);
    }

    static String base64(byte[] bytes) {
        return bytes == null ? "null" : '"' + Base64.getEncoder().encodeToString(bytes) + '"';
    }
}
