package rmqctl;

import java.io.PrintStream;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Consumer;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/**
 * {@code RecordBroker DIRECTORY SEED MOMENTS STEPS SETTING...}: a broker on a new store while topics are made and deleted, messages are sent plainly, with
 * delays, in batches and transactions, and groups store offsets. A JSON line a moment: what the broker answers to its admin of every queue, {@code [topic,
 * queue, minimum, maximum]}, and of every group, {@code [group, topic, queue, offset]}. A moment is one before and after which the answers are the same.
 * {@code -Drmqctl.pause=MS} waits after each step; {@code -Drmqctl.expires=MS} lets the broker delete log files that have not changed for so long.
 */
public final class RecordBroker {
    private static final long QUIET_MS = 60;
    private static final long PAUSE_MS = Long.getLong("rmqctl.pause", 0);
    private static final long EXPIRES_MS = Long.getLong("rmqctl.expires", 0);
    private static final String NAME = "rmqctl";

    private final PrintStream out;
    private final BrokerController broker;
    private final DefaultMQProducer plain;
    private final TransactionMQProducer transactional;
    private final Random random;
    private final TreeMap<String, Integer> topics = new TreeMap<>();
    private int made;

    public static void main(String[] args) {
        try {
            PrintStream out = System.out;
            System.setOut(System.err); // the broker may print, too
            Properties given = new Properties();
            for (int at = 4; at < args.length; at++) {
                given.setProperty(args[at].split("=", 2)[0], args[at].split("=", 2)[1]);
            }
            String names = names();
            BrokerController broker = broker(args[0], names, given);
            Thread.sleep(2_000);
            RecordBroker recorder = new RecordBroker(out, broker, names, Long.parseLong(args[1]));
            recorder.run(Integer.parseInt(args[2]), Integer.parseInt(args[3]));
            broker.shutdown();
            Runtime.getRuntime().halt(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private RecordBroker(PrintStream out, BrokerController broker, String names, long seed) throws Exception {
        this.out = out;
        this.broker = broker;
        this.random = new Random(seed);
        this.plain = started(new DefaultMQProducer("plain"), names);
        this.transactional = started(undecided(message -> {}), names);
    }

    private void run(int moments, int steps) throws Exception {
        create("Kept");
        for (int moment = 0; moment < moments; moment++) {
            for (int step = 0; step < steps; step++) {
                step();
                Thread.sleep(PAUSE_MS);
            }
            out.println(Json.text(moment()));
            out.flush();
            if (EXPIRES_MS > 0) {
                ((DefaultMessageStore) broker.getMessageStore()).getCommitLog().deleteExpiredFile(EXPIRES_MS, 10, 120_000, false, 10);
            }
        }
        plain.shutdown();
        transactional.shutdown();
    }

    private void create(String topic) {
        int queues = 1 + random.nextInt(4);
        broker.getTopicConfigManager().updateTopicConfig(new TopicConfig(topic, queues, queues));
        broker.registerBrokerAll(true, false, true);
        topics.put(topic, queues);
    }

    private void step() throws Exception {
        int what = random.nextInt(100);
        String topic = new ArrayList<>(topics.keySet()).get(random.nextInt(topics.size()));
        MessageQueue queue = new MessageQueue(topic, NAME, random.nextInt(topics.get(topic)));
        if (what < 50) {
            plain.send(message(topic), queue);
        } else if (what < 60) {
            Message late = message(topic);
            late.setDelayTimeLevel(1 + random.nextInt(2));
            plain.send(late, queue);
        } else if (what < 66) {
            Message late = message(topic);
            late.setDelayTimeMs(1_000 + random.nextInt(2_000));
            plain.send(late, queue);
        } else if (what < 72) {
            plain.send(List.of(message(topic), message(topic), message(topic)), queue);
        } else if (what < 82) {
            LocalTransactionState[] ends = LocalTransactionState.values();
            transactional.sendMessageInTransaction(message("Kept"), ends[random.nextInt(ends.length)]);
        } else if (what < 94) {
            broker.getConsumerOffsetManager().commitOffset("127.0.0.1", "group-" + random.nextInt(4), topic, queue.getQueueId(), random.nextInt(40));
        } else if (what < 98 || !topic.startsWith("Made")) {
            create("Made" + (random.nextInt(3) == 0 && !topics.containsKey("Made0") ? 0 : made++));
        } else {
            broker.getTopicConfigManager().deleteTopicConfig(topic);
            broker.getMessageStore().deleteTopics(Set.of(topic));
            topics.remove(topic);
        }
    }

    private Message message(String topic) {
        return new Message(topic, "Tag" + random.nextInt(3), "key-" + random.nextInt(100), new byte[1 + random.nextInt(300)]);
    }

    private Object moment() throws Exception {
        List<Object> before = answers();
        while (true) {
            Thread.sleep(QUIET_MS);
            long at = System.currentTimeMillis();
            Thread.sleep(QUIET_MS);
            List<Object> after = answers();
            if (Json.text(after).equals(Json.text(before))) {
                return Json.object("at", at, "queues", after.get(0), "groups", after.get(1));
            }
            before = after;
        }
    }

    private List<Object> answers() throws Exception {
        MessageStore store = broker.getMessageStore();
        List<Object> queues = new ArrayList<>();
        List<Object> groups = new ArrayList<>();
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueueInterface>> each : new TreeMap<>(store.getQueueStore().getConsumeQueueTable()).entrySet()) {
            String topic = each.getKey(); // a late message of a topic that was deleted makes its queue again
            for (int queue : new TreeMap<>(each.getValue()).keySet()) {
                long end = store.getMaxOffsetInQueue(topic, queue);
                if (end > 0) {
                    queues.add(List.of(topic, queue, store.getMinOffsetInQueue(topic, queue), end));
                }
                for (int group = 0; group < 4; group++) {
                    long offset = broker.getConsumerOffsetManager().queryOffset("group-" + group, topic, queue);
                    if (offset >= 0) {
                        groups.add(List.of("group-" + group, topic, queue, offset));
                    }
                }
            }
        }
        return List.of(queues, groups);
    }

    /** A name server on a port of its own; its address. It ends with the machine. */
    static String names() throws Exception {
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(free());
        NamesrvController names = new NamesrvController(new NamesrvConfig(), listen);
        names.initialize();
        names.start();
        return "127.0.0.1:" + listen.getListenPort();
    }

    /** A producer whose transactions end as each call says; when the broker checks one, {@code checked} is told, and it stays undecided. */
    static TransactionMQProducer undecided(Consumer<MessageExt> checked) {
        TransactionMQProducer made = new TransactionMQProducer("transactional");
        made.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object how) {
                return (LocalTransactionState) how;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.accept(message);
                return LocalTransactionState.values()[LocalTransactionState.values().length - 1]; // not known yet
            }
        });
        return made;
    }

    static <P extends DefaultMQProducer> P started(P producer, String names) throws Exception {
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        return producer;
    }

    static BrokerController broker(String root, String names, Properties given) throws Exception {
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root);
        store.setStorePathCommitLog(root + "/commitlog");
        store.setHaListenPort(free());
        store.setDiskMaxUsedSpaceRatio(99);
        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr(names);
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName(NAME);
        config.setBrokerId(0);
        MixAll.properties2Object(given, store);
        MixAll.properties2Object(given, config);
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(free());
        BrokerController broker = new BrokerController(config, listen, new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not initialize");
        }
        broker.start();
        return broker;
    }

    static int free() throws Exception {
        try (ServerSocket probe = new ServerSocket(0)) {
            return probe.getLocalPort();
        }
    }
}
