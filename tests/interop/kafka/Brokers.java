import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.Reader;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.utils.Time;
import scala.Option;

/**
 * Whole brokers, one after the other in one virtual machine; commands and answers as those of Client.
 *
 * <p>{@code start PROPERTIES}: until it serves. {@code open PROPERTIES COPY}: until all logs are loaded; at that moment
 * the log directory is copied, before anything else is written. {@code stop}: in order. What a broker says goes to
 * PROPERTIES.log. All other commands are the client's, to the broker that was started last.
 */
public final class Brokers {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final Watch WATCH = new Watch();
    private static volatile CompletableFuture<String> outcome = new CompletableFuture<>();
    private static volatile KafkaRaftServer server;
    private static volatile ThreadGroup threads;
    private static String address = "";

    public static void main(String[] words) throws Exception {
        System.setErr(new PrintStream(WATCH, true, StandardCharsets.UTF_8));
        endWith("setExitProcedure");
        endWith("setHaltProcedure");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] asked = line.split(" ");
                switch (asked[0]) {
                    case "start" -> start(asked[1], null);
                    case "open" -> start(asked[1], asked[2]);
                    case "stop" -> stop();
                    default -> Client.answer(address, asked);
                }
                OUT.println(".");
                OUT.flush();
            }
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) { // threads of brokers would keep the machine, and whoever waits for the answer
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** Be told of an end: the class that ends the machine went to another package with 4.4. */
    private static void endWith(String setter) throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException error) {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object told = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, given) -> {
            ended((Integer) given[0]);
            return null;
        });
        exit.getMethod(setter, procedure).invoke(null, told);
    }

    private static void ended(int code) {
        if (Thread.currentThread().getThreadGroup() == threads) { // not one that is left of an earlier broker
            outcome.complete("exit " + code);
        }
        throw new IllegalStateException("it would have ended");
    }

    private static void start(String path, String copy) throws Exception {
        Properties given = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(path))) {
            given.load(file);
        }
        outcome = new CompletableFuture<>();
        server = null;
        WATCH.follow(Path.of(path + ".log"), Path.of(given.getProperty("log.dirs")), copy == null ? null : Path.of(copy));
        address = given.getProperty("listeners").split(",")[0].replace("PLAINTEXT://", "");
        threads = new ThreadGroup("broker");
        Thread thread = new Thread(threads, () -> run(given), "start");
        thread.setDaemon(true);
        thread.start();
        String found = "nothing in time";
        try {
            found = outcome.get(180, TimeUnit.SECONDS);
        } catch (java.util.concurrent.TimeoutException late) {
            System.err.println("nothing in time");
        }
        if (!found.equals("started")) {
            stop();
        }
        OUT.println('"' + found + '"');
    }

    private static void run(Properties given) {
        try {
            server = made(KafkaConfig.fromProps(given, false));
            server.startup();
            outcome.complete("started");
        } catch (Throwable error) {
            error.printStackTrace();
            ended(1);
        }
    }

    /** A server; before 3.4 it was also told how its threads are to be called. */
    private static KafkaRaftServer made(KafkaConfig config) throws Exception {
        Constructor<?> maker = KafkaRaftServer.class.getConstructors()[0];
        Object[] words = {config, Time.SYSTEM, Option.empty()};
        try {
            return (KafkaRaftServer) maker.newInstance(Arrays.copyOf(words, maker.getParameterCount()));
        } catch (InvocationTargetException failed) {
            throw failed.getCause() instanceof Exception why ? why : failed;
        }
    }

    private static void stop() throws InterruptedException {
        KafkaRaftServer stopped = server;
        server = null;
        if (stopped == null) {
            return;
        }
        Thread thread = new Thread(() -> {
            try {
                stopped.shutdown();
            } catch (Throwable error) {
                error.printStackTrace();
            }
        }, "stop");
        thread.setDaemon(true);
        thread.start();
        thread.join(30_000);
    }

    /** What is said goes to a file; at the word that all logs are loaded their directory is copied. */
    private static final class Watch extends OutputStream {
        private static final Pattern LOADED = Pattern.compile("Loaded \\d+ logs in ");
        private final ByteArrayOutputStream line = new ByteArrayOutputStream();
        private OutputStream file = OutputStream.nullOutputStream();
        private Path logs;
        private Path copy;

        synchronized void follow(Path said, Path logs, Path copy) throws IOException {
            file.close();
            file = Files.newOutputStream(said);
            this.logs = logs;
            this.copy = copy;
        }

        @Override
        public synchronized void write(int one) throws IOException {
            file.write(one);
            line.write(one);
            if (one == '\n') {
                String text = line.toString(StandardCharsets.UTF_8);
                line.reset();
                if (copy != null && LOADED.matcher(text).find()) {
                    Path into = copy;
                    copy = null;
                    copyTree(logs, into);
                    outcome.complete("loaded");
                    throw new IllegalStateException("all logs are loaded: the start ends here");
                }
            }
        }

        @Override
        public void write(byte[] data, int at, int count) throws IOException {
            for (int number = at; number < at + count; number++) {
                write(data[number]);
            }
        }

        private static void copyTree(Path from, Path into) throws IOException {
            try (Stream<Path> all = Files.walk(from)) {
                for (Path path : (Iterable<Path>) all::iterator) {
                    Path copied = into.resolve(from.relativize(path).toString());
                    if (Files.isDirectory(path)) {
                        Files.createDirectories(copied);
                    } else {
                        Files.copy(path, copied, StandardCopyOption.COPY_ATTRIBUTES);
                    }
                }
            }
        }
    }
}
