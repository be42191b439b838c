package rmqctl;

import java.io.File;
import java.lang.reflect.Constructor;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.*; // MessageExtBrokerInner is here in 5.x,
import org.apache.rocketmq.store.*; // and here in 4.x
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Starts the released store on a directory, serves every message, answers for keys, writes more, stops:
 * {@code ServeProduced DIRECTORY LOG_FILE QUEUE_FILE SLOTS ENTRIES KEYS PUTS}. Prints a JSON object a line.
 */
public final class ServeProduced {
    public static void main(String[] args) throws Exception {
        DefaultMessageStore store = open(args);
        boolean loaded = store.load();
        System.out.printf("{\"kind\":\"load\",\"ok\":%b,\"end\":%d}%n", loaded, store.getMaxPhyOffset());
        if (!loaded) {
            System.exit(1);
        }
        store.start();
        settle(store);
        for (File topic : directories(new File(args[0], "consumequeue"))) {
            for (File queue : directories(topic)) {
                serve(store, topic.getName(), Integer.parseInt(queue.getName()));
            }
        }
        query(store, Integer.parseInt(args[5]));
        put(store, Integer.parseInt(args[6]));
        settle(store);
        System.out.printf("{\"kind\":\"end\",\"end\":%d}%n", store.getMaxPhyOffset());
        store.shutdown();
        System.exit(0);
    }

    private static DefaultMessageStore open(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(args[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(args[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(args[2]));
        config.setMaxHashSlotNum(Integer.parseInt(args[3]));
        config.setMaxIndexNum(Integer.parseInt(args[4]));
        config.setHaListenPort(0);
        BrokerStatsManager stats = new BrokerStatsManager("rmqctl", false);
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (File topic : directories(new File(args[0], "consumequeue"))) {
            topics.put(topic.getName(), new TopicConfig(topic.getName()));
        }
        MessageArrivingListener nobody = (a, b, c, d, e, f, g) -> { };
        for (Constructor<?> made : DefaultMessageStore.class.getConstructors()) {
            if (made.getParameterCount() == 4) {
                return (DefaultMessageStore) made.newInstance(config, stats, nobody, new BrokerConfig());
            }
            if (made.getParameterCount() == 5) {
                return (DefaultMessageStore) made.newInstance(config, stats, nobody, new BrokerConfig(), topics);
            }
        }
        throw new IllegalStateException("no constructor that is known");
    }

    private static void serve(DefaultMessageStore store, String topic, int queue) throws Exception {
        long min = store.getMinOffsetInQueue(topic, queue);
        long max = store.getMaxOffsetInQueue(topic, queue);
        System.out.printf("{\"kind\":\"queue\",\"topic\":\"%s\",\"queue_id\":%d,\"min\":%d,\"max\":%d}%n", topic, queue, min, max);
        for (long offset = min; offset < max;) {
            GetMessageResult found = store.getMessage("group", topic, queue, offset, 32, null);
            for (ByteBuffer buffer : found.getMessageBufferList()) {
                print(MessageDecoder.decode(buffer));
            }
            if (found.getNextBeginOffset() <= offset) {
                System.out.printf("{\"kind\":\"stuck\",\"status\":\"%s\",\"offset\":%d}%n", found.getStatus(), offset);
                return;
            }
            offset = found.getNextBeginOffset();
            found.release();
        }
    }

    private static void print(MessageExt message) {
        String properties = MessageDecoder.messageProperties2String(new TreeMap<>(message.getProperties()));
        System.out.printf(
            "{\"kind\":\"message\",\"topic\":\"%s\",\"queue_id\":%d,\"queue_offset\":%d,\"physical_offset\":%d,"
                + "\"store_timestamp\":%d,\"body\":\"%s\",\"properties\":\"%s\"}%n",
            message.getTopic(), message.getQueueId(), message.getQueueOffset(), message.getCommitLogOffset(),
            message.getStoreTimestamp(), base64(message.getBody()), base64(properties.getBytes()));
    }

    private static String base64(byte[] data) {
        return data == null ? "" : Base64.getEncoder().encodeToString(data);
    }

    private static void query(DefaultMessageStore store, int keys) throws Exception {
        for (int i = 0; i < keys; i++) {
            QueryMessageResult found = store.queryMessage("T" + i % 2, "key-" + i, 32, 0, Long.MAX_VALUE);
            System.out.printf("{\"kind\":\"key\",\"number\":%d,\"found\":%d}%n", i, found.getMessageBufferList().size());
            found.release();
        }
    }

    private static void put(DefaultMessageStore store, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T" + i % 2);
            message.setBody(("written by the broker " + i).getBytes());
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            message.setKeys("again-" + i);
            MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("%032d", i));
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult result = store.putMessage(message);
            System.out.printf("{\"kind\":\"put\",\"status\":\"%s\",\"queue_offset\":%d}%n", result.getPutMessageStatus(),
                result.getAppendMessageResult().getLogicsOffset());
        }
    }

    private static void settle(DefaultMessageStore store) throws Exception {
        do {
            Thread.sleep(300);
        } while (store.dispatchBehindBytes() > 0);
    }

    private static File[] directories(File parent) {
        File[] found = parent.listFiles(File::isDirectory);
        return found == null ? new File[0] : found;
    }
}
