package rmqctl;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * {@code FateBroker DIRECTORY SEED COUNT SETTING...}: a broker on a new store, and clients that give COUNT messages a fate each by chance. One JSON line:
 * {@code messages}, what a client did to each; {@code visible}, where a consumer of everything found a message of that key in the end, {@code [key, topic, queue,
 * offset]}; {@code groups}, {@code [group, topic, queue, offset]}, what each group stored last; {@code settled}, how many commits, rollbacks and checks there were.
 */
public final class FateBroker {
    private static final String NAME = "rmqctl";
    private static final String TOPIC = "Fates";
    private static final String POPS = "Pops";
    private static final int QUEUES = 4;
    /** Levels of delay that {@code messageDelayLevel=1s 2s 900s} has: soon, and not while this runs. */
    private static final int SOON = 1;
    private static final int LATE = 3;
    /** By the place of the state in {@code LocalTransactionState}. */
    private static final List<String> ENDS = List.of("commit", "rollback", "undecided");

    private final BrokerController broker;
    private final Random random;
    private final DefaultMQProducer plain;
    private final TransactionMQProducer transactional;
    private final DefaultMQPullConsumer reader = new DefaultMQPullConsumer("reader");
    private final List<Map<String, Object>> messages = new ArrayList<>();
    private final Map<String, Integer> checks = new ConcurrentHashMap<>();
    private final List<Object> groups = new ArrayList<>();

    public static void main(String[] args) {
        try {
            PrintStream out = System.out;
            System.setOut(System.err); // the broker may print, too
            Properties given = new Properties();
            for (int at = 3; at < args.length; at++) {
                given.setProperty(args[at].split("=", 2)[0], args[at].split("=", 2)[1]);
            }
            String names = RecordBroker.names();
            BrokerController broker = RecordBroker.broker(args[0], names, given);
            Thread.sleep(2_000);
            out.println(Json.text(new FateBroker(broker, names, Long.parseLong(args[1])).run(Integer.parseInt(args[2]))));
            out.flush();
            broker.shutdown();
            Runtime.getRuntime().halt(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private FateBroker(BrokerController broker, String names, long seed) throws Exception {
        this.broker = broker;
        this.random = new Random(seed);
        this.plain = RecordBroker.started(new DefaultMQProducer("plain"), names);
        this.transactional = RecordBroker.started(
                RecordBroker.undecided(message -> checks.merge(message.getTransactionId(), 1, Integer::sum)), names);
        reader.setNamesrvAddr(names);
        reader.start();
        for (String topic : List.of(TOPIC, POPS, "Old")) {
            broker.getTopicConfigManager().updateTopicConfig(new TopicConfig(topic, QUEUES, QUEUES));
        }
        broker.registerBrokerAll(true, false, true);
    }

    private Object run(int count) throws Exception {
        int old = count / 10;
        for (int number = 0; number < old; number++) {
            Message message = message("Old", number);
            byte[] body = new byte[3_900]; // longer ones are compressed
            random.nextBytes(body);
            message.setBody(body);
            note(message, "old", plain.send(message, queue("Old")));
        }
        expire();
        List<Retried> retried = new ArrayList<>();
        for (int number = old; number < count; number++) {
            one(number, retried);
        }
        again(retried);
        pop();
        Thread.sleep(9_000); // what is due soon is delivered, what was popped for a short time comes again, checks are made
        List<Object> visible = commit();
        plain.shutdown();
        transactional.shutdown();
        reader.shutdown();
        return Json.object("messages", messages, "visible", visible, "groups", groups, "checks", checks, "at", System.currentTimeMillis());
    }

    /** The broker deletes all log files but the last one. */
    private void expire() throws Exception {
        broker.getMessageStoreConfig().setFileReservedTime(0);
        broker.getMessageStore().executeDeleteFilesManually();
        long begin = System.currentTimeMillis();
        while (broker.getMessageStore().getMinPhyOffset() == 0 && System.currentTimeMillis() - begin < 60_000) {
            Thread.sleep(200);
        }
        broker.getMessageStoreConfig().setFileReservedTime(9_999);
    }

    private Message message(String topic, int number) {
        String keys = random.nextInt(3) == 0 ? "" : "order-" + number;
        return new Message(topic, "Tag" + random.nextInt(3), keys, ("body of " + number + " ").repeat(1 + random.nextInt(9)).getBytes());
    }

    private MessageQueue queue(String topic) {
        return new MessageQueue(topic, NAME, random.nextInt(QUEUES));
    }

    private Map<String, Object> note(Message message, String what, SendResult sent) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("key", MessageClientIDSetter.getUniqID(message));
        row.put("keys", message.getKeys());
        row.put("what", what);
        row.put("topic", message.getTopic());
        row.put("queue", sent.getMessageQueue().getQueueId());
        row.put("offset", sent.getQueueOffset());
        messages.add(row);
        return row;
    }

    private void one(int number, List<Retried> retried) throws Exception {
        Message message = message(TOPIC, number);
        switch (random.nextInt(11)) {
            case 0 -> {
                message.setDelayTimeLevel(SOON);
                note(message, "delayed-soon", plain.send(message, queue(TOPIC)));
            }
            case 1 -> {
                message.setDelayTimeLevel(LATE);
                note(message, "delayed", plain.send(message, queue(TOPIC)));
            }
            case 2 -> {
                message.setDelayTimeMs(1_500);
                note(message, "timed-soon", plain.send(message, queue(TOPIC)));
            }
            case 3 -> {
                message.setDelayTimeMs(900_000);
                SendResult sent = plain.send(message, queue(TOPIC));
                boolean recalls = random.nextBoolean() && sent.getRecallHandle() != null;
                note(message, recalls ? "recalled" : "timed", sent);
                if (recalls) {
                    plain.recallMessage(TOPIC, sent.getRecallHandle());
                }
            }
            case 4, 5 -> {
                LocalTransactionState end = LocalTransactionState.values()[random.nextInt(3)];
                note(message, ENDS.get(end.ordinal()), transactional.sendMessageInTransaction(message, end));
            }
            case 6, 7 -> {
                SendResult sent = plain.send(message, queue(TOPIC));
                String group = "again-" + random.nextInt(2);
                int times = 1 + random.nextInt(3);
                int last = random.nextInt(3);
                Map<String, Object> row = note(message, List.of("retried", "dead", "retrying").get(last), sent);
                row.put("times", times);
                row.put("group", group);
                retried.add(new Retried(sent, group, times, last));
            }
            case 8, 9 -> {
                message.setTopic(POPS);
                note(message, "pops", plain.send(message, queue(POPS)));
            }
            default -> {
                if (random.nextBoolean()) {
                    message.setKeys(List.of("order-" + number, "shared-" + random.nextInt(9)));
                }
                note(message, "plain", plain.send(message, queue(TOPIC)));
            }
        }
    }

    /** A message that is given back some times; in the end it is left (0), goes to the dead (1), or waits for its next time (2). */
    private record Retried(SendResult sent, String group, int times, int last) {
    }

    private void again(List<Retried> retried) throws Exception {
        Map<Retried, MessageExt> now = new LinkedHashMap<>();
        for (Retried each : retried) {
            now.put(each, at(each.sent.getMessageQueue(), each.sent.getQueueOffset()));
        }
        long begin = System.currentTimeMillis();
        for (int time = 0; !now.isEmpty(); time++) {
            for (Map.Entry<Retried, MessageExt> each : new ArrayList<>(now.entrySet())) {
                Retried one = each.getKey();
                if (time < one.times) {
                    reader.sendMessageBack(each.getValue(), SOON, NAME, one.group);
                } else {
                    if (one.last > 0) {
                        reader.sendMessageBack(each.getValue(), one.last == 1 ? -1 : LATE, NAME, one.group);
                    }
                    now.remove(one);
                }
            }
            while (!came(now, time + 1)) {
                if (System.currentTimeMillis() - begin > 60_000) {
                    throw new IllegalStateException(now.keySet() + " did not come again");
                }
                Thread.sleep(200);
            }
        }
    }

    /** Whether all have come again; each is then the message that came. */
    private boolean came(Map<Retried, MessageExt> now, int times) throws Exception {
        Map<String, MessageExt> found = new HashMap<>();
        for (String group : now.keySet().stream().map(Retried::group).distinct().toList()) {
            for (MessageExt each : all(new MessageQueue("%RETRY%" + group, NAME, 0))) {
                if (each.getReconsumeTimes() == times) {
                    found.put(each.getMsgId(), each);
                }
            }
        }
        if (!now.keySet().stream().allMatch(one -> found.containsKey(one.sent.getMsgId()))) {
            return false;
        }
        now.replaceAll((one, before) -> found.get(one.sent.getMsgId()));
        return true;
    }

    private MessageExt at(MessageQueue queue, long offset) throws Exception {
        return reader.pull(queue, "*", offset, 1).getMsgFoundList().get(0);
    }

    private List<MessageExt> all(MessageQueue queue) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        if (broker.getMessageStore().getMaxOffsetInQueue(queue.getTopic(), queue.getQueueId()) == 0) {
            return found;
        }
        long next = broker.getMessageStore().getMinOffsetInQueue(queue.getTopic(), queue.getQueueId());
        PullResult result;
        while ((result = reader.pull(queue, "*", next, 32)).getPullStatus() == PullStatus.FOUND) {
            found.addAll(result.getMsgFoundList());
            next = result.getNextBeginOffset();
        }
        return found;
    }

    /** A group takes some messages of a topic with pop: it acknowledges some, keeps some for long, and for others its time runs out. */
    private void pop() throws Exception {
        MQClientAPIImpl api = reader.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl();
        Map<String, Map<String, Object>> rows = new HashMap<>();
        messages.forEach(row -> rows.put((String) row.get("key"), row));
        for (int queue = 0; queue < QUEUES - 1; queue++) {
            for (long invisible : new long[] {900_000, 2_000, 900_000}) {
                for (MessageExt message : popped(api, queue, invisible)) {
                    Map<String, Object> row = rows.get(message.getMsgId());
                    boolean acks = random.nextInt(3) > 0;
                    row.put("popped", acks ? "acknowledged" : invisible > 10_000 ? "kept" : "late");
                    if (acks) {
                        acknowledge(api, message);
                    }
                }
            }
        }
    }

    private List<MessageExt> popped(MQClientAPIImpl api, int queue, long invisible) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup("pops");
        header.setTopic(POPS);
        header.setQueueId(queue);
        header.setMaxMsgNums(1 + random.nextInt(5));
        header.setInvisibleTime(invisible);
        header.setPollTime(0);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        CompletableFuture<List<MessageExt>> found = new CompletableFuture<>();
        api.popMessageAsync(NAME, broker.getBrokerAddr(), header, 10_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                found.complete(result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList());
            }

            @Override
            public void onException(Throwable problem) {
                found.completeExceptionally(problem);
            }
        });
        return found.get();
    }

    private void acknowledge(MQClientAPIImpl api, MessageExt message) throws Exception {
        String extra = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(extra);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, message.getTopic(), "pops"));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setConsumerGroup("pops");
        header.setExtraInfo(extra);
        CompletableFuture<Object> done = new CompletableFuture<>();
        api.ackMessageAsync(broker.getBrokerAddr(), 10_000, new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable problem) {
                done.completeExceptionally(problem);
            }
        }, header);
        done.get();
    }

    /** Everything that a consumer sees; groups store offsets in some of the queues. */
    private List<Object> commit() throws Exception {
        List<Object> visible = new ArrayList<>();
        for (TopicConfig topic : new ArrayList<>(broker.getTopicConfigManager().getTopicConfigTable().values())) {
            String name = topic.getTopicName();
            if (!name.startsWith("%") && !List.of(TOPIC, POPS, "Old", "TRANS_CHECK_MAX_TIME_TOPIC").contains(name)) {
                continue;
            }
            for (int number = 0; number < Math.max(topic.getReadQueueNums(), topic.getWriteQueueNums()); number++) {
                MessageQueue queue = new MessageQueue(name, NAME, number);
                for (MessageExt each : all(queue)) {
                    String key = each.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
                    visible.add(List.of(key == null ? each.getMsgId() : key, name, number, each.getQueueOffset()));
                }
                stored("pops", name, number);
                if (name.startsWith("%DLQ%") || name.startsWith("TRANS_")) {
                    continue;
                }
                for (String group : name.startsWith("%RETRY%again") ? List.of(name.substring(7)) : List.of("fast", "slow")) {
                    if (random.nextInt(4) > 0) {
                        long end = broker.getMessageStore().getMaxOffsetInQueue(name, number);
                        long offset = "fast".equals(group) ? end : end == 0 ? 0 : random.nextInt((int) end);
                        broker.getConsumerOffsetManager().commitOffset("127.0.0.1", group, name, number, offset);
                        stored(group, name, number);
                    }
                }
            }
        }
        return visible;
    }

    private void stored(String group, String topic, int queue) {
        long offset = broker.getConsumerOffsetManager().queryOffset(group, topic, queue);
        if (offset >= 0) {
            groups.add(List.of(group, topic, queue, offset));
        }
    }
}
