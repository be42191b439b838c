import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Reads and writes through a broker; one command a line, answers are JSON lines up to one with a dot. */
public final class Client {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] words) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answer(words[0], line.split(" "));
            OUT.println(".");
            OUT.flush();
        }
    }

    /** One command to a broker. */
    static void answer(String server, String[] asked) throws Exception {
        switch (asked[0]) {
            case "read" -> read(server, asked[1], asked[2]);
            case "everything" -> everything(server, asked[1], List.of(asked).subList(2, asked.length));
            case "resume" -> resume(server, asked[1], asked[2], asked.length > 3 ? asked[3] : "classic");
            case "write" -> write(server, asked[1], Integer.parseInt(asked[2]), asked.length > 3 ? asked[3] : "");
            case "leave" -> leave(server, asked[1], Integer.parseInt(asked[2]), asked[3]);
            case "create" -> create(server, asked);
            case "storm" -> storm(server, asked[1], asked[2], asked.length > 3 && !asked[3].equals("-") ? asked[3] : "",
                    asked.length > 4 ? Long.parseLong(asked[4]) : 0);
            case "latency" -> latency();
            case "calm" -> calm();
            case "ends" -> ends(server);
            case "commit" -> commit(server, asked[1], asked[2], Long.parseLong(asked[3]));
            case "load" -> load(server, asked[1], Integer.parseInt(asked[2]), Integer.parseInt(asked[3]));
            case "share" -> Class.forName("ShareClient")
                    .getMethod("share", String.class, String[].class).invoke(null, server, asked);
            case "record" -> Class.forName("Recorder")
                    .getMethod("record", String.class, String[].class).invoke(null, server, asked);
            case "fates" -> Class.forName("Fates")
                    .getMethod("fates", String.class, String[].class).invoke(null, server, asked);
            case "make" -> Class.forName("MakeLogs")
                    .getMethod("make", String.class, String[].class).invoke(null, server, asked);
            default -> throw new IllegalArgumentException(String.join(" ", asked));
        }
        OUT.flush();
    }

    /** All records of a topic, partition by partition. */
    private static void read(String server, String isolation, String topic) {
        try (KafkaConsumer<byte[], byte[]> consumer = reader(server, isolation)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> all.add(new TopicPartition(topic, p.partition())));
            read(consumer, all, record -> OUT.printf("[%s]%n", fields(record)));
        }
    }

    /** All records of all topics but internal ones, and but some partitions; the topic before the other fields. */
    private static void everything(String server, String isolation, List<String> besides) {
        try (KafkaConsumer<byte[], byte[]> consumer = reader(server, isolation)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.listTopics().forEach((topic, partitions) -> {
                if (!topic.startsWith("__")) {
                    partitions.forEach(p -> all.add(new TopicPartition(topic, p.partition())));
                }
            });
            all.removeIf(one -> besides.contains(one.toString()));
            read(consumer, all, record -> OUT.printf("[\"%s\",%s]%n", record.topic(), fields(record)));
        }
    }

    /** {@code [topic, partition, first offset, next offset]} of all partitions, and {@code [group, topic, partition, offset]} in a second list. */
    private static void ends(String server) throws Exception {
        List<String> found = new ArrayList<>();
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("default.api.timeout.ms", "31000");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.listTopics().forEach((topic, partitions) -> partitions.forEach(p -> {
                TopicPartition one = new TopicPartition(topic, p.partition());
                try {
                    long first = consumer.beginningOffsets(List.of(one)).get(one);
                    found.add(String.format("[\"%s\",%d,%d,%d]", topic, p.partition(), first, consumer.endOffsets(List.of(one)).get(one)));
                } catch (org.apache.kafka.common.errors.TimeoutException nobody) {
                    found.add(String.format("[\"%s\",%d,null,null]", topic, p.partition()));
                }
            }));
        }
        OUT.println(found);
        found.clear();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            for (var group : admin.listConsumerGroups().all().get()) {
                admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get().forEach((one, at) -> {
                    found.add(String.format("[\"%s\",\"%s\",%d,%d]", group.groupId(), one.topic(), one.partition(), at.offset()));
                });
            }
        }
        OUT.println(found);
    }

    /** {@code commit GROUP TOPIC OFFSET}: the position of a group in partition 0. */
    private static void commit(String server, String group, String topic, long offset) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            admin.alterConsumerGroupOffsets(group, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset))).all().get();
        }
    }

    static KafkaConsumer<byte[], byte[]> reader(String server, String isolation) {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("isolation.level", isolation);
        given.put("auto.offset.reset", "earliest");
        given.put("max.poll.records", "5000");
        return new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void read(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> all,
            java.util.function.Consumer<ConsumerRecord<byte[], byte[]>> show) {
        consumer.assign(all);
        consumer.seekToBeginning(all);
        Map<TopicPartition, Long> ends = consumer.endOffsets(all);
        while (ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
            consumer.poll(Duration.ofMillis(500)).forEach(show);
        }
    }

    /** What a group gets of a topic from its committed offsets on, by the classic protocol or that of consumers; it fails where it has none. */
    private static void resume(String server, String group, String topic, String protocol) {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("group.id", group);
        given.put("group.protocol", protocol);
        given.put("auto.offset.reset", "none");
        given.put("enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(200)).forEach(Client::show);
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            while (ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
                consumer.poll(Duration.ofMillis(500)).forEach(Client::show);
            }
        }
    }

    private static void show(ConsumerRecord<byte[], byte[]> record) {
        OUT.printf("[%s]%n", fields(record));
    }

    private static String fields(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(headers.length() > 0 ? "," : "");
            headers.append("[").append(text(header.key().getBytes(StandardCharsets.UTF_8)));
            headers.append(",").append(text(header.value())).append("]");
        }
        return String.format("%d,%d,%d,%s,%s,[%s]", record.partition(), record.offset(), record.timestamp(),
                text(record.key()), text(record.value()), headers);
    }

    private static String text(byte[] data) {
        return data == null ? "null" : '"' + Base64.getEncoder().encodeToString(data) + '"';
    }

    /** Many records of random bytes; the seconds that they took. */
    private static void load(String server, String topic, int count, int size) throws Exception {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("acks", "1");
        byte[] value = new byte[size];
        new java.util.Random(1).nextBytes(value);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            long begin = System.nanoTime();
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, value));
            }
            producer.flush();
            OUT.printf("%.3f%n", (System.nanoTime() - begin) / 1e9);
        }
    }

    /** {@code create TOPIC PARTITIONS REPLICAS NAME=VALUE...}: a topic. */
    private static void create(String server, String[] asked) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int at = 4; at < asked.length; at++) {
            settings.put(asked[at].split("=")[0], asked[at].split("=")[1]);
        }
        NewTopic made = new NewTopic(asked[1], Integer.parseInt(asked[2]), Short.parseShort(asked[3])).configs(settings);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", server))) {
            admin.createTopics(List.of(made)).all().get();
        }
    }

    private static final List<Thread> STORMS = new ArrayList<>();
    /** Microseconds from sending to the acknowledgement, of the first after the last question. */
    private static final BlockingQueue<Long> TOOK = new LinkedBlockingQueue<>(100_000);
    private static volatile boolean stormy;

    /**
     * Write to a topic with acks=all until it is to be calm; what is acknowledged goes to a file, a line each.
     *
     * @param id where there is one, 20 records each are a transaction, and each fifth of these is aborted
     * @param pause milliseconds after each record; 0: a millisecond after each eighth
     */
    private static void storm(String server, String topic, String path, String id, long pause) throws Exception {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("acks", "all");
        given.put("delivery.timeout.ms", "8000");
        given.put("request.timeout.ms", "2500");
        given.put("max.block.ms", id.isEmpty() ? "1500" : "8000");
        given.put("linger.ms", "5");
        given.put("batch.size", "700");
        if (!id.isEmpty()) {
            given.put("transactional.id", id);
        }
        PrintStream acknowledged = new PrintStream(new FileOutputStream(path), true, StandardCharsets.UTF_8);
        stormy = true;
        Thread storm = new Thread(() -> {
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer())) {
                if (!id.isEmpty()) {
                    producer.initTransactions();
                }
                for (int number = 0; stormy; number++) {
                    String text = "storm-" + number;
                    byte[] key = ("storm-" + number % 1000).getBytes(StandardCharsets.UTF_8);
                    byte[] value = text.getBytes(StandardCharsets.UTF_8);
                    try {
                        if (!id.isEmpty() && number % 20 == 0) {
                            if (number % 100 == 0 && number > 0) {
                                producer.abortTransaction();
                            } else if (number > 0) {
                                producer.commitTransaction();
                            }
                            producer.beginTransaction();
                        }
                        long began = System.nanoTime();
                        producer.send(new ProducerRecord<>(topic, key, value), (written, error) -> {
                            if (error == null) {
                                TOOK.offer((System.nanoTime() - began) / 1000);
                                acknowledged.println(written.partition() + " " + written.offset() + " " + text);
                            }
                        });
                        Thread.sleep(pause > 0 ? pause : number % 8 == 0 ? 1 : 0);
                    } catch (InterruptedException | org.apache.kafka.common.KafkaException failed) {
                        System.err.println(failed);
                    }
                }
                producer.close(Duration.ZERO);
            }
            acknowledged.close();
        });
        STORMS.add(storm);
        storm.start();
    }

    /** How many records were acknowledged since the last question, and of the microseconds that they took the median and the 99th of a hundred. */
    private static void latency() {
        List<Long> took = new ArrayList<>();
        TOOK.drainTo(took);
        Collections.sort(took);
        int count = took.size();
        OUT.printf("[%d,%d,%d]%n", count, count == 0 ? 0 : took.get(count / 2), count == 0 ? 0 : took.get(count * 99 / 100));
    }

    private static void calm() throws InterruptedException {
        stormy = false;
        for (Thread storm : STORMS) {
            storm.join();
        }
        STORMS.clear();
    }

    /** Some records in a transaction that nobody ends, as after the death of a client. */
    private static void leave(String server, String topic, int count, String id) throws Exception {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        given.put("transactional.id", id);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        producer.beginTransaction();
        for (int number = 0; number < count; number++) {
            byte[] text = ("left-" + number).getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(topic, text, text));
        }
        producer.flush();
        producer.close(Duration.ZERO);
    }

    /** Some records, to all partitions in turn; with a transactional id as one transaction. */
    private static void write(String server, String topic, int count, String id) throws Exception {
        Properties given = new Properties();
        given.put("bootstrap.servers", server);
        if (!id.isEmpty()) {
            given.put("transactional.id", id);
        }
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (!id.isEmpty()) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            int partitions = producer.partitionsFor(topic).size();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                byte[] text = ("java-" + number).getBytes(StandardCharsets.UTF_8);
                sent.add(producer.send(new ProducerRecord<>(topic, number % partitions, text, text)));
            }
            if (!id.isEmpty()) {
                producer.commitTransaction();
            }
            for (Future<RecordMetadata> each : sent) {
                OUT.printf("[%d,%d]%n", each.get().partition(), each.get().offset());
            }
        }
    }
}
