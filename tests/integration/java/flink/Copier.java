import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.connectors.kafka.partitioner.FlinkFixedPartitioner;

/**
 * Flink, exactly once: Copier BOOTSTRAP JOB INPUT OUTPUT CHECKPOINTS [CHECKPOINT].
 *
 * <p>Copies values; each task reads a partition and writes a partition. With a CHECKPOINT, a directory, it goes on from
 * there: it commits the transactions that the checkpoint names, which another process has written, and aborts later
 * ones. Runs until it is killed.
 */
public final class Copier {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String job = arguments[1];
        Configuration config = new Configuration();
        config.setString("execution.checkpointing.dir", arguments[4]);
        config.setString("execution.checkpointing.interval", "300 ms");
        config.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        config.setString("execution.checkpointing.num-retained", "3");
        config.setString("restart-strategy.type", "fixed-delay");
        config.setString("restart-strategy.fixed-delay.attempts", "100");
        config.setString("restart-strategy.fixed-delay.delay", "500 ms");
        if (arguments.length > 5) {
            config.setString("execution.state-recovery.path", arguments[5]);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, config);
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics(arguments[2])
                .setGroupId(job)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(job)
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(arguments[3])
                        .setPartitioner(new FlinkFixedPartitioner<String>())
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
                .uid("source")
                .map(Copier::slowly)
                .sinkTo(sink)
                .uid("sink");
        flink.execute(job);
    }

    /** So that it can be killed in the middle. */
    private static String slowly(String value) throws InterruptedException {
        Thread.sleep(2);
        return value;
    }
}
