package rmqctl;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Whole brokers of the release, one after the other, one JSON line for a line of standard input: the words, divided by tabs and URL-encoded, are
 * a name for the store, {@code serve}, its directory, a file with keys to ask for (a line {@code TOPIC TAB KEY} each) and settings. The broker starts on
 * the store, every queue of a topic that it knows is read from its first to its last offset, as for a consumer, every key is asked, and the broker stops.
 */
public final class ServedStore {
    /** Messages a read, so that each is known to be at the offset that was asked. */
    private static final int AT_ONCE = 1;
    private static final int MOST_OF_A_KEY = 64;
    private static final int PHYSICAL_OFFSET = 28;
    private static final long PATIENCE_MS = 60_000;
    private static final PrintStream OUT = System.out;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // the broker may print, too
        System.setProperty("tls.server.mode", "disabled"); // else each broker makes a key of its own, for seconds
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = Arrays.stream(line.split("\t")).map(w -> URLDecoder.decode(w, StandardCharsets.UTF_8)).toArray(String[]::new);
            Object answer;
            try {
                answer = serve(Path.of(words[2]), Path.of(words[3]), Arrays.asList(words).subList(4, words.length));
            } catch (Throwable problem) {
                problem.printStackTrace();
                answer = Json.object("starts", false, "error", String.valueOf(problem));
            }
            OUT.println(Json.text(Json.object("store", words[0], "answer", answer)));
            OUT.flush();
        }
        Runtime.getRuntime().halt(0); // a broker leaves threads behind that would keep the process
    }

    private static Object serve(Path root, Path keys, List<String> given) throws Exception {
        MessageStoreConfig settings = new MessageStoreConfig();
        settings.setStorePathRootDir(root.toString());
        settings.setStorePathCommitLog(root + "/commitlog");
        settings.setHaListenPort(free());
        settings.setDiskMaxUsedSpaceRatio(99);
        settings.setFileReservedTime(24 * 3650);
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        Properties properties = new Properties();
        given.stream().map(s -> s.split("=", 2)).forEach(s -> properties.setProperty(s[0], s[1].replace("<root>", root.toString())));
        MixAll.properties2Object(properties, settings);
        MixAll.properties2Object(properties, config);
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(free());
        BrokerController broker = new BrokerController(config, listen, new NettyClientConfig(), settings);
        if (!broker.initialize()) {
            broker.shutdown();
            return Json.object("starts", false, "error", "initialize() is false");
        }
        MessageStore store = broker.getMessageStore();
        long end = store.getMaxPhyOffset();
        broker.start();
        for (long until = System.currentTimeMillis() + PATIENCE_MS; store.dispatchBehindBytes() > 0 && System.currentTimeMillis() < until;) {
            Thread.sleep(20);
        }
        Thread.sleep(200); // the index and the queues are written by threads of their own
        List<Object> messages = new ArrayList<>();
        List<Object> odd = new ArrayList<>();
        Map<String, Object> queues = new TreeMap<>();
        for (Map.Entry<String, TreeSet<Integer>> topic : queues(broker, root).entrySet()) {
            for (int queue : topic.getValue()) {
                long first = store.getMinOffsetInQueue(topic.getKey(), queue);
                long last = store.getMaxOffsetInQueue(topic.getKey(), queue);
                if (last > 0) {
                    queues.put(topic.getKey() + "/" + queue, List.of(first, last));
                }
                read(store, topic.getKey(), queue, first, last, messages, odd);
            }
        }
        Map<String, List<Long>> indexed = new HashMap<>();
        for (String line : Files.readAllLines(keys)) {
            String[] asked = line.split("\t", 2);
            indexed.put(line, key(store, asked[0], asked[1]));
        }
        Object answer = Json.object("starts", true, "begin", store.getMinPhyOffset(), "end", end, "topics", topics(broker), "queues", queues,
            "messages", messages, "odd", odd, "keys", indexed);
        broker.shutdown();
        return answer;
    }

    /** Topics that the broker knows, with the number of queues that consumers may read. */
    private static Map<String, Object> topics(BrokerController broker) {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<String, TopicConfig> topic : broker.getTopicConfigManager().getTopicConfigTable().entrySet()) {
            found.put(topic.getKey(), topic.getValue().getReadQueueNums());
        }
        return found;
    }

    /** Queues of topics that the broker knows, and those that have a directory: a start takes up these, too. */
    private static Map<String, TreeSet<Integer>> queues(BrokerController broker, Path root) throws Exception {
        Map<String, TreeSet<Integer>> found = new TreeMap<>();
        topics(broker).forEach((name, count) -> {
            for (int queue = 0; queue < (Integer) count; queue++) {
                found.computeIfAbsent(name, n -> new TreeSet<>()).add(queue);
            }
        });
        for (String kind : new String[] {"consumequeue", "batchconsumequeue"}) {
            String[] names = root.resolve(kind).toFile().list();
            for (String name : names == null ? new String[0] : names) {
                String[] ids = root.resolve(kind).resolve(name).toFile().list();
                for (String id : ids == null ? new String[0] : ids) {
                    found.computeIfAbsent(name, n -> new TreeSet<>()).add(Integer.parseInt(id));
                }
            }
        }
        return found;
    }

    /** Topic, queue, queue offset, physical offset and a hash of all bytes of every record that a consumer is given, in turn. */
    private static void read(MessageStore store, String topic, int queue, long first, long last, List<Object> messages, List<Object> odd)
        throws Exception {
        long offset = first;
        while (offset < last) {
            GetMessageResult result = store.getMessage("rmqctl", topic, queue, offset, AT_ONCE, null);
            if (result == null) {
                odd.add(topic + "/" + queue + " nothing at " + offset);
                return;
            }
            for (ByteBuffer given : result.getMessageBufferList()) {
                ByteBuffer record = given.duplicate();
                byte[] bytes = new byte[record.remaining()];
                record.get(bytes);
                if (bytes.length < PHYSICAL_OFFSET + Long.BYTES) { // of a unit that is blank
                    odd.add(topic + "/" + queue + " a record of " + bytes.length + " bytes at " + offset);
                    continue;
                }
                messages.add(List.of(topic, queue, offset, ByteBuffer.wrap(bytes).getLong(PHYSICAL_OFFSET), hash(bytes)));
            }
            if (result.getMessageCount() == 0) {
                odd.add(topic + "/" + queue + " " + result.getStatus() + " at " + offset);
            }
            offset = Math.max(result.getNextBeginOffset(), offset + 1);
            result.release();
        }
    }

    private static List<Long> key(MessageStore store, String topic, String key) {
        List<Long> found = new ArrayList<>();
        QueryMessageResult result = store.queryMessage(topic, key, MOST_OF_A_KEY, 0, Long.MAX_VALUE);
        for (ByteBuffer record : result.getMessageBufferList()) {
            found.add(record.getLong(record.position() + PHYSICAL_OFFSET));
        }
        result.release();
        return found;
    }

    private static String hash(byte[] bytes) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    private static int free() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private ServedStore() {
    }
}
