import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.Resource;
import org.apache.kafka.common.resource.ResourceFilter;
import org.apache.kafka.common.resource.ResourceType;

/** An admin client from before KIP-290 (Kafka 0.11 to 1.1) makes, lists and removes ACLs: all of them are literal. */
final class OldAcls {
    private static final long TIMEOUT_NS = 30_000_000_000L;

    private static AclBinding binding(ResourceType type, String name, AclOperation operation, AclPermissionType permission) {
        return new AclBinding(new Resource(type, name), new AccessControlEntry("User:alice", "*", operation, permission));
    }

    private static void print(String what, Collection<AclBinding> bindings) {
        List<String> lines = new ArrayList<>();
        for (AclBinding binding : bindings) {
            lines.add(binding.toString());
        }
        Collections.sort(lines);
        for (String line : lines) {
            System.out.println(what + " " + line);
        }
        System.out.println(what + " " + lines.size());
    }

    /** The ACLs, when their number is this one: Kafka's broker applies changes of its controller a moment later. */
    private static Collection<AclBinding> awaited(AdminClient admin, AclBindingFilter filter, int count) throws Exception {
        long deadline = System.nanoTime() + TIMEOUT_NS;
        Collection<AclBinding> found = admin.describeAcls(filter).values().get();
        while (found.size() != count && System.nanoTime() < deadline) {
            Thread.sleep(20);
            found = admin.describeAcls(filter).values().get();
        }
        return found;
    }

    /** Arguments: the bootstrap address and a topic's name. */
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        try (AdminClient admin = AdminClient.create(config)) {
            admin.createAcls(Arrays.asList(
                binding(ResourceType.TOPIC, topic, AclOperation.READ, AclPermissionType.ALLOW),
                binding(ResourceType.TOPIC, topic, AclOperation.WRITE, AclPermissionType.DENY),
                binding(ResourceType.GROUP, topic, AclOperation.ALL, AclPermissionType.ALLOW),
                binding(ResourceType.TRANSACTIONAL_ID, topic, AclOperation.DESCRIBE, AclPermissionType.ALLOW)
            )).all().get();
            AclBindingFilter ofTopic =
                new AclBindingFilter(new ResourceFilter(ResourceType.TOPIC, topic), AccessControlEntryFilter.ANY);
            AclBindingFilter all = new AclBindingFilter(new ResourceFilter(ResourceType.ANY, topic), AccessControlEntryFilter.ANY);
            print("of the topic", awaited(admin, ofTopic, 2));
            print("all", awaited(admin, all, 4));
            print("removed", admin.deleteAcls(Collections.singletonList(ofTopic)).all().get());
            print("left", awaited(admin, all, 2));
            admin.deleteAcls(Collections.singletonList(all)).all().get();
            print("at last", awaited(admin, all, 0));
        }
    }
}
