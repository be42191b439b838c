package rmqctl;

import java.lang.management.ManagementFactory;
import java.lang.reflect.Constructor;
import java.net.InetSocketAddress;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.*; // MessageExtBrokerInner is here in 5.x,
import org.apache.rocketmq.store.*; // and here in 4.x
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * How fast the released store takes messages of 1 KiB from one thread, async flush, queues and index dispatched:
 * {@code PutSpeed DIRECTORY MESSAGES}. Prints seconds from the first put until everything is dispatched, after a tenth as
 * many for warming up, and the processor seconds of all threads meanwhile.
 */
public final class PutSpeed {
    public static void main(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(args[0] + "/commitlog");
        config.setHaListenPort(0);
        DefaultMessageStore store = open(config);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        int count = Integer.parseInt(args[1]);
        put(store, count / 10, -1);
        long begin = System.nanoTime(), used = cpuNanos();
        put(store, count, 0);
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        String row = "{\"kind\":\"speed\",\"seconds\":%.4f,\"cpu_seconds\":%.4f}%n";
        System.out.printf(row, (System.nanoTime() - begin) / 1e9, (cpuNanos() - used) / 1e9);
        store.shutdown();
        System.exit(0);
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        BrokerStatsManager stats = new BrokerStatsManager("rmqctl", false);
        MessageArrivingListener nobody = (a, b, c, d, e, f, g) -> { };
        for (Constructor<?> made : DefaultMessageStore.class.getConstructors()) {
            if (made.getParameterCount() == 4) {
                return (DefaultMessageStore) made.newInstance(config, stats, nobody, new BrokerConfig());
            }
            if (made.getParameterCount() == 5) {
                ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
                return (DefaultMessageStore) made.newInstance(config, stats, nobody, new BrokerConfig(), topics);
            }
        }
        throw new IllegalStateException("no constructor that is known");
    }

    private static void put(DefaultMessageStore store, int count, int from) {
        byte[] body = new byte[1024];
        new Random(7).nextBytes(body);
        for (int i = 0; i < count; i++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("T" + i % 3);
            message.setQueueId(i % 4);
            message.setBody(body);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            message.setKeys("order-" + (from + i));
            message.setTags("TagA");
            MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("%032X", from + i));
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            store.putMessage(message);
        }
    }
}
