import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share groups, for releases that have them; called by {@link Client}. */
public final class ShareClient {
    /** {@code share create TOPIC PARTITIONS}, {@code share take GROUP TOPIC COUNT ACKS}, {@code share reset GROUP TOPIC
     * PARTITION OFFSET}, {@code share delete GROUP}, {@code share offsets GROUP}. */
    public static void share(String server, String[] asked) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            switch (asked[1]) {
                case "create" -> admin.createTopics(
                        List.of(new NewTopic(asked[2], Integer.parseInt(asked[3]), (short) 1))).all().get();
                case "take" -> System.out.println(take(server, admin, asked[2], asked[3], Integer.parseInt(asked[4]), asked[5], 200).size());
                case "reset" -> admin.alterShareGroupOffsets(asked[2],
                        Map.of(new TopicPartition(asked[3], Integer.parseInt(asked[4])), Long.parseLong(asked[5])))
                        .all().get();
                case "delete" -> admin.deleteShareGroups(List.of(asked[2])).all().get();
                default -> offsets(admin, asked[2]);
            }
        }
    }

    /**
     * Take some records; ACKS says of each in turn whether it is accepted, released or rejected.
     *
     * @return of each its topic, partition, offset, and what was said of it.
     */
    static List<List<Object>> take(String server, Admin admin, String name, String topic, int wanted, String acks, int polls) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
        ConfigEntry first = new ConfigEntry("share.auto.offset.reset", "earliest");
        admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(first, AlterConfigOp.OpType.SET))))
                .all().get();
        Map<String, Object> given = new HashMap<>();
        given.put("bootstrap.servers", server);
        given.put("group.id", name);
        given.put("share.acknowledgement.mode", "explicit");
        given.put("max.poll.records", "25");
        List<List<Object>> taken = new ArrayList<>();
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int poll = 0; taken.size() < wanted && poll < polls; poll++) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(300))) {
                    char said = acks.charAt(taken.size() % acks.length());
                    switch (said) {
                        case 'a' -> consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        case 'r' -> consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        default -> consumer.acknowledge(record, AcknowledgeType.REJECT);
                    }
                    taken.add(List.of(record.topic(), record.partition(), record.offset(), String.valueOf(said)));
                }
                consumer.commitSync();
            }
        }
        return taken;
    }

    /** Topic, partition, start offset, lag and leader epoch of what a group has; null for what is not known. */
    private static void offsets(Admin admin, String group) throws Exception {
        Map<TopicPartition, SharePartitionOffsetInfo> found =
                admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                        .partitionsToOffsetInfo(group).get();
        for (Map.Entry<TopicPartition, SharePartitionOffsetInfo> each : found.entrySet()) {
            SharePartitionOffsetInfo info = each.getValue();
            Optional<Long> lag = info == null ? Optional.empty() : info.lag();
            System.out.printf("[\"%s\",%d,%s,%s]%n", each.getKey().topic(), each.getKey().partition(),
                    info == null ? null : info.startOffset(), lag.map(Object::toString).orElse("null"));
        }
    }
}
