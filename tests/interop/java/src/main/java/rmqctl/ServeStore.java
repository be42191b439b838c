package rmqctl;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens stores with the released classes, one a line of standard input: directory, sizes of log and queue files, index slots and
 * entries, and of batch queue files, divided by tabs. Each is loaded, started, read from the smallest to the largest offset of every queue, and stopped. One
 * line of JSON a store: whether it loaded, the messages by queue, and every answer that was not FOUND. Compiles and runs against
 * 4.9 and 5.x alike.
 */
public final class ServeStore {
    private static final int PHYSICAL_OFFSET = 28;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split("\t")));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** What a store answers; a failure is an answer too, and must not leave the broker's threads behind. */
    private static String answer(String[] words) {
        try {
            return serve(words);
        } catch (Throwable failure) {
            failure.printStackTrace();
            return "{\"load\":false,\"failure\":\"" + failure.toString().replaceAll("[^\\w .:/-]", "") + "\"}";
        }
    }

    private static String serve(String[] words) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(words[0]);
        config.setStorePathCommitLog(words[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(words[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(words[2]));
        config.setMaxHashSlotNum(Integer.parseInt(words[3]));
        config.setMaxIndexNum(Integer.parseInt(words[4]));
        config.setHaListenPort(0);
        set(config, "setMapperFileSizeBatchConsumeQueue", int.class, Integer.parseInt(words[5]));
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (File topic : listed(new File(words[0], "batchconsumequeue"))) {
            TopicConfig batch = new TopicConfig(topic.getName());
            set(batch, "setAttributes", Map.class, new HashMap<>(Map.of("queue.type", "BatchCQ")));
            topics.put(topic.getName(), batch);
        }
        DefaultMessageStore store = open(config, topics);
        if (!store.load()) {
            return "{\"load\":false}";
        }
        store.start();
        StringBuilder queues = new StringBuilder();
        TreeMap<String, Integer> odd = new TreeMap<>();
        for (String[] queue : queues(new File(words[0], "consumequeue"))) {
            List<Long> found = read(store, queue[0], Integer.parseInt(queue[1]), odd);
            queues.append(queues.length() == 0 ? "" : ",").append(String.format("\"%s/%s\":%s", queue[0], queue[1], found));
        }
        String answer = String.format("{\"load\":true,\"min\":%d,\"max\":%d,\"odd\":%s,\"queues\":{%s}}", store.getMinPhyOffset(),
            store.getMaxPhyOffset(), json(odd), queues);
        store.shutdown();
        return answer;
    }

    private static List<Long> read(DefaultMessageStore store, String topic, int queue, TreeMap<String, Integer> odd) throws Exception {
        List<Long> found = new ArrayList<>();
        long offset = store.getMinOffsetInQueue(topic, queue);
        long end = store.getMaxOffsetInQueue(topic, queue);
        while (offset < end) {
            GetMessageResult result = store.getMessage("rmqctl", topic, queue, offset, 32, null);
            for (ByteBuffer record : result.getMessageBufferList()) {
                found.add(record.getLong(record.position() + PHYSICAL_OFFSET));
            }
            if (result.getMessageCount() == 0) {
                odd.merge(topic + "/" + queue + " " + result.getStatus() + " at " + offset, 1, Integer::sum);
            }
            offset = Math.max(result.getNextBeginOffset(), offset + 1);
            result.release();
        }
        return found;
    }

    private static List<String[]> queues(File directory) {
        List<String[]> found = new ArrayList<>();
        for (File topic : listed(directory)) {
            for (File queue : listed(topic)) {
                found.add(new String[] {topic.getName(), queue.getName()});
            }
        }
        return found;
    }

    private static File[] listed(File directory) {
        File[] found = directory.listFiles(File::isDirectory);
        return found == null ? new File[0] : found;
    }

    private static String json(TreeMap<String, Integer> counts) {
        StringBuilder out = new StringBuilder();
        counts.forEach((name, count) -> out.append(out.length() == 0 ? "" : ",").append(String.format("\"%s\":%d", name, count)));
        return "{" + out + "}";
    }

    /** Calls a setter that only 5.x has. */
    private static void set(Object object, String name, Class<?> type, Object value) throws Exception {
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().equals(name) && method.getParameterTypes()[0] == type) {
                method.invoke(object, value);
            }
        }
    }

    private static DefaultMessageStore open(MessageStoreConfig config, ConcurrentHashMap<String, TopicConfig> topics) throws Exception {
        Constructor<?> maker = DefaultMessageStore.class.getConstructors()[0];
        for (Constructor<?> other : DefaultMessageStore.class.getConstructors()) {
            maker = other.getParameterCount() >= maker.getParameterCount() ? other : maker;
        }
        List<Object> values = new ArrayList<>();
        for (Class<?> type : maker.getParameterTypes()) {
            if (type == MessageStoreConfig.class) {
                values.add(config);
            } else if (type == BrokerStatsManager.class) {
                values.add(new BrokerStatsManager("rmqctl", false));
            } else if (type == BrokerConfig.class) {
                values.add(new BrokerConfig());
            } else if (type.getSimpleName().equals("MessageArrivingListener")) {
                values.add(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, given) -> null));
            } else {
                values.add(topics);
            }
        }
        return (DefaultMessageStore) maker.newInstance(values.toArray());
    }
}
