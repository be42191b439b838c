package rmqctl;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Answers questions about stores, one JSON line for a line of standard input: the words, divided by tabs and URL-encoded, are a name
 * for the store and a command. {@code judge DIRECTORY SETTING...} loads, starts and stops a store and says what was seen; {@code open} leaves it
 * running for {@code state}, {@code read}, {@code key}, {@code time}, {@code get}, {@code put} and {@code stop}; {@code decode FILE} says at which
 * physical offsets a client finds messages in the bytes of an answer. Stores work side by side, each in its own thread.
 */
public final class Judge {
    private static final long PATIENCE_MS = Long.getLong("rmqctl.patience", 20_000);
    private static final PrintStream OUT = System.out;
    private static final Map<String, LiveStore> OPEN = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // the classes may print, too
        ExecutorService pool = Executors.newFixedThreadPool(args.length > 0 ? Integer.parseInt(args[0]) : 1);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = Arrays.stream(line.split("\t")).map(w -> URLDecoder.decode(w, StandardCharsets.UTF_8)).toArray(String[]::new);
            pool.submit(() -> say(words));
        }
        pool.shutdown();
        while (!pool.isTerminated()) {
            Thread.sleep(20);
        }
        OUT.flush();
        Runtime.getRuntime().halt(0); // a store leaves threads behind that would keep the process
    }

    private static void say(String[] words) {
        Object answer;
        try {
            answer = words[1].equals("judge") ? patient(words) : answer(words);
        } catch (Throwable problem) {
            answer = Json.object("exception", problem.toString());
        }
        OUT.println(Json.text(Json.object("store", words[0], "answer", answer)));
        OUT.flush();
    }

    /** Some stores never come back from start: they are left behind after a while. */
    private static Object patient(String[] words) throws InterruptedException {
        Map<String, Object> verdict = new ConcurrentHashMap<>(Map.of("stage", "load"));
        Thread thread = new Thread(() -> judge(words, verdict));
        thread.setDaemon(true);
        thread.start();
        thread.join(PATIENCE_MS);
        if (thread.isAlive()) {
            verdict.put("outcome", "never returns from " + verdict.get("stage"));
        }
        return verdict;
    }

    private static void judge(String[] words, Map<String, Object> verdict) {
        try {
            LiveStore store = new LiveStore(words[2], rest(words));
            verdict.put("load", store.load());
            if (verdict.get("load").equals(false)) {
                verdict.put("outcome", "load failed");
                return;
            }
            verdict.put("afterLoad", store.state());
            verdict.put("stage", "start");
            store.start();
            verdict.put("afterStart", store.state());
            verdict.put("stage", "shutdown");
            store.stop();
            verdict.put("outcome", "started");
        } catch (Throwable problem) {
            verdict.put("problem", problem.toString() + Arrays.stream(problem.getStackTrace()).limit(6).toList());
            verdict.put("outcome", verdict.get("stage") + " failed");
        }
    }

    private static List<String> rest(String[] words) {
        return Arrays.asList(words).subList(3, words.length);
    }

    private static Object answer(String[] words) throws Exception {
        LiveStore store = OPEN.get(words[0]);
        switch (words[1]) {
            case "open":
                return open(words);
            case "state":
                return store.state();
            case "read":
                return store.read();
            case "key":
                return store.key(words[2], words[3], Integer.parseInt(words[4]), Long.parseLong(words[5]), Long.parseLong(words[6]));
            case "time":
                return store.time(words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]), words.length > 5 ? words[5] : "");
            case "get":
                return store.get(words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]), Integer.parseInt(words[5]));
            case "put":
                return store.put(words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]), words[5]);
            case "decode":
                ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(words[2])));
                return MessageDecoder.decodes(bytes).stream().map(MessageExt::getCommitLogOffset).collect(Collectors.toList());
            case "stop":
                store.stop();
                OPEN.remove(words[0]);
                return !new File(words[2], "abort").exists();
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private static Object open(String[] words) throws Exception {
        LiveStore store = new LiveStore(words[2], rest(words));
        if (!store.load()) {
            return false;
        }
        Map<String, Object> loaded = store.state();
        store.start();
        OPEN.put(words[0], store);
        return Json.object("afterLoad", loaded, "afterStart", store.state());
    }

    private Judge() {
    }
}
