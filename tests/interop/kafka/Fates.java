import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Clients that give messages a fate each by chance; called by {@link Client}. What they did and got are JSON lists, the kind first.
 *
 * <p>{@code fates PHASE SEED COUNT ROLLS}: {@code [message, topic, partition, offset, time, key, text, client, transaction]}, time and key as the log has them;
 * {@code [ended, client, transaction, how]}; {@code [commit, group, topic, partition, offset, not before, not after, how]}, {@code [forgotten, group]};
 * {@code [taken, topic, partition, offset, acknowledgement]} of a share group. Phase 1 makes the topics; phase 2 goes on with them, leaves transactions open, and
 * stops retention and compaction. ROLLS lets commits be compacted, too.
 *
 * <p>{@code fates end}: {@code [read, isolation, topic, partition, offset, leader epoch, text]} of all that consumers get,
 * and {@code [now, what the admin answers]}.
 */
public final class Fates {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final Map<String, String> SHORT = Map.of("segment.ms", "900", "min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", "100");
    private static final List<String> CODECS = List.of("none", "gzip", "lz4", "zstd", "snappy");
    private static final String SHARED = "shared";
    private static final int PARTITIONS = 3;
    private static final int GROUPS = 5;
    private static final int IDS = 4;
    private static final int KEYS = 9;

    private final String server;
    private final Admin admin;
    private final Random random;
    private final int phase;
    private final boolean rolls;
    private final KafkaProducer<byte[], byte[]> plain;
    private final TreeMap<String, Long> ends = new TreeMap<>();
    private int sent;
    private int transactions;

    private Fates(String server, Admin admin, int phase, long seed, boolean rolls) {
        this.server = server;
        this.admin = admin;
        this.phase = phase;
        this.rolls = rolls;
        this.random = new Random(seed * 2 + phase);
        this.plain = producer(null, 900_000);
    }

    public static void fates(String server, String[] asked) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            if (asked[1].equals("end")) {
                end(server, admin);
            } else {
                Fates fates = new Fates(server, admin, Integer.parseInt(asked[1]), Long.parseLong(asked[2]), Boolean.parseBoolean(asked[4]));
                fates.run(Integer.parseInt(asked[3]));
            }
        }
        OUT.flush();
    }

    private void run(int count) throws Exception {
        if (phase == 1) {
            create("fates", Map.of());
            create("keyed", with(SHORT, "cleanup.policy", "compact"));
            create("old", with(SHORT, "retention.ms", "2500"));
            create("asked", Map.of());
            create(SHARED, Map.of());
            create("dropped", Map.of());
        }
        for (Map.Entry<TopicPartition, Long> each : Recorder.ends(admin, List.of("fates", "keyed", "old", "asked", SHARED)).entrySet()) {
            ends.put(each.getKey().toString(), each.getValue());
        }
        while (sent < count * 2 / 3) {
            step(false);
        }
        if (phase == 1) {
            transaction("dropped", 1, plain, "plain " + phase, -1);
            transaction("asked", 4, plain, "plain " + phase, -1);
            admin.deleteTopics(List.of("dropped")).all().get();
            if (rolls) {
                set("__consumer_offsets", SHORT);
            }
        } else {
            Thread.sleep(2_500); // what is old goes, and what is superseded
            transaction("old", 1, plain, "plain " + phase, -1);
            Thread.sleep(1_500);
            set("old", Map.of("retention.ms", "-1"));
            set("keyed", Map.of("min.compaction.lag.ms", "900000000"));
        }
        while (sent < count) {
            step(phase == 2);
        }
        take();
        if (phase == 2) {
            transactional(true);
            KafkaProducer<byte[], byte[]> left = producer("offsets", 900_000);
            left.initTransactions();
            left.beginTransaction();
            commit("group-0", "fates", 0, ends.getOrDefault("fates-0", 0L), left, "open");
            left.close(Duration.ZERO);
            Thread.sleep(5_000); // the coordinator ends what took too long
        }
        plain.close();
    }

    private void step(boolean leaves) throws Exception {
        switch (random.nextInt(12)) {
            case 0, 1, 2 -> transaction("fates", 1 + random.nextInt(4), plain, "plain " + phase, -1);
            case 3, 4, 5 -> transactional(leaves && random.nextInt(4) == 0);
            case 6 -> {
                transaction("keyed", 2 + random.nextInt(5), plain, "plain " + phase, -1);
                Thread.sleep(random.nextInt(500));
            }
            case 7 -> {
                transaction("old", 1 + random.nextInt(2), plain, "plain " + phase, -1);
                Thread.sleep(random.nextInt(400));
            }
            case 8 -> {
                transaction("asked", 1 + random.nextInt(3), plain, "plain " + phase, -1);
                TopicPartition one = new TopicPartition("asked", random.nextInt(PARTITIONS));
                long end = ends.getOrDefault(one.toString(), 0L);
                if (end > 1 && random.nextInt(3) == 0) {
                    admin.deleteRecords(Map.of(one, RecordsToDelete.beforeOffset(random.nextInt((int) end)))).all().get();
                }
            }
            case 9 -> {
                transaction(SHARED, 1 + random.nextInt(6), plain, "plain " + phase, -1);
                if (random.nextInt(3) == 0) {
                    take();
                }
            }
            default -> {
                for (int times = 1 + random.nextInt(4); times > 0; times--) {
                    commit();
                }
            }
        }
    }

    /** Some messages; as one batch a partition, if they make it. */
    private void transaction(String topic, int count, KafkaProducer<byte[], byte[]> producer, String client, int transaction) throws Exception {
        Map<ProducerRecord<byte[], byte[]>, Future<RecordMetadata>> all = new LinkedHashMap<>();
        for (int number = 0; number < count; number++) {
            String text = "m-" + phase + "-" + sent++;
            String key = topic.equals("keyed") ? "key-" + random.nextInt(KEYS) : random.nextInt(4) == 0 ? null : "k-" + text;
            boolean deletes = topic.equals("keyed") && random.nextInt(4) == 0;
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, random.nextInt(PARTITIONS), key == null ? null : bytes(key), deletes ? null : bytes(text));
            all.put(record, producer.send(record));
        }
        producer.flush();
        for (Map.Entry<ProducerRecord<byte[], byte[]>, Future<RecordMetadata>> each : all.entrySet()) {
            RecordMetadata at = each.getValue().get();
            ProducerRecord<byte[], byte[]> record = each.getKey();
            row("message", topic, at.partition(), at.offset(), at.timestamp(), text(record.key()), text(record.value()), client, transaction);
            ends.merge(topic + '-' + at.partition(), at.offset() + 1, Math::max);
        }
    }

    /** A transaction that is committed, aborted, fenced by the next client of its id, ended by its coordinator, or left open. */
    private void transactional(boolean leaves) throws Exception {
        int chance = random.nextInt(20);
        String how = leaves ? "open" : chance < 9 ? "committed" : chance < 14 ? "aborted" : chance < 17 ? "fenced" : "late";
        boolean isLeft = how.equals("late") || how.equals("open");
        String id = "id-" + random.nextInt(IDS) + (isLeft ? "-" + phase + "-" + transactions : "");
        KafkaProducer<byte[], byte[]> producer = producer(id, how.equals("late") ? 1_500 : 900_000);
        producer.initTransactions();
        boolean isEnded = how.equals("committed") || how.equals("aborted");
        for (int times = isEnded ? 1 + random.nextInt(2) : 1; times > 0; times--) {
            int number = transactions++;
            String client = phase + "/" + number;
            producer.beginTransaction();
            transaction(random.nextInt(5) == 0 ? "keyed" : "fates", 1 + random.nextInt(5), producer, client, number);
            if (random.nextBoolean() && !how.equals("open")) {
                transaction("fates", 1, producer, client, number); // a batch more
            }
            switch (how) {
                case "committed" -> producer.commitTransaction();
                case "aborted" -> producer.abortTransaction();
                case "fenced" -> {
                    try (KafkaProducer<byte[], byte[]> next = producer(id, 900_000)) {
                        next.initTransactions();
                    }
                }
                default -> OUT.flush();
            }
            row("ended", client, number, how);
        }
        producer.close(isEnded ? Duration.ofSeconds(10) : Duration.ZERO);
    }

    /** A group says how far it is, ahead or back; sometimes in a transaction, which may be aborted. */
    private void commit() throws Exception {
        String group = "group-" + random.nextInt(GROUPS);
        String topic = List.of("fates", "fates", "keyed", "old", "asked").get(random.nextInt(5));
        int partition = random.nextInt(PARTITIONS);
        long end = ends.getOrDefault(topic + '-' + partition, 0L);
        long offset = random.nextInt(4) == 0 ? end : random.nextInt((int) end + 1);
        if (!rolls && random.nextInt(15) == 0) { // of what is removed and compacted nothing is left
            try {
                admin.deleteConsumerGroups(List.of(group)).all().get();
                row("forgotten", group);
            } catch (java.util.concurrent.ExecutionException none) { // it is not there
                OUT.flush();
            }
        } else if (random.nextInt(4) == 0) {
            try (KafkaProducer<byte[], byte[]> producer = producer("commits", 900_000)) {
                producer.initTransactions();
                producer.beginTransaction();
                commit(group, topic, partition, offset, producer, random.nextBoolean() ? "committed" : "aborted");
            }
        } else {
            commit(group, topic, partition, offset, null, "committed");
        }
    }

    private void commit(String group, String topic, int partition, long offset, KafkaProducer<byte[], byte[]> producer, String how) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(topic, partition), new OffsetAndMetadata(offset));
        long before = System.currentTimeMillis();
        if (producer == null) {
            admin.alterConsumerGroupOffsets(group, offsets).all().get();
        } else {
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
        }
        row("commit", group, topic, partition, offset, before, System.currentTimeMillis(), how);
        switch (producer == null ? "open" : how) {
            case "committed" -> producer.commitTransaction();
            case "aborted" -> producer.abortTransaction();
            default -> OUT.flush();
        }
    }

    /** A share group takes some messages, and says of each what is to become of it. */
    private void take() throws Exception {
        StringBuilder acks = new StringBuilder();
        for (int number = 0; number < 11; number++) {
            acks.append("aaarrx".charAt(random.nextInt(6)));
        }
        List<List<Object>> taken = ShareClient.take(server, admin, "shares", SHARED, 1 + random.nextInt(30), acks.toString(), 12);
        for (List<Object> each : taken) {
            row("taken", each.toArray());
        }
    }

    private static void end(String server, Admin admin) throws Exception {
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            try (KafkaConsumer<byte[], byte[]> consumer = Client.reader(server, isolation)) {
                List<TopicPartition> all = new ArrayList<>();
                for (String topic : List.of("fates", "keyed", "old", "asked", SHARED)) {
                    consumer.partitionsFor(topic).forEach(p -> all.add(new TopicPartition(topic, p.partition())));
                }
                Client.read(consumer, all, record -> row("read", isolation, record.topic(), record.partition(), record.offset(),
                        record.leaderEpoch().orElse(-1), text(record.value())));
            }
        }
        OUT.printf("[\"now\",%s]%n", Recorder.now(server, admin));
    }

    private KafkaProducer<byte[], byte[]> producer(String id, int timeout) {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("linger.ms", "5");
        given.put("compression.type", CODECS.get(random.nextInt(CODECS.size())));
        given.put("transaction.timeout.ms", String.valueOf(timeout));
        if (id != null) {
            given.put("transactional.id", id);
        }
        return new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void create(String topic, Map<String, String> settings) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1).configs(settings))).all().get();
        plain.partitionsFor(topic);
    }

    private static Map<String, String> with(Map<String, String> settings, String name, String value) {
        Map<String, String> found = new HashMap<>(settings);
        found.put(name, value);
        return found;
    }

    private void set(String topic, Map<String, String> settings) throws Exception {
        List<AlterConfigOp> all = new ArrayList<>();
        settings.forEach((name, value) -> all.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), all)).all().get();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] data) {
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    private static void row(String kind, Object... values) {
        StringBuilder line = new StringBuilder("[\"" + kind + '"');
        for (Object each : values) {
            line.append(',').append(each instanceof String ? "\"" + each + '"' : String.valueOf(each));
        }
        OUT.println(line.append(']'));
        OUT.flush();
    }
}
