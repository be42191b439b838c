package rmqctl;

import java.io.PrintStream;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A name server, a broker and clients of the release in one process: {@code WholeBroker DIRECTORY TOPIC,TOPIC... SEND SETTING...} lets the broker
 * start on a store, pulls every message of the topics as a consumer that begins at the first, sends SEND messages to the first topic as a producer,
 * and stops. One JSON line: what was received, what was sent; with {@code -Drmqctl.others=true} also what a push and a pull consumer got, with
 * {@code -Drmqctl.groups=GROUP@TOPIC+TOPIC,...} what a consumer of each group got of its topics from the committed offsets on.
 * With {@code -Drmqctl.storm=true} it writes {@code storming} instead, and producers and a consumer of the topics are at work until
 * standard input ends; then how many messages were sent. For each line of standard input it writes how many were sent since the last one,
 * and of the microseconds that they took the median and the 99th of a hundred. {@code -Drmqctl.pause} is how many milliseconds a producer
 * rests after each message.
 */
public final class WholeBroker {
    /** Delayed messages that are due are delivered a second after the start. */
    private static final long DELIVERY_MS = 4_000;
    /** Topics of one consumer: it has 20 threads, and an empty queue holds one for 20 s. */
    private static final int AT_ONCE = 4;
    private static final long SILENCE_MS = Long.getLong("rmqctl.silence", 3_000);
    private static final long PATIENCE_MS = 120_000;
    private static final long PAUSE_MS = Long.getLong("rmqctl.pause", 0);

    /** Threads of a broker that failed half way keep the process alive: without a halt it would only run into its time limit. */
    public static void main(String[] args) {
        try {
            run(args);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // the broker may print, too
        Properties given = new Properties();
        Arrays.stream(args).skip(3).map(s -> s.split("=", 2)).forEach(s -> given.setProperty(s[0], s[1]));
        int port = free();
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(port);
        NamesrvController names = new NamesrvController(new NamesrvConfig(), listen);
        names.initialize();
        names.start();
        String address = "127.0.0.1:" + port;
        BrokerController broker = broker(args[0], address, given);
        Thread.sleep(DELIVERY_MS);
        List<String> topics = List.of(args[1].split(","));
        if (Boolean.getBoolean("rmqctl.storm")) {
            long sent = storm(address, topics, out);
            broker.shutdown();
            names.shutdown();
            out.println(sent);
            out.flush();
            Runtime.getRuntime().halt(0);
        }
        List<Object> received = new ArrayList<>();
        for (int first = 0; first < topics.size(); first += AT_ONCE) {
            received.addAll(receive(address, topics.subList(first, Math.min(first + AT_ONCE, topics.size()))));
        }
        List<Object> resumed = resume(address, System.getProperty("rmqctl.groups", ""));
        List<Object> pushed = Boolean.getBoolean("rmqctl.others") ? push(address, topics, received.size()) : List.of();
        List<Object> pulled = Boolean.getBoolean("rmqctl.others") ? pull(address, topics) : List.of();
        List<Object> sent = send(address, topics.get(0), Integer.parseInt(args[2]));
        broker.shutdown();
        names.shutdown();
        out.println(Json.text(Json.object("received", received, "pushed", pushed, "pulled", pulled, "resumed", resumed, "sent", sent)));
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** Messages of all sizes, with keys, some of them delayed, to all topics, and a consumer that commits, until standard input ends. */
    private static long storm(String names, List<String> topics, PrintStream out) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("rmqctl-storm");
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topics.get(0), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        DefaultMQProducer producer = new DefaultMQProducer("rmqctl-storm");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        AtomicBoolean ends = new AtomicBoolean();
        AtomicLong sent = new AtomicLong();
        Queue<Long> took = new ConcurrentLinkedQueue<>();
        List<Thread> senders = new ArrayList<>();
        for (String topic : topics) {
            Thread sender = new Thread(() -> {
                Random random = new Random(topic.hashCode());
                for (int n = 0; !ends.get(); n++) {
                    byte[] body = new byte[random.nextInt(10) == 0 ? random.nextInt(20_000) : 1 + random.nextInt(300)];
                    random.nextBytes(body);
                    Message message = new Message(topic, "Tag" + n % 3, topic + "-" + n, body);
                    if (n % 7 == 0) {
                        message.setDelayTimeLevel(1);
                    }
                    try {
                        long began = System.nanoTime();
                        producer.send(message);
                        took.add((System.nanoTime() - began) / 1000);
                        sent.incrementAndGet();
                        Thread.sleep(PAUSE_MS);
                    } catch (Exception busy) {
                        System.err.println(busy);
                    }
                }
            });
            sender.start();
            senders.add(sender);
        }
        while (sent.get() < 200) {
            Thread.sleep(100);
        }
        consumer.start();
        out.println("storming");
        out.flush();
        while (System.in.read() >= 0) {
            List<Long> some = new ArrayList<>();
            for (Long one = took.poll(); one != null; one = took.poll()) {
                some.add(one);
            }
            Collections.sort(some);
            int count = some.size();
            out.println(count + " " + (count == 0 ? "0 0" : some.get(count / 2) + " " + some.get(count * 99 / 100)));
            out.flush();
        }
        ends.set(true);
        for (Thread sender : senders) {
            sender.join();
        }
        consumer.shutdown();
        producer.shutdown();
        return sent.get();
    }

    private static BrokerController broker(String root, String names, Properties given) throws Exception {
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root);
        store.setStorePathCommitLog(root + "/commitlog");
        store.setHaListenPort(free());
        store.setDiskMaxUsedSpaceRatio(99);
        store.setFileReservedTime(24 * 3650);
        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr(names);
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName("rmqctl");
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

    private static List<Object> receive(String names, List<String> topics) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("rmqctl-" + System.nanoTime());
        consumer.setNamesrvAddr(names);
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>();
        for (String topic : topics) {
            queues.addAll(queues(consumer, topic));
        }
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        return drain(List.of(consumer)).get(0);
    }

    /** What each group gets of its topics, all at the same time: {@code [group, messages]}. */
    private static List<Object> resume(String names, String groups) throws Exception {
        List<DefaultLitePullConsumer> consumers = new ArrayList<>();
        List<String[]> wanted = Arrays.stream(groups.split(",")).filter(p -> !p.isEmpty()).map(p -> p.split("@", 2)).toList();
        for (String[] pair : wanted) {
            DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(pair[0]);
            consumer.setNamesrvAddr(names);
            consumer.setInstanceName(pair[0] + System.nanoTime());
            consumer.setAutoCommit(false);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            for (String topic : pair[1].split("\\+")) {
                consumer.subscribe(topic, "*");
            }
            consumer.start();
            consumers.add(consumer);
        }
        List<List<Object>> received = consumers.isEmpty() ? List.of() : drain(consumers);
        List<Object> found = new ArrayList<>();
        for (int n = 0; n < received.size(); n++) {
            found.add(List.of(wanted.get(n)[0], received.get(n)));
        }
        return found;
    }

    /** Polls consumers in turn until none has anything left, and stops them. */
    private static List<List<Object>> drain(List<DefaultLitePullConsumer> consumers) throws Exception {
        List<List<Object>> received = new ArrayList<>();
        consumers.forEach(consumer -> received.add(new ArrayList<>()));
        long begin = System.currentTimeMillis();
        long last = begin;
        while (System.currentTimeMillis() - last < SILENCE_MS && System.currentTimeMillis() - begin < PATIENCE_MS) {
            for (int n = 0; n < consumers.size(); n++) {
                for (MessageExt message : consumers.get(n).poll(500 / consumers.size())) {
                    received.get(n).add(LiveStore.message(message));
                    last = System.currentTimeMillis();
                }
            }
        }
        consumers.forEach(DefaultLitePullConsumer::shutdown);
        return received;
    }

    /** What a push consumer gets within the time that it may take. */
    private static List<Object> push(String names, List<String> topics, int expected) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("rmqctl-push-" + System.nanoTime());
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        List<Object> received = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    received.add(LiveStore.message(message));
                }
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long begin = System.currentTimeMillis();
        while (received.size() < expected && System.currentTimeMillis() - begin < PATIENCE_MS) {
            Thread.sleep(200);
        }
        Thread.sleep(SILENCE_MS);
        consumer.shutdown();
        return received;
    }

    /** What a pull consumer gets, queue by queue. */
    private static List<Object> pull(String names, List<String> topics) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("rmqctl-pull-" + System.nanoTime());
        consumer.setNamesrvAddr(names);
        consumer.start();
        List<Object> received = new ArrayList<>();
        for (String topic : topics) {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                long next = 0;
                PullResult result;
                while ((result = consumer.pull(queue, "*", next, 32)).getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        received.add(LiveStore.message(message));
                    }
                    next = result.getNextBeginOffset();
                }
            }
        }
        consumer.shutdown();
        return received;
    }

    /** The broker tells the name server of its topics some time after its start. */
    private static Collection<MessageQueue> queues(DefaultLitePullConsumer consumer, String topic) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                return consumer.fetchMessageQueues(topic);
            } catch (Exception unknown) {
                if (attempt == 60) {
                    throw unknown;
                }
                Thread.sleep(500);
            }
        }
    }

    private static List<Object> send(String names, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("rmqctl-producer");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        List<Object> sent = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            byte[] body = ("sent " + n).getBytes(StandardCharsets.UTF_8);
            SendResult result = producer.send(new Message(topic, "TagS", "sent-" + n, body));
            sent.add(List.of(result.getMessageQueue().getQueueId(), result.getQueueOffset(), result.getMsgId()));
        }
        producer.shutdown();
        return sent;
    }

    private static int free() throws Exception {
        try (ServerSocket probe = new ServerSocket(0)) {
            return probe.getLocalPort();
        }
    }

    private WholeBroker() {
    }
}
