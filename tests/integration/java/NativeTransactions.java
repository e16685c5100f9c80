import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * A native client whose commands come from standard input, one a line. Each is answered with one line.
 *
 * <pre>
 * begin NAME              begin a transaction
 * send NAME TOPIC VALUE   send a message in the transaction; "-" is no transaction
 * commit NAME
 * abort NAME
 * </pre>
 */
public final class NativeTransactions {
    private static final Map<String, Transaction> transactions = new HashMap<>();
    private static final Map<String, Producer<byte[]>> producers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // its log
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build();
                BufferedReader commands = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                answers.println(run(client, line.split(" ")));
            }
        }
    }

    private static Object run(PulsarClient client, String[] words) throws Exception {
        switch (words[0]) {
            case "begin":
                Transaction begun = client.newTransaction().withTransactionTimeout(5, TimeUnit.MINUTES).build().get();
                transactions.put(words[1], begun);
                return begun.getTxnID();
            case "send":
                Producer<byte[]> producer = producer(client, words[2]);
                byte[] value = words[3].getBytes(StandardCharsets.UTF_8);
                Transaction transaction = transactions.get(words[1]);
                return (transaction == null ? producer.newMessage() : producer.newMessage(transaction))
                        .value(value)
                        .send();
            case "commit":
                transactions.remove(words[1]).commit().get();
                return "committed";
            case "abort":
                transactions.remove(words[1]).abort().get();
                return "aborted";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static Producer<byte[]> producer(PulsarClient client, String topic) throws Exception {
        if (!producers.containsKey(topic)) {
            producers.put(topic, client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).create());
        }
        return producers.get(topic);
    }
}
