package rmqctl;

import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * What a whole broker of the release has once it has started: {@code StartedBroker DIRECTORY SETTING...}. One JSON line: whether it starts, the
 * ends of the log, the topics it knows, the ends of their queues, what groups have committed, and how many timers wait.
 *
 * <p>It is compiled against com.alibaba.rocketmq, too, whose classes lack or misspell some methods: those are called by name.
 */
public final class StartedBroker {
    private static final int SETTLED = 5;
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] args) {
        PrintStream out = System.out;
        System.setOut(System.err); // the broker may print, too
        Object answer;
        try {
            answer = start(args);
        } catch (Throwable problem) {
            problem.printStackTrace();
            answer = Json.object("starts", false, "error", String.valueOf(problem));
        }
        out.println(Json.text(answer));
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Object start(String[] args) throws Exception {
        Properties given = new Properties();
        Arrays.stream(args).skip(1).map(s -> s.split("=", 2)).forEach(s -> given.setProperty(s[0], s[1]));
        MessageStoreConfig settings = new MessageStoreConfig();
        settings.setStorePathRootDir(args[0]);
        settings.setStorePathCommitLog(args[0] + "/commitlog");
        settings.setHaListenPort(free());
        settings.setDiskMaxUsedSpaceRatio(99);
        settings.setFileReservedTime(24 * 3650);
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        MixAll.properties2Object(given, settings);
        MixAll.properties2Object(given, config);
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(free());
        BrokerController broker = new BrokerController(config, listen, new NettyClientConfig(), settings);
        long begin = System.nanoTime();
        long worked = worked();
        if (!broker.initialize()) {
            return Json.object("starts", false, "error", "initialize() is false");
        }
        broker.start();
        long milliseconds = (System.nanoTime() - begin) / 1_000_000;
        long processor = (worked() - worked) / 1_000_000;
        MessageStore store = broker.getMessageStore();
        Map<String, Object> topics = new TreeMap<>();
        broker.getTopicConfigManager().getTopicConfigTable().forEach((name, topic) -> topics.put(name, topic.getReadQueueNums()));
        Map<String, Object> offsets = new TreeMap<>(broker.getConsumerOffsetManager().getOffsetTable());
        Map<String, Object> queues = new TreeMap<>();
        int same = 0;
        for (long end = System.currentTimeMillis() + PATIENCE_MS; same < SETTLED && System.currentTimeMillis() < end; Thread.sleep(100)) {
            Map<String, Object> now = queues(store, topics, Path.of(args[0]));
            same = now.equals(queues) && asked(store, "dispatchBehindBytes") <= 0 ? same + 1 : 0;
            queues = now;
        }
        return Json.object("starts", true, "milliseconds", milliseconds, "processor", processor, "end", store.getMaxPhyOffset(),
            "topics", topics.keySet(), "queues", queues, "offsets", offsets, "timers", timers(broker));
    }

    /** Processor time of all threads so far, in nanoseconds. */
    private static long worked() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** First and next offset of all queues of known topics, and of those that have a directory. */
    private static Map<String, Object> queues(MessageStore store, Map<String, Object> topics, Path root) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<String, Object> topic : topics.entrySet()) {
            for (int queue = 0; queue < (Integer) topic.getValue(); queue++) {
                add(found, store, topic.getKey(), queue);
            }
        }
        for (String kind : new String[] {"consumequeue", "batchconsumequeue"}) {
            Path directory = root.resolve(kind);
            if (!Files.isDirectory(directory)) {
                continue;
            }
            try (Stream<Path> names = Files.list(directory)) {
                for (Path topic : (Iterable<Path>) names.filter(Files::isDirectory)::iterator) {
                    try (Stream<Path> ids = Files.list(topic)) {
                        for (Path id : (Iterable<Path>) ids::iterator) {
                            add(found, store, topic.getFileName().toString(), Integer.parseInt(id.getFileName().toString()));
                        }
                    }
                }
            }
        }
        return found;
    }

    private static void add(Map<String, Object> found, MessageStore store, String topic, int queue) throws Exception {
        long last = end(store, "Max", topic, queue);
        if (last > 0) {
            found.put(topic + "/" + queue, java.util.List.of(end(store, "Min", topic, queue), last));
        }
    }

    private static long end(MessageStore store, String which, String topic, int queue) {
        for (String name : new String[] {"Queue", "Quque"}) { // 3.2.6 spells it so
            try {
                Method ask = store.getClass().getMethod("get" + which + "OffsetIn" + name, String.class, int.class);
                return (Long) ask.invoke(store, topic, queue);
            } catch (Throwable none) {
                continue;
            }
        }
        return 0;
    }

    private static long asked(Object object, String method) {
        try {
            return ((Number) object.getClass().getMethod(method).invoke(object)).longValue();
        } catch (Throwable none) {
            return 0;
        }
    }

    /** Timer messages that wait; null where the release has none. */
    private static Object timers(BrokerController broker) {
        try {
            Object store = broker.getClass().getMethod("getTimerMessageStore").invoke(broker);
            Object metrics = store.getClass().getMethod("getTimerMetrics").invoke(store);
            return metrics.getClass().getMethod("getTimingCount").invoke(metrics) instanceof Map<?, ?> counts ? counts.size() : null;
        } catch (Throwable none) {
            return null;
        }
    }

    private static int free() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }
}
