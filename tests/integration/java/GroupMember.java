import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One member of a consumer group, as group_member.py is for librdkafka: GroupMember BOOTSTRAP GROUP TOPIC OPTION=VALUE…
 *
 * Prints the value of each record, and commits what it has printed. A topic that starts with ^ is a regular expression
 * that the server resolves. On SIGTERM it leaves.
 */
public final class GroupMember {
    private static final Duration POLL = Duration.ofMillis(200);

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(ConsumerConfig.GROUP_ID_CONFIG, arguments[1]);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        config.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class.getName());
        config.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class.getName());
        for (int index = 3; index < arguments.length; index++) {
            String[] option = arguments[index].split("=", 2);
            config.put(option[0], option[1]);
        }
        Thread main = Thread.currentThread();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException impossible) {
                throw new IllegalStateException(impossible);
            }
            Runtime.getRuntime().halt(0); // else the exit code is the signal's
        }));
        if (arguments[2].startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(arguments[2].substring(1)));
        } else {
            consumer.subscribe(List.of(arguments[2]));
        }
        try {
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                for (ConsumerRecord<String, String> record : records) {
                    System.out.println(record.value());
                }
                System.out.flush();
                commit(consumer);
            }
        } catch (WakeupException leave) {
            commit(consumer);
            consumer.close();
        }
    }

    /** Commits all that was printed, also what an earlier commit failed to. */
    static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
        } catch (WakeupException leave) {
            throw leave;
        } catch (KafkaException rebalance) {
            // the next commit includes it, or another member reads it again
        }
    }

    private GroupMember() {
    }
}
