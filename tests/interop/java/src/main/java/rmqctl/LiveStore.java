package rmqctl;

import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A message store of the release on the class path; compiles and runs against 4.9 and 5.x alike. */
final class LiveStore {
    private static final int PHYSICAL_OFFSET = 28;
    private static final int AT_ONCE = 32;

    private final DefaultMessageStore store;
    /** In 4.x the store itself delivers delayed messages. Told that this runs already, it does not start it: answers stay those of the files. */
    private final AtomicBoolean delivery;

    /** A store at a directory with settings {@code key=value} as in a broker's configuration. */
    LiveStore(String root, List<String> settings) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);
        Properties given = new Properties();
        settings.stream().map(s -> s.split("=", 2)).forEach(s -> given.setProperty(s[0], s[1].replace("<root>", root)));
        BrokerConfig broker = new BrokerConfig();
        MixAll.properties2Object(given, config);
        MixAll.properties2Object(given, broker);
        store = open(config, broker, topics(root));
        delivery = delivery(store);
        delivery.set(true);
    }

    boolean load() {
        return store.load();
    }

    /** Start, and wait until every queue and the index know all records. */
    void start() throws Exception {
        store.start();
        delivery.set(false);
        settle();
    }

    private void settle() throws InterruptedException {
        Thread.sleep(50);
        for (int i = 0; i < 200 && store.dispatchBehindBytes() > 0; i++) {
            Thread.sleep(50);
        }
        Thread.sleep(300);
    }

    void stop() {
        store.shutdown();
    }

    /** Begin and end of the log, and of every queue. */
    Map<String, Object> state() throws Exception {
        Map<String, Object> queues = new TreeMap<>();
        for (var topic : queues().entrySet()) {
            for (int id : topic.getValue()) {
                queues.put(topic.getKey() + "/" + id,
                    List.of(store.getMinOffsetInQueue(topic.getKey(), id), store.getMaxOffsetInQueue(topic.getKey(), id)));
            }
        }
        return Json.object("minPhy", store.getMinPhyOffset(), "maxPhy", store.getMaxPhyOffset(), "queues", queues);
    }

    private Map<String, TreeSet<Integer>> queues() {
        Map<String, TreeSet<Integer>> queues = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, ids) -> queues.put(topic, new TreeSet<>(ids.keySet())));
        return queues;
    }

    /** Every message of every queue from its smallest to its largest offset, and every answer that was not FOUND. */
    Map<String, Object> read() throws Exception {
        List<Object> messages = new ArrayList<>();
        List<Object> odd = new ArrayList<>();
        for (var topic : queues().entrySet()) {
            for (int id : topic.getValue()) {
                read(topic.getKey(), id, messages, odd);
            }
        }
        return Json.object("messages", messages, "odd", odd);
    }

    private void read(String topic, int queue, List<Object> messages, List<Object> odd) throws Exception {
        long offset = store.getMinOffsetInQueue(topic, queue);
        long end = store.getMaxOffsetInQueue(topic, queue);
        while (offset < end) {
            GetMessageResult result = store.getMessage("rmqctl", topic, queue, offset, AT_ONCE, null);
            for (ByteBuffer record : result.getMessageBufferList()) {
                messages.add(message(record.duplicate()));
            }
            if (result.getMessageCount() == 0) {
                odd.add(topic + "/" + queue + " " + result.getStatus() + " at " + offset);
            }
            offset = Math.max(result.getNextBeginOffset(), offset + 1);
            result.release();
        }
    }

    private static Object message(ByteBuffer record) throws Exception {
        MessageExt message = MessageDecoder.decode(record.duplicate(), true, true);
        if (message == null) {
            return Json.object("physical", record.getLong(record.position() + PHYSICAL_OFFSET), "undecodable", true);
        }
        return message(message);
    }

    /** What a consumer sees of a message. */
    static Map<String, Object> message(MessageExt message) throws Exception {
        return Json.object("physical", message.getCommitLogOffset(), "size", message.getStoreSize(), "topic", message.getTopic(),
            "queue", message.getQueueId(), "offset", message.getQueueOffset(), "id", offsetId(message),
            "born", message.getBornTimestamp(), "stored", message.getStoreTimestamp(), "flag", message.getFlag(),
            "reconsumed", message.getReconsumeTimes(), "prepared", message.getPreparedTransactionOffset(),
            "properties", message.getProperties() == null ? Map.of() : new TreeMap<>(message.getProperties()), "body", sha256(message.getBody()));
    }

    private static String offsetId(MessageExt message) {
        int size = ((InetSocketAddress) message.getStoreHost()).getAddress().getAddress().length + 12;
        return MessageDecoder.createMessageId(ByteBuffer.allocate(size), message.getStoreHostBytes(), message.getCommitLogOffset());
    }

    private static String sha256(byte[] bytes) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes == null ? new byte[0] : bytes)) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    /** Physical offsets of the records a key query answers. */
    List<Long> key(String topic, String key, int most, long begin, long end) throws Exception {
        List<Long> found = new ArrayList<>();
        QueryMessageResult result = store.queryMessage(topic, key, most, begin, end);
        for (ByteBuffer record : result.getMessageBufferList()) {
            found.add(record.getLong(record.position() + PHYSICAL_OFFSET));
        }
        result.release();
        return found;
    }

    /** The queue offset that belongs to a time; {@code boundary} LOWER or UPPER asks as 5.1.1 and later can be asked. */
    long time(String topic, int queue, long time, String boundary) throws Exception {
        if (boundary.isEmpty()) {
            return store.getOffsetInQueueByTime(topic, queue, time);
        }
        for (Method method : store.getClass().getMethods()) {
            if (method.getName().equals("getOffsetInQueueByTime") && method.getParameterCount() == 4) {
                Object side = method.getParameterTypes()[3].getField(boundary).get(null);
                return (long) method.invoke(store, topic, queue, time, side);
            }
        }
        throw new IllegalArgumentException("this release knows no boundary");
    }

    /** Status, next offset and physical offsets of what a pull answers. */
    Map<String, Object> get(String topic, int queue, long offset, int most) throws Exception {
        GetMessageResult result = store.getMessage("rmqctl", topic, queue, offset, most, null);
        List<Long> found = new ArrayList<>();
        for (ByteBuffer record : result.getMessageBufferList()) {
            found.add(record.getLong(record.position() + PHYSICAL_OFFSET));
        }
        Map<String, Object> answer = Json.object("status", result.getStatus().name(), "next", result.getNextBeginOffset(),
            "min", result.getMinOffset(), "max", result.getMaxOffset(), "found", found);
        result.release();
        return answer;
    }

    /** Put messages in turn into the queues of a topic; the physical offset and queue offset of each. */
    List<Object> put(String topic, int queues, int count, String prefix) throws Exception {
        List<Object> done = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            MessageExt message = (MessageExt) inner().getConstructor().newInstance();
            message.setTopic(topic);
            message.setQueueId(n % queues);
            message.setBody((prefix + " body " + n).getBytes(StandardCharsets.UTF_8));
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("192.168.1.10", 54321));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            MessageAccessor.putProperty(message, "UNIQ_KEY", prefix + n);
            message.setKeys(prefix + "-" + n);
            message.setTags("TagJ");
            call(message, "setTagsCode", (long) "TagJ".hashCode());
            call(message, "setPropertiesString", MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult result = (PutMessageResult) call(store, "putMessage", message);
            if (!result.isOk()) {
                throw new IllegalStateException(result.getPutMessageStatus().name());
            }
            done.add(List.of(result.getAppendMessageResult().getWroteOffset(), result.getAppendMessageResult().getLogicsOffset()));
        }
        settle();
        return done;
    }

    /** Where {@code MessageExtBrokerInner} lies: it moved from the store to the common classes in 5.0. */
    private static Class<?> inner() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.rocketmq.common.message.MessageExtBrokerInner");
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.rocketmq.store.MessageExtBrokerInner");
        }
    }

    /** Calls the method of that name that takes the value, null where there is none. */
    private static Object call(Object object, String name, Object value) throws Exception {
        for (Method method : object.getClass().getMethods()) {
            boolean fits = method.getName().equals(name) && method.getParameterCount() == 1;
            if (fits && (method.getParameterTypes()[0].isInstance(value) || method.getParameterTypes()[0].isPrimitive())) {
                return method.invoke(object, value);
            }
        }
        return null;
    }

    /** As config/topics.json says; without that file topics with batch queues must say so in their attributes, or the store does not start. */
    private static ConcurrentHashMap<String, TopicConfig> topics(String root) throws Exception {
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        Path written = Path.of(root, "config", "topics.json");
        if (Files.exists(written)) {
            Object table = written(Files.readString(written));
            ((Map<?, ?>) table.getClass().getMethod("getTopicConfigTable").invoke(table))
                .forEach((name, topic) -> topics.put((String) name, (TopicConfig) topic));
            return topics;
        }
        String[] names = new File(root, "batchconsumequeue").list();
        for (String name : names == null ? new String[0] : names) {
            TopicConfig topic = new TopicConfig(name);
            call(topic, "setAttributes", new HashMap<>(Map.of("queue.type", "BatchCQ")));
            topics.put(name, topic);
        }
        return topics;
    }

    /** What a broker reads of topics.json: the class moved from the common to the remoting classes in 5.0. */
    private static Object written(String json) throws Exception {
        Class<?> table;
        try {
            table = Class.forName("org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper");
        } catch (ClassNotFoundException older) {
            table = Class.forName("org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper");
        }
        return table.getMethod("fromJson", String.class, Class.class).invoke(null, json, table);
    }

    private static AtomicBoolean delivery(DefaultMessageStore store) throws Exception {
        try {
            Field service = DefaultMessageStore.class.getDeclaredField("scheduleMessageService");
            service.setAccessible(true);
            Field started = service.getType().getDeclaredField("started");
            started.setAccessible(true);
            return (AtomicBoolean) started.get(service.get(store));
        } catch (NoSuchFieldException newer) {
            return new AtomicBoolean();
        }
    }

    private static DefaultMessageStore open(MessageStoreConfig config, BrokerConfig broker, ConcurrentHashMap<String, TopicConfig> topics)
        throws Exception {
        boolean inDatabase = "defaultRocksDB".equals(storeType(config));
        Class<?> kind = inDatabase ? Class.forName("org.apache.rocketmq.store.RocksDBMessageStore") : DefaultMessageStore.class;
        Constructor<?> maker = kind.getConstructors()[0];
        for (Constructor<?> other : kind.getConstructors()) {
            maker = other.getParameterCount() >= maker.getParameterCount() ? other : maker;
        }
        List<Object> values = new ArrayList<>();
        for (Class<?> type : maker.getParameterTypes()) {
            if (type == MessageStoreConfig.class) {
                values.add(config);
            } else if (type == BrokerStatsManager.class) {
                values.add(stats());
            } else if (type == BrokerConfig.class) {
                values.add(broker);
            } else if (type.getSimpleName().equals("MessageArrivingListener")) {
                values.add(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, given) -> null));
            } else {
                values.add(topics);
            }
        }
        return (DefaultMessageStore) maker.newInstance(values.toArray());
    }

    /** Where the queues lie; releases before 5.2 have no such setting. */
    private static Object storeType(MessageStoreConfig config) throws Exception {
        try {
            return MessageStoreConfig.class.getMethod("getStoreType").invoke(config);
        } catch (NoSuchMethodException older) {
            return "default";
        }
    }

    /** Counters of a broker; 4.5 makes them from a name alone. */
    private static BrokerStatsManager stats() throws Exception {
        try {
            return BrokerStatsManager.class.getConstructor(String.class, boolean.class).newInstance("rmqctl", false);
        } catch (NoSuchMethodException older) {
            return BrokerStatsManager.class.getConstructor(String.class).newInstance("rmqctl");
        }
    }
}
