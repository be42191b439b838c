package rmqctl;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A name server and brokers of one cluster in one process: {@code BrokerCluster ROOT NAME,NAME... SETTING...}. Each broker has its store in
 * ROOT/NAME. Messages go to two topics, which have as many queues on a broker as its place in the list, and one more. Of them a group has consumed
 * part of each queue, one that of the first broker alone, and one all but what it sent back, which waits in its retry topic. One JSON line: for
 * each question to the administrator's class (a group, or a group and a topic) broker, topic, queue, end of the queue, offset of the group.
 */
public final class BrokerCluster {
    private static final List<String> TOPICS = List.of("Orders", "Bills");
    private static final int MESSAGES = 600;
    private static final String PART = "gPart";
    private static final String FIRST = "gFirst";
    private static final String BACK = "gBack";

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
        System.setOut(System.err);
        Properties given = new Properties();
        Arrays.stream(args).skip(2).map(s -> s.split("=", 2)).forEach(s -> given.setProperty(s[0], s[1]));
        int port = RecordBroker.free();
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(port);
        NamesrvController names = new NamesrvController(new NamesrvConfig(), listen);
        names.initialize();
        names.start();
        String address = "127.0.0.1:" + port;
        List<BrokerController> brokers = new ArrayList<>();
        for (String name : args[1].split(",")) {
            brokers.add(broker(args[0] + "/" + name, name, address, given));
        }
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(address);
        admin.start();
        for (String topic : TOPICS) {
            for (int n = 0; n < brokers.size(); n++) {
                admin.createAndUpdateTopicConfig(brokers.get(n).getBrokerAddr(), new TopicConfig(topic, n + 2, n + 2, 6));
            }
        }
        int queues = TOPICS.size() * brokers.size() * (brokers.size() + 3) / 2;
        List<MessageQueue> all = queues(address, queues);
        send(address, all);
        commit(address, PART, all, -1);
        commit(address, FIRST, all.stream().filter(q -> q.getBrokerName().equals(args[1].split(",")[0])).toList(), 3);
        sendBack(address, admin);
        List<Object> answers = new ArrayList<>();
        for (String group : List.of(PART, FIRST, BACK)) {
            answers.add(answer(admin, group, null));
            for (String topic : TOPICS) {
                answers.add(answer(admin, group, topic));
            }
        }
        admin.shutdown();
        brokers.forEach(BrokerController::shutdown);
        names.shutdown();
        out.println(Json.text(answers));
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(DefaultMQAdminExt admin, String group, String topic) throws Exception {
        List<Object> rows = new ArrayList<>();
        var stats = topic == null ? admin.examineConsumeStats(group) : admin.examineConsumeStats(group, topic);
        stats.getOffsetTable().forEach((queue, at) -> rows.add(
            List.of(queue.getBrokerName(), queue.getTopic(), queue.getQueueId(), at.getBrokerOffset(), at.getConsumerOffset())));
        return Json.object("group", group, "topic", topic, "rows", rows, "diff", stats.computeTotalDiff());
    }

    /** All queues of the topics, once the name server knows them. */
    private static List<MessageQueue> queues(String names, int expected) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("rmqctl-queues");
        consumer.setNamesrvAddr(names);
        consumer.start();
        List<MessageQueue> found = new ArrayList<>();
        while (found.size() < expected) {
            Thread.sleep(200);
            found.clear();
            for (String topic : TOPICS) {
                try {
                    found.addAll(consumer.fetchSubscribeMessageQueues(topic));
                } catch (Exception unknown) {
                    System.err.println(unknown);
                }
            }
        }
        consumer.shutdown();
        found.sort(null);
        return found;
    }

    /** Unlike numbers of messages to all queues. */
    private static void send(String names, List<MessageQueue> queues) throws Exception {
        DefaultMQProducer producer = RecordBroker.started(new DefaultMQProducer("rmqctl-producer"), names);
        for (int n = 0; n < MESSAGES; n++) {
            MessageQueue queue = queues.get(n * n % 97 % queues.size());
            producer.send(new Message(queue.getTopic(), "TagA", "key-" + n, ("body " + n).getBytes(StandardCharsets.UTF_8)), queue);
        }
        producer.shutdown();
    }

    /**
     * Store offsets of a group.
     *
     * @param most of each queue; negative: half of what it holds
     */
    private static void commit(String names, String group, List<MessageQueue> queues, long most) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.start();
        for (MessageQueue queue : queues) {
            consumer.pull(queue, "*", 0, 1); // which makes the group known to the broker
            long end = consumer.maxOffset(queue);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, most < 0 ? end / 2 : Math.min(most, end), false);
        }
        for (MessageQueue queue : queues) {
            if (consumer.getDefaultMQPullConsumerImpl().getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE) < 0) {
                throw new IllegalStateException(queue + " has no offset of " + group);
            }
        }
        consumer.shutdown();
    }

    /**
     * A group that consumes all, but sends every tenth back, more than once, and stops while these wait to come again. Where it first learns that a
     * broker has a retry topic, others' messages may have come more often.
     */
    private static void sendBack(String names, DefaultMQAdminExt admin) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(BACK);
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        for (String topic : TOPICS) {
            consumer.subscribe(topic, "*");
        }
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Set<String> again = ConcurrentHashMap.newKeySet();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            (message.getReconsumeTimes() == 0 ? seen : again).add(message.getKeys());
            boolean back = Integer.parseInt(message.getKeys().substring(4)) % 10 == 0;
            return back ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        until(() -> seen.size() == MESSAGES && again.size() == MESSAGES / 10);
        Thread.sleep(1_000);
        consumer.shutdown();
        until(() -> admin.examineConsumeStats(BACK).computeTotalDiff() == MESSAGES / 10);
    }

    private static void until(Callable<Boolean> done) throws Exception {
        for (int waited = 0; waited < 120; waited++) {
            try {
                if (done.call()) {
                    return;
                }
            } catch (Exception busy) {
                System.err.println(busy);
            }
            Thread.sleep(1_000);
        }
        throw new IllegalStateException("it does not come to that");
    }

    private static BrokerController broker(String root, String name, String names, Properties given) throws Exception {
        Properties own = new Properties();
        own.putAll(given);
        own.setProperty("brokerClusterName", "rmqctl");
        own.setProperty("brokerName", name);
        return RecordBroker.broker(root, names, own);
    }

    private BrokerCluster() {
    }
}
