package rmqctl;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Makes a small store with the released classes: {@code MakeStore KIND DIRECTORY}; prints a JSON line a message. */
public final class MakeStore {
    private static final String LONG_TOPIC = "%RETRY%" + "g".repeat(130);
    private static final String MIXED = "Mixed";
    private static final String SINGLE = "Single";
    private static final String[] V6 = {"2001:db8::1", "2001:db8::2"};

    public static void main(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[1]);
        config.setStorePathCommitLog(args[1] + "/commitlog");
        config.setMappedFileSizeCommitLog(16384);
        config.setMappedFileSizeConsumeQueue(1000);
        config.setMaxHashSlotNum(500);
        config.setMaxIndexNum(1000);
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        config.setEnableConsumeQueueExt(args[0].equals("ext"));
        config.setMappedFileSizeConsumeQueueExt(512);
        BrokerConfig broker = new BrokerConfig();
        BrokerStatsManager stats = new BrokerStatsManager("rmqctl", false);
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        if (args[0].equals("compaction")) {
            TopicConfig compacted = new TopicConfig("Plain");
            compacted.getAttributes().put("cleanup.policy", "COMPACTION");
            topics.put("Plain", compacted);
            config.setCompactionMappedFileSize(4096);
            config.setCompactionCqMappedFileSize(920);
        }
        boolean batch = args[0].equals("batch");
        if (batch) {
            config.setMapperFileSizeBatchConsumeQueue(8 * 46);
            for (String topic : List.of(MIXED, SINGLE, "Plain")) {
                TopicConfig known = new TopicConfig(topic);
                if (!topic.equals("Plain")) {
                    known.getAttributes().put("queue.type", "BatchCQ");
                }
                topics.put(topic, known);
            }
            TopicConfigSerializeWrapper written = new TopicConfigSerializeWrapper();
            written.setTopicConfigTable(topics);
            Files.createDirectories(Path.of(args[1], "config"));
            Files.writeString(Path.of(args[1], "config", "topics.json"), written.toJson(true));
        }
        boolean dledger = args[0].equals("dledger");
        if (dledger) {
            config.setEnableDLegerCommitLog(true);
            config.setdLegerGroup("rmqctl");
            config.setdLegerSelfId("n0");
            config.setdLegerPeers("n0-127.0.0.1:40911");
        }
        DefaultMessageStore store = new DefaultMessageStore(config, stats, (a, b, c, d, e, f, g) -> { }, broker, topics);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        if (dledger) {
            Thread.sleep(5000); // a group of one elects itself
        }
        Random random = new Random(7);
        for (int i = 0; i < 60; i++) {
            MessageExtBrokerInner message = message(i, random);
            if (batch) {
                batch(message, i);
            }
            PutMessageResult result = store.putMessage(message);
            System.out.printf(
                "{\"status\":\"%s\",\"topic\":\"%s\",\"queue_id\":%d,\"queue_offset\":%d,\"physical_offset\":%d,\"size\":%d,"
                    + "\"born_host\":\"%s\",\"store_host\":\"%s\",\"tags\":\"%s\",\"keys\":\"%s\",\"messages\":%s,\"body\":\"%s\"}%n",
                result.getPutMessageStatus(), message.getTopic(), message.getQueueId(),
                result.getAppendMessageResult().getLogicsOffset(), result.getAppendMessageResult().getWroteOffset(),
                result.getAppendMessageResult().getWroteBytes(), host(message.getBornHost()), host(message.getStoreHost()),
                message.getTags(), message.getKeys(),
                message.getProperties().getOrDefault(MessageConst.PROPERTY_INNER_NUM, "1"), isInner(message) ? "" : new String(message.getBody(), StandardCharsets.UTF_8));
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(50);
        }
        Thread.sleep(1500);
        store.shutdown();
        System.exit(0);
    }

    /** Topics with batch queues: ordinary messages and inner batches in turn; ordinary messages only. One inner batch does not say how many it has. */
    private static void batch(MessageExtBrokerInner message, int i) {
        message.setTopic(i % 3 == 0 ? MIXED : i % 3 == 1 ? SINGLE : "Plain");
        if (message.getTopic().equals(MIXED) && i / 6 % 2 == 1) {
            List<Message> inner = new ArrayList<>();
            for (int n = 0; n < 2 + i % 4; n++) {
                inner.add(new Message("", (message.getKeys() + " part " + n).getBytes(StandardCharsets.UTF_8)));
            }
            message.setBody(MessageDecoder.encodeMessages(inner));
            message.setSysFlag(message.getSysFlag() | MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG);
            if (i != 45) {
                MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_NUM, String.valueOf(inner.size()));
            }
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
    }

    private static boolean isInner(MessageExtBrokerInner message) {
        return (message.getSysFlag() & MessageSysFlag.INNER_BATCH_FLAG) != 0;
    }

    private static MessageExtBrokerInner message(int i, Random random) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(i % 3 == 0 ? LONG_TOPIC : "Plain");
        message.setQueueId(i % 2);
        message.setTags(i % 5 == 0 ? "TagB" : "TagA");
        message.setKeys("key" + i);
        message.setBody(("body " + i + " " + "x".repeat(random.nextInt(300))).getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, String.format("%032X", i));
        message.setBornHost(address(i % 4 < 2 ? V6[0] : "192.168.1.10", 54321));
        message.setStoreHost(address(i % 2 == 0 ? V6[1] : "10.0.0.1", 10911));
        if (i % 4 < 2) {
            message.setBornHostV6Flag();
        }
        if (i % 2 == 0) {
            message.setStoreHostAddressV6Flag();
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static InetSocketAddress address(String ip, int port) throws Exception {
        return new InetSocketAddress(InetAddress.getByName(ip), port);
    }

    private static String host(java.net.SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + "|" + inet.getPort();
    }

    private MakeStore() {
    }
}
