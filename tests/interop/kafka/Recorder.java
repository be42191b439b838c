import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What a broker's admin answers while topics are made and deleted, groups commit and transactions are open, ended and
 * left; called by {@link Client}: {@code record SEED MOMENTS STEPS ROLLS PAUSE}, which waits PAUSE ms after each step. Nothing is under way while a moment is recorded.
 */
public final class Recorder {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    /** Before and after a moment, so that what is noted of the last request has its time before it. */
    private static final long QUIET_MS = 120;
    private static final int GROUPS = 6;
    private static final int IDS = 4;

    private final String server;
    private final Admin admin;
    private final Random random;
    private final KafkaProducer<byte[], byte[]> plain;
    private final List<KafkaProducer<byte[], byte[]>> transactional = new ArrayList<>();
    private final boolean[] open = new boolean[IDS];
    private final TreeMap<String, Integer> topics = new TreeMap<>();
    private int made;
    private boolean rolls;

    private Recorder(String server, Admin admin, long seed) {
        this.server = server;
        this.admin = admin;
        this.random = new Random(seed);
        this.plain = new KafkaProducer<>(given(null), new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void record(String server, String[] asked) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            Recorder recorder = new Recorder(server, admin, Long.parseLong(asked[1]));
            recorder.rolls = !Boolean.parseBoolean(asked[4]);
            recorder.run(Integer.parseInt(asked[2]), Integer.parseInt(asked[3]), Long.parseLong(asked[5]));
        }
    }

    /** What the admin answers now; transactions are those that it lists. */
    static String now(String server, Admin admin) throws Exception {
        Recorder recorder = new Recorder(server, admin, 0);
        recorder.plain.close();
        return recorder.moment();
    }

    /** The ends of the partitions of some topics. */
    static Map<TopicPartition, Long> ends(Admin admin, List<String> topics) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (TopicDescription each : admin.describeTopics(topics).allTopicNames().get().values()) {
            each.partitions().forEach(p -> asked.put(new TopicPartition(each.name(), p.partition()), OffsetSpec.latest()));
        }
        return admin.listOffsets(asked).all().get().entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().offset()));
    }

    private void run(int moments, int steps, long pause) throws Exception {
        create("appended", Map.of("message.timestamp.type", "LogAppendTime"));
        create("claimed", Map.of());
        create("moved", Map.of("message.timestamp.type", "LogAppendTime", "segment.ms", "500", "retention.ms", "1500"));
        for (int id = 0; id < IDS; id++) {
            KafkaProducer<byte[], byte[]> one = new KafkaProducer<>(given("id-" + id), new ByteArraySerializer(), new ByteArraySerializer());
            one.initTransactions();
            transactional.add(one);
        }
        for (int moment = 0; moment < moments; moment++) {
            for (int step = 0; step < steps; step++) {
                step();
                Thread.sleep(pause);
            }
            plain.flush();
            Thread.sleep(QUIET_MS);
            OUT.println(moment());
            OUT.flush();
            Thread.sleep(QUIET_MS);
        }
        plain.close();
        for (int id = 0; id < IDS; id++) {
            transactional.get(id).close(open[id] ? Duration.ZERO : Duration.ofSeconds(10));
        }
    }

    private Properties given(String id) {
        Properties found = new Properties();
        found.put("bootstrap.servers", server);
        found.put("linger.ms", "2");
        found.put("transaction.timeout.ms", "8000");
        found.put("enable.idempotence", "true");
        if (id != null) {
            found.put("transactional.id", id);
        }
        return found;
    }

    private void create(String topic, Map<String, String> settings) throws Exception {
        int partitions = 1 + random.nextInt(3);
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(settings))).all().get();
        while (true) {
            try {
                if (admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().stream().allMatch(p -> p.leader() != null)) {
                    break;
                }
            } catch (Exception unknown) {
                Thread.sleep(20);
            }
        }
        topics.put(topic, partitions);
    }

    private void step() throws Exception {
        int what = random.nextInt(100);
        String topic = new ArrayList<>(topics.keySet()).get(random.nextInt(topics.size()));
        if (what < 45) {
            for (int number = random.nextInt(12); number >= 0; number--) {
                plain.send(record(topic));
            }
            plain.flush();
        } else if (what < 70) {
            transaction(random.nextInt(IDS), topic);
        } else if (what < 92) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            offsets.put(new TopicPartition(topic, random.nextInt(topics.get(topic))), new OffsetAndMetadata(random.nextInt(500), "at-" + random.nextInt(9)));
            String group = "group-" + random.nextInt(GROUPS);
            if (random.nextInt(12) == 0) {
                try {
                    admin.deleteConsumerGroups(List.of(group)).all().get();
                } catch (java.util.concurrent.ExecutionException none) {
                    OUT.flush();
                }
            } else {
                admin.alterConsumerGroupOffsets(group, offsets).all().get();
                rollOffsets();
            }
        } else if (what < 96) {
            create("made-" + (random.nextInt(4) == 0 && made > 0 && !topics.containsKey("made-0") ? 0 : made++),
                    Map.of("message.timestamp.type", random.nextBoolean() ? "LogAppendTime" : "CreateTime"));
        } else if (topic.startsWith("made-") && !isUsed()) {
            admin.deleteTopics(List.of(topic)).all().get();
            topics.remove(topic);
        }
    }

    /** Whether a transaction is open: it may be in any topic. */
    private boolean isUsed() {
        for (boolean one : open) {
            if (one) {
                return true;
            }
        }
        return false;
    }

    /** The offsets roll, so that the cleaner has something to clean. */
    private void rollOffsets() throws Exception {
        if (!rolls) {
            rolls = true;
            ConfigResource offsets = new ConfigResource(ConfigResource.Type.TOPIC, "__consumer_offsets");
            admin.incrementalAlterConfigs(Map.of(offsets, List.of(
                    new AlterConfigOp(new ConfigEntry("segment.ms", "1500"), AlterConfigOp.OpType.SET),
                    new AlterConfigOp(new ConfigEntry("min.cleanable.dirty.ratio", "0.01"), AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    private ProducerRecord<byte[], byte[]> record(String topic) {
        byte[] text = ("record-" + random.nextInt(1000)).getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(topic, random.nextInt(topics.get(topic)), text, text);
    }

    private void transaction(int id, String topic) throws Exception {
        KafkaProducer<byte[], byte[]> producer = transactional.get(id);
        try {
            if (!open[id]) {
                producer.beginTransaction();
                open[id] = true;
            }
            for (int number = random.nextInt(4); number >= 0; number--) {
                producer.send(record(topic));
            }
            producer.flush();
            if (random.nextInt(3) == 0) {
                producer.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(random.nextInt(300))),
                        new ConsumerGroupMetadata("group-" + random.nextInt(GROUPS)));
            }
            int end = random.nextInt(5);
            if (end == 0) {
                producer.abortTransaction();
            } else if (end < 3) {
                producer.commitTransaction();
            }
            open[id] = end > 2;
        } catch (org.apache.kafka.common.KafkaException late) { // it was open for longer than it may be
            producer.close(Duration.ZERO);
            KafkaProducer<byte[], byte[]> next = new KafkaProducer<>(given("id-" + id), new ByteArraySerializer(), new ByteArraySerializer());
            next.initTransactions();
            transactional.set(id, next);
            open[id] = false;
        }
    }

    private String moment() throws Exception {
        long at = System.currentTimeMillis();
        TreeSet<String> names = new TreeSet<>(admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).names().get());
        List<TopicPartition> all = new ArrayList<>();
        List<String> rows = new ArrayList<>();
        Map<String, String> ids = new HashMap<>();
        for (TopicDescription each : admin.describeTopics(names).allTopicNames().get().values()) {
            ids.put(each.name(), each.topicId().toString());
            each.partitions().forEach(p -> all.add(new TopicPartition(each.name(), p.partition())));
        }
        Map<TopicPartition, ListOffsetsResultInfo> starts = offsets(all, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED);
        Map<TopicPartition, ListOffsetsResultInfo> ends = offsets(all, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        Map<TopicPartition, ListOffsetsResultInfo> stable = offsets(all, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED);
        for (TopicPartition one : all) {
            rows.add(String.format("[\"%s\",%d,\"%s\",%d,%d,%d]", one.topic(), one.partition(), ids.get(one.topic()),
                    starts.get(one).offset(), ends.get(one).offset(), stable.get(one).offset()));
        }
        return String.format("{\"at\":%d,\"topics\":%s,\"groups\":%s,\"transactions\":%s,\"producers\":%s}",
                at, list(rows), groups(), transactions(), producers(all));
    }

    private Map<TopicPartition, ListOffsetsResultInfo> offsets(List<TopicPartition> all, OffsetSpec which, IsolationLevel level) throws Exception {
        return admin.listOffsets(all.stream().collect(Collectors.toMap(one -> one, one -> which)), new ListOffsetsOptions(level)).all().get();
    }

    private String groups() throws Exception {
        List<String> rows = new ArrayList<>();
        for (int number = 0; number < GROUPS; number++) {
            String group = "group-" + number;
            Map<TopicPartition, OffsetAndMetadata> found;
            try {
                found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            } catch (java.util.concurrent.ExecutionException none) {
                continue;
            }
            found.forEach((one, offset) -> {
                if (offset != null) {
                    rows.add(String.format("[\"%s\",\"%s\",%d,%d]", group, one.topic(), one.partition(), offset.offset()));
                }
            });
        }
        return list(rows);
    }

    private String transactions() throws Exception {
        List<String> rows = new ArrayList<>();
        for (String id : new TreeSet<>(admin.listTransactions().all().get().stream().map(each -> each.transactionalId()).toList())) {
            TransactionDescription found = admin.describeTransactions(List.of(id)).description(id).get();
            String in = found.topicPartitions().stream().map(one -> '"' + one.topic() + '-' + one.partition() + '"').sorted().collect(Collectors.joining(",", "[", "]"));
            rows.add(String.format("[\"%s\",\"%s\",%d,%d,%s]", id, found.state(), found.producerId(), found.producerEpoch(), in));
        }
        return list(rows);
    }

    private String producers(List<TopicPartition> all) throws Exception {
        List<String> rows = new ArrayList<>();
        List<TopicPartition> ours = all.stream().filter(one -> !one.topic().startsWith("__")).toList();
        admin.describeProducers(ours).all().get().forEach((one, state) -> {
            for (ProducerState each : state.activeProducers()) {
                rows.add(String.format("[\"%s\",%d,%d,%d,%d,%d]", one.topic(), one.partition(), each.producerId(), each.producerEpoch(),
                        each.lastSequence(), each.currentTransactionStartOffset().orElse(-1)));
            }
        });
        return list(rows);
    }

    private static String list(List<String> rows) {
        StringJoiner joined = new StringJoiner(",", "[", "]");
        rows.forEach(joined::add);
        return joined.toString();
    }
}
