package rmqctl;

import com.alibaba.rocketmq.broker.BrokerController;
import com.alibaba.rocketmq.client.consumer.DefaultMQPushConsumer;
import com.alibaba.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import com.alibaba.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import com.alibaba.rocketmq.client.producer.DefaultMQProducer;
import com.alibaba.rocketmq.client.producer.LocalTransactionState;
import com.alibaba.rocketmq.client.producer.TransactionMQProducer;
import com.alibaba.rocketmq.common.BrokerConfig;
import com.alibaba.rocketmq.common.MQVersion;
import com.alibaba.rocketmq.common.MixAll;
import com.alibaba.rocketmq.common.consumer.ConsumeFromWhere;
import com.alibaba.rocketmq.common.message.Message;
import com.alibaba.rocketmq.common.message.MessageDecoder;
import com.alibaba.rocketmq.common.message.MessageExt;
import com.alibaba.rocketmq.common.message.MessageQueue;
import com.alibaba.rocketmq.common.namesrv.NamesrvConfig;
import com.alibaba.rocketmq.namesrv.NamesrvController;
import com.alibaba.rocketmq.remoting.netty.NettyClientConfig;
import com.alibaba.rocketmq.remoting.netty.NettyServerConfig;
import com.alibaba.rocketmq.remoting.protocol.RemotingCommand;
import com.alibaba.rocketmq.store.ConsumeQueue;
import com.alibaba.rocketmq.store.DefaultMessageStore;
import com.alibaba.rocketmq.store.GetMessageResult;
import com.alibaba.rocketmq.store.config.MessageStoreConfig;
import com.alibaba.rocketmq.store.stats.BrokerStatsManager;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Stream;

/**
 * Brokers and stores of RocketMQ 3.2.6 (com.alibaba). {@code fill DIRECTORY SEED SETTING...}: a name server, a broker and clients that write;
 * then it prints a line, and stops in order at the end of its input. {@code serve DIRECTORY SETTING...}: a broker and a consumer of everything, and a
 * producer; what the consumer got. {@code judge SETTING...}: a directory a line, each loaded, started, read and stopped. {@code truth DIRECTORY}:
 * every record as the decoder reads it.
 */
public final class OldBroker {
    private static final PrintStream OUT = System.out;
    private static final String[] KEYS = {"AaAa", "AaBB", "BBBB", "k1", "k2", "ключ", "a b c"};
    private static final int PHYSICAL_OFFSET = 28;

    public static void main(String[] words) throws Exception {
        System.setOut(System.err); // the classes may print, too
        List<String> rest = Arrays.asList(words).subList(1, words.length);
        switch (words[0]) {
            case "fill" -> fill(Path.of(words[1]), Long.parseLong(words[2]), rest.subList(2, rest.size()));
            case "serve" -> serve(Path.of(words[1]), rest.subList(1, rest.size()));
            case "judge" -> judge(rest);
            default -> truth(Path.of(words[1]));
        }
        OUT.flush();
        Runtime.getRuntime().halt(0); // threads are left behind that would keep the process
    }

    // --- a broker with clients ---------------------------------------------------------------------------

    private static NamesrvController names;
    private static BrokerController broker;
    private static String address;

    private static void start(Path root, List<String> settings) throws Exception {
        System.setProperty(RemotingCommand.RemotingVersionKey, Integer.toString(MQVersion.CurrentVersion)); // as BrokerStartup does
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(free());
        NamesrvConfig own = new NamesrvConfig();
        own.setRocketmqHome(System.getProperty("user.home"));
        own.setKvConfigPath(System.getProperty("user.home") + "/kv.json");
        names = new NamesrvController(own, listen);
        names.initialize();
        names.start();
        address = "127.0.0.1:" + listen.getListenPort();
        BrokerConfig config = new BrokerConfig();
        config.setRocketmqHome(System.getProperty("user.home"));
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName("broker-a");
        config.setNamesrvAddr(address);
        NettyServerConfig port = new NettyServerConfig();
        port.setListenPort(free());
        broker = new BrokerController(config, port, new NettyClientConfig(), store(root, settings, config));
        if (!broker.initialize()) {
            throw new IllegalStateException("initialize() is false");
        }
        broker.start();
        while (names.getRouteInfoManager().pickupTopicRouteData("TBW102") == null) {
            Thread.sleep(100);
        }
    }

    private static MessageStoreConfig store(Path root, List<String> settings, BrokerConfig broker) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root + "/commitlog");
        config.setHaListenPort(free());
        config.setDiskMaxUsedSpaceRatio(95);
        Properties given = new Properties();
        settings.stream().map(s -> s.split("=", 2)).forEach(s -> given.setProperty(s[0], s[1]));
        MixAll.properties2Object(given, config);
        if (broker != null) {
            MixAll.properties2Object(given, broker);
        }
        return config;
    }

    private static void fill(Path root, long seed, List<String> settings) throws Exception {
        start(root, settings);
        Random draw = new Random(seed);
        DefaultMQProducer producer = new DefaultMQProducer("Old_p" + seed);
        producer.setNamesrvAddr(address);
        producer.setInstanceName("p" + seed);
        producer.start();
        TransactionMQProducer decider = new TransactionMQProducer("Old_t" + seed);
        decider.setNamesrvAddr(address);
        decider.setInstanceName("t" + seed);
        decider.setTransactionCheckListener(message -> LocalTransactionState.values()[2]);
        decider.start();
        Object[][] topics = {{"OldOrders", 4}, {"OldLog", 2}, {"OldOne", 1}, {"OldTx", 2}, {"OldRetry", 1}, {"OldEmpty", 1}};
        for (Object[] topic : seed == 1 ? topics : new Object[0][]) {
            producer.createTopic("TBW102", (String) topic[0], (Integer) topic[1]);
        }
        Thread.sleep(1000);
        for (int number = 0; number < 170; number++) {
            Message message = new Message(number % 3 == 0 ? "OldLog" : number % 10 == 9 ? "OldOne" : "OldOrders", body(draw, number));
            if (number % 2 == 0) {
                message.setKeys(KEYS[draw.nextInt(KEYS.length)]);
            }
            if (number % 4 != 1) {
                message.setTags(number % 8 == 0 ? "标签" : number % 5 == 0 ? "polygenelubricants" : "T" + draw.nextInt(3));
            }
            if (number % 7 == 0) {
                message.putUserProperty("user.prop", "v=" + number + " 中文");
            }
            if (number % 40 == 11) {
                message.setDelayTimeLevel(number % 80 == 11 ? 1 : 7);
            }
            producer.send(message);
            if (number % 12 == 0) {
                LocalTransactionState end = LocalTransactionState.values()[number / 12 % 3];
                decider.sendMessageInTransaction(new Message("OldTx", "T", "tx-" + number, body(draw, number)), (m, arg) -> end, null);
            }
        }
        for (int number = 0; number < 6; number++) {
            producer.send(new Message("OldRetry", "R", "retry-" + number, body(draw, number)));
        }
        consume("Old_grpRetry", "OldRetry", 6, ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consume("Old_grpLag", "OldOrders", 30, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consume("Old_grpFull", "OldLog", 57, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        OUT.println("written");
        OUT.flush();
        if (System.in.read() >= 0) { // to be killed: it goes on writing
            for (int number = 0; ; number++) {
                producer.send(new Message("OldOrders", "K", "k" + number, body(draw, number)));
                OUT.println(number);
                OUT.flush();
            }
        }
        producer.shutdown();
        decider.shutdown();
        broker.shutdown();
        names.shutdown();
    }

    private static byte[] body(Random draw, int number) {
        byte[] body = new byte[number % 50 == 49 ? 9000 : 1 + draw.nextInt(400)];
        draw.nextBytes(body);
        if (number % 3 > 0) {
            Arrays.fill(body, (byte) ('a' + number % 26));
        }
        return body;
    }

    private static List<Object> consume(String group, String topic, int count, ConsumeConcurrentlyStatus answer) throws Exception {
        Map<Long, Object> got = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName(group + topic);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                got.put(message.getCommitLogOffset(), row(message));
            }
            return answer;
        });
        consumer.start();
        long end = System.currentTimeMillis() + 20_000;
        for (int last = -1, idle = 0; System.currentTimeMillis() < end && got.size() < count && idle < 30; Thread.sleep(100)) {
            idle = got.size() == last && last > 0 ? idle + 1 : 0;
            last = got.size();
        }
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Thread.sleep(300);
        consumer.shutdown();
        return new ArrayList<>(new TreeMap<>(got).values());
    }

    private static void serve(Path root, List<String> settings) throws Exception {
        start(root, settings);
        Map<String, Object> found = new TreeMap<>();
        for (String topic : broker.getTopicConfigManager().getTopicConfigTable().keySet()) {
            if (topic.startsWith("Old")) {
                found.put(topic, consume("Old_serve" + topic, topic, Integer.MAX_VALUE, ConsumeConcurrentlyStatus.CONSUME_SUCCESS));
            }
        }
        DefaultMQProducer producer = new DefaultMQProducer("Old_serve");
        producer.setNamesrvAddr(address);
        producer.start();
        producer.send(new Message("OldOrders", "S", "served", new byte[] {1, 2, 3}));
        OUT.println(Json.text(Json.object("topics", found, "end", broker.getMessageStore().getMaxPhyOffset())));
        OUT.flush();
        producer.shutdown();
        broker.shutdown();
        names.shutdown();
    }

    // --- stores without a broker -------------------------------------------------------------------------

    private static void judge(List<String> settings) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(12);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Path root = Path.of(line);
            pool.submit(() -> {
                Object answer;
                try {
                    answer = judge(root, settings);
                } catch (Throwable problem) {
                    answer = Json.object("outcome", "failed", "problem", problem + " " + Arrays.toString(problem.getStackTrace()));
                }
                synchronized (OUT) {
                    OUT.println(Json.text(Json.object("store", root.toString(), "answer", answer)));
                    OUT.flush();
                }
            });
        }
        pool.shutdown();
        while (!pool.isTerminated()) {
            Thread.sleep(50);
        }
    }

    private static Object judge(Path root, List<String> settings) throws Exception {
        DefaultMessageStore store = new DefaultMessageStore(store(root, settings, null), new BrokerStatsManager("old"));
        if (!store.load()) {
            return Json.object("outcome", "load failed");
        }
        Object loaded = state(store);
        // told that it is no master, it starts no delivery of delayed messages: the answers stay those of the files
        Field delivery = DefaultMessageStore.class.getDeclaredField("scheduleMessageService");
        delivery.setAccessible(true);
        delivery.set(store, null);
        store.start();
        Map<String, Object> answer = Json.object("outcome", "started", "afterLoad", loaded, "afterStart", state(store), "readAll", read(store));
        store.shutdown();
        return answer;
    }

    private static Map<String, Object> queues(DefaultMessageStore store) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, ids) -> ids.forEach((id, queue) -> found.put(topic + "/" + id, queue)));
        return found;
    }

    private static Map<String, Object> state(DefaultMessageStore store) throws Exception {
        Map<String, Object> ranges = new TreeMap<>();
        for (Map.Entry<String, Object> each : queues(store).entrySet()) {
            ConsumeQueue queue = (ConsumeQueue) each.getValue();
            ranges.put(each.getKey(), List.of(queue.getMinOffsetInQuque(), queue.getMaxOffsetInQuque()));
        }
        return Json.object("minPhy", store.getCommitLog().getMinOffset(), "maxPhy", store.getMaxPhyOffset(), "queues", ranges);
    }

    /** Physical offsets of what getMessage returns, queue by queue. */
    private static Map<String, Object> read(DefaultMessageStore store) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<String, Object> each : queues(store).entrySet()) {
            ConsumeQueue queue = (ConsumeQueue) each.getValue();
            List<Object> physical = new ArrayList<>();
            for (long offset = queue.getMinOffsetInQuque(); offset < queue.getMaxOffsetInQuque(); offset++) {
                GetMessageResult result = store.getMessage("old", queue.getTopic(), queue.getQueueId(), offset, 1, null);
                for (ByteBuffer record : result.getMessageBufferList()) {
                    physical.add(record.getLong(record.position() + PHYSICAL_OFFSET));
                }
                result.release();
            }
            found.put(each.getKey(), physical);
        }
        return found;
    }

    private static int free() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    // --- records ----------------------------------------------------------------------------------------

    private static void truth(Path root) throws Exception {
        List<Path> files;
        try (Stream<Path> all = Files.list(root.resolve("commitlog"))) {
            files = all.sorted().toList();
        }
        int number = 0;
        for (Path file : files) {
            ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(file));
            long base = Long.parseLong(file.getFileName().toString());
            int at = 0;
            for (; at + 8 <= data.capacity() && data.getInt(at) > 0; at += data.getInt(at)) {
                if (data.getInt(at + 4) == -875286124) {
                    OUT.println(Json.text(Json.object("kind", "blank", "file", file.getFileName().toString(), "pos", at, "size", data.getInt(at))));
                    continue;
                }
                ByteBuffer part = data.duplicate();
                part.position(at).limit(at + data.getInt(at));
                byte[] record = new byte[data.getInt(at)];
                part.duplicate().get(record);
                Map<String, Object> row = new LinkedHashMap<>(Json.object("kind", "msg", "n", number++, "file", file.getFileName().toString(), "pos", at));
                row.putAll(row(MessageDecoder.decode(part.slice(), true, false)));
                int stored = ((Number) row.get("bodyLen")).intValue();
                row.put("storedBodyLen", stored);
                row.put("storedBodySha256", row.get("bodySha256"));
                MessageExt plain = MessageDecoder.decode(part.slice(), true, true);
                row.put("bodyLen", plain.getBody() == null ? 0 : plain.getBody().length);
                row.put("bodySha256", sha256(plain.getBody()));
                row.put("recordSha256", sha256(record));
                OUT.println(Json.text(row));
            }
            if (at < data.capacity()) {
                OUT.println(Json.text(Json.object("kind", "end", "file", file.getFileName().toString(), "pos", at, "phy", base + at)));
                break;
            }
        }
    }

    private static Map<String, Object> row(MessageExt message) {
        try {
            return Json.object("commitLogOffset", message.getCommitLogOffset(), "storeSize", message.getStoreSize(), "magic", "DAA320A7", "topic",
                message.getTopic(), "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(), "offsetMsgId", message.getMsgId(),
                "bornTimestamp", message.getBornTimestamp(), "bornHost", message.getBornHost().toString(), "storeTimestamp", message.getStoreTimestamp(),
                "storeHost", message.getStoreHost().toString(), "sysFlag", message.getSysFlag(), "flag", message.getFlag(), "bodyCRC",
                message.getBodyCRC(), "reconsumeTimes", message.getReconsumeTimes(), "preparedTransactionOffset",
                message.getPreparedTransactionOffset(), "keys", message.getKeys(), "tags", message.getTags(), "properties",
                new TreeMap<>(message.getProperties()), "bodyLen", message.getBody() == null ? 0 : message.getBody().length, "bodySha256",
                sha256(message.getBody()));
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static String sha256(byte[] data) throws Exception {
        StringBuilder found = new StringBuilder();
        for (byte one : MessageDigest.getInstance("SHA-256").digest(data == null ? new byte[0] : data)) {
            found.append(String.format("%02x", one));
        }
        return found.toString();
    }

    private OldBroker() {
    }
}
