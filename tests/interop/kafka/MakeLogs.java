import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Fills the log directory of a golden store, and asks its broker what the oracle holds; called by {@link Client}. */
public final class MakeLogs {
    private static final String FOREVER = "retention.ms=-1";
    private static final String[][] TOPICS = {
        {"plain-none", "2", FOREVER, "internal.segment.bytes=3000", "index.interval.bytes=400"},
        {"txn-a", "2", FOREVER, "internal.segment.bytes=2500", "index.interval.bytes=200"},
        {"txn-b", "1", FOREVER, "index.interval.bytes=100", "segment.index.bytes=1200"},
        {"compacted", "1", FOREVER, "internal.segment.bytes=2500", "cleanup.policy=compact", "index.interval.bytes=300",
            "min.cleanable.dirty.ratio=0.01", "delete.retention.ms=86400000", "segment.ms=100000000"},
        {"z-gzip", "1", FOREVER, "internal.segment.bytes=5000", "index.interval.bytes=600"},
        {"z-snappy", "1", FOREVER, "internal.segment.bytes=5000", "index.interval.bytes=600"},
        {"z-lz4", "1", FOREVER, "internal.segment.bytes=5000", "index.interval.bytes=600"},
        {"z-zstd", "1", FOREVER, "internal.segment.bytes=5000", "index.interval.bytes=600"},
        {"append_time", "1", FOREVER, "internal.segment.bytes=3000", "index.interval.bytes=300",
            "message.timestamp.type=LogAppendTime"},
        {"deleted-rec", "1", FOREVER, "internal.segment.bytes=2000", "index.interval.bytes=300"},
        {"shared", "2", FOREVER}, {"empty-topic", "2", FOREVER}, {"goner", "1", FOREVER},
    };
    private static final Map<String, KafkaProducer<byte[], byte[]>> LEFT = new HashMap<>();
    private static String server;
    private static Random draw;

    /** {@code make fill SEED} the first time, {@code make more SEED} again, {@code make oracle FILE}. */
    public static void make(String address, String[] asked) throws Exception {
        server = address;
        if (asked[1].equals("oracle")) {
            Files.writeString(Path.of(asked[2]), oracle(), StandardCharsets.UTF_8);
            return;
        }
        draw = new Random(Long.parseLong(asked[2]));
        boolean first = asked[1].equals("fill");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            if (first) {
                List<NewTopic> topics = new ArrayList<>();
                for (String[] topic : TOPICS) {
                    Map<String, String> settings = new HashMap<>();
                    for (String setting : Arrays.copyOfRange(topic, 2, topic.length)) {
                        settings.put(setting.split("=")[0], setting.split("=")[1]);
                    }
                    topics.add(new NewTopic(topic[0], Integer.parseInt(topic[1]), (short) 1).configs(settings));
                }
                admin.createTopics(topics).all().get();
            }
            plain();
            transactions(asked[2]);
            groups();
            if (first) {
                send(Map.of(), "goner", 9);
                admin.deleteTopics(List.of("goner")).all().get();
            }
            admin.deleteRecords(Map.of(new TopicPartition("deleted-rec", 0),
                    RecordsToDelete.beforeOffset(first ? 13 : 37))).all().get();
        }
    }

    private static void plain() throws Exception {
        send(Map.of("enable.idempotence", "false", "acks", "1"), "plain-none", 55);
        send(Map.of(), "plain-none", 38);
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            send(Map.of("compression.type", codec), "z-" + codec, 45);
        }
        send(Map.of(), "append_time", 30);
        send(Map.of(), "deleted-rec", 35);
        send(Map.of(), "shared", 30);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int number = 0; number < 60; number++) {
                byte[] value = number % 9 == 8 ? null : bytes(20 + draw.nextInt(60));
                producer.send(new ProducerRecord<>("compacted", ("k" + draw.nextInt(8)).getBytes(), value)).get();
            }
        }
    }

    private static void transactions(String round) throws Exception {
        try (KafkaProducer<byte[], byte[]> one = transactional("tx-1"); KafkaProducer<byte[], byte[]> two = transactional("tx-2")) {
            for (int number = 0; number < 8; number++) {
                one.beginTransaction();
                two.beginTransaction();
                for (int step = 0; step < 5; step++) {
                    one.send(record("txn-a", number)).get();
                    (number % 2 == 0 ? two : one).send(record(number % 3 == 0 ? "txn-b" : "txn-a", step)).get();
                }
                if (number == 3) {
                    one.sendOffsetsToTransaction(
                            Map.of(new TopicPartition("z-gzip", 0), new OffsetAndMetadata(7, "in-txn")),
                            new ConsumerGroupMetadata("g-txn"));
                }
                if (number % 4 == 1) {
                    one.abortTransaction();
                    two.commitTransaction();
                } else {
                    two.abortTransaction();
                    one.commitTransaction();
                }
            }
        }
        KafkaProducer<byte[], byte[]> open = transactional("tx-hang-" + round);
        LEFT.put(round, open);
        open.beginTransaction();
        open.send(record("txn-a", 1)).get();
        open.send(record("txn-b", 1)).get();
        send(Map.of(), "txn-a", 6);
    }

    private static KafkaProducer<byte[], byte[]> transactional(String id) {
        KafkaProducer<byte[], byte[]> made =
                producer(Map.of("transactional.id", id, "transaction.timeout.ms", "900000"));
        made.initTransactions();
        return made;
    }

    private static void groups() throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            Properties given = reader("read_committed");
            given.put("group.id", "g-" + protocol);
            given.put("group.protocol", protocol);
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(given)) {
                consumer.subscribe(List.of("plain-none"));
                int seen = 0;
                for (int polls = 0; seen < 40 && polls < 100; polls++) {
                    seen += consumer.poll(Duration.ofMillis(200)).count();
                    consumer.commitSync();
                }
            }
        }
        String[] take = {"share", "take", "g-share", "shared", "20", "aaraxa"};
        Class.forName("ShareClient").getMethod("share", String.class, String[].class).invoke(null, server, take);
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, String> settings) {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("linger.ms", "20");
        given.putAll(settings);
        return new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Properties reader(String isolation) {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("isolation.level", isolation);
        given.put("auto.offset.reset", "earliest");
        given.put("enable.auto.commit", "false");
        given.put("max.poll.records", "15");
        return given;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Properties given) {
        return new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Records in batches of one to five, of all kinds of keys, values and headers. */
    private static void send(Map<String, String> settings, String topic, int count) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            int partitions = producer.partitionsFor(topic).size();
            for (int number = 0, until = 1; number < count; number++) {
                ProducerRecord<byte[], byte[]> one = record(topic, number);
                producer.send(new ProducerRecord<>(topic, number / 20 % partitions, one.timestamp(), one.key(),
                        one.value(), one.headers()));
                if (number == until) {
                    producer.flush();
                    until += 1 + draw.nextInt(5);
                }
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int number) {
        byte[] key = number % 7 == 0 ? null : number % 11 == 0 ? new byte[0] : ("k" + draw.nextInt(20)).getBytes();
        byte[] value = number % 13 == 5 ? null : number % 17 == 6 ? new byte[0] : bytes(5 + draw.nextInt(70));
        List<Header> headers = new ArrayList<>();
        for (int header = 0; header < (number % 5 == 0 ? 2 : 0); header++) {
            headers.add(new RecordHeader(header == 0 ? "h" : "\u00fcber", header == 0 ? bytes(4) : null));
        }
        return new ProducerRecord<>(topic, null, null, key, value, headers);
    }

    private static byte[] bytes(int size) {
        byte[] found = new byte[size];
        draw.nextBytes(found);
        if (draw.nextInt(3) > 0) {
            for (int at = 0; at < size; at++) {
                found[at] = (byte) ('a' + (at / 3) % 26);
            }
        }
        return found;
    }

    /** What the broker answers, as one JSON document. */
    private static String oracle() throws Exception {
        Map<String, String> partitions = new TreeMap<>();
        Map<String, String> groups = new TreeMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            List<TopicPartition> all = new ArrayList<>();
            admin.describeTopics(admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions()
                    .listInternal(true)).names().get()).allTopicNames().get().forEach(
                    (name, topic) -> topic.partitions().forEach(p -> all.add(new TopicPartition(name, p.partition()))));
            for (TopicPartition each : all) {
                partitions.put(each.toString(), partition(admin, each));
            }
            for (String group : List.of("g-classic", "g-consumer", "g-txn")) {
                List<String> rows = new ArrayList<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach(
                        (of, offset) -> rows.add(quoted(of.toString()) + ":{\"offset\":" + offset.offset()
                                + ",\"metadata\":" + quoted(offset.metadata()) + "}"));
                groups.put(group, "{\"offsets\":{" + String.join(",", rows) + "}}");
            }
        }
        return "{\"partitions\":" + object(partitions) + ",\"groups\":" + object(groups) + "}";
    }

    private static String partition(Admin admin, TopicPartition of) throws Exception {
        long begin = offset(admin, of, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED).offset();
        long end = offset(admin, of, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED).offset();
        long stable = offset(admin, of, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED).offset();
        ListOffsetsResultInfo largest = offset(admin, of, OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED);
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        String uncommitted = ranges(of, "read_uncommitted", end, read);
        String committed = ranges(of, "read_committed", stable, new ArrayList<>());
        List<String> times = new ArrayList<>();
        for (int row = 0; row < read.size(); row += Math.max(1, read.size() / 4)) {
            for (long time : new long[] {read.get(row).timestamp(), read.get(row).timestamp() + 1}) {
                ListOffsetsResultInfo info =
                        offset(admin, of, OffsetSpec.forTimestamp(time), IsolationLevel.READ_UNCOMMITTED);
                times.add("[" + time + "," + info.offset() + "," + info.timestamp() + "]");
            }
        }
        List<String> producers = new ArrayList<>();
        admin.describeProducers(List.of(of)).partitionResult(of).get().activeProducers().forEach(state -> producers.add(
                "{\"producerId\":" + state.producerId() + ",\"producerEpoch\":" + state.producerEpoch()
                        + ",\"lastSequence\":" + state.lastSequence() + ",\"lastTimestamp\":" + state.lastTimestamp()
                        + ",\"coordinatorEpoch\":" + state.coordinatorEpoch().orElse(-1) + ",\"currentTxnFirstOffset\":"
                        + state.currentTransactionStartOffset().orElse(-1) + "}"));
        return "{\"beginningOffset\":" + begin + ",\"endOffset\":" + end + ",\"lastStableOffset\":" + stable
                + ",\"maxTimestamp\":{\"offset\":" + largest.offset() + ",\"timestamp\":" + largest.timestamp() + "}"
                + ",\"readUncommitted\":" + uncommitted + ",\"readCommitted\":" + committed
                + ",\"offsetsForTimes\":[" + String.join(",", times) + "],\"producers\":[" + String.join(",", producers)
                + "]}";
    }

    private static ListOffsetsResultInfo offset(Admin admin, TopicPartition of, OffsetSpec what, IsolationLevel level)
            throws Exception {
        return admin.listOffsets(Map.of(of, what), new ListOffsetsOptions(level)).partitionResult(of).get();
    }

    private static String ranges(TopicPartition of, String isolation, long end, List<ConsumerRecord<byte[], byte[]>> into) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(reader(isolation))) {
            consumer.assign(List.of(of));
            consumer.seekToBeginning(List.of(of));
            while (consumer.position(of) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(into::add);
            }
        }
        for (int row = 0, first = 0; row < into.size(); row++) {
            if (row + 1 == into.size() || into.get(row + 1).offset() != into.get(row).offset() + 1) {
                found.add("[" + into.get(first).offset() + "," + into.get(row).offset() + "]");
                first = row + 1;
            }
        }
        return "[" + String.join(",", found) + "]";
    }

    private static String object(Map<String, String> of) {
        List<String> rows = new ArrayList<>();
        of.forEach((name, value) -> rows.add(quoted(name) + ":" + value));
        return "{" + String.join(",", rows) + "}";
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
