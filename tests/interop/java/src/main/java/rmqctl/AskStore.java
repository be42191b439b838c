package rmqctl;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store with the released classes and answers questions from standard input, one a line, fields divided by tabs:
 * {@code key TOPIC KEY MAX BEGIN END}, {@code time TOPIC QUEUE TIME}, {@code get TOPIC QUEUE OFFSET MAX}. Arguments: directory, then
 * the sizes of log and queue files, index slots and entries. Compiles and runs against 4.9 and 5.x alike.
 */
public final class AskStore {
    private static final int PHYSICAL_OFFSET = 28;

    public static void main(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(args[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(args[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(args[2]));
        config.setMaxHashSlotNum(Integer.parseInt(args[3]));
        config.setMaxIndexNum(Integer.parseInt(args[4]));
        config.setHaListenPort(0);
        DefaultMessageStore store = open(config);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(answer(store, line.split("\t", -1))).append('\n');
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
        Runtime.getRuntime().halt(0); // threads of the store may wait for minutes; the copy is thrown away
    }

    private static String answer(DefaultMessageStore store, String[] words) throws Exception {
        switch (words[0]) {
            case "key":
                return byKey(store, words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]), Long.parseLong(words[5]));
            case "time":
                return byTime(store, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            default:
                return byOffset(store, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]));
        }
    }

    private static String byKey(DefaultMessageStore store, String topic, String key, int max, long begin, long end) throws Exception {
        Object index = field(store, "indexService");
        Object found = call(index, "queryOffset", topic, key, max, begin, end);
        List<?> offsets = (List<?>) call(found, "getPhyOffsets");
        QueryMessageResult result = (QueryMessageResult) call(store, "queryMessage", topic, key, max, begin, end);
        return "{\"index\":" + offsets + ",\"store\":" + offsets(result.getMessageBufferList()) + "}";
    }

    private static String byTime(DefaultMessageStore store, String topic, int queue, long time) throws Exception {
        String answer = "{\"answer\":" + store.getOffsetInQueueByTime(topic, queue, time);
        for (Method method : store.getClass().getMethods()) {
            if (method.getName().equals("getOffsetInQueueByTime") && method.getParameterCount() == 4) {
                for (Object boundary : method.getParameterTypes()[3].getEnumConstants()) {
                    String name = boundary.toString().toLowerCase();
                    answer += ",\"" + name + "\":" + method.invoke(store, topic, queue, time, boundary);
                }
            }
        }
        return answer + "}";
    }

    private static String byOffset(DefaultMessageStore store, String topic, int queue, long offset, int max) {
        GetMessageResult result = store.getMessage("rmqctl", topic, queue, offset, max, null);
        String answer = String.format("{\"status\":\"%s\",\"next\":%d,\"min\":%d,\"max\":%d,\"offsets\":%s}", result.getStatus(),
            result.getNextBeginOffset(), result.getMinOffset(), result.getMaxOffset(), offsets(result.getMessageBufferList()));
        result.release();
        return answer;
    }

    private static List<Long> offsets(List<ByteBuffer> records) {
        List<Long> found = new ArrayList<>();
        for (ByteBuffer record : records) {
            found.add(record.getLong(record.position() + PHYSICAL_OFFSET));
        }
        return found;
    }

    private static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
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
                values.add(new ConcurrentHashMap<>());
            }
        }
        return (DefaultMessageStore) maker.newInstance(values.toArray());
    }

    private static Object field(Object object, String name) throws Exception {
        Field field = DefaultMessageStore.class.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    /** Calls the method of a name with the fewest parameters that take the values; those behind them are null. */
    private static Object call(Object object, String name, Object... values) throws Exception {
        Method best = null;
        for (Method method : object.getClass().getMethods()) {
            boolean fits = method.getName().equals(name) && method.getParameterCount() >= values.length;
            if (fits && (best == null || method.getParameterCount() < best.getParameterCount())) {
                best = method;
            }
        }
        Object[] all = new Object[best.getParameterCount()];
        System.arraycopy(values, 0, all, 0, values.length);
        best.setAccessible(true);
        return best.invoke(object, all);
    }

    private AskStore() {
    }
}
